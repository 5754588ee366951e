# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Decodes the API server's bytes to JSON objects, so that one object never spoils the others.

The API server accepts objects that no decoder accepts: nested 10,000 levels deep where fields are
preserved. A document that cannot be decoded whole is split into its objects, and an object into its
fields; undecodable parts are left out, and listed under ``UNREADABLE``. Brackets are counted by
numpy, so neither depth nor size costs a stack or much time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import orjson
from numpy.typing import NDArray

from ullage.cluster.values.readable import MOST_LEVELS, TOO_DEEP, UNREADABLE, outsized, shown
from ullage.ports import JsonObject

_NAMED: Final = 2
"""Maximum levels of fields in an error: ``spec.template``."""
_SHALLOW: Final = 4
"""Maximum levels of a document that are split: page, list, object, field."""
_CHUNK: Final = 1 << 20
"""Bytes that are counted at once."""


def decoded(raw: bytes) -> JsonObject:
    """The JSON object of an answer, a page of a list or a line of a watch.

    Raises:
        ValueError: it has not even the outline of a JSON object.
    """
    try:
        whole = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return _by_parts(raw)
    if not isinstance(whole, dict):
        raise ValueError("no JSON object")
    return whole


def packed(item: JsonObject) -> bytes:
    """An object as bytes; parts that cannot be encoded are left out and listed."""
    try:
        return orjson.dumps(item)
    except TypeError:
        kept, faults = _encodable(item, "", _NAMED)
        return orjson.dumps({**kept, UNREADABLE: "; ".join(faults)})


def _by_parts(raw: bytes) -> JsonObject:
    """A document whose objects are decoded one by one."""
    whole = _Value(raw, _Marks.of(raw), 0, len(raw), 1)
    outline = whole.fields()
    items, event = outline.get("items"), outline.get("object")
    if items is not None and items.opens(b"["):
        rest = {key: part for key, part in outline.items() if key != "items"}
        return _object(rest) | {"items": [_item(part) for part in items.entries()]}
    if event is not None and event.opens(b"{"):
        rest = {key: part for key, part in outline.items() if key != "object"}
        return _object(rest) | {"object": _item(event)}
    return _object(outline)


@dataclass(frozen=True, slots=True)
class _Marks:
    """Places of commas and colons, for each of the first levels of a document."""

    by_level: tuple[NDArray[np.int64], ...]
    deepest: int

    @classmethod
    def of(cls, raw: bytes) -> _Marks:
        """Count the brackets of a document.

        Raises:
            ValueError: they do not match, or it is not one object or list.
        """
        # of equal length, so that a quote is the end of a string and nothing else
        plain = raw.replace(b"\\\\", b"__").replace(b'\\"', b"__").strip()
        first = len(raw) - len(raw.lstrip())
        by_depth: list[list[NDArray[np.int64]]] = [[] for _ in range(_SHALLOW + 1)]
        level = quoted = deepest = 0
        for start in range(0, len(plain), _CHUNK):
            if start and level == 0:
                raise ValueError("no JSON object: something follows its end")
            part = np.frombuffer(plain, np.uint8, min(_CHUNK, len(plain) - start), start)
            inside = np.bitwise_xor.accumulate((part == _QUOTE).astype(np.uint8)) ^ quoted
            outside = inside == 0
            opened = outside & ((part == _BRACE) | (part == _BRACKET))
            closed = outside & ((part == _BRACE + 2) | (part == _BRACKET + 2))
            levels = np.cumsum(opened.astype(np.int32) - closed, dtype=np.int32) + level
            if levels.min() < 0 or (levels[:-1] == 0).any():
                raise ValueError("no JSON object: its brackets do not match")
            marked = outside & ((part == _COMMA) | (part == _COLON))
            for depth in range(1, _SHALLOW + 1):
                by_depth[depth].append(np.flatnonzero(marked & (levels == depth)) + start + first)
            level, quoted = int(levels[-1]), int(inside[-1])
            deepest = max(deepest, int(levels.max()))
        if level or quoted or not plain:
            raise ValueError("no JSON object: its brackets do not match")
        return cls(
            tuple(np.concatenate(places) if places else _NOWHERE for places in by_depth), deepest
        )


