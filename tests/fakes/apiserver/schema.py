# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Structural schemas of our CRDs: defaults, pruning and structure; rules in CEL are not judged.

Reads the generated manifests where they exist; a kind without one is stored as it comes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from fakes.apiserver.errors import Refusal, invalid
from fakes.apiserver.resources import Resource
from fakes.apiserver.shapes import BUILT_IN, METADATA, OURS, Shape, shape_of_crd
from fakes.apiserver.strict import unknown_in_built_in, unknown_in_schema

CRDS = Path(__file__).parents[3] / "crds"

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


@cache
def _generated(folder: Path) -> dict[str, dict[str, Any]]:
    """Plural -> schema of the version we use."""
    out: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.yaml")):
        for crd in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader):
            if crd and crd.get("kind") == "CustomResourceDefinition":
                served = crd["spec"]["versions"][0]
                out[crd["spec"]["names"]["plural"]] = served["schema"]["openAPIV3Schema"]
    return out


@cache
def _shapes(folder: Path) -> dict[str, Shape]:
    """Plural -> shape of the version we use."""
    return {plural: shape_of_crd(schema) for plural, schema in _generated(folder).items()}


class Schemas:
    """Shapes for server-side apply and structural checks, by resource."""

    def __init__(self, folder: Path = CRDS) -> None:
        self._schemas = _generated(folder)
        self._shapes = _shapes(folder)

    def shape(self, resource: Resource) -> Shape:
        if resource.custom:
            return self._shapes.get(resource.plural, OURS)
        return BUILT_IN.get(resource.plural, Shape(fields={"metadata": METADATA}))

    def strict(self, resource: Resource, body: dict[str, Any]) -> None:
        """Refuse fields that the kind does not have, with their paths."""
        kind = resource.kind
        if not resource.custom:
            unknown = unknown_in_built_in(kind.kind, body)
        else:
            schema = self._schemas.get(resource.plural, {"properties": {}})
            unknown = [
                path
                for part in ("spec", "status")
                if part in body and part in schema["properties"]
                for path in unknown_in_schema(body[part], schema["properties"][part], part)
            ]
        if unknown:
            named = ", ".join(f'unknown field "{path}"' for path in unknown)
            raise Refusal(
                400,
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                f"strict decoding error: {named}",
            )

    def fits(self, resource: Resource, config: dict[str, Any], name: str) -> None:
        """An apply body of the wrong types is answered with 500 by the real server."""
        schema = self._schemas.get(resource.plural) if resource.custom else None
        for part in ("spec", "status"):
            if schema is None or part not in config:
                continue
            node = schema["properties"][part]
            undeclared = (
                f".{path}: field not declared in schema"
                for path in unknown_in_schema(config[part], node, part)
            )
            if wrong := next(chain(_mistyped(config[part], node, part), undeclared), None):
                kind = resource.kind
                raise Refusal(
                    500,
                    f"failed to create typed patch object (/{name}; {kind.api_version}, "
                    f"Kind={kind.kind}): {wrong}",
                )

    def faults(self, plural: str, body: Mapping[str, Any]) -> list[str]:
        """What an apply body breaks of the schema in the parts that it has."""
        schema = self._schemas.get(plural)
        parts = [part for part in ("spec", "status") if schema is not None and part in body]
        return [
            fault
            for part in parts
            for fault in _faults(body[part], (schema or {})["properties"][part], part)
        ]

    def admit(self, resource: Resource, obj: dict[str, Any]) -> None:
        """Prune, default and check a custom resource in place; 422 names the field."""
        schema = self._schemas.get(resource.plural) if resource.custom else None
        if schema is None:
            return
        for part in ("spec", "status"):
            node = schema.get("properties", {}).get(part)
            if node is None:
                obj.pop(part, None)
            elif part in obj:
                _prune(obj[part], node)
                _default(obj[part], node)
            elif "default" in node:
                obj[part] = node["default"]
        missing = [name for name in schema.get("required", ()) if name not in obj]
        causes = [f"{name}: Required value" for name in missing]
        for part in ("spec", "status"):
            if part in obj:
                causes.extend(_faults(obj[part], schema["properties"][part], part))
        if causes:
            text = causes[0] if len(causes) == 1 else f"[{', '.join(causes)}]"
            raise invalid(resource.qualified_kind, obj["metadata"]["name"], text)


