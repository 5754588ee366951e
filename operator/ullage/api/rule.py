# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A validation rule that the API server evaluates (CEL), and the schema entry that carries it."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic.config import JsonDict


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A CEL rule and the message of its refusal.

    ``field`` places the message below the node that carries the rule; ``expression`` is the
    message as a CEL expression, where it can name the values that clash (with ``format``: the
    API server cannot bound the cost of adding strings to numbers and refuses the CRD).
    """

    name: str
    rule: str
    message: str
    field: str = ""
    expression: str = ""

    def schema(self) -> JsonDict:
        """The entry of ``x-kubernetes-validations``."""
        body: JsonDict = {"rule": self.rule, "message": self.message}
        if self.expression:
            body["messageExpression"] = self.expression
        if self.field:
            body["fieldPath"] = self.field
        return body


def validations(*rules: Rule) -> JsonDict:
    """``json_schema_extra`` of a model or field that carries these rules."""
    return {"x-kubernetes-validations": [rule.schema() for rule in rules]}


def at_least(amount: str) -> str:
    """CEL of a field that holds an amount of bytes, such as 4Gi, of at least this one.

    A number is an amount too; below one byte there are none, so no sub-units are taken.
    """
    return (
        "string(self).matches('^[0-9]+([.][0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$') "
        f"&& quantity(string(self)).compareTo(quantity('{amount}')) >= 0"
    )