_QUOTE, _COMMA, _COLON, _BRACKET, _BRACE = b'",:[{'
_NOWHERE: Final[NDArray[np.int64]] = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class _Value:
    """A value in a document, by its position; its parts are at ``level``."""

    raw: bytes
    marks: _Marks
    start: int
    end: int
    level: int

    def text(self) -> bytes:
        """The text of the value."""
        return self.raw[self.start : self.end].strip()

    def opens(self, bracket: bytes) -> bool:
        """True if it is an object or a list, and can be split."""
        return self.level <= _SHALLOW and self.text()[:1] == bracket

    def entries(self) -> list[_Value]:
        """Entries of a list, fields of an object with their keys."""
        start = self.raw.index(self.text()[:1], self.start) + 1
        end = self.start + len(self.raw[self.start : self.end].rstrip()) - 1
        entries = []
        for mark in self._between(start, end):
            if self.raw[mark] == _COMMA:
                entries.append(_Value(self.raw, self.marks, start, mark, self.level + 1))
                start = mark + 1
        last = _Value(self.raw, self.marks, start, end, self.level + 1)
        return [*entries, last] if entries or last.text() else []

    def fields(self) -> dict[str, _Value]:
        """Fields of an object by name; one whose name cannot be decoded is left out."""
        if not self.opens(b"{"):
            raise ValueError("no JSON object")
        fields: dict[str, _Value] = {}
        for entry in self.entries():
            colons = [
                place
                for place in self._between(entry.start, entry.end)
                if self.raw[place] == _COLON
            ]
            if not colons:
                raise ValueError("no JSON object: a field has no value")
            try:
                name = orjson.loads(self.raw[entry.start : colons[0]])
            except orjson.JSONDecodeError:
                continue
            if isinstance(name, str):
                fields[name] = _Value(
                    self.raw, self.marks, colons[0] + 1, entry.end, self.level + 1
                )
        return fields

    def _between(self, start: int, end: int) -> list[int]:
        marks = self.marks.by_level[self.level]
        low, high = np.searchsorted(marks, (start, end))
        between: list[int] = marks[low:high].tolist()
        return between


def _item(value: _Value) -> JsonObject:
    try:
        whole = orjson.loads(value.text())
    except orjson.JSONDecodeError:
        return _object(value.fields()) if value.opens(b"{") else {}
    return whole if isinstance(whole, dict) else {}


def _object(parts: dict[str, _Value]) -> dict[str, object]:
    kept, faults = _decodable(parts, "", _NAMED)
    return kept | ({UNREADABLE: "; ".join(faults)} if faults else {})


def _decodable(
    parts: dict[str, _Value], path: str, levels: int
) -> tuple[dict[str, object], list[str]]:
    """The decodable fields, and the problems of the others."""
    kept: dict[str, object] = {}
    faults: list[str] = []
    for key, part in parts.items():
        field = f"{path}{key}"
        if field == "metadata.managedFields":
            continue
        try:
            kept[key] = orjson.loads(part.text())
        except orjson.JSONDecodeError as error:
            if levels > 1 and part.opens(b"{"):
                kept[key], inner = _decodable(part.fields(), f"{field}.", levels - 1)
                faults += inner
            else:
                faults.append(f"{shown(field)}: {_fault(part.text(), error)}")
    return kept, faults


def _encodable(item: JsonObject, path: str, levels: int) -> tuple[dict[str, object], list[str]]:
    kept: dict[str, object] = {}
    faults: list[str] = []
    for key, value in item.items():
        field = f"{path}{key}"
        try:
            orjson.dumps({key: value})
        except TypeError as error:
            if levels > 1 and isinstance(value, dict):
                kept[key], inner = _encodable(value, f"{field}.", levels - 1)
                faults += inner
            else:
                faults.append(
                    f"{shown(field)}: {TOO_DEEP if outsized(value) == TOO_DEEP else str(error)}"
                )
        else:
            kept[key] = value
    return kept, faults


def _fault(part: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        deep = _Marks.of(part).deepest > MOST_LEVELS
    except ValueError:
        deep = False
    return TOO_DEEP if deep else f"cannot be decoded: {error.msg}"
