# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Fields of records on the wire; records declare them in ``Annotated``, codecs follow.

A text among the annotations is the field's name on the wire; without one it is the attribute's,
as ``memory_mib`` is ``memoryMiB``. A field that is absent or null reads as the record's default,
else as the kind's; one that says nothing (``None``, 0, an empty text or list) is left out.
The CRD of a status is made from the same declarations, with the docstrings of the fields.
"""

from __future__ import annotations

import re
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
from ullage.api.times import rfc3339, seconds

_ACCELERATOR: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
INT32_MAX: Final = 2**31 - 1


class UnknownWord(Exception):
    """A word of another version."""


class Mark(Enum):
    """Further properties of a field."""

    NEEDED = "needed"
    """To read one without it is an error; it is always written."""
    KEPT = "kept"
    """It is written though it says nothing; ``None`` never is."""
    IF_KNOWN = "if known"
    """With a word of another version somewhere in it, it counts as absent."""


NEEDED: Final = Mark.NEEDED
KEPT: Final = Mark.KEPT
IF_KNOWN: Final = Mark.IF_KNOWN


class Schema:
    """Keywords of JSON schema that the CRD has for a field; ``None`` takes one away.

    Beside them ``required`` (else: it has no default and is always written), ``description`` (else:
    its docstring), ``before`` (the property that it stands before, where that is not the next
    field), ``rule`` (the name of one of ``ullage.api.rules``). ``properties`` is a :class:`Shape`,
    the schema of each name, or several of these.
    """

    __slots__ = ("keywords",)

    def __init__(self, **keywords: object) -> None:
        self.keywords = keywords


_UNSTATED: Final = Schema()


@dataclass(frozen=True, slots=True)
class Shape:
    """Fields of a record in a CRD."""

    record: type
    fields: tuple[tuple[str, str, tuple[Schema, ...]], ...]
    """Name, attribute and schema of each, later keywords count; without a name it is embedded."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Reads a field that is there; ``write`` ``None`` = the value is stored as it is."""

    read: Callable[[JsonObject, str], object]
    write: Callable[..., object] | None = None
    absent: object = None
    words: bool = False
    """Words of other versions can stand in it."""
    schema: Schema = _UNSTATED


@dataclass(frozen=True, slots=True)
class Embedded:
    """A value whose fields stand among those of the record."""

    read: Callable[[JsonObject], object]
    write: Callable[..., dict[str, object]]
    schema: Schema = _UNSTATED
    """Of these fields, in ``properties``."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Limits and order of a list of records; ``newest`` = the last ones are kept, on reading."""

    most: int | None = None
    newest: int | None = None
    order: Callable[..., object] | None = None
    """Sort key on reading: server-side apply keeps no order of ours."""
    key: Callable[..., object] | None = None
    """What no two of them share, as in the list maps of a CRD."""
    rank: str = ""
    """Name of the field that holds the place in the list."""
    says: Schema = _UNSTATED
    """What the CRD says of that field."""


def one_of(*words: str) -> Schema:
    """One of these words."""
    return Schema(type="string", enum=[str(word) for word in words])


def at_most(characters: int) -> Schema:
    """A text of at most so many characters."""
    return Schema(type="string", maxLength=characters)


def keyed(*keys: str, most: int | None = None) -> Schema:
    """A list of at most so many, whose items are told apart by these fields."""
    kind = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    return Schema(maxItems=most, **kind)


def atomic(most: int) -> Schema:
    """A list of at most so many that one writer always writes as a whole."""
    return Schema(maxItems=most, **{"x-kubernetes-list-type": "atomic"})


def distinct(most: int) -> Schema:
    """A list of at most so many words, each once."""
    return Schema(maxItems=most, **{"x-kubernetes-list-type": "set"})


def _integer(least: int, most: int) -> Schema:
    size = "int32" if most <= INT32_MAX else "int64"
    return Schema(type="integer", format=size, minimum=least, maximum=most)


