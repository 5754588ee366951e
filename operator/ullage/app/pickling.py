# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pickles of frozen records at half the cost, for both ways of the deciding process's pipe.

Python's own way asks every single record for its fields, on both sides. Slots are read and written
directly here; everything that is no frozen slotted dataclass is pickled as ever.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from io import BytesIO
from operator import attrgetter

Reduced = tuple[Callable[[type, tuple[object, ...]], object], tuple[type, tuple[object, ...]]]


def dumps(value: object) -> bytes:
    """The pickle of a value; ``pickle.loads`` reads it."""
    buffer = BytesIO()
    pickler = pickle.Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _RECORDS
    pickler.dump(value)
    return buffer.getvalue()


def made(kind: type, values: tuple[object, ...]) -> object:
    """A record from the values of its fields, as they were: nothing is checked again."""
    one: object = object.__new__(kind)
    for put, value in zip(_writers(kind), values, strict=True):
        put(one, value)
    return one


def values_of(one: object) -> tuple[object, ...] | None:
    """The values of a record's fields; ``None`` where it is no record with slots."""
    kind: type = type(one)
    taken_apart = _reader(kind)
    return taken_apart(one)[1][1] if taken_apart is not None else None


@cache  # bounded by the number of classes
def _reader(kind: type) -> Callable[[object], Reduced] | None:
    try:
        return _RECORDS[kind]
    except KeyError:
        return None


@cache  # bounded by the number of record classes, as is _RECORDS
def _writers(kind: type) -> tuple[Callable[[object, object], None], ...]:
    return tuple(getattr(kind, name).__set__ for name in _names(kind))


def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def _alone(name: str) -> Callable[[object], tuple[object, ...]]:
    """Reads a single field, as a tuple."""
    read = attrgetter(name)
    return lambda one: (read(one),)


class _Records(dict[type, Callable[[object], Reduced]]):
    """How each kind of record is taken apart, found out when the first of it is met."""

    def __missing__(self, kind: type) -> Callable[[object], Reduced]:
        names = _names(kind)
        if not names or any(not hasattr(getattr(kind, name, None), "__set__") for name in names):
            raise KeyError(kind)  # the pickler goes its usual way then
        # a getter of several names reads them all in one call, and gives a tuple
        read = attrgetter(*names) if len(names) > 1 else _alone(names[0])

        def taken_apart(one: object) -> Reduced:
            return made, (kind, read(one))

        self[kind] = taken_apart
        return taken_apart


_RECORDS = _Records()
