# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Decimals, times and amounts of memory in specs: text on the wire, numbers in the record.

A structural schema knows numbers, or whole numbers beside text, and numbers lose digits: so
``2`` and ``"1.5"`` are understood, and for ``1.5`` the API server asks for an integer or a string.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from pydantic.config import JsonDict

from ullage.api.quantity import MIB, duration_s, duration_text, own_bytes
from ullage.api.readers import WireError, quoted
from ullage.api.rule import Rule, RuleBroken, validations
from ullage.api.spec import Scalar

_LONGEST: Final = 16
_BITS: Final = 32
"""Of a whole number: JSON bounds none."""


def decimal_number(rule: Rule, digits: int = 9, places: int = 6) -> Scalar:
    """A decimal of at least 0.

    Args:
        rule: What the API server checks beside the digits; whole numbers pass no pattern.
        digits: Most of them before the point.
        places: Most digits after it.
    """
    plain = re.compile(rf"[0-9]{{1,{digits}}}(\.[0-9]{{1,{places}}})?")

    def read(value: object) -> float:
        if isinstance(value, float):
            raise WireError(f'write a number with a fraction in quotes, as "{value:g}"')
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise WireError(f"expected a string, got {type(value).__name__}")
        if isinstance(value, int) and value.bit_length() > _BITS:
            raise WireError("so large a value is no decimal number such as 1.5")
        if not plain.fullmatch(str(value)):
            raise WireError(f"{quoted(str(value))} is no decimal number such as 1.5")
        return float(value)

    return Scalar(
        read=read,
        write=lambda number: f"{Decimal(repr(number)):f}".removesuffix(".0"),
        schema={
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": f"^{plain.pattern}$",
            "maxLength": _LONGEST,
        },
        rule=rule,
    )


def duration(rule: Rule) -> Scalar:
    """A Go duration above 0, held in seconds; the rule carries its message."""
    pattern = r"^([0-9]+(\.[0-9]+)?(h|m|s))+$"
    return Scalar(
        read=duration_s,
        write=duration_text,
        schema={"type": "string", "maxLength": 32, "pattern": pattern},
        rule=rule,
    )


QUANTITY_PATTERN: Final = r"^[0-9]+(\.[0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
"""Amounts of memory in our own fields: a number and an optional unit."""
_UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def int_or_string(pattern: str) -> JsonDict:
    """Schema of an amount."""
    return {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": pattern,
        "maxLength": 32,
    }


def memory(rule: Rule, unit: int = MIB, *, up: bool = True) -> Scalar:
    """An amount of memory; 0 stands for a field that is absent.

    Args:
        rule: How much it is at least; its predicate is asked of the whole bytes.
        unit: Bytes of a unit of what is held.
        up: A part of a unit counts as one; else it is left off.
    """

    def read(value: object) -> int:
        dividend, divisor = own_bytes(value)
        if rule.holds is not None and not rule.holds(dividend // divisor):
            raise RuleBroken(rule, dividend // divisor)
        return -(-dividend // (divisor * unit)) if up else dividend // (divisor * unit)

    return Scalar(
        read=read,
        write=lambda held: _amount_text(held * unit) if held else None,
        schema={**int_or_string(QUANTITY_PATTERN), **validations(rule)},
    )


def _amount_text(size: int) -> str:
    """Bytes in the largest unit that they are a whole number of."""
    power = 0
    while power + 1 < len(_UNITS) and size % 1024 == 0:
        size, power = size // 1024, power + 1
    return f"{size}{_UNITS[power]}"
