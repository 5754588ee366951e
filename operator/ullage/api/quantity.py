# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Amounts and durations as Kubernetes spells them, read exactly.

A quantity must never pass through a float: a rounded request would let a pod be pinned to a node
that kube-scheduler then refuses.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from ullage.api.readers import LARGEST, WireError, quoted

MIB: Final = 2**20
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|m|s)")
LONGEST_S: Final = LARGEST / 1e9
"""Go, and with it CEL, counts durations in nanoseconds of 64 bits."""
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0}
MOST_CHARACTERS: Final = 64
"""Of an amount or a duration; no real one comes near, and digits cost time and memory."""
_DIGITS: Final = len(str(LARGEST))
"""Fewer of them say no more than the largest amount."""

_PLAIN: Final = re.compile(r"[0-9]+(\.[0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_NUMBER: Final = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE])|[eE]([+-]?[0-9]{1,3}))?"
)
_BINARY: Final = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_SCALE: Final[dict[str, tuple[int, int]]] = {
    **{suffix: (1024 ** (power + 1), 1) for power, suffix in enumerate(_BINARY)},
    **{suffix: (1000 ** (power + 1), 1) for power, suffix in enumerate("kMGTPE")},
    "n": (1, 10**9),
    "u": (1, 10**6),
    "m": (1, 1000),
}


def quantity(value: str) -> Fraction:
    """Exact value of a quantity such as ``100m``, ``1.5Gi``, ``2e3``.

    Raises:
        WireError: it is no quantity, too long, negative, or above 2^63 - 1.
    """
    return Fraction(*_ratio(value))


def _ratio(value: str) -> tuple[int, int]:
    if len(value) > MOST_CHARACTERS:
        raise WireError(f"{quoted(value)} is no quantity: at most {MOST_CHARACTERS} characters")
    return _exact(value)


@lru_cache(maxsize=4096)
def _exact(value: str) -> tuple[int, int]:
    """Dividend and divisor. A pod may hold ten thousand amounts, so no Fraction is made of each."""
    match = _NUMBER.fullmatch(value)
    if match is None:
        raise WireError(f"{value!r} is no quantity; write a number with a unit, as 500m or 2Gi")
    number, suffix, exponent = match.groups()
    before, _, after = number.partition(".")
    amount, divisor = int(before + after), 10 ** len(after)
    if suffix:
        factor, part = _SCALE[suffix]
        amount, divisor = amount * factor, divisor * part
    elif exponent:
        power = int(exponent)
        amount, divisor = amount * 10 ** max(power, 0), divisor * 10 ** max(-power, 0)
    if amount < 0:
        raise WireError(f"{value!r} is negative")
    if amount > LARGEST * divisor:
        raise WireError(f"{value!r} is above the largest amount that Kubernetes counts")
    return amount, divisor


def amount(value: object, field: str) -> Fraction:
    """A quantity from decoded JSON: a string, or a bare number.

    Raises:
        WireError: it is neither, or not readable; the text names ``field``.
    """
    return Fraction(*_amount(value, field))


def _amount(value: object, field: str) -> tuple[int, int]:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise WireError(f"{field}: expected a quantity, got {type(value).__name__}")
    if isinstance(value, int) and abs(value) > LARGEST:
        raise WireError(f"{field}: the number does not fit 64 bits")
    try:
        return _ratio(value if isinstance(value, str) else repr(value))
    except WireError as error:
        raise WireError(f"{field}: {error}") from error


def counted(name: str, value: object, field: str) -> int:
    """Amount of a resource as the scheduler counts it: cpu in thousandths, else whole; up.

    Raises:
        WireError: the value is no quantity.
    """
    if type(value) is str and len(value) < _DIGITS and value.isascii() and value.isdecimal():
        return int(value) * (1000 if name == "cpu" else 1)
    dividend, divisor = _amount(value, field)
    return -(-dividend * (1000 if name == "cpu" else 1) // divisor)


def own_bytes(value: object) -> tuple[int, int]:
    """An amount of bytes as our own fields spell it, as a ratio: no sign, exponent or sub-units.

    Raises:
        WireError: it is spelled otherwise, or above 2^63 - 1.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise WireError(f"expected an amount such as 4Gi, got {type(value).__name__}")
    if isinstance(value, int):
        if abs(value) > LARGEST:
            raise WireError("the number does not fit 64 bits")
        value = str(value)
    if len(value) > MOST_CHARACTERS or not _PLAIN.fullmatch(value):
        raise WireError(f"{quoted(value)} is no amount such as 4Gi")
    return _exact(value)


def duration_s(value: object) -> float:
    """Seconds of a duration as Go writes it: ``60h``, ``1h30m``, ``1.5m``.

    Raises:
        WireError: it is none, or longer than Go counts.
    """
    if not isinstance(value, str):
        raise WireError(f"expected a string, got {type(value).__name__}")
    parts = _DURATION.findall(value) if len(value) <= MOST_CHARACTERS else []
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise WireError(f"{quoted(value)} is no duration such as 60h or 1h30m")
    # nanoseconds, as Go's durations: 0.14h are 504 s
    total = round(sum(float(number) * _SECONDS[unit] for number, unit in parts), 9)
    if total > LONGEST_S:
        raise WireError(f"{value!r} is longer than 292 years")
    return total


def duration_text(seconds: float) -> str:
    """A duration in the largest unit that it is a whole number of, as :func:`duration_s` reads."""
    for unit in ("h", "m"):
        if seconds % _SECONDS[unit] == 0:
            return f"{seconds / _SECONDS[unit]:.0f}{unit}"
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"
