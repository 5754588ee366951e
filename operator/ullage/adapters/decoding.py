# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""From the bytes of the API server to JSON objects, so that one object never spoils the others.

The API server accepts objects that no decoder here does: nested 10,000 levels deep where fields are
preserved. A document that cannot be decoded whole is split into its objects, and an object into its
fields; what still cannot be decoded is left out, and the object says so under ``UNREADABLE``.
Nothing here recurses, so no depth can exhaust the stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import orjson

from ullage.ports import JsonObject
from ullage.state.project.readable import MOST_LEVELS, TOO_DEEP, UNREADABLE, shown, too_deep

_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},:]', re.DOTALL)
_OPENING: Final = (b"{", b"[")
_CLOSING: Final = (b"}", b"]")
_NAMED: Final = 2
"""Levels of fields that an error names: ``spec.template``."""

Part = tuple[str, bytes]


def decoded(raw: bytes) -> JsonObject:
    """The JSON object of an answer, a page of a list or a line of a watch.

    Raises:
        ValueError: it is no JSON object, not even in its outline.
    """
    try:
        whole = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return _by_parts(raw)
    if not isinstance(whole, dict):
        raise ValueError("no JSON object")
    return whole


def packed(item: JsonObject) -> bytes:
    """An object as bytes; what cannot be encoded is left out, and the object says so."""
    try:
        return orjson.dumps(item)
    except TypeError:
        kept, faults = _encodable(item, "", _NAMED)
        return orjson.dumps({**kept, UNREADABLE: "; ".join(faults)})


def _by_parts(raw: bytes) -> JsonObject:
    """A document whose objects are decoded one by one."""
    outline = dict(_fields(raw))
    items, event = outline.get("items", b""), outline.get("object", b"")
    if items.startswith(b"["):
        rest = {key: part for key, part in outline.items() if key != "items"}
        return _object(rest) | {"items": [_item(part) for _, part in _parts(items)]}
    if event.startswith(b"{"):
        rest = {key: part for key, part in outline.items() if key != "object"}
        return _object(rest) | {"object": _item(event)}
    return _object(outline)


def _item(raw: bytes) -> JsonObject:
    try:
        whole = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return _object(dict(_fields(raw))) if raw.startswith(b"{") else {}
    return whole if isinstance(whole, dict) else {}


def _object(parts: dict[str, bytes]) -> dict[str, object]:
    kept, faults = _decodable(parts, "", _NAMED)
    return kept | ({UNREADABLE: "; ".join(faults)} if faults else {})


def _decodable(
    parts: dict[str, bytes], path: str, levels: int
) -> tuple[dict[str, object], list[str]]:
    """The fields that can be decoded, and what is wrong with the others."""
    kept: dict[str, object] = {}
    faults: list[str] = []
    for key, part in parts.items():
        field = f"{path}{key}"
        if field == "metadata.managedFields":
            continue
        try:
            kept[key] = orjson.loads(part)
        except orjson.JSONDecodeError as error:
            if levels > 1 and part.startswith(b"{"):
                kept[key], inner = _decodable(dict(_fields(part)), f"{field}.", levels - 1)
                faults += inner
            else:
                faults.append(f"{shown(field)}: {_fault(part, error)}")
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
                faults.append(f"{shown(field)}: {TOO_DEEP if too_deep(value) else str(error)}")
        else:
            kept[key] = value
    return kept, faults


def _fault(part: bytes, error: orjson.JSONDecodeError) -> str:
    level = 0
    for token in _TOKEN.finditer(part):
        level += (token[0] in _OPENING) - (token[0] in _CLOSING)
        if level > MOST_LEVELS:
            return TOO_DEEP
    return f"cannot be decoded: {error.msg}"


def _parts(raw: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Key (empty in a list) and value of each member of the outermost object or list.

    Raises:
        ValueError: its brackets do not match.
    """
    level, start, key = 0, 0, b""
    for token in _TOKEN.finditer(raw):
        mark = token[0]
        if mark in _OPENING:
            level += 1
            if level == 1:
                start = token.end()
        elif mark in _CLOSING:
            level -= 1
            if level < 0:
                break
            if level == 0:
                last = raw[start : token.start()].strip()
                if last or key:
                    yield key, last
                if raw[token.end() :].strip():
                    break
                return
        elif level != 1:
            continue
        elif mark == b",":
            yield key, raw[start : token.start()].strip()
            start, key = token.end(), b""
        elif mark == b":":
            key, start = raw[start : token.start()].strip(), token.end()
    raise ValueError("no JSON object: its brackets do not match")


def _fields(raw: bytes) -> Iterator[Part]:
    """Name and value of each field of an object."""
    if not raw.lstrip().startswith(b"{"):
        raise ValueError("no JSON object")
    for key, part in _parts(raw):
        try:
            name = orjson.loads(key)
        except orjson.JSONDecodeError:
            continue
        if isinstance(name, str):
            yield name, part
