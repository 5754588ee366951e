# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers of profile tables: finite, at least 0, six significant digits.

Nothing else gets in from any source: one NaN in a table would poison every later decision.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from ullage.api.readers import JsonObject, WireError, as_written, quoted


def six_digits(value: float) -> float:
    """A number as the API stores it."""
    return float(f"{value:.6g}")


_DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,12})?")
MOST: Final = 1e18
"""Largest number of a table; nothing real comes near."""


def number(raw: JsonObject, field: str, most: float = MOST) -> float | None:
    """A number from 0 to ``most``; absent or null is ``None``.

    Raises:
        WireError: it is something else.
    """
    value = raw.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WireError(f"{field}: expected a number, got {type(value).__name__}")
    if not 0 <= value <= most:
        huge = isinstance(value, int) and value.bit_length() > 1023  # JSON bounds no integer
        shown = "so large a value" if huge else f"{value:g}"
        raise WireError(f"{field}: {shown} must be a number from 0 to {most:g}")
    return float(value)


def needed(raw: JsonObject, field: str, most: float = MOST) -> float:
    """A number that must be there.

    Raises:
        WireError: it is missing, or no number.
    """
    value = number(raw, field, most)
    if value is None:
        raise WireError(f"{field}: missing")
    return value


def decimal(raw: JsonObject, field: str) -> float | None:
    """A decimal of at most nine digits before the point; absent or null is ``None``.

    Raises:
        WireError: it is something else.
    """
    if raw.get(field) is None:
        return None
    stated = as_written(raw, field)
    if not _DECIMAL.fullmatch(stated):
        raise WireError(f"{field}: {quoted(stated)} is no decimal number such as 1.5")
    return float(stated)


LARGEST: Final = 999_999_999.0
SMALLEST: Final = 1e-12
"""Between these lies what a decimal text can hold; nothing real is smaller, and 0 is 0."""


def stored(value: float, digits: int = 9) -> float:
    """A figure as the API stores it: significant digits, twelve places, never 0 of more."""
    if value <= 0:
        return 0.0
    return round(float(f"{min(max(value, SMALLEST), LARGEST):.{digits}g}"), 12)


def figure(value: float, digits: int = 9) -> str:
    """The same as a decimal text without an exponent."""
    text = f"{Decimal(repr(stored(value, digits))):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
