# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A validation rule that the API server evaluates (CEL), and the schema entry that carries it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pydantic.config import JsonDict

from ullage.api.readers import WireError

_FORMAT: Final = re.compile(r"^'(.*)'\.format\(", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule twice, as CEL for the API server and as a predicate of what was read, and its message.

    ``field`` places the message below the node that carries the rule; ``expression`` is the
    message as a CEL expression, where it can name the values that clash (with ``format``: the
    API server cannot bound the cost of adding strings to numbers and refuses the CRD).

    Attributes:
        holds: The same of the record, or of the value, that was read; ``None`` = the rule is about
            an update, or about a part that no record holds.
        figures: The values that ``expression`` names, of the record; without an expression they
            follow the message in brackets where the object is read.
    """

    name: str
    rule: str
    message: str
    field: str = ""
    expression: str = ""
    holds: Callable[[Any], bool] | None = None
    figures: Callable[[Any], tuple[object, ...]] | None = None

    def refusal(self, record: object) -> str:
        """The message about this record, with its figures."""
        if self.figures is None:
            return self.message
        figures, expression = self.figures(record), _FORMAT.match(self.expression)
        if expression is None:
            return f"{self.message} ({', '.join(map(str, figures))})"
        return expression[1] % figures

    def schema(self) -> JsonDict:
        """The entry of ``x-kubernetes-validations``."""
        body: JsonDict = {"rule": self.rule, "message": self.message}
        if self.expression:
            body["messageExpression"] = self.expression
        if self.field:
            body["fieldPath"] = self.field
        return body


class RuleBroken(WireError):
    """A record breaks a rule; ``field`` is the place below it."""

    def __init__(self, rule: Rule, record: object) -> None:
        """The refusal of this record by this rule."""
        super().__init__(rule.refusal(record))
        self.field: Final = rule.field


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
