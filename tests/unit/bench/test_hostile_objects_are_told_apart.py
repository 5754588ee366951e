# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The hostile objects of the benchmark: enough of them, each by itself, each with a fate."""

from __future__ import annotations

from typing import Any

import pytest

from bench.hostile_objects import TENANTS, Fate, HostileObject, Victim, hostile_objects
from bench.hostile_stage import Outcome, Restarts, fate_of

OBJECTS = hostile_objects(Victim(job="resident", uid="uid"), accelerator="arena")


def test_two_tenants_write_at_least_sixty_objects() -> None:
    assert len([one for one in OBJECTS if one.namespace in TENANTS]) >= 60
    assert {one.namespace for one in OBJECTS} == {*TENANTS, ""}


def test_each_object_has_a_case_and_a_place_of_its_own() -> None:
    assert len({one.case for one in OBJECTS}) == len(OBJECTS)
    assert len({(one.path, one.name) for one in OBJECTS}) == len(OBJECTS)
    assert all(len(one.name) <= 63 for one in OBJECTS)


def test_no_mark_of_a_raw_text_is_left_in_a_body() -> None:
    bodies = {one.case: one.body for one in OBJECTS}
    assert not [case for case, body in bodies.items() if "@raw@" in body]
    assert bodies["nested-900"].count('{"a":') == 900
    assert '"steps": 1e400' in bodies["steps-1e400"]


@pytest.mark.parametrize(
    ("kind", "status", "fate"),
    [
        ("TrainingJob", {}, Fate.SILENT),
        ("TrainingJob", {"phase": "Running"}, Fate.RUNS),
        ("TrainingJob", {"phase": "Pending"}, Fate.SILENT),
        ("TrainingJob", {"decision": {"reason": "NoCapacity", "message": "x"}}, Fate.TOLD),
        (
            "TrainingJob",
            {"phase": "Running", "conditions": [{"type": "Invalid", "status": "True"}]},
            Fate.TOLD,
        ),
        ("Pod", {"phase": "Running"}, Fate.IGNORED),
        ("CapacityPool", {"conditions": [{"type": "PriceFresh", "status": "False"}]}, Fate.TOLD),
        ("CapacityPool", {"conditions": [{"type": "PriceFresh", "status": "True"}]}, Fate.SILENT),
    ],
)
def test_what_an_object_says_decides_its_fate(
    kind: str, status: dict[str, Any], fate: Fate
) -> None:
    assert fate_of({"kind": kind, "status": status})[0] is fate


def test_a_refusal_without_a_text_is_unexpected() -> None:
    one: HostileObject = OBJECTS[0]
    assert Outcome(object=one, fate=Fate.REFUSED, text="env: must be a list").expected
    assert not Outcome(object=one, fate=Fate.REFUSED, text="").expected
    assert not Outcome(object=one, fate=Fate.SILENT, text="").expected


def test_restarts_count_each_container_and_each_pod_that_was_replaced() -> None:
    before = Restarts(operator={"a": 1, "b": 0}, agents={"c": 0})
    after = Restarts(operator={"a": 3, "new": 0}, agents={"c": 0})
    assert after.since(before) == (3, 0)
