# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Two tenants write sixty hostile objects at once; a third one's jobs start as ever."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from bench.api_client import ApiClient
from bench.faults_inject import Faults
from bench.hostile import Beside, object_figures, objects_beside_work
from bench.hostile_objects import VICTIM
from bench.hostile_restarts import fail_over, restart_and_schedule
from bench.hostile_stage import DEVICES as ARENA_DEVICES
from bench.hostile_stage import Stage
from e2e.conftest import DEVICES
from e2e.stack import Stack

LONG = bool(os.environ.get("ULLAGE_E2E_LONG"))
JOBS = 12 if LONG else 4
RESTARTS, EVERY_S = (10, 30.0) if LONG else (2, 0.0)


@pytest.fixture(scope="module")
def stage(stack: Stack) -> Iterator[Stage]:
    """Three namespaces, and devices that only the hostile two ask for."""
    stack.offer(ARENA_DEVICES)
    found = Stage(ApiClient(stack.cluster.kubeconfig))
    try:
        found.open()
        yield found
    finally:
        found.close()
        stack.offer(DEVICES)


@pytest.fixture(scope="module")
def beside(stage: Stage) -> Beside:
    """The hostile objects beside a third namespace's jobs, played once for the tests below."""
    return objects_beside_work(stage, JOBS, print)


def test_each_hostile_object_is_refused_or_says_what_is_wrong(beside: Beside) -> None:
    unexpected = {
        one.object.case: (one.fate, one.text[:200]) for one in beside.outcomes if not one.expected
    }
    assert unexpected == {}
    assert len(beside.outcomes) >= 60


def test_operators_and_agents_go_on_and_say_that_they_are_well(beside: Beside) -> None:
    assert beside.operator_restarts == 0
    assert beside.agent_restarts == 0
    assert beside.health.samples > 0
    assert sorted(set(beside.health.unwell)) == []


def test_the_third_namespace_keeps_pods_and_slices_and_its_jobs_start(beside: Beside) -> None:
    """How soon they start is measured by `make bench-hostile`, on a quiet machine."""
    assert beside.untouched
    assert len(beside.quiet_s) == len(beside.loud_s) == JOBS
    print(object_figures(beside))


def test_api_server_restarts_end_no_operator_and_scheduling_comes_back(
    stack: Stack, stage: Stage
) -> None:
    before, resident = stage.restarts(), stage.resident()
    found = restart_and_schedule(
        stage,
        lambda: stack.cluster.restart("apiserver"),
        count=RESTARTS,
        every_s=EVERY_S,
        said=print,
    )
    assert stage.restarts().since(before) == (0, 0)
    assert stage.resident() == resident
    assert len(found.placed_s) == RESTARTS
    faults = Faults(stage.api, stack.cluster, VICTIM, random.Random(1))
    placed, _ = fail_over(stage, faults.end_operator)
    print(f"fail-over: a new job is placed after {placed:.1f} s")
    stack.books_balance()
