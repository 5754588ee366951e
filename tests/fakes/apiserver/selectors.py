# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Label and field selectors, as the list and watch verbs take them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from fakes.apiserver.errors import Refusal

Test = Callable[[dict[str, Any]], bool]

_SET = re.compile(r"^\s*([^\s!=()]+)\s+(in|notin)\s+\(([^)]*)\)\s*$")
_FIELDS: dict[str, tuple[str, ...]] = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
    "spec.nodeName": ("spec", "nodeName"),
    "status.phase": ("status", "phase"),
    "spec.schedulerName": ("spec", "schedulerName"),
    "involvedObject.uid": ("involvedObject", "uid"),
    "involvedObject.name": ("involvedObject", "name"),
    "involvedObject.kind": ("involvedObject", "kind"),
    "reason": ("reason",),
    "type": ("type",),
}


def _split(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def _label_test(part: str) -> Callable[[dict[str, str]], bool]:
    if match := _SET.match(part):
        key, word, raw = match.groups()
        values = {value.strip() for value in raw.split(",")}
        if word == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if "!=" in part:
        key, value = (side.strip() for side in part.split("!=", 1))
        return lambda labels: labels.get(key) != value
    if "=" in part:
        key, value = (side.strip() for side in re.split("==?", part, maxsplit=1))
        return lambda labels: labels.get(key) == value
    if part.startswith("!"):
        absent = part[1:].strip()
        return lambda labels: absent not in labels
    return lambda labels: part in labels


def label_selector(text: str) -> Test:
    """Compile a label selector; the empty one takes everything."""
    tests = [_label_test(part) for part in _split(text)]

    def selected(obj: dict[str, Any]) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(test(labels) for test in tests)

    return selected if tests else lambda _: True


def _value(obj: dict[str, Any], path: tuple[str, ...]) -> str:
    node: Any = obj
    for step in path:
        node = node.get(step) if isinstance(node, dict) else None
    return "" if node is None else str(node)


def field_selector(text: str) -> Test:
    """Compile a field selector; a field that the API does not offer is refused with 400."""
    tests: list[tuple[tuple[str, ...], bool, str]] = []
    for part in _split(text):
        key, sign, value = re.split(r"(!=|==?)", part, maxsplit=1)
        if key not in _FIELDS:
            raise Refusal(400, f'field label not supported: "{key}"')
        tests.append((_FIELDS[key], sign != "!=", value))
    return lambda obj: all((_value(obj, path) == value) is equal for path, equal, value in tests)


def selection(labels: str, fields: str) -> Test:
    """Both at once."""
    by_label, by_field = label_selector(labels), field_selector(fields)
    if not labels and not fields:
        return lambda _: True
    return lambda obj: by_label(obj) and by_field(obj)
