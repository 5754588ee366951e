# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Readers and writers of records, made once from what their fields are declared as.

It must never guess: a field without a kind is refused when the module is loaded, a value of the
wrong type is a ``WireError`` that names its whole path.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache, partial
from operator import attrgetter
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from ullage.api.readers import QUOTED, JsonObject, WireError, flag, objects, section, whole
from ullage.api.wire_fields import (
    FLAG,
    IF_KNOWN,
    INT32_COUNT,
    KEPT,
    NEEDED,
    Embedded,
    Kind,
    Listed,
    Schema,
    Shape,
    UnknownWord,
    at_most,
    strings,
)

Record = TypeVar("Record")
Reader = Callable[[JsonObject], Record]
Writer = Callable[[Record], dict[str, object]]


class Codec(NamedTuple, Generic[Record]):
    """Reader and writer of a record, and what it is in a CRD."""

    read: Reader[Record]
    write: Writer[Record]
    shape: Shape
    words: bool = False
    """Words of other versions can stand in it."""
    always: bool = False
    """It has a field that is always written."""


_SPELLED: Final = {"kib": "KiB", "mib": "MiB", "uid": "UID", "pid": "PID"}
_AS_IT_STANDS: Final = Listed()
_PART: Final = re.compile("_([a-z0-9]+)")


def wire_name(attribute: str) -> str:
    """The attribute as the wire spells it."""
    return _PART.sub(lambda part: _SPELLED.get(part[1], part[1].capitalize()), attribute)


class Wire:
    """A record whose codec follows from its own fields alone."""

    __slots__ = ()

    def to_wire(self) -> dict[str, object]:
        """The record as it is stored; what says nothing is left out."""
        return _own(type(self)).write(self)  # type: ignore[arg-type]  # a class has a hash

    @classmethod
    def from_wire(cls, raw: JsonObject) -> Self:
        """Read the record.

        Raises:
            WireError: a field is missing or malformed; the text names it.
        """
        record: Self = _own(cls).read(raw)  # type: ignore[arg-type]
        return record


def wire_names(record: type[Wire]) -> frozenset[str]:
    """The names of a record's fields on the wire; what is embedded is not among them."""
    shape = _own(record).shape  # type: ignore[arg-type]  # a class has a hash
    return frozenset(name for name, _, _ in shape.fields if name)


def unknown_fields(shape: Shape, raw: JsonObject, path: str = "") -> Iterator[str]:
    """Paths of the fields that a record does not have, nested lists of records included."""
    known = dict(_properties(shape))
    for name, value in raw.items():
        if name not in known:
            yield f"{path}.{name}".lstrip(".")
            continue
        below = known[name].get("items")
        nested = below.keywords.get("properties") if isinstance(below, Schema) else None
        if isinstance(nested, Shape) and isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, Mapping):
                    yield from unknown_fields(nested, item, f"{path}.{name}[{index}]")


