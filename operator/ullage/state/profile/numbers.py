# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers of profile tables: finite, at least 0, six significant digits.

Whoever wrote them, nothing else gets in: one NaN in a table would poison every later decision.
"""

from __future__ import annotations

from math import isfinite

from ullage.api.contract import WireError, text
from ullage.ports import JsonObject


def six_digits(value: float) -> float:
    """A number as the API stores it."""
    return float(f"{value:.6g}")


def number(raw: JsonObject, field: str) -> float | None:
    """A number that is finite and at least 0; absent or null is ``None``.

    Raises:
        WireError: it is something else.
    """
    value = raw.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WireError(f"{field}: expected a number, got {type(value).__name__}")
    if not isfinite(value) or value < 0:
        raise WireError(f"{field}: {value} must be a finite number of at least 0")
    return float(value)


def needed(raw: JsonObject, field: str) -> float:
    """A number that must be there.

    Raises:
        WireError: it is missing, or no number.
    """
    value = number(raw, field)
    if value is None:
        raise WireError(f"{field}: missing")
    return value


def decimal(raw: JsonObject, field: str) -> float | None:
    """A decimal string that is finite and at least 0; absent or null is ``None``.

    Raises:
        WireError: it is something else.
    """
    if raw.get(field) is None:
        return None
    stated = text(raw, field)
    try:
        value = float(stated)
    except ValueError as error:
        raise WireError(f"{field}: {stated!r} is no decimal number") from error
    if not isfinite(value) or value < 0:
        raise WireError(f"{field}: {stated!r} must be a finite number of at least 0")
    return value
