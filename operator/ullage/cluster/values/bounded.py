# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Caches bounded by bytes, because tenants choose their content.

A limit on entries is no limit on memory, since one entry can be a mebibyte.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from sys import getsizeof
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

MIB: Final = 2**20
_ENTRY_BYTES: Final = 120
"""Overhead of an entry in a dict: hash, two references, free room (derived)."""


def size_of(value: object) -> int:
    """Bytes of a value with all that it references; shared parts count each time."""
    size = getsizeof(value, 0)
    if isinstance(value, (str, bytes, int, float)):
        return size
    parts: Iterable[object] = ()
    if isinstance(value, (tuple, list, frozenset, set)):
        if {*map(type, value)} == {str}:  # of any length: no step of Python for each
            return size + sum(map(getsizeof, value))
        parts = value
    elif isinstance(value, Mapping):
        parts = (*value.keys(), *value.values())
    elif is_dataclass(value):
        parts = (getattr(value, field.name) for field in fields(value))
    return size + sum(size_of(part) for part in parts)


class Memo(Generic[Key, Value]):
    """A dict that drops entries without recent use, before it exceeds its bytes.

    Two generations: a full one becomes the old one, and the old one is dropped. A used entry moves
    to the young one, so entries in use are never dropped all at once.
    """

    def __init__(self, limit_bytes: int, weigh: Callable[[object], int] = size_of) -> None:
        """``limit_bytes`` bounds both generations together; ``weigh`` gives bytes."""
        self._young: dict[Key, tuple[Value, int]] = {}
        self._old: dict[Key, tuple[Value, int]] = {}
        self._half = limit_bytes // 2
        self._weigh = weigh
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    @property
    def held_bytes(self) -> int:
        """Bytes of both generations."""
        return self._bytes + sum(weight for _, weight in self._old.values())

    def get(self, key: Key) -> Value | None:
        """The value, if it is still cached."""
        entry = self._young.get(key)
        if entry is None:
            entry = self._old.pop(key, None)
            if entry is None:
                return None
            self._add(key, *entry)
        return entry[0]

    def put(self, key: Key, value: Value) -> None:
        """Cache a value; one that is too large for a generation is not kept at all."""
        self.forget(key)
        same = key is value
        weight = _ENTRY_BYTES + self._weigh(value) + (0 if same else self._weigh(key))
        if weight <= self._half:
            self._add(key, value, weight)

    def forget(self, key: Key) -> None:
        """Drop a key."""
        gone = self._young.pop(key, None)
        self._bytes -= gone[1] if gone is not None else 0
        self._old.pop(key, None)

    def clear(self) -> None:
        """Drop everything."""
        self._young, self._old, self._bytes = {}, {}, 0

    def _add(self, key: Key, value: Value, weight: int) -> None:
        if self._bytes + weight > self._half:
            self._old, self._young, self._bytes = self._young, {}, 0
        self._young[key] = (value, weight)
        self._bytes += weight
