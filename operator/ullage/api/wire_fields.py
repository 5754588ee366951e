# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a field of a record is on the wire; records say it in ``Annotated``, codecs follow.

A text among the annotations is the field's name on the wire; without one it is the attribute's,
as ``memory_mib`` is ``memoryMiB``. A field that is absent or null reads as the record's default,
else as the kind's; one that says nothing (``None``, 0, an empty text or list) is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import partial
from typing import Annotated, Final, TypeAlias

from ullage.api.numbers import MOST, decimal, figure, needed, six_digits
from ullage.api.readers import (
    MOST_COUNTED,
    JsonObject,
    WireError,
    bounded,
    count_of,
    decimal_text,
    flag,
    quoted,
    text,
    whole,
)
from ullage.api.reasons import Reason
from ullage.api.times import rfc3339, seconds

INT32_MAX: Final = 2**31 - 1


class UnknownWord(Exception):
    """A word of another version."""


class Mark(Enum):
    """What else holds of a field."""

    NEEDED = "needed"
    """To read one without it is an error; it is always written."""
    KEPT = "kept"
    """It is written though it says nothing; ``None`` never is."""
    IF_KNOWN = "if known"
    """With a word of another version somewhere in it, it counts as absent."""


NEEDED: Final = Mark.NEEDED
KEPT: Final = Mark.KEPT
IF_KNOWN: Final = Mark.IF_KNOWN


@dataclass(frozen=True, slots=True)
class Kind:
    """Reads a field that is there; ``write`` ``None`` = the value is stored as it is."""

    read: Callable[[JsonObject, str], object]
    write: Callable[..., object] | None = None
    absent: object = None
    words: bool = False
    """Words of other versions can stand in it."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """A value whose fields stand among those of the record."""

    read: Callable[[JsonObject], object]
    write: Callable[..., dict[str, object]]


@dataclass(frozen=True, slots=True)
class Listed:
    """Limits and order of a list of records; ``newest`` = the last ones are kept, on reading."""

    most: int | None = None
    newest: int | None = None
    order: Callable[..., object] | None = None
    """Sort key on reading: server-side apply keeps no order of ours."""
    rank: str = ""
    """Name of the field that holds the place in the list."""


def word(words: type[StrEnum], other: StrEnum | None = None) -> Kind:
    """One of these words; ``other`` is what a word of another version reads as."""
    known = {enum.value: enum for enum in words}

    def read(raw: JsonObject, field: str) -> object:
        str_enum = known.get(text(raw, field), other)
        if str_enum is None:
            raise UnknownWord(field)
        return str_enum

    return Kind(read, lambda value: value.value, words=other is None)


def known_word(words: type[StrEnum]) -> Kind:
    """One of these words; another is an error."""
    known = word(words)

    def read(raw: JsonObject, field: str) -> object:
        try:
            return known.read(raw, field)
        except UnknownWord as error:
            said = text(raw, field)
            raise WireError(f"{field}: {quoted(said)} is not a valid {words.__name__}") from error

    return Kind(read, known.write)


def words(known: type[StrEnum]) -> Kind:
    """A list of these words; another is an error."""
    one = known_word(known)

    def read(raw: JsonObject, field: str) -> object:
        return tuple(one.read({field: said}, field) for said in strings(raw, field))

    return Kind(read, lambda held: [word.value for word in held], ())


def cut(limit: int, mark: str = "") -> Kind:
    """A text of at most so many characters; ``mark`` stands at the end of one that was longer."""
    kept = limit - len(mark)
    return Kind(text, lambda value: value if len(value) <= limit else value[:kept] + mark, "")


def count(most: int = MOST_COUNTED) -> Kind:
    """A whole number of at least 0; a larger one than ``most`` counts as ``most``."""

    def read(raw: JsonObject, field: str) -> int:
        value = raw.get(field)
        if type(value) is int and 0 <= value <= most:
            return value
        return min(count_of(raw, field, None), most)

    return Kind(read, partial(min, most), 0)


def between(least: int, most: int) -> Kind:
    """A whole number within bounds."""
    return Kind(lambda raw, field: bounded(raw, field, least, most), absent=0)


def number(most: float = MOST) -> Kind:
    """A finite number of at least 0, six digits of it."""
    return Kind(lambda raw, field: needed(raw, field, most), six_digits, 0.0)


def strings(raw: JsonObject, field: str) -> tuple[str, ...]:
    """Read a list of strings; absent or null is empty.

    Raises:
        WireError: the field is no list of strings.
    """
    value = raw.get(field)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise WireError(f"{field}: expected a list of strings")
    return tuple(value)


def _money(raw: JsonObject, field: str) -> str:
    stated = decimal_text(raw, field)
    if stated.startswith("-"):
        raise WireError(f"{field}: {stated!r} is below 0")
    return stated


def figures(digits: int = 9) -> Kind:
    """A number that is stored as decimal text with so many significant digits."""
    return Kind(decimal, lambda value: figure(value, digits), 0.0)


FLAG: Final = Kind(flag, absent=False)

Time: TypeAlias = Annotated[
    float, Kind(lambda raw, field: seconds(raw.get(field), field), rfc3339, 0.0)
]
"""Seconds since the epoch, whole ones on the wire; 0 = never."""
Moment: TypeAlias = Annotated[Time, KEPT]
"""A time that is always written."""
Count: TypeAlias = Annotated[int, Kind(count().read, absent=0)]
Counted: TypeAlias = Annotated[int, count()]
"""The same; what is written is bounded too."""
NeededCount: TypeAlias = Annotated[Count, NEEDED]
KeptCount: TypeAlias = Annotated[Count, KEPT]
Whole: TypeAlias = Annotated[int, Kind(whole, absent=0)]
Percent: TypeAlias = Annotated[int, between(1, 100), NEEDED]
Decimal: TypeAlias = Annotated[str, Kind(decimal_text, absent="")]
"""A figure as decimal text; "" = not known."""
Money: TypeAlias = Annotated[str, Kind(_money, absent="")]
"""The same, of at least 0."""
Text: TypeAlias = Annotated[str, Kind(text, absent="")]
Name: TypeAlias = Annotated[Text, NEEDED]
Line: TypeAlias = Annotated[str, cut(1024, "…")]
Message: TypeAlias = Annotated[str, cut(32_768, "…")]
Flag: TypeAlias = Annotated[bool, FLAG]
Figure: TypeAlias = Annotated[float, figures()]
Number: TypeAlias = Annotated[float, number()]
ReasonWord: TypeAlias = Annotated[Reason, word(Reason), NEEDED]
