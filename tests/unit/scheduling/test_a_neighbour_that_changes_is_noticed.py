# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A job that runs undisturbed is looked at again when something changes near it, and only then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    MODEL,
    NOW,
    Part,
    WorkloadBuilder,
    a_gpu_node,
    a_job,
    a_node,
    a_pod,
    a_policy,
    a_profile,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import decided, told
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.profile import SoloEntry
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.assignment import judge
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.lifecycle.training import training_step
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.view import View

BUSY = SoloEntry(device=MODEL, share=100, sm_util=0.9)
IDLE = SoloEntry(device=MODEL, share=100, sm_util=0.4)
RULES: list[Part] = [a_policy(), a_profile("busy", BUSY), a_profile("idle", IDLE)]


def a_pair() -> tuple[WorkloadBuilder, WorkloadBuilder, list[Part]]:
    """Two jobs that run on one device and were told so; pods and the node beside them."""
    jobs = [a_job(name).fractional(70, 70).profile("idle") for name in ("one", "other")]
    records = [job.build() for job in jobs]
    pods = [
        a_pod(f"{one.ref.name}-0", owner=one, stage=PodStage.RUNNING, node="node-1")
        for one in records
    ]
    slices = [a_slice(pod, device=gpu("node-1", 0), percent=70) for pod in pods]
    seen = [reported(one, SlicePhase.ATTACHED) for one in slices]
    near = [*pods, a_gpu_node("node-1", devices=1, desired=slices, observed=seen), *RULES]
    one, other = (job.status(phase="Running") for job in jobs)
    for _ in range(3):
        one, other = told(one, other, *near), told(other, one, *near)
    return one, other, near


def test_a_job_is_left_alone_while_nothing_changes() -> None:
    one, other, near = a_pair()
    cache = CycleCache()
    for later_s in range(3):
        found = decided(one.build(), other.build(), *near, at=NOW + later_s, cache=cache)
        assert found.status(one) is found.snapshot.workloads[one.build().ref.uid].status
    assert len(cache.steady.steps) == 2


@pytest.mark.parametrize("edited", ["busy", "gone"])
def test_what_is_predicted_follows_the_neighbour(edited: str) -> None:
    one, other, near = a_pair()
    cache = CycleCache()
    for _ in range(2):
        before = decided(one.build(), other.build(), *near, cache=cache).status(one)
    busy = replace(other.build(), profile_ref="busy")
    changed: list[Part] = [busy] if edited == "busy" else []
    warm = decided(one.build(), *changed, *near, at=NOW + 1, cache=cache)
    cold = decided(one.build(), *changed, *near, at=NOW + 1)
    assert warm.plan == cold.plan
    if edited == "busy":
        assert before.sharing is not None
        assert warm.status(one).sharing.predicted > before.sharing.predicted  # type: ignore[union-attr]


@pytest.mark.parametrize(("edited", "read"), [("status", ["one"]), ("spec", ["one", "other"])])
def test_a_status_that_was_written_disturbs_its_own_job_alone(
    edited: str, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, near = a_pair()
    near.append(a_node("node-1"))  # one object, as in the operator
    cache, before, beside = CycleCache(), one.build(), other.build()
    for _ in range(2):
        decided(before, beside, *near, cache=cache)
    after = replace(before, status=replace(before.status, start_time=NOW))
    if edited == "spec":
        after = replace(before, priority=before.priority + 1)
    steps: list[str] = []

    def noted(view: View, inventory: Inventory, job: WorkloadRecord) -> LifecycleStep:
        steps.append(job.ref.name)
        return training_step(view, inventory, job)

    monkeypatch.setattr(judge, "training_step", noted)
    warm = decided(after, beside, *near, cache=cache)
    assert steps == read
    assert warm.plan == decided(after, beside, *near).plan