def _decimal_text(whole: str, longest: int) -> Schema:
    return Schema(type="string", maxLength=longest, pattern=f"^{whole}(\\.[0-9]{{1,6}})?$")


REASON: Final = Schema(
    type="string", maxLength=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
)
SIGNED: Final = _decimal_text("-?[0-9]{1,9}", 17)
"""A decimal text that may be below 0."""
INT32: Final = Schema(format="int32", maximum=INT32_MAX)
INT32_COUNT: Final = _integer(0, INT32_MAX)
INT64: Final = Schema(format="int64")
CLASS: Final = Schema(type="string", minLength=1, maxLength=253)
"""A class of work, or a family of them."""
OPTIONAL: Final = Schema(required=False)
NO_LENGTH: Final = Schema(maxLength=None)
BELIEVED: Final = Schema(minimum=0, maximum=MOST_COUNTED)
"""The API server takes no count that is not believed."""
ACCELERATOR: Final = Schema(
    type="string",
    maxLength=63,
    pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
    rule="ACCELERATOR_KEY",
)
THRESHOLD: Final = Schema(
    type="string", maxLength=17, pattern=r"^(-?[0-9]{1,9}(\.[0-9]{1,6})?|Refuse)$"
)
"""Least safety margin of an admission; Refuse = nothing is admitted."""
_FIGURE: Final = Schema(type="string", maxLength=24, pattern=r"^[0-9]{1,9}(\.[0-9]{1,12})?$")
TIME: Final = Schema(type="string", format="date-time")
DECIMAL: Final = _decimal_text("[0-9]{1,9}", 16)
COUNT: Final = _integer(0, MOST_COUNTED)


def word(words: type[StrEnum], other: StrEnum | None = None, *, grows: bool = False) -> Kind:
    """One of these words.

    Args:
        words: The words of this version.
        other: A word of another version is read as this one; ``None`` = it is an error.
        grows: The schema takes any word, so that an older one takes those of a newer operator.
    """
    known = {enum.value: enum for enum in words}

    def read(raw: JsonObject, field: str) -> object:
        str_enum = known.get(text(raw, field), other)
        if str_enum is None:
            raise UnknownWord(field)
        return str_enum

    return Kind(
        read,
        lambda value: value.value,
        words=other is None,
        schema=REASON if grows else one_of(*known),
    )


def known_word(words: type[StrEnum]) -> Kind:
    """One of these words; another is an error. No spec states the empty one, which is absence."""
    by_text = {word.value: word for word in words}
    stated = tuple(filter(None, by_text))

    def read(raw: JsonObject, field: str) -> object:
        word = text(raw, field)
        member = by_text.get(word)
        if member is None or not word:
            raise WireError(f"{field}: {quoted(word)} is none of {', '.join(stated)}")
        return member

    return Kind(read, lambda value: value.value, schema=one_of(*by_text))


def words(known: type[StrEnum]) -> Kind:
    """A list of these words; another is an error."""
    kind = known_word(known)

    def read(raw: JsonObject, field: str) -> object:
        return tuple(kind.read({field: word}, field) for word in strings(raw, field))

    item = Schema(**kind.schema.keywords, description=known.__doc__)
    schema = Schema(type="array", items=item)
    return Kind(read, lambda held: [word.value for word in held], (), schema=schema)


def cut(limit: int, mark: str = "") -> Kind:
    """A text of at most so many characters; ``mark`` stands at the end of one that was longer."""
    kept = limit - len(mark)
    return Kind(
        text,
        lambda value: value if len(value) <= limit else value[:kept] + mark,
        "",
        schema=at_most(limit),
    )


def count(most: int = MOST_COUNTED) -> Kind:
    """A whole number of at least 0; a larger one than ``most`` counts as ``most``."""

    def read(raw: JsonObject, field: str) -> int:
        value = raw.get(field)
        if type(value) is int and 0 <= value <= most:
            return value
        return min(count_of(raw, field, None), most)

    return Kind(read, partial(min, most), 0, schema=_integer(0, most))