def _properties(shape: Shape) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Names and keywords of the fields, those of what is embedded among them."""
    for name, _, schemas in shape.fields:
        keywords = {key: word for schema in schemas for key, word in schema.keywords.items()}
        embedded = keywords.get("properties")
        if name:
            yield name, keywords
        elif isinstance(embedded, Shape):
            yield from _properties(embedded)
        elif isinstance(embedded, Mapping):
            yield from ((inner, schema.keywords) for inner, schema in embedded.items())


@cache
def _own(record: type[Any]) -> Codec[Any]:
    return derived(record)


def derived(
    record: type[Record], leave_out: Collection[str] = (), **kinds: object
) -> Codec[Record]:
    """The codec of a record; ``kinds`` are declarations that its fields do not have.

    Fields in ``leave_out`` keep their defaults and are not written.

    Raises:
        TypeError: a field does not say what it is on the wire.
    """
    hints = get_type_hints(record, include_extras=True)
    embeds: list[tuple[str, Embedded]] = []
    reads: list[tuple[bool, tuple[str, str, Callable[[JsonObject, str], object], object]]] = []
    writes: list[tuple[str, Callable[[object], object], Callable[..., object] | None, bool]] = []
    shape: list[tuple[str, str, tuple[Schema, ...]]] = []
    always = False
    for field in fields(record):  # type: ignore[arg-type]  # every record is a dataclass
        attribute = field.name
        if attribute in leave_out:
            continue
        hint, marks = _parts(hints[attribute])
        marks = (*marks, *_marks(kinds.get(attribute)))
        embedded = next((mark for mark in marks if isinstance(mark, Embedded)), None)
        if embedded is not None:
            embeds.append((attribute, embedded))
            shape.append(("", attribute, (embedded.schema,)))
            continue
        kind = _kind(hint, marks)
        if kind is None:
            raise TypeError(f"{record.__name__}.{attribute}: no kind of field is declared")
        name = next((mark for mark in marks if isinstance(mark, str)), wire_name(attribute))
        absent = kind.absent if field.default is MISSING else field.default
        read = _known(kind.read, absent) if IF_KNOWN in marks else kind.read
        if kind is FLAG:  # null is none
            read, absent = partial(flag, default=bool(absent)), NEEDED
        if NEEDED in marks:
            absent = NEEDED
        needed = field.default is MISSING and (NEEDED in marks or KEPT in marks)
        stated = [mark for mark in marks if isinstance(mark, Schema)]
        shape.append((name, attribute, (kind.schema, Schema(required=needed), *stated)))
        words = kind.words and IF_KNOWN not in marks
        reads.append((words, (attribute, name, read, absent)))
        kept = NEEDED in marks or KEPT in marks or _scalar_or_none(hint)
        always |= NEEDED in marks or (KEPT in marks and _optional(hint) is None)
        writes.append((name, attrgetter(attribute), kind.write, kept))
    words_first = sorted(reads, key=lambda read: not read[0])
    plan = [step for _, step in words_first]
    make: Callable[..., Record] = record

    def from_wire(raw: JsonObject) -> Record:
        get = raw.get
        values: dict[str, object] = {}
        for attribute, name, read, absent in plan:
            if absent is NEEDED or get(name) is not None:
                values[attribute] = read(raw, name)
            else:
                values[attribute] = absent
        for attribute, embedded in embeds:
            values[attribute] = embedded.read(raw)
        return make(**values)

    def to_wire(value: Record) -> dict[str, object]:
        body: dict[str, object] = {}
        for attribute, embedded in embeds:
            body |= embedded.write(getattr(value, attribute))
        for name, get, write, kept in writes:
            held = get(value)
            if held or (kept and held is not None):
                stored = held if write is None else write(held)
                if stored or kept:
                    body[name] = stored
        return body

    words_in_it = any(words for words, _ in reads)
    return Codec(from_wire, to_wire, Shape(record, tuple(shape)), words_in_it, always)


def _parts(hint: object) -> tuple[object, tuple[object, ...]]:
    """A type, and what is declared beside it, also within ``X | None``."""
    marks: tuple[object, ...] = ()
    if get_origin(hint) is Annotated:
        hint, marks = get_args(hint)[0], _marks(hint.__metadata__)  # type: ignore[attr-defined]
    optional = _optional(hint)
    if get_origin(optional) is Annotated:
        marks = (*get_args(optional)[1:], *marks)
    return hint, marks


def _marks(stated: object) -> tuple[object, ...]:
    return () if stated is None else stated if isinstance(stated, tuple) else (stated,)


def _optional(hint: object) -> object:
    """``X`` of ``X | None``; ``None`` where it is no such type."""
    if get_origin(hint) not in (Union, UnionType):
        return None
    return next(option for option in get_args(hint) if option is not type(None))


def _scalar_or_none(hint: object) -> bool:
    """True where ``None`` alone says nothing, unlike 0."""
    inner = _optional(hint)
    return inner is not None and not is_dataclass(_parts(inner)[0])


def _kind(hint: object, marks: tuple[object, ...]) -> Kind | None:
    """Kind of a value of this type on the wire."""
    stated = [mark for mark in marks if isinstance(mark, Kind)]
    if stated:
        kind = stated[-1]
        return kind if _optional(hint) is None else replace(kind, absent=None)
    if get_origin(hint) is tuple:
        return _many(get_args(hint)[0], marks)
    optional = _optional(hint)
    inner = _parts(hint if optional is None else optional)[0]
    if not isinstance(inner, type) or not is_dataclass(inner):
        return None
    return nested(derived(inner), optional=optional is not None, kept=KEPT in marks)


def _many(item: object, marks: tuple[object, ...]) -> Kind | None:
    """A list of records or of texts, or a map that a record holds as sorted pairs."""
    listed = next((mark for mark in marks if isinstance(mark, Listed)), _AS_IT_STANDS)
    if item is str:
        most = listed.most
        return Kind(
            lambda raw, field: tuple(sorted(strings(raw, field))),
            lambda held: list(held[:most]),
            (),
            schema=Schema(type="array", items=at_most(253)),
        )
    if get_origin(item) is tuple:
        hint, own = _parts(get_args(item)[1])
        value = _kind(hint, own)
        return None if value is None else _map(value, own)
    inner, own = _parts(item)
    if not isinstance(inner, type) or not is_dataclass(inner):
        return None
    return rows(derived(inner), listed, skips=IF_KNOWN in own)


def rows(codec: Codec[Record], listed: Listed = _AS_IT_STANDS, *, skips: bool = False) -> Kind:
    """A list of records; ``skips`` = those with words of other versions are passed over."""
    read, write, shape, words, _ = codec
    rank, most, order, key = listed.rank, listed.most, listed.order, listed.key
    kept = slice(None) if listed.newest is None else slice(-listed.newest, None)

    def each(raw: JsonObject, field: str) -> tuple[Record, ...]:
        stated = objects(raw, field)
        records: list[Record] = []
        try:
            if rank:
                stated = sorted(stated, key=lambda item: whole(item, rank))
            for item in stated:
                try:
                    records.append(read(item))
                except UnknownWord:
                    if not skips:
                        raise
        except WireError as error:
            raise WireError(f"{field}.{error}") from error
        if key is not None and len({key(row) for row in records}) < len(records):
            twice = Counter(map(key, records)).most_common(1)[0][0]
            raise WireError(f"{field}: the key {twice!r:.{QUOTED}} is there twice")
        if order is not None:
            records.sort(key=order)  # type: ignore[arg-type]  # a key of records can be compared
        return tuple(records[kept])

    def written(values: tuple[Record, ...]) -> object:
        bodies = [write(value) for value in values[:most]]
        return [{rank: at} | body for at, body in enumerate(bodies)] if rank else bodies

    if rank:
        place = (INT32_COUNT, Schema(required=True), listed.says)
        shape = replace(shape, fields=((rank, "", place), *shape.fields))
    schema = Schema(type="array", items=Schema(type="object", properties=shape))
    return Kind(each, written, (), words and not skips, schema)


def _map(value: Kind, own: tuple[object, ...]) -> Kind:
    read, write = value.read, value.write

    def pairs(raw: JsonObject, field: str) -> object:
        stated = section(raw, field)
        try:
            return tuple((key, read(stated, key)) for key in sorted(stated))
        except WireError as error:
            raise WireError(f"{field}.{error}") from error

    stated = [value.schema, *(mark for mark in own if isinstance(mark, Schema))]
    keywords = {key: word for schema in stated for key, word in schema.keywords.items()}
    schema = Schema(type="object", additionalProperties=Schema(**keywords))
    if write is None:
        return Kind(pairs, dict, (), schema=schema)
    return Kind(pairs, lambda held: {key: write(item) for key, item in held}, (), schema=schema)


def nested(codec: Codec[Any], *, optional: bool = False, kept: bool = False) -> Kind:
    """A record in a record; one that is optional and empty is none, unless such are ``kept``.

    Raises:
        TypeError: one that is kept can be empty. Server-side apply makes null of an object that
            loses its last field, which the API server refuses, and with it the whole status.
    """
    if kept and not codec.always:
        raise TypeError(f"{codec.shape.record.__name__} is kept and has no field that is")
    read = codec.read

    def of_section(raw: JsonObject, field: str) -> object:
        if optional and not kept and not raw[field]:
            return None
        stated = section(raw, field)
        try:
            return read(stated)
        except WireError as error:
            raise WireError(f"{field}.{error}") from error

    schema = Schema(type="object", properties=codec.shape)
    return Kind(of_section, codec.write, None if optional else NEEDED, codec.words, schema)


def _known(
    read: Callable[[JsonObject, str], object], absent: object
) -> Callable[[JsonObject, str], object]:
    def or_absent(raw: JsonObject, field: str) -> object:
        try:
            return read(raw, field)
        except UnknownWord:
            return absent

    return or_absent
