# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What an API server checks of an object without evaluating rules: structure, lists, field names.

Each check returns the faults it finds, as ``path: what is wrong``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema

Schema = Mapping[str, Any]


def shape_faults(schema: Schema, body: Mapping[str, object]) -> list[str]:
    """Types, bounds, patterns and required fields."""
    validator = jsonschema.Draft4Validator(schema)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(body)]


def faults(schema: Schema, body: Mapping[str, object]) -> list[str]:
    """All of what follows: the API server refuses the object or drops a part of it."""
    return [*shape_faults(schema, body), *list_faults(schema, body), *unknown_fields(schema, body)]


def list_faults(schema: Schema, value: object, path: str = "") -> Iterator[str]:
    """Duplicates in sets and list maps."""
    for name, child in _children(schema, value):
        yield from list_faults(child[0], child[1], f"{path}.{name}")
    keys = schema.get("x-kubernetes-list-map-keys")
    if schema.get("type") != "array" or not isinstance(value, list):
        return
    if keys:
        defaults = {key: schema["items"]["properties"][key].get("default") for key in keys}
        marks = [tuple(item.get(key, defaults[key]) for key in keys) for item in value]
    elif schema.get("x-kubernetes-list-type") == "set":
        marks = [(item,) for item in value]
    else:
        return
    for mark in {mark for mark in marks if marks.count(mark) > 1}:
        yield f"{path}: duplicate {mark}"


def unknown_fields(schema: Schema, value: object, path: str = "") -> Iterator[str]:
    """Fields that the schema does not have, which strict validation refuses."""
    known = schema.get("properties", {})
    closed = not (schema.get("x-kubernetes-preserve-unknown-fields") or path == ".metadata")
    if isinstance(value, dict) and "additionalProperties" not in schema and closed:
        yield from (f"{path}.{name}" for name in value if name not in known)
    for name, child in _children(schema, value):
        yield from unknown_fields(child[0], child[1], f"{path}.{name}")


def _children(schema: Schema, value: object) -> Iterator[tuple[str, tuple[Schema, object]]]:
    if isinstance(value, dict):
        for name, child in schema.get("properties", {}).items():
            if name in value:
                yield name, (child, value[name])
    elif isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield str(number), (schema["items"], item)
