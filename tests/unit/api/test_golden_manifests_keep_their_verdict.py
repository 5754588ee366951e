# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The golden manifests against our own schemas and models; e2e asks the real API server."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pydantic
import pytest
import yaml

from docs.generate.crds.definition import KINDS, schema
from golden_manifests import FOLDER, Golden, goldens
from structure import list_faults, shape_faults, unknown_fields
from ullage.api import rules
from ullage.api.nodespec import GPU_NODE_SPEC
from ullage.api.quantity import duration_s, quantity
from ullage.api.readers import WireError
from ullage.cluster.projection.rest import project_profile

RULES = rules.RULES
SCHEMAS = {kind.__name__: schema(kind) for kind in KINDS}
MODELS = {kind.__name__: kind for kind in KINDS}
STATUSES = sorted((FOLDER / "status").glob("*.yaml"))


def case(golden: Golden) -> str:
    return golden.case


def by(*who: str) -> list[Golden]:
    return [golden for golden in goldens().values() if golden.by in who]


def test_there_are_enough_of_both() -> None:
    valid = [golden for golden in goldens().values() if golden.valid]
    assert len(valid) >= 25
    assert len(goldens()) - len(valid) >= 60


@pytest.mark.parametrize("golden", by("", "cel"), ids=case)
def test_structure_is_sound_where_only_a_rule_could_refuse(golden: Golden) -> None:
    node = SCHEMAS[golden.kind]
    assert shape_faults(node, golden.body) == []
    assert [*list_faults(node, golden.body), *unknown_fields(node, golden.body)] == []


@pytest.mark.parametrize("golden", by("schema"), ids=case)
def test_schema_and_reader_both_refuse(golden: Golden) -> None:
    assert shape_faults(SCHEMAS[golden.kind], golden.body)
    with pytest.raises((pydantic.ValidationError, WireError)):
        read(golden)


def read(golden: Golden) -> None:
    """By the model, and nodes and rows of profiles by their records."""
    MODELS[golden.kind].model_validate_json(json.dumps(golden.body), strict=True)
    if golden.kind == "WorkloadProfile":
        project_profile({**golden.body, "metadata": {"name": "a", "uid": "u"}})
    if golden.kind == "GPUNode":
        GPU_NODE_SPEC.read(golden.body["spec"])
        if "epoch" not in golden.body["spec"]:  # it reads as 0, and the next write brings it
            raise WireError("epoch: missing")


@pytest.mark.parametrize("golden", by("list"), ids=case)
def test_duplicates_are_found(golden: Golden) -> None:
    assert list(list_faults(SCHEMAS[golden.kind], golden.body))


@pytest.mark.parametrize("golden", by("unknown"), ids=case)
def test_unknown_field_is_found_and_named(golden: Golden) -> None:
    (found,) = unknown_fields(SCHEMAS[golden.kind], golden.body)
    field = golden.says.split('"')[1]
    assert found.lstrip(".") == field.replace("[", ".").replace("]", "")


@pytest.mark.parametrize("golden", by(""), ids=case)
def test_model_reads_valid_manifest_and_gives_it_back(golden: Golden) -> None:
    kind = MODELS[golden.kind]
    model = kind.model_validate_json(json.dumps(golden.body), strict=True)
    written = json.loads(model.model_dump_json(by_alias=True, exclude_none=True))
    assert contains(written, golden.body)
    assert kind.model_validate_json(json.dumps(written), strict=True) == model


@pytest.mark.parametrize("path", STATUSES, ids=lambda path: path.stem)
def test_status_samples_use_every_field(path: Path) -> None:
    body = yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
    node = SCHEMAS[body["kind"]]
    assert shape_faults(node, body) == []
    assert [*list_faults(node, body), *unknown_fields(node, body)] == []
    MODELS[body["kind"]].model_validate_json(json.dumps(body), strict=True)
    status = node["properties"]["status"]
    assert unused(status, body["status"]) == set()


def test_every_rule_of_every_kind_is_kept_once_and_broken_once() -> None:
    for kind, node in SCHEMAS.items():
        messages = set(rule_messages(node))
        carried = {rule.name for rule in RULES if rule.message in messages}
        assert len(carried) == len(messages)
        cases = [golden for golden in goldens().values() if golden.kind == kind]
        for verdict in (True, False):
            covered = {name for golden in cases if golden.valid is verdict for name in golden.rules}
            assert carried - covered == set(), f"{kind}: no case that is valid={verdict}"


def test_every_rule_belongs_to_a_kind() -> None:
    used = {message for node in SCHEMAS.values() for message in rule_messages(node)}
    assert {rule.message for rule in RULES} == used


def rule_messages(node: object) -> list[str]:
    if isinstance(node, list):
        return [message for item in node for message in rule_messages(item)]
    if not isinstance(node, dict):
        return []
    own = [entry["message"] for entry in node.get("x-kubernetes-validations", [])]
    return own + [message for child in node.values() for message in rule_messages(child)]


def contains(whole: object, part: object) -> bool:
    """Whether all of ``part`` stands in ``whole``; defaults may have been added.

    Records hold amounts and times, not how they were spelled, and sets in no order.
    """
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(name in whole and contains(whole[name], part[name]) for name in part)
    if isinstance(part, list) and isinstance(whole, list):
        if all(isinstance(item, str | int) for item in (*whole, *part)):
            return sorted(whole, key=str) == sorted(part, key=str)
        return len(whole) == len(part) and all(map(contains, whole, part))
    if isinstance(whole, str) and isinstance(part, str | int):
        return whole == part or amount(whole) == amount(part) is not None
    return whole == part


def amount(stated: str | int) -> object:
    """What an amount or a time comes to; ``None`` = the text is neither."""
    for read in (duration_s, quantity):
        with suppress(WireError):
            return read(str(stated))
    return None


def unused(node: dict[str, object], value: object, path: str = "") -> set[str]:
    """Fields of the schema that appear nowhere in the value."""
    if "items" in node and isinstance(value, list):
        return set.intersection(*(unused(node["items"], item, f"{path}[]") for item in value))
    missing = set()
    for name, child in node.get("properties", {}).items():
        if not isinstance(value, dict) or name not in value:
            missing.add(f"{path}.{name}")
        else:
            missing |= unused(child, value[name], f"{path}.{name}")
    return missing
