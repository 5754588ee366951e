# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""From pydantic's JSON schema to a structural schema, the only kind that Kubernetes stores.

A keyword without a structural form is an error here, so that a model which the API server would
refuse, or worse silently widen, never becomes a file. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

Node = dict[str, object]
"""One schema node."""

KEEP: Final = frozenset(
    {"type", "format", "description", "default", "enum", "pattern", "properties", "required"}
    | {"items", "minimum", "maximum", "multipleOf", "minLength", "maxLength", "minItems"}
    | {"maxItems", "minProperties", "maxProperties", "anyOf"}
)
DROP: Final = frozenset({"title", "$defs", "discriminator", "examples"})
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"


_FIRST: Final = ("description", "type", "format", "default", "enum", "required")
_LAST: Final = ("properties", "items", "additionalProperties", "x-kubernetes-validations")


class SchemaError(ValueError):
    """A model says something that has no structural form; the text names the place."""


def structural(schema: Mapping[str, object]) -> Node:
    """Convert the JSON schema of one model.

    Raises:
        SchemaError: recursion, a union, an open map, or an unknown keyword.
    """
    return _convert(schema, _object(schema.get("$defs", {}), "$defs"), ())


def _convert(
    node: Mapping[str, object], defs: Mapping[str, object], stack: tuple[str, ...]
) -> Node:
    if "$ref" in node:
        return _inlined(node, defs, stack)
    if "anyOf" in node and INT_OR_STRING not in node:
        return _convert(_without_null(node), defs, stack)
    out: Node = {}
    for key, value in node.items():
        out.update(_keyword(key, value, node, defs, stack))
    if out.get(INT_OR_STRING):
        out.pop("type", None)
    elif out.get("type") in ("integer", "number"):
        out.setdefault("format", "int64" if out["type"] == "integer" else "double")
    return dict(sorted(out.items(), key=lambda item: (_rank(item[0]), item[0])))


def _inlined(
    node: Mapping[str, object], defs: Mapping[str, object], stack: tuple[str, ...]
) -> Node:
    """Put the referenced model in place; what stands beside the reference wins."""
    name = str(node["$ref"]).rsplit("/", 1)[-1]
    if name in stack:
        raise SchemaError(f"model {name} contains itself")
    beside = {key: value for key, value in node.items() if key != "$ref"}
    return _convert({**_object(defs[name], name), **beside}, defs, (*stack, name))


def _without_null(node: Mapping[str, object]) -> Node:
    """``X | None`` is ``X``: absent and null are the same to the API."""
    arms = node["anyOf"]
    if not isinstance(arms, list):
        raise SchemaError("anyOf: expected a list")
    real = [_object(arm, "anyOf") for arm in arms if _object(arm, "anyOf").get("type") != "null"]
    if len(real) != 1:
        raise SchemaError(f"a union is not structural: {node}")
    beside = {
        key: value
        for key, value in node.items()
        if key != "anyOf" and not (key == "default" and value is None)
    }
    return {**real[0], **beside}


def _keyword(
    key: str,
    value: object,
    node: Mapping[str, object],
    defs: Mapping[str, object],
    stack: tuple[str, ...],
) -> Node:
    """The structural form of one keyword; empty when it has none and needs none."""
    match key:
        case "additionalProperties" if value is False:
            return {}
        case "additionalProperties" if value is True and "properties" in node:
            return {PRESERVE: True}
        case "additionalProperties" if value is True:
            raise SchemaError("an open map needs a schema of its values")
        case "items" | "additionalProperties":
            return {key: _convert(_object(value, key), defs, stack)}
        case "properties":
            fields = _object(value, key)
            return {
                key: {
                    name: _convert(_object(child, name), defs, stack)
                    for name, child in fields.items()
                }
            }
        case "const":
            return {"enum": [value]}
        case "exclusiveMinimum" | "exclusiveMaximum":
            return {key.replace("exclusiveM", "m"): value, key: True}
        case "uniqueItems":
            return {"x-kubernetes-list-type": "set"}
        case "description":
            return {key: _flowing(str(value))}
        case "default":
            spare = _sparse(value)
            return {} if spare in (None, []) else {key: spare}
        case _ if key in DROP:
            return {}
        case _ if key in KEEP or key.startswith("x-kubernetes-"):
            return {key: value}
    raise SchemaError(f"keyword {key} has no structural form")


def _rank(key: str) -> int:
    """Place of a keyword in the file: what people look for first, the long parts last."""
    if key in _FIRST:
        return _FIRST.index(key) - len(_FIRST)
    return _LAST.index(key) + 1 if key in _LAST else 0


def _sparse(value: object) -> object:
    """A default without nulls and empty lists, which the API server refuses or would store."""
    if isinstance(value, dict):
        kept = {key: _sparse(child) for key, child in value.items()}
        return {key: child for key, child in kept.items() if child not in (None, [])}
    return value


def _flowing(text: str) -> str:
    """Docstring to prose: line breaks inside a paragraph go."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))


def _object(value: object, where: str) -> Node:
    if not isinstance(value, dict):
        raise SchemaError(f"{where}: expected a schema, got {type(value).__name__}")
    return value
