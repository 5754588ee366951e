# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The declaration of a spec reads any JSON: into its record, or into one line that says where."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ullage.api.capacitypool import read_pool_spec
from ullage.api.inferencedeployment import read_service_spec
from ullage.api.podtemplate import read_training_template
from ullage.api.readers import WireError
from ullage.api.rules import RULES
from ullage.api.schedulingpolicy import SchedulingPolicySpec, read_policy_spec
from ullage.api.spec import as_wire
from ullage.api.trainingjob import TrainingJobSpec, read_training_spec

STATIC = {"type": "Static", "static": {"pricePerHour": 1}}
UPDATES = re.compile(r"\boldSelf\b")
READ_OTHERWISE = {
    "workload-name": "names of objects, as their metadata is read",
    "accelerator-name": "the same",
    "tuning-name": "the same",
    "accelerator-key": "the pattern of the field says the same",
    "own-trust-domain": "the same",
    "percentile-in-range": "the reader of percentiles",
    "replicas-within-scaling": "it binds who writes replicas, nothing reads it",
    "suggested-epochs-rise": "a suggestion that breaks it is refused alone",
}
"""Rules without a predicate, and what reads the part instead."""


def job(**spec: Any) -> TrainingJobSpec:
    return read_training_spec({"template": {}, **spec})


def test_a_rule_has_a_predicate_or_a_reason_for_none() -> None:
    without = {rule.name for rule in RULES if rule.holds is None and not UPDATES.search(rule.rule)}
    assert without == READ_OTHERWISE.keys()


def test_null_and_what_is_not_known_are_absent() -> None:
    null = {"gpu": {"mode": None, "share": None}, "cost": None, "weight": None, "later": {"a": [1]}}
    assert job(**null) == job()
    assert read_policy_spec({"risk": None, "tenants": None}) == SchedulingPolicySpec()


def test_nothing_is_taken_from_what_was_given() -> None:
    gpu = {"mode": None, "count": 2}
    job(gpu=gpu)
    assert gpu == {"mode": None, "count": 2}


def test_null_in_a_map_of_the_user_is_no_text() -> None:
    pool = {
        "type": "t",
        "zone": "z",
        "capacityType": "Spot",
        "accelerator": "a",
        "priceSource": STATIC,
    }
    with pytest.raises(
        WireError, match=r"spec\.nodeSelector: 'x': expected a string of at most 63"
    ):
        read_pool_spec({**pool, "nodeSelector": {"x": None, "y": "z"}})


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"gpu": []}, "spec.gpu: expected an object, got list"),
        ({"gpu": {"count": True}}, "spec.gpu.count: expected a whole number, got bool"),
        ({"gpu": {"count": 17}}, "spec.gpu.count: 17 must be from 1 to 16"),
        ({"gpu": {"count": 10**400}}, "spec.gpu.count: so large a number must be from 1 to 16"),
        ({"gpu": {"count": float("nan")}}, "spec.gpu.count: expected a whole number, got float"),
        ({"gpu": {"mode": "Half"}}, "spec.gpu.mode: 'Half' is none of Exclusive, Fractional"),
        ({"gpu": {"mode": 7}}, "spec.gpu.mode: expected a string, got int"),
        ({"gpu": {"memory": {}}}, "spec.gpu.memory.limit: missing"),
        ({"gpu": {"memory": {"limit": "-1"}}}, "limit: '-1' is no amount such as 4Gi"),
        ({"accelerators": "a"}, "spec.accelerators: expected a list, got str"),
        ({"accelerators": ["a", 1]}, "spec.accelerators[1]: expected a string, got int"),
        ({"accelerators": ["A*"]}, "spec.accelerators[0]: 'A*' is no key of an accelerator"),
        ({"suspend": "yes"}, "spec.suspend: expected true or false, got str"),
        ({"tenant": "x" * 300}, "characters) must have at most 253 characters"),
        ({"accelerators": ["a"] * 17}, "spec.accelerators: 17 entries, at most 16"),
        ({"template": 5}, "spec.template: expected an object, got int"),
        (
            {"gpu": {"mode": "Fractional", "share": {"minPercent": 60, "maxPercent": 50}}},
            "spec.gpu.share: share.minPercent (60) is above share.maxPercent (50): raise",
        ),
        ({"slo": {}}, "spec.slo: slo needs exactly one of maxSlowdown"),
        ({"cost": {"maxTime": "soon"}}, "spec.cost.maxTime: 'soon' is no duration such as 60h"),
    ],
)
def test_an_error_names_the_place_and_what_is_wrong(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(WireError) as told:
        job(**spec)
    assert says in str(told.value)
    assert len(str(told.value)) < 500


def test_a_deep_or_wide_value_where_a_field_stands_is_refused_at_once() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = {"share": deep}
    with pytest.raises(WireError, match=r"spec\.gpu"):
        job(gpu=deep)
    for field in ("accelerators", "failurePolicy.retryExitCodes"):
        spec: Any = [None] * 300_000
        for name in reversed(field.split(".")):
            spec = {name: spec}
        with pytest.raises(WireError, match=rf"spec\.{field}\[0\]: expected"):
            job(**spec)
    while isinstance(deep, dict):  # taken apart here, as the interpreter would by recursion
        deep = deep.pop("share")


def test_a_record_is_written_as_the_wire_spells_it() -> None:
    stated = {
        "gpu": {"mode": "Fractional", "share": {"minPercent": 25}, "memory": {"limit": "1536Mi"}},
        "cost": {"objective": "Makespan", "maxTime": "90m", "maxCost": "99.5"},
        "work": {"steps": 5},
    }
    written: Any = as_wire(job(**stated))
    assert written["gpu"]["memory"] == {"limit": "1536Mi"}
    assert (written["cost"]["maxTime"], written["cost"]["maxCost"]) == ("90m", "99.5")
    assert "tenant" not in written
    assert job(**written) == job(**stated)


def test_a_service_states_nothing_that_its_kind_does_not_have() -> None:
    written: Any = as_wire(read_service_spec({"template": {}}))
    assert "allowPacking" not in written["sharing"]


def test_a_part_that_stands_in_two_places_keeps_its_rules_in_both() -> None:
    slot = {"name": "b", "resources": {"limits": {"ullage.dev/slot": 1}}}
    with pytest.raises(WireError, match=r"template\.spec\.containers\[1\]: a container must not"):
        read_training_template({"spec": {"containers": [{"name": "a"}, slot]}})
    with pytest.raises(WireError, match=r"template\.spec\.initContainers\[0\]: a container"):
        read_training_template({"spec": {"containers": [{"name": "a"}], "initContainers": [slot]}})
