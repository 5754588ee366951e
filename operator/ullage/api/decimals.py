# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Decimal numbers of specs: a whole number, or text with a fraction.

A structural schema knows numbers, or whole numbers beside text, and numbers lose digits: so
``2`` and ``"1.5"`` are understood, and for ``1.5`` the API server asks for an integer or a string.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from ullage.api.rule import Rule, validations

_LONGEST: Final = 16
_BITS: Final = 32
"""Of a whole number: JSON bounds none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecimalNumber:
    """Bounds of a field that is annotated with it; the rule carries the message.

    Attributes:
        rule: What the API server checks beside the digits; whole numbers pass no pattern.
        whole: Most digits before the point.
        places: Most digits after it.
    """

    rule: Rule
    whole: int = 9
    places: int = 6

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Integers and strings whose digits fit."""
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Integer or string."""
        return {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": self._pattern,
            "maxLength": _LONGEST,
            **validations(self.rule),
        }

    @property
    def _pattern(self) -> str:
        return rf"^[0-9]{{1,{self.whole}}}(\.[0-9]{{1,{self.places}}})?$"

    def _checked(self, value: int | str) -> int | str:
        huge = isinstance(value, int) and value.bit_length() > _BITS
        if huge or not re.match(self._pattern, str(value)):
            raise ValueError('write a number of at least 0, a fraction in quotes: "12.5"')
        return value
