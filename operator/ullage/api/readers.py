# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads fields of decoded JSON from outside, with errors that name the field.

Standard library only; must never guess: what has the wrong type is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
JsonObject = Mapping[str, object]
"""A decoded JSON object as it came from outside; read it with the ``text``/``whole`` readers."""


LARGEST: Final = 2**63 - 1
"""Kubernetes keeps whole numbers in 64 bits."""
MOST_COUNTED: Final = 2**53
"""Largest count that is believed: JSON of others holds no larger one exactly."""
QUOTED: Final = 64
"""Characters that an error quotes of a value from outside."""


_LONG_BITS: Final = 64
_DECIMAL: Final = re.compile(r"-?[0-9]{1,9}(\.[0-9]{1,12})?")


class WireError(ValueError):
    """A record from outside does not have the agreed shape; the text names the field."""


def quoted(value: str) -> str:
    """A text from outside as an error shows it: in quotes, and cut where it is long."""
    return repr(value) if len(value) <= QUOTED else f"{value[:QUOTED]!r}… ({len(value)} characters)"


def text(raw: JsonObject, field: str, default: str | None = None) -> str:
    """Read a string field.

    Raises:
        WireError: the field is absent without a default, or no string.
    """
    value = raw.get(field, default)
    if not isinstance(value, str):
        raise WireError(f"{field}: expected a string, got {type(value).__name__}")
    return value


def whole(raw: JsonObject, field: str, default: int | None = None) -> int:
    """Read a whole number of 64 bits; a boolean is none.

    Raises:
        WireError: the field is absent without a default, or no such number.
    """
    value = raw.get(field, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WireError(f"{field}: expected a whole number, got {type(value).__name__}")
    if not -LARGEST <= value <= LARGEST:
        raise WireError(f"{field}: the number does not fit 64 bits")
    return value


def count_of(raw: JsonObject, field: str, default: int | None = 0) -> int:
    """Read a count of a status; absent or null is the default, too large is ``MOST_COUNTED``.

    What is added to it later still fits 64 bits, whichever client wrote the status.

    Raises:
        WireError: it is no whole number of at least 0, or missing without a default.
    """
    value = raw.get(field)
    if value is None and default is not None:
        return default
    count = whole(raw, field)
    if count < 0:
        raise WireError(f"{field}: {count} must be at least 0")
    return min(count, MOST_COUNTED)


def filled(body: Mapping[str, object]) -> dict[str, object]:
    """Fields of a body that say something; counts of others at most ``MOST_COUNTED``."""
    return {
        name: min(value, MOST_COUNTED) if type(value) is int else value
        for name, value in body.items()
        if value
    }


def bounded(raw: JsonObject, field: str, least: int, most: int, default: int | None = None) -> int:
    """Read a whole number within bounds; absent or null is the default.

    Raises:
        WireError: the field is no whole number, outside, or missing without a default.
    """
    if raw.get(field) is None and default is not None:
        return default
    value = whole(raw, field)
    if not least <= value <= most:
        raise WireError(f"{field}: {value} must be from {least} to {most}")
    return value


def as_written(raw: JsonObject, field: str) -> str:
    """A decimal field of a spec as text: a whole number, or a decimal one in quotes.

    Raises:
        WireError: it is something else; a fraction without quotes is told its remedy.
    """
    value = raw.get(field)
    if isinstance(value, int) and not isinstance(value, bool):
        if value.bit_length() > _LONG_BITS:  # JSON bounds none, and Python writes none so long
            raise WireError(f"{field}: so large a value is no decimal number such as 1.5")
        return str(value)
    if isinstance(value, float):
        raise WireError(f'{field}: write a number with a fraction in quotes, as "{value:g}"')
    return text(raw, field)


def decimal_text(raw: JsonObject, field: str) -> str:
    """Read a figure of a status, a plain decimal of at most 9 + 12 digits; absent is empty.

    Raises:
        WireError: it is something else.
    """
    value = raw.get(field)
    if value is None:
        return ""
    stated = text(raw, field)
    if stated and not _DECIMAL.fullmatch(stated):
        raise WireError(f"{field}: {quoted(stated)} is no decimal number")
    return stated


def flag(raw: JsonObject, field: str, default: bool = False) -> bool:
    """Read a boolean field.

    Raises:
        WireError: the field is no boolean.
    """
    value = raw.get(field, default)
    if not isinstance(value, bool):
        raise WireError(f"{field}: expected true or false, got {type(value).__name__}")
    return value


def objects(raw: JsonObject, field: str) -> list[JsonObject]:
    """Read a list of objects; absent or null is empty.

    Raises:
        WireError: the field is no list of objects.
    """
    value = raw.get(field)
    if value is None:
        return []
    # types are compared without a step of Python for each entry: users choose how many there are
    if not isinstance(value, list) or {*map(type, value)} - {dict}:
        raise WireError(f"{field}: expected a list of objects")
    return value


def section(raw: JsonObject, field: str) -> JsonObject:
    """Read an object field; absent or null is empty.

    Raises:
        WireError: the field is no object.
    """
    value = raw.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise WireError(f"{field}: expected an object, got {type(value).__name__}")
    return value
