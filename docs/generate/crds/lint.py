# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the API server would refuse, or what would make an API hard to live with, found at home.

Works on the converted schema, so that nothing slips through the converter unseen. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from docs.generate.crds.structural import INT_OR_STRING, KEEP, PRESERVE

ALLOWED: Final = KEEP | {
    "exclusiveMinimum",
    "exclusiveMaximum",
    "additionalProperties",
    INT_OR_STRING,
    PRESERVE,
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
}
YAML_BOOLEANS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false"})
CONDITION_STATUS: Final = ["True", "False", "Unknown"]
"""Kubernetes' own convention, the one exception from the rule on booleans."""
MAX_BYTES: Final = 256 * 1024
"""Size limit of a CRD file: the limit of annotations of client-side apply."""


def faults(schema: Mapping[str, object], path: str = "", *, numbers: bool = False) -> Iterator[str]:
    """Every fault of a structural schema as ``path: what is wrong``.

    ``numbers`` allows fractions (numeric tables of profiles); everywhere else whole units or
    decimal strings keep round trips stable.
    """
    where = path or "."
    for problem in (*_shape(schema), *_bounds(schema), *_words(schema), *_list_map(schema)):
        yield f"{where}: {problem}"
    if schema.get("type") == "number" and not numbers:
        yield f"{where}: fractions are for the tables of profiles only"
    for name, child in _mapping(schema.get("properties")).items():
        below = _mapping(child)
        if name.lower() in YAML_BOOLEANS:
            yield f"{path}.{name}: many YAML readers take this name for a boolean"
        if not below.get("description"):
            yield f"{path}.{name}: has no description"
        yield from faults(below, f"{path}.{name}", numbers=numbers)
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from faults(_mapping(schema[key]), f"{path}[]", numbers=numbers)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _shape(node: Mapping[str, object]) -> Iterator[str]:
    if not (node.get("type") or node.get(INT_OR_STRING) or node.get(PRESERVE)):
        yield "has no type"
    for key in node:
        if key not in ALLOWED:
            yield f"keyword {key} is not structural"


def _bounds(node: Mapping[str, object]) -> Iterator[str]:
    kind = node.get("type")
    if kind == "array" and "maxItems" not in node:
        yield "list without maxItems"
    if kind == "string" and not node.keys() & {"maxLength", "enum", "format"}:
        yield "string without maxLength, enum or format"
    if kind == "object" and "additionalProperties" in node and "maxProperties" not in node:
        yield "map without maxProperties"
    for bound in ("minimum", "maximum"):
        said = node.get(bound)
        if node.get("format") == "int32" and isinstance(said, int) and not -(2**31) <= said < 2**31:
            yield f"{bound} is no int32: the API server refuses every value"


def _words(node: Mapping[str, object]) -> Iterator[str]:
    words = node.get("enum")
    if not isinstance(words, list) or words == CONDITION_STATUS:
        return
    for word in words:
        if str(word).lower() in YAML_BOOLEANS:
            yield f"{word} is a boolean to many YAML readers"
        elif not str(word)[:1].isalpha():
            yield f"{word} does not begin with a letter"


def _list_map(node: Mapping[str, object]) -> Iterator[str]:
    keys = node.get("x-kubernetes-list-map-keys")
    item = _mapping(node.get("items"))
    whole = node.get("x-kubernetes-list-type") == "atomic"
    if node.get("type") == "array" and item.get("type") == "object" and not (keys or whole):
        yield "list of objects without keys, and not atomic"
    required = item.get("required")
    for key in keys if isinstance(keys, list) else ():
        field = _mapping(_mapping(item.get("properties")).get(str(key)))
        if "default" not in field and not (isinstance(required, list) and key in required):
            yield f"key {key} is neither required nor defaulted"
