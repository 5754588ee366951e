# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Frozen records by their slots: taken apart, made and copied without Python for each field.

A frozen dataclass sets each field by its name when it is made, and is queried for its fields when
it is copied or pickled. Slots are read and written directly here, at a third of the cost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import repeat
from operator import attrgetter, call
from typing import Final, TypeVar

Item = TypeVar("Item")
Reduced = tuple[Callable[[type, Sequence[object]], object], tuple[type, tuple[object, ...]]]


def made(kind: type, values: Sequence[object]) -> object:
    """A record from the values of its fields, without validation."""
    record: object = object.__new__(kind)
    deque(map(call, _writers(kind), repeat(record), values), maxlen=0)  # a loop without Python
    return record


def with_fields(record: Item, changes: Mapping[str, object]) -> Item:
    """A copy of a record with other values of some fields, without validation.

    Args:
        record: A frozen dataclass with slots.
        changes: New values by name of the field.
    """
    kind: type = type(record)
    at, values = _places(kind), list(values_of(record) or ())
    for name, value in changes.items():
        values[at[name]] = value
    copy = made(kind, values)
    assert isinstance(copy, type(record))
    return copy


def values_of(record: object) -> tuple[object, ...] | None:
    """The values of a record's fields; ``None`` for anything but a record with slots."""
    kind: type = type(record)
    taken_apart = _reader(kind)
    return taken_apart(record)[1][1] if taken_apart is not None else None


@cache  # bounded by the number of classes
def _reader(kind: type) -> Callable[[object], Reduced] | None:
    try:
        return RECORDS[kind]
    except KeyError:
        return None


@cache  # bounded by the number of record classes, as is RECORDS
def _writers(kind: type) -> tuple[Callable[[object, object], None], ...]:
    return tuple(getattr(kind, name).__set__ for name in _names(kind))


def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


@cache  # bounded likewise
def _places(kind: type) -> Mapping[str, int]:
    return {name: at for at, name in enumerate(_names(kind))}


def _alone(name: str) -> Callable[[object], tuple[object, ...]]:
    """Reads a single field, as a tuple."""
    read = attrgetter(name)
    return lambda record: (read(record),)


class _Records(dict[type, Callable[[object], Reduced]]):
    """Functions that decompose records, by class; created for the first record of it."""

    def __missing__(self, kind: type) -> Callable[[object], Reduced]:
        names = _names(kind)
        if not names or any(not hasattr(getattr(kind, name, None), "__set__") for name in names):
            raise KeyError(kind)  # the pickler then uses its default
        # a getter of several names reads them all in one call, and gives a tuple
        read = attrgetter(*names) if len(names) > 1 else _alone(names[0])

        def taken_apart(record: object) -> Reduced:
            return made, (kind, read(record))

        self[kind] = taken_apart
        return taken_apart


RECORDS: Final = _Records()
"""Takes records apart for a pickler, by class: its dispatch table."""
