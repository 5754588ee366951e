# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every manifest that a page shows fits our schemas strictly; printed tables have our columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml

from ullage.api import labels
from ullage.api.adoption import AdoptionKey
from unit.packaging.repository import ROOT
from unit.packaging.shown import PAGES, Block, blocks
from unit.packaging.shown_programs import values_schema

OURS: Final = "ullage.dev/v1alpha1"
OTHER_PARTS: Final[Mapping[str, str]] = {
    "affinity": "of a pod template",
    "namespaceSelector": "a configuration of Kueue",
}
"""Parts of objects of others that are shown alone, by their first key."""
POD_KEYS: Final = frozenset(
    value
    for name, value in vars(labels).items()
    if isinstance(value, str) and value.startswith("ullage.dev/") and name.isupper()
) | {f"{labels.GROUP}/{key.value}" for key in AdoptionKey}

Body = Mapping[str, Any]


@cache
def crds() -> Mapping[str, Body]:
    """Kind -> its definition."""
    found = (
        yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        for file in (ROOT / "crds").glob("*.yaml")
    )
    return {body["spec"]["names"]["kind"]: body for body in found}


def closed(node: Any, *, whole: bool) -> Any:
    """A schema that refuses unknown fields; of a part nothing is required at the top."""
    if isinstance(node, list):
        return [closed(item, whole=True) for item in node]
    if not isinstance(node, dict):
        return node
    found = {
        key: closed(value, whole=True) for key, value in node.items() if whole or key != "required"
    }
    if "properties" in node and not node.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found


def schema_of(kind: str, *, whole: bool) -> Body:
    schema = crds()[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found = dict(closed(schema, whole=whole))
    spec = closed(schema["properties"]["spec"], whole=whole)
    found["properties"] = {**found["properties"], "metadata": {}, "spec": spec}
    return found


def without_required(node: Any) -> Any:
    """Values that are shown are merged into those of the chart, so none is required."""
    if isinstance(node, list):
        return [without_required(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: without_required(value)
        for key, value in node.items()
        if key != "required" or not isinstance(value, list)
    }


def errors(body: Body, schema: Body) -> list[str]:
    found = jsonschema.Draft202012Validator(schema).iter_errors(body)
    return [f"{error.json_path}: {error.message[:200]}" for error in found]


def faults(body: Body) -> list[str]:
    """What is wrong with one shown document."""
    version = body.get("apiVersion")
    if version is not None:
        if version == OURS and body.get("kind") not in crds():
            return [f"{body.get('kind')} is no kind of ours"]
        return errors(body, schema_of(body["kind"], whole=True)) if version == OURS else []
    first = next(iter(body))
    if first in OTHER_PARTS:
        return []
    if first in values_schema()["properties"]:
        return errors(body, without_required(values_schema()))
    if first == "metadata" or (first == "spec" and list(body["spec"]) == ["template"]):
        keys = [key for key in _keys(body) if key.startswith("ullage.dev/")]
        return [f"{key} is no key of ours" for key in keys if key not in POD_KEYS]
    if first == "spec":
        tried = {kind: errors(body, schema_of(kind, whole=False)) for kind in crds()}
        fewest = min(tried, key=lambda kind: len(tried[kind]))
        return [f"as a {fewest}: {error}" for error in tried[fewest]]
    return [f"no test knows what {first} is a part of"]


def _keys(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield str(key)
            yield from _keys(value)


def manifests() -> Iterator[tuple[Block, Body]]:
    for page in PAGES:
        for block in blocks(page):
            if block.language == "yaml":
                for body in yaml.safe_load_all(block.text):
                    yield block, body


def test_every_manifest_fits() -> None:
    wrong = [f"{block.place}: {fault}" for block, body in manifests() for fault in faults(body)]
    assert wrong == []


def test_the_pages_show_each_sort_of_manifest() -> None:
    shown = [body for _, body in manifests()]
    kinds = {body["kind"] for body in shown if body.get("apiVersion") == OURS}
    assert {"TrainingJob", "CapacityPool", "SchedulingPolicy"} <= kinds
    assert sum("apiVersion" not in body for body in shown) > 10
    firsts = {next(iter(body)) for body in shown}
    assert set(OTHER_PARTS) <= firsts


@pytest.mark.parametrize(
    "text",
    [
        '{"apiVersion": "ullage.dev/v1alpha1", "kind": "InferenceService"}',
        '{"apiVersion": "ullage.dev/v1alpha1", "kind": "SchedulingPolicy", "spec": {"rounds": 1}}',
        '{"apiVersion": "ullage.dev/v1alpha1", "kind": "TrainingJob", "spec": {}}',
        '{"spec": {"elasticity": {"minReplica": 2}}}',
        '{"spec": {"cost": {"deadline": 60}}}',
        '{"metadata": {"labels": {"ullage.dev/shares": "30"}}}',
        '{"node": {"mps": {"enable": true}}}',
        '{"shares": 1}',
    ],
)
def test_a_manifest_that_does_not_fit_is_found(text: str) -> None:
    assert faults(json.loads(text))


def tables() -> Iterator[tuple[str, str, list[str]]]:
    """Printed tables of our kinds: place, the kind's name in the command, words of the heading."""
    for page in PAGES:
        for block in blocks(page):
            lines = block.text.splitlines()
            for command, heading in pairwise(lines):
                words = command.split()
                if block.language == "console" and words[1:3] == ["kubectl", "get"]:
                    yield block.place, words[3], heading.split()


def test_tables_of_our_kinds_have_our_columns() -> None:
    shown = list(tables())
    assert shown
    for place, name, heading in shown:
        (kind,) = (body for body in crds().values() if name in body["spec"]["names"].values())
        columns = kind["spec"]["versions"][0]["additionalPrinterColumns"]
        wanted = ["NAME", *(one["name"].upper() for one in columns if not one.get("priority"))]
        assert heading == wanted, place


def test_pages_are_found() -> None:
    assert Path(ROOT / "docs" / "user-guide.md") in PAGES
