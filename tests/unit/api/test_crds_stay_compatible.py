# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""No change of the CRDs breaks objects, manifests and clients of the last release."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from docs.generate.crds.compatibility import BASELINE, current, incompatible

ROOT = Path(__file__).resolve().parents[3]
Json = dict[str, Any]


def a_crd() -> Json:
    fields = {
        "name": {"type": "string", "maxLength": 63, "pattern": "^a"},
        "size": {"type": "integer", "format": "int32", "minimum": 1, "default": 2},
        "mode": {"type": "string", "enum": ["One", "Two"]},
        "parts": {
            "type": "array",
            "maxItems": 4,
            "x-kubernetes-list-type": "atomic",
            "items": {"type": "object", "properties": {"free": {"type": "string"}}},
        },
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    }
    schema = {"type": "object", "required": ["name"], "properties": fields}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {"things": {"group": "g", "scope": "Namespaced", "names": {}, "versions": [version]}}


def fields(crd: Json) -> Json:
    found: Json = schema(crd)["properties"]
    return found


def schema(crd: Json) -> Json:
    found: Json = crd["things"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


BREAKING: dict[str, tuple[Callable[[Json], object], str]] = {
    "kind": (lambda c: c.pop("things"), "things: is gone"),
    "scope": (lambda c: c["things"].update(scope="Cluster"), "scope changes"),
    "served": (lambda c: c["things"]["versions"][0].update(served=False), "no longer served"),
    "version": (lambda c: c["things"]["versions"][0].update(name="v2"), "v1 is no longer served"),
    "status": (lambda c: c["things"]["versions"][0].pop("subresources"), "subresources change"),
    "field": (lambda c: fields(c).pop("mode"), "v1.mode is gone"),
    "inner field": (
        lambda c: fields(c)["parts"]["items"]["properties"].pop("free"),
        "v1.parts[].free is gone",
    ),
    "type": (lambda c: fields(c)["size"].update(type="string"), "v1.size: type changes"),
    "required": (lambda c: schema(c)["required"].append("mode"), "v1.mode becomes required"),
    "enum": (lambda c: fields(c)["mode"]["enum"].remove("Two"), "v1.mode: enum refuses ['Two']"),
    "new enum": (lambda c: fields(c)["name"].update(enum=["a"]), "v1.name: enum refuses"),
    "maximum": (lambda c: fields(c)["size"].update(maximum=9), "maximum narrows from None to 9"),
    "minimum": (lambda c: fields(c)["size"].update(minimum=2), "minimum narrows from 1 to 2"),
    "length": (lambda c: fields(c)["name"].update(maxLength=62), "maxLength narrows"),
    "items": (lambda c: fields(c)["parts"].update(maxItems=3), "maxItems narrows"),
    "pattern": (lambda c: fields(c)["name"].update(pattern="^b"), "pattern changes"),
    "default": (lambda c: fields(c)["size"].update(default=3), "default changes from 2 to 3"),
    "no default": (lambda c: fields(c)["size"].pop("default"), "default changes from 2 to None"),
    "list": (
        lambda c: fields(c)["parts"].update({"x-kubernetes-list-type": "set"}),
        "x-kubernetes-list-type changes",
    ),
    "values": (
        lambda c: fields(c)["labels"]["additionalProperties"].update(maxLength=3),
        "v1.labels[]: maxLength narrows",
    ),
    "map": (lambda c: fields(c)["labels"].pop("additionalProperties"), "is gone"),
    "rule": (
        lambda c: schema(c).update({"x-kubernetes-validations": [{"rule": "false"}]}),
        "a rule is new: false",
    ),
}
HARMLESS: dict[str, Callable[[Json], object]] = {
    "nothing": lambda _: None,
    "kind": lambda c: c.update(others=a_crd()["things"]),
    "field": lambda c: fields(c).update(more={"type": "object", "required": ["x"]}),
    "required with a default": lambda c: schema(c)["required"].append("size"),
    "no longer required": lambda c: schema(c)["required"].clear(),
    "enum": lambda c: fields(c)["mode"]["enum"].append("Three"),
    "free": lambda c: fields(c)["mode"].pop("enum"),
    "bounds": lambda c: fields(c)["size"].update(minimum=0),
    "no bound": lambda c: fields(c)["name"].pop("maxLength"),
    "longer": lambda c: fields(c)["parts"].update(maxItems=9),
    "format": lambda c: fields(c)["size"].update(format="int64"),
    "version": lambda c: c["things"]["versions"].append({"name": "v2", "served": True}),
}


@pytest.mark.parametrize("case", BREAKING)
def test_a_breaking_change_is_named_with_its_path(case: str) -> None:
    change, words = BREAKING[case]
    after = a_crd()
    change(after)
    (fault,) = incompatible(a_crd(), after)
    assert words in fault


@pytest.mark.parametrize("case", HARMLESS)
def test_a_change_that_takes_nothing_away_passes(case: str) -> None:
    after = a_crd()
    HARMLESS[case](after)
    assert incompatible(a_crd(), after) == []


def test_todays_definitions_break_nothing_of_the_last_release() -> None:
    """After a break that is meant: python -m docs.generate.crds.compatibility --accept."""
    baseline = json.loads((ROOT / BASELINE).read_text(encoding="utf-8"))
    assert incompatible(baseline, current()) == []


@pytest.mark.slow
def test_every_field_of_the_real_definitions_is_guarded() -> None:
    """Each field that goes is found, however deep it lies."""
    before: Json = json.loads(json.dumps(current()))
    found = _paths(before)
    assert len(found) > 500
    for spec, *keys in found[:: len(found) // 40]:
        after = copy.deepcopy(before)
        holder: Any = after
        for key in [spec, *keys[:-1]]:
            holder = holder[key]
        del holder[keys[-1]]
        assert any(f"{keys[-1]} is gone" in fault for fault in incompatible(before, after)), keys


def _paths(node: Any, *above: Any) -> list[tuple[Any, ...]]:
    """Where each property of a schema stands."""
    if isinstance(node, list):
        return [path for at, one in enumerate(node) for path in _paths(one, *above, at)]
    if not isinstance(node, dict):
        return []
    own = [(*above, name) for name in node] if above and above[-1] == "properties" else []
    return [*own, *(path for key, one in node.items() for path in _paths(one, *above, key))]
