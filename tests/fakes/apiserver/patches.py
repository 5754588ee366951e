# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""JSON patch (RFC 6902) and merge patch (RFC 7396), with the refusals of the API server."""

from __future__ import annotations

import copy
from typing import Any

from fakes.apiserver.errors import Refusal


def _steps(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise Refusal(422, f"invalid JSON pointer {pointer!r}")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _child(node: Any, step: str, pointer: str) -> Any:
    if isinstance(node, dict) and step in node:
        return node[step]
    if isinstance(node, list) and step.isdigit() and int(step) < len(node):
        return node[int(step)]
    raise Refusal(422, f"the path {pointer!r} does not exist: missing value")


def _parent(doc: Any, pointer: str) -> tuple[Any, str]:
    *way, last = _steps(pointer)
    for step in way:
        doc = _child(doc, step, pointer)
    return doc, last


def _add(doc: Any, pointer: str, value: Any) -> None:
    node, last = _parent(doc, pointer)
    if isinstance(node, dict):
        node[last] = value
    elif isinstance(node, list) and last == "-":
        node.append(value)
    elif isinstance(node, list) and last.isdigit() and int(last) <= len(node):
        node.insert(int(last), value)
    else:
        raise Refusal(422, f"add operation does not apply: no such path {pointer!r}")


def _remove(doc: Any, pointer: str) -> Any:
    node, last = _parent(doc, pointer)
    value = _child(node, last, pointer)
    del node[int(last) if isinstance(node, list) else last]
    return value


def _get(doc: Any, pointer: str) -> Any:
    node, last = _parent(doc, pointer)
    return _child(node, last, pointer)


def _replace(doc: Any, pointer: str, value: Any) -> None:
    node, last = _parent(doc, pointer)
    _child(node, last, pointer)
    node[int(last) if isinstance(node, list) else last] = value


def json_patch(doc: dict[str, Any], patch: object) -> dict[str, Any]:
    """Apply a JSON patch to a copy; all of it or nothing."""
    if not isinstance(patch, list):
        raise Refusal(400, "a JSON patch is a list of operations")
    out = copy.deepcopy(doc)
    for step in patch:
        pointer = step.get("path", "")
        match step.get("op"):
            case "test":
                if _get(out, pointer) != step.get("value"):
                    raise Refusal(422, f"testing value {pointer} failed")
            case "add":
                _add(out, pointer, copy.deepcopy(step["value"]))
            case "replace":
                _replace(out, pointer, copy.deepcopy(step["value"]))
            case "remove":
                _remove(out, pointer)
            case "move":
                _add(out, pointer, _remove(out, step["from"]))
            case "copy":
                _add(out, pointer, copy.deepcopy(_get(out, step["from"])))
            case other:
                raise Refusal(400, f"unknown JSON patch operation {other!r}")
    return out


def merge_patch(doc: Any, patch: Any) -> Any:
    """Apply a merge patch to a copy; null removes."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    out = dict(doc) if isinstance(doc, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge_patch(out.get(key), value)
    return out