def _prune(value: Any, node: Mapping[str, Any]) -> None:
    """Drop what the schema does not know, and nulls where null is not allowed."""
    if isinstance(value, dict):
        known = node.get("properties", {})
        values = node.get("additionalProperties")
        keep = node.get("x-kubernetes-preserve-unknown-fields", False) or values is not None
        for name in list(value):
            child = known.get(name, values if isinstance(values, dict) else None)
            unwanted = value[name] is None and child is not None and not child.get("nullable")
            if unwanted or (name not in known and not keep):
                del value[name]
            elif child is not None:
                _prune(value[name], child)
    elif isinstance(value, list) and "items" in node:
        for item in value:
            _prune(item, node["items"])


def _default(value: Any, node: Mapping[str, Any]) -> None:
    if isinstance(value, dict):
        for name, child in node.get("properties", {}).items():
            if name not in value and "default" in child:
                value[name] = _copy(child["default"])
            if name in value:
                _default(value[name], child)
    elif isinstance(value, list) and "items" in node:
        for item in value:
            _default(item, node["items"])


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy(child) for name, child in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _faults(value: Any, node: Mapping[str, Any], path: str) -> Iterator[str]:
    """Every breach of the structure below one node."""
    if node.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            yield f"{path}: Invalid value: expected an integer or a string"
        return
    wanted = node.get("type")
    if wanted and not _is(value, wanted):
        yield (
            f'{path}: Invalid value: "{type(value).__name__}": {path} in body must be of type '
            f"{wanted}"
        )
        return
    if "enum" in node and value not in node["enum"]:
        words = ", ".join(f'"{word}"' for word in node["enum"])
        yield f'{path}: Unsupported value: "{value}": supported values: {words}'
    yield from _bounds(value, node, path)
    if isinstance(value, dict):
        for name in node.get("required", ()):
            if name not in value:
                yield f"{path}.{name}: Required value"
        values = node.get("additionalProperties")
        for name, child in value.items():
            below = node.get("properties", {}).get(name, values)
            if isinstance(below, dict):
                yield from _faults(child, below, f"{path}.{name}")
    elif isinstance(value, list) and "items" in node:
        for at, item in enumerate(value):
            yield from _faults(item, node["items"], f"{path}[{at}]")


def _mistyped(value: Any, node: Mapping[str, Any], path: str) -> Iterator[str]:
    """Every value below one node whose type the schema does not know there."""
    wanted = node.get("type")
    if value is None or node.get("x-kubernetes-int-or-string"):
        return
    if wanted and not _is(value, wanted):
        yield f".{path}: expected {wanted}, got {value!r}"
    elif isinstance(value, dict):
        values = node.get("additionalProperties")
        for name, child in value.items():
            below = node.get("properties", {}).get(name, values)
            if isinstance(below, dict):
                yield from _mistyped(child, below, f"{path}.{name}")
    elif isinstance(value, list) and "items" in node:
        for at, item in enumerate(value):
            yield from _mistyped(item, node["items"], f"{path}[{at}]")


def _is(value: Any, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    return isinstance(value, _TYPES[wanted])


def _bounds(value: Any, node: Mapping[str, Any], path: str) -> Iterator[str]:
    size: Any = value if isinstance(value, (int, float)) else None
    if size is not None and not isinstance(value, bool):
        if "minimum" in node and size < node["minimum"]:
            yield f"{path}: Invalid value: {size}: should be at least {node['minimum']}"
        if "maximum" in node and size > node["maximum"]:
            yield f"{path}: Invalid value: {size}: should be at most {node['maximum']}"
    for kind, low, high in (
        (str, "minLength", "maxLength"),
        (list, "minItems", "maxItems"),
        (dict, "minProperties", "maxProperties"),
    ):
        if isinstance(value, kind):
            count = len(value)
            if count < node.get(low, 0):
                yield f"{path}: Invalid value: must have at least {node[low]}"
            if high in node and count > node[high]:
                yield f"{path}: Too long: may not be more than {node[high]}"
    if isinstance(value, str) and "pattern" in node and not re.search(node["pattern"], value):
        yield f"{path}: Invalid value: \"{value}\": should match '{node['pattern']}'"
