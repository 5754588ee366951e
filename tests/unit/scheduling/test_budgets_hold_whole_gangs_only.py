# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Disruption budgets may keep a gang where it is, but never the rest of one that is broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from builders import NOW, Part, WorkloadBuilder, a_gpu_node, a_job, a_kube_service
from fakes.deciding import Decided, decided
from ullage.api.reasons import Reason
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.status import Condition
from ullage.scheduling.model.plan import DeletePod, EvictPod

GANG = a_job().exclusive(1).gang(2).checkpointed()


def leaving(job: WorkloadBuilder, pods: Sequence[PodRecord], *more: Part) -> Decided:
    """A gang that was asked to leave; these of its pods are still there."""
    condition = Condition(
        type="Admitted", status="False", reason=Reason.SPOT_INTERRUPTED, message="", since=NOW
    )
    going = job.status(phase="Restarting", conditions=(condition,))
    service = a_kube_service(job.build(), "train-workers")
    return decided(going, *pods, a_gpu_node("node-1"), a_gpu_node("node-2"), service, *more)


def members(job: WorkloadBuilder = GANG) -> list[PodRecord]:
    pods = job.pods(PodStage.RUNNING)
    return [replace(pod, node=f"node-{at}") for at, pod in enumerate(pods, 1)]


def names(found: Decided, kind: type[EvictPod] | type[DeletePod]) -> list[str]:
    return [one.pod.name for one in found.all(kind)]


def test_a_gang_that_a_budget_refused_to_move_is_asked_again() -> None:
    found = leaving(GANG, members())
    assert names(found, EvictPod) == ["train-0", "train-1"]
    assert names(found, DeletePod) == []


@pytest.mark.parametrize("how", ["leaving", "failed", "gone"])
def test_what_is_left_of_a_broken_gang_goes_past_any_budget(how: str) -> None:
    first, second = members()
    others = {
        "leaving": [replace(first, deleting=True)],
        "failed": [replace(first, stage=PodStage.FAILED, exit_code=143)],
        "gone": [],
    }[how]
    found = leaving(GANG, [*others, second])
    assert names(found, EvictPod) == []
    assert "train-1" in names(found, DeletePod)


def test_an_elastic_gang_is_broken_when_it_has_fewer_than_it_was_made_for() -> None:
    elastic = a_job().exclusive(1).elastic(1, 2).checkpointed()
    _, second = members(GANG)
    alone = replace(second, world_size=2)
    found = leaving(elastic, [alone])
    assert names(found, EvictPod) == []
    assert names(found, DeletePod) == ["train-1"]


def test_a_job_of_one_pod_is_never_taken_past_its_budget() -> None:
    job = a_job().exclusive(1).checkpointed()
    found = leaving(job, members(job))
    assert names(found, EvictPod) == ["train-0"]
    assert names(found, DeletePod) == []
