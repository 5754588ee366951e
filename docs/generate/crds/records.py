# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Schemas of statuses, made from the records that the operator reads and writes.

A record's fields say what they are on the wire (``ullage.api.wire_fields``); their docstrings are
the descriptions, as those of the models are.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from docs.generate.crds.structural import Node, SchemaError, structural
from ullage.api import rules
from ullage.api.base import RECORD, Model, OpenModel
from ullage.api.checks import NodeCheck
from ullage.api.codec import derived
from ullage.api.dataio import ObservedStarvation
from ullage.api.devices import ObservedDevice
from ullage.api.faults import DeviceFault
from ullage.api.interruptions import Interruption
from ullage.api.nodespec import GPU_NODE_SPEC, MAX_SLICES, GPUNodeSpec
from ullage.api.objective import LatencySLO
from ullage.api.observations import Observation
from ullage.api.slices import DesiredSlice, ObservedLane, ObservedSlice
from ullage.api.spec import Spec, SpecSchema
from ullage.api.traces import ObservedTrace
from ullage.api.wire_fields import Schema, Shape, atomic
from ullage.cluster.codecs.profile import DECLARED_SOLO, OP_TABLE, STEP
from ullage.cluster.records.status import Condition


def resolved(node: Node) -> Node:
    """The JSON schema of a model with the records that it names in place."""
    name = node.get(RECORD)
    if name is not None:
        found = _named()[str(name)]
        return found | {key: value for key, value in node.items() if key != RECORD}
    return {key: _within(value) for key, value in node.items()}


def _within(value: object) -> object:
    if isinstance(value, dict):
        return resolved(value)
    return [_within(item) for item in value] if isinstance(value, list) else value


@cache
def _named() -> Mapping[str, Node]:
    """The records that models name."""
    plain = (
        ObservedDevice,
        ObservedSlice,
        ObservedLane,
        Observation,
        ObservedTrace,
        ObservedStarvation,
        DeviceFault,
        Interruption,
        NodeCheck,
        Condition,
    )
    slo = TypeAdapter(LatencySLO).json_schema(mode="serialization", schema_generator=Described) | {
        "description": "Latency objective, as the user wrote it."
    }
    shapes = {
        "SoloEntry": DECLARED_SOLO.shape,
        "StepRow": STEP.shape,
        "OpTable": OP_TABLE.shape,
    }
    named = {record.__name__: derived(record).shape for record in plain} | shapes
    slices: Node = {
        "type": "array",
        "description": _text(GPUNodeSpec, "slices"),
        "items": shaped(derived(DesiredSlice).shape, {"slo": structural(slo)}),
        **atomic(MAX_SLICES).keywords,
    }
    spec = shaped(GPU_NODE_SPEC.shape, {"slices": slices})
    return {name: shaped(shape) for name, shape in named.items()} | {"GPUNodeSpec": spec}


def composed(description: str, *parts: Shape | Mapping[str, Schema]) -> Node:
    """JSON schema of an object whose properties are those of several parts."""
    return _object(description, list(_embedded(parts)))


def shaped(shape: Shape, instead: Mapping[str, Node] | None = None) -> Node:
    """JSON schema of a record; ``instead`` holds properties that are declared elsewhere.

    Raises:
        SchemaError: a field has no docstring.
    """
    return _object(inspect.getdoc(shape.record) or "", list(_fields(shape, instead or {})))


def _object(description: str, fields: list[tuple[str, Node, bool]]) -> Node:
    for field in [field for field in fields if "before" in field[1]]:
        fields.remove(field)
        names = [name for name, _, _ in fields]
        fields.insert(names.index(str(field[1].pop("before"))), field)
    required = [name for name, _, needed in fields if needed]
    return {
        "type": "object",
        "description": description,
        "properties": {name: node for name, node, _ in fields},
        **({"required": required} if required else {}),
    }


def _fields(shape: Shape, instead: Mapping[str, Node]) -> Iterator[tuple[str, Node, bool]]:
    """Name, schema, and whether it is required, of each field."""
    for name, attribute, schemas in shape.fields:
        if name in instead:
            yield name, instead[name], False
            continue
        stated: dict[str, object] = {}
        for schema in schemas:
            stated |= schema.keywords
        if name:
            required = bool(stated.pop("required", False))
            if "description" not in stated:
                stated["description"] = _text(shape.record, attribute)
            yield name, _node(stated), required
        else:
            yield from _embedded(stated.get("properties"))


def _embedded(stated: object) -> Iterator[tuple[str, Node, bool]]:
    if isinstance(stated, Shape):
        yield from _fields(stated, {})
    elif isinstance(stated, tuple):
        for part in stated:
            yield from _embedded(part)
    elif isinstance(stated, Mapping):
        for name, schema in stated.items():
            node = dict(schema.keywords)
            required = bool(node.pop("required", False))
            yield name, _node(node), required


def _node(keywords: Mapping[str, object]) -> Node:
    node = {key: value for key, value in keywords.items() if value is not None}
    for key in ("items", "additionalProperties"):
        below = node.get(key)
        if isinstance(below, Schema):
            node[key] = _node(below.keywords)
    rule = node.pop("rule", None)
    if rule is not None:
        entry = getattr(rules, str(rule)).schema()
        node["x-kubernetes-validations"] = [dict(sorted(entry.items()))]
    shape = node.get("properties")
    if isinstance(shape, Mapping | tuple):
        fields = list(_embedded(shape))
        node |= _object(str(node.pop("description", "")), fields)
    if isinstance(shape, Shape):
        return shaped(shape) | {key: value for key, value in node.items() if key != "properties"}
    return node


def _text(record: type, attribute: str) -> str:
    for base in record.__mro__:
        text = _docstrings(base).get(attribute)
        if text:
            return text
    raise SchemaError(f"{record.__name__}.{attribute} has no docstring")


@cache  # bounded by the number of our records
def _docstrings(record: type) -> Mapping[str, str]:
    """Docstrings under the fields of a class."""
    if record is object:
        return {}
    (owner,) = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    found: dict[str, str] = {}
    for field, after in pairwise(owner.body if isinstance(owner, ast.ClassDef) else ()):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            found[field.target.id] = str(after.value.value)
    return found


class Described(SpecSchema):
    """JSON schema of models and specs, where the docstring of a field describes its property.

    The classes themselves leave their docstrings alone: reading them out of the sources takes a
    quarter of the time that operator and command line need to start.
    """

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """A model with its descriptions."""
        fields = schema["schema"]["fields"]
        names = {name: field["serialization_alias"] for name, field in fields.items()}
        return _described(super().model_schema(schema), schema["cls"], names)

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """A part of a spec with its descriptions."""
        fields = schema["schema"]["fields"]
        names = {field["name"]: field["serialization_alias"] for field in fields}
        return _described(super().dataclass_schema(schema), schema["cls"], names)


def _described(node: JsonSchemaValue, owner: type, names: Mapping[str, str]) -> JsonSchemaValue:
    for base in reversed(owner.__mro__):
        ours = issubclass(base, (Model, OpenModel, Spec))
        for field, text in (_docstrings(base) if ours else {}).items():
            if (shown := node["properties"].get(names.get(field))) is not None:
                shown["description"] = inspect.cleandoc(text)
    return node