def between(least: int, most: int) -> Kind:
    """A whole number within bounds."""
    schema = _integer(least, most)
    return Kind(lambda raw, field: bounded(raw, field, least, most), absent=0, schema=schema)


def counts(raw: JsonObject, field: str) -> tuple[int, ...]:
    """Read a list of whole numbers of at least 0.

    Raises:
        WireError: it is something else.
    """
    stated = raw[field]
    if not isinstance(stated, list):
        raise WireError(f"{field}: expected a list of whole numbers")
    return tuple(count_of({field: item}, field, None) for item in stated)


def number(most: float = MOST) -> Kind:
    """A finite number of at least 0, six digits of it."""
    schema = Schema(type="number", minimum=0, maximum=most)
    return Kind(lambda raw, field: needed(raw, field, most), six_digits, 0.0, schema=schema)


def strings(raw: JsonObject, field: str) -> tuple[str, ...]:
    """Read a list of strings; absent or null is empty.

    Raises:
        WireError: the field is no list of strings.
    """
    value = raw.get(field)
    if value is None:
        return ()
    if not isinstance(value, list) or {*map(type, value)} - {str}:
        raise WireError(f"{field}: expected a list of strings")
    return tuple(value)


def _accelerator(raw: JsonObject, field: str) -> str:
    stated = text(raw, field)
    if stated and not _ACCELERATOR.fullmatch(stated):
        raise WireError(f"{field}: {quoted(stated)} is no key of an accelerator")
    return stated


def _money(raw: JsonObject, field: str) -> str:
    stated = decimal_text(raw, field)
    if stated.startswith("-"):
        raise WireError(f"{field}: {stated!r} is below 0")
    return stated


def figures(digits: int = 9) -> Kind:
    """A number that is stored as decimal text with so many significant digits."""
    return Kind(decimal, lambda value: figure(value, digits), 0.0, schema=_FIGURE)


FLAG: Final = Kind(flag, absent=False, schema=Schema(type="boolean"))

Time: TypeAlias = Annotated[
    float,
    Kind(lambda raw, field: seconds(raw.get(field), field), rfc3339, 0.0, schema=TIME),
]
"""Seconds since the epoch, whole ones on the wire; 0 = never."""
Moment: TypeAlias = Annotated[Time, KEPT]
"""A time that is always written."""
Count: TypeAlias = Annotated[int, Kind(count().read, absent=0, schema=COUNT)]
Counted: TypeAlias = Annotated[int, count()]
"""The same; what is written is bounded too."""
NeededCount: TypeAlias = Annotated[Count, NEEDED]
KeptCount: TypeAlias = Annotated[Count, KEPT]
Whole: TypeAlias = Annotated[int, Kind(whole, absent=0, schema=Schema(type="integer"))]
Percent: TypeAlias = Annotated[int, between(1, 100), NEEDED]
Decimal: TypeAlias = Annotated[str, Kind(decimal_text, absent="", schema=DECIMAL)]
"""A figure as decimal text; "" = not known."""
Signed: TypeAlias = Annotated[Decimal, SIGNED]
Money: TypeAlias = Annotated[str, Kind(_money, absent="", schema=DECIMAL)]
"""The same, of at least 0."""
Text: TypeAlias = Annotated[str, Kind(text, absent="", schema=Schema(type="string"))]
Word: TypeAlias = Annotated[Text, at_most(64)]
Name: TypeAlias = Annotated[Text, NEEDED, at_most(253)]
AcceleratorKey: TypeAlias = Annotated[str, Kind(_accelerator, absent="", schema=ACCELERATOR)]
"""The key of an accelerator; "" = none."""
Line: TypeAlias = Annotated[str, cut(1024, "…")]
Message: TypeAlias = Annotated[str, cut(32_768, "…")]
Flag: TypeAlias = Annotated[bool, FLAG]
Figure: TypeAlias = Annotated[float, figures()]
Number: TypeAlias = Annotated[float, number()]
