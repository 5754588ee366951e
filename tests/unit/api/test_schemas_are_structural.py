# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What becomes a CRD is what Kubernetes accepts; everything else fails before it is a file."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import ConfigDict, Field

from docs.generate.crds.definition import KINDS, definition, schema
from docs.generate.crds.lint import faults
from docs.generate.crds.records import Described
from docs.generate.crds.structural import Node, SchemaError, structural
from ullage.api.base import Amount, Count, Model, OpenModel, Resource, list_map


def converted(model: type[Model] | type[OpenModel]) -> Node:
    return structural(
        model.model_json_schema(by_alias=True, mode="validation", schema_generator=Described)
    )


class Part(Model):
    """A part."""

    size: Count = 3
    """Size."""
    limit: Amount | None = None
    """Limit."""


class Whole(Model):
    """First line.

    Second paragraph
    over two lines.
    """

    part: Part = Part()
    """The part, described at its use."""
    parts: Annotated[tuple[Part, ...], Field(max_length=4, json_schema_extra=list_map("size"))] = ()
    """Parts."""
    names: Annotated[dict[str, Annotated[str, Field(max_length=8)]], Field(max_length=2)] | None = (
        None
    )
    """Names."""
    ratio: Annotated[float, Field(gt=0)] | None = None
    """Ratio."""


class Looping(Model):
    """Contains itself."""

    inner: Looping | None = None


class Anything(Model):
    """Holds anything."""

    value: Any = None


class Either(Model):
    """A union."""

    value: int | str


class OpenMap(Model):
    """A map of anything."""

    value: dict[str, Any]


class Pair(Model):
    """A tuple of fixed length."""

    value: tuple[int, str]


class Open(OpenModel):
    """Passes through what it does not declare."""

    known: bool = False


def test_optional_is_the_type_itself_and_null_goes() -> None:
    limit = converted(Whole)["properties"]["part"]["properties"]["limit"]
    assert limit["x-kubernetes-int-or-string"] is True
    assert limit["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert "type" not in limit
    assert "default" not in limit


def test_reference_is_put_in_place_and_its_use_describes_it() -> None:
    part = converted(Whole)["properties"]["part"]
    assert part["description"] == "The part, described at its use."
    assert part["type"] == "object"


def test_default_of_an_object_is_spelt_out_without_nulls() -> None:
    assert converted(Whole)["properties"]["part"]["default"] == {"size": 3}


def test_empty_list_is_no_default() -> None:
    parts = converted(Whole)["properties"]["parts"]
    assert "default" not in parts
    assert parts["x-kubernetes-list-map-keys"] == ["size"]


def test_exclusive_bound_takes_the_form_of_openapi_3_0() -> None:
    ratio = converted(Whole)["properties"]["ratio"]
    assert (ratio["minimum"], ratio["exclusiveMinimum"]) == (0, True)


def test_description_flows_and_keeps_paragraphs() -> None:
    assert converted(Whole)["description"] == "First line.\n\nSecond paragraph over two lines."


def test_open_model_preserves_what_it_does_not_declare() -> None:
    node = converted(Open)
    assert node["x-kubernetes-preserve-unknown-fields"] is True
    assert "additionalProperties" not in node


@pytest.mark.parametrize(
    ("model", "says"),
    [(Looping, "contains itself"), (Either, "union"), (OpenMap, "open map"), (Pair, "prefixItems")],
)
def test_what_has_no_structural_form_is_an_error(model: type[Model], says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        converted(model)


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ({"description": "x"}, "has no type"),
        ({"type": "string"}, "string without"),
        ({"type": "array", "items": {"type": "boolean"}}, "list without maxItems"),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, "map without"),
        ({"type": "string", "enum": ["On", "Off"]}, "boolean to many YAML readers"),
        ({"type": "number"}, "fractions"),
        ({"type": "integer", "format": "int32", "maximum": 2**31}, "maximum is no int32"),
        ({"type": "boolean", "const": True}, "not structural"),
        (
            {"type": "array", "maxItems": 1, "items": {"type": "object", "properties": {}}},
            "list of objects without keys, and not atomic",
        ),
        (
            {
                "type": "array",
                "maxItems": 1,
                "items": {"type": "object", "properties": {}},
                "x-kubernetes-list-map-keys": ["name"],
            },
            "neither required nor defaulted",
        ),
        ({"type": "object", "properties": {"a": {"type": "boolean"}}}, "no description"),
        ({"type": "object", "properties": {"n": {"type": "boolean"}}}, "this name for a boolean"),
    ],
)
def test_linter_names_the_fault(node: Node, says: str) -> None:
    assert any(says in fault for fault in faults(node))


def test_any_is_caught_by_the_linter() -> None:
    assert any("has no type" in fault for fault in faults(converted(Anything)))


def test_a_faulty_kind_never_becomes_a_definition() -> None:
    class Spec(Model):
        """A spec."""

        name: str
        """Unbounded."""

    class Faulty(Resource):
        """A kind."""

        model_config = ConfigDict()
        spec: Spec
        """Spec."""
        status: Part | None = None
        """Status."""

    with pytest.raises(SchemaError, match=r"Faulty: \.spec\.name: string without"):
        schema(Faulty)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_has_what_kubectl_shows(kind: type[Resource]) -> None:
    spec = definition(kind)["spec"]
    (version,) = spec["versions"]
    columns = version["additionalPrinterColumns"]
    assert spec["names"]["categories"] == ["ullage"]
    assert len(spec["names"]["shortNames"]) == 1
    assert len([column for column in columns if "priority" not in column]) >= 5
    assert columns[-1]["name"] == "Age" or any(column["name"] == "Age" for column in columns)
    assert "status" in version["subresources"]


def test_short_names_differ() -> None:
    short = [kind.info.short_name for kind in KINDS]
    assert len(set(short)) == len(short)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_columns_lead_to_fields_that_exist(kind: type[Resource]) -> None:
    fields = schema(kind)["properties"]
    for column in kind.info.columns:
        path = column.path.lstrip(".").split("[?")[0].replace("[0]", ".[]").split(".")
        if path[0] == "metadata":
            continue
        node: Any = {"properties": fields}
        for step in path:
            node = node["items"] if step == "[]" else node["properties"][step]
        assert column.type in ("string", node.get("type"), node.get("format", "").split("-")[0])


def test_only_the_service_can_be_scaled() -> None:
    scaled = {
        kind.__name__
        for kind in KINDS
        if "scale" in definition(kind)["spec"]["versions"][0]["subresources"]
    }
    assert scaled == {"InferenceDeployment"}
