# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Programs save and end with exit code 0 when they are told to stop: that is no success."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import NOW, WorkloadBuilder, a_gpu_node, a_job, a_kube_service, a_slice, gpu, reported
from builders_raw import raw_pod
from fakes.deciding import Decided, decided
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.api.times import rfc3339
from ullage.cluster.codecs.objects import Sharer
from ullage.cluster.projection.pod import project_pod
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.status import Progress
from ullage.cluster.times import CLOCKS_APART_S
from ullage.scheduling.model.plan import CreatePod, DeletePod, EvictPod

GRACE_S = 30
ASKED = NOW - 20
"""When the pods of these tests were asked to stop."""
WORKERS = "train-workers"


def _disrupted(reason: str, at: float = ASKED) -> dict[str, Any]:
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "lastTransitionTime": rfc3339(at),
    }


def _deleted(at: float = ASKED) -> dict[str, Any]:
    return {
        "deletionTimestamp": rfc3339(at + GRACE_S),
        "deletionGracePeriodSeconds": GRACE_S,
    }


STOPS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "kubectl delete pod, suspension": (_deleted(), []),
    "eviction by us or by kubectl drain": (_deleted(), [_disrupted("EvictionByEvictionAPI")]),
    "preemption by kube-scheduler": (_deleted(), [_disrupted("PreemptionByScheduler")]),
    "taint of a node": (_deleted(), [_disrupted("DeletionByTaintManager")]),
    "shutdown of a node": ({}, [_disrupted("TerminationByKubelet")]),
    "a time that cannot be read": ({"deletionTimestamp": "soon"}, []),
}


def a_pod(
    rank: int,
    *,
    phase: str = "Succeeded",
    code: int = 0,
    ended: float = NOW - 5,
    meta: dict[str, Any] | None = None,
    conditions: list[dict[str, Any]] | None = None,
) -> PodRecord:
    """A pod of the job ``train`` as the API tells of it."""
    over = phase in ("Succeeded", "Failed")
    state = {"terminated": {"exitCode": code, "finishedAt": rfc3339(ended)}} if over else {}
    status = {
        "containerStatuses": [{"name": "main", "state": state}],
        "conditions": conditions or [],
    }
    raw = raw_pod(
        f"train-{rank}",
        owner="train",
        rank=rank,
        gated=False,
        node="node-1",
        phase=phase,
        status=status,
        meta=meta or {},
    )
    raw["metadata"]["ownerReferences"][0]["uid"] = "uid-default-train"
    return project_pod(raw, NOW, Sharer())[0]


def stopped(rank: int, **fields: Any) -> PodRecord:
    return a_pod(rank, **({"meta": _deleted()} | fields))


def node_of(*pods: PodRecord, steps: int = 0) -> GPUNodeRecord:
    held = [
        a_slice(pod, device=gpu("node-1", at), percent=100, memory_mib=16_384)
        for at, pod in enumerate(pods)
    ]
    seen = [reported(one, SlicePhase.ATTACHED, steps=steps, step_micros=1_000) for one in held]
    return a_gpu_node(desired=held, observed=seen)


def running(size: int = 1, **fields: object) -> WorkloadBuilder:
    job = a_job().gang(size).with_(**fields)
    return job.status(phase="Running", start_time=NOW - 600)


def after(job: WorkloadBuilder, *pods: PodRecord, steps: int = 0) -> Decided:
    service = a_kube_service(job.build(), WORKERS)
    return decided(job, *pods, node_of(*pods, steps=steps), service)


@pytest.mark.parametrize(("meta", "conditions"), STOPS.values(), ids=list(STOPS))
def test_exit_code_0_after_a_stop_of_any_kind_ends_the_start_and_not_the_job(
    meta: dict[str, Any], conditions: list[dict[str, Any]]
) -> None:
    before = Progress(steps=9, total=100, percent=9)
    job = running(work_steps=100).status(phase="Running", progress=before)
    found = after(job, a_pod(0, meta=meta, conditions=conditions))
    status = found.status(job)
    assert (status.phase, status.restarts) == ("Restarting", 0)
    assert status.progress == before
    admitted = found.condition(job, "Admitted")
    assert admitted.reason == Reason.MEMBER_LOST
    assert "train-0 ended with exit code 0 because it was stopped" in admitted.message


@pytest.mark.parametrize("phase", ["Restarting", "Suspending"])
def test_what_ullage_stops_itself_goes_on_where_it_was_going(phase: str) -> None:
    suspended = phase == "Suspending"
    job = running(suspend=suspended).status(phase=phase)
    assert after(job, stopped(0)).status(job).phase == phase
    gone = decided(job, a_gpu_node()).status(job)
    assert gone.phase == ("Suspended" if suspended else "Pending")


def test_a_pod_that_was_deleted_and_is_gone_before_anyone_looked_is_created_again() -> None:
    job = running()
    assert [one.name for one in decided(job, a_gpu_node()).all(CreatePod)] == ["train-0"]


def test_a_failure_after_a_stop_is_not_counted() -> None:
    job = running().failure(0)
    found = after(job, stopped(0, phase="Failed", code=1))
    assert (found.status(job).phase, found.status(job).restarts) == ("Restarting", 0)
    ended_first = stopped(0, phase="Failed", code=1, ended=ASKED - CLOCKS_APART_S - 1)
    assert after(job, ended_first).status(job).phase == "Failed"


def test_who_had_ended_well_before_it_was_deleted_has_succeeded() -> None:
    job = running()
    early = stopped(0, ended=ASKED - CLOCKS_APART_S - 1)
    assert after(job, early).status(job).phase == "Succeeded"
    close = stopped(0, ended=ASKED - CLOCKS_APART_S)
    assert after(job, close).status(job).phase == "Restarting", "clocks differ"


def test_all_declared_steps_make_a_stop_an_end() -> None:
    job = running(work_steps=100)
    assert after(job, stopped(0), steps=99).status(job).phase == "Restarting"
    found = after(job, stopped(0), steps=100)
    status = found.status(job)
    assert status.phase == "Succeeded"
    assert "all 100 steps are done" in found.condition(job, "Finished").message
    assert status.progress is not None
    assert (status.progress.steps, status.progress.percent) == (100, 100)


def test_a_job_that_never_counted_has_done_no_step() -> None:
    job = running(work_steps=1)
    assert after(job, stopped(0), steps=0).status(job).phase == "Restarting"
    assert after(job, stopped(0), steps=1).status(job).phase == "Succeeded"


def test_the_last_of_a_gang_may_be_stopped_when_all_others_had_ended() -> None:
    progress = Progress(steps=60, total=100, percent=60)
    job = running(3, work_steps=100).status(phase="Running", progress=progress)
    others = [a_pod(rank, ended=ASKED - 1) for rank in (1, 2)]
    found = after(job, stopped(0), *others)
    assert found.status(job).phase == "Succeeded"
    assert found.status(job).progress == progress, "no more than was counted"
    again = job.with_(status=found.status(job))
    assert decided(again).status(again).progress == progress
    late = [a_pod(1, ended=ASKED - 1), a_pod(2, ended=ASKED)]
    assert after(job, stopped(0), *late).status(job).phase == "Restarting"
    assert after(job, stopped(0), stopped(1), others[1]).status(job).phase == "Restarting"


def test_the_last_of_a_gang_is_waited_for_before_anyone_judges_the_end() -> None:
    ended = a_pod(1, ended=ASKED - 5)
    leaving = stopped(0, phase="Running")
    job = running(2)
    assert after(job, leaving, ended).status(job).phase == "Running"
    for phase, suspend in (("Restarting", False), ("Suspending", True)):
        going = job.with_(suspend=suspend).status(phase=phase)
        staying = replace(leaving, deleting=False)
        found = after(going, staying, ended)
        names = [one.pod.name for kind in (EvictPod, DeletePod) for one in found.all(kind)]
        assert names == ["train-0"], "those that have ended say later what they are for"
        assert after(going, stopped(0), ended).status(going).phase == "Succeeded"
        failed = after(going, stopped(0, phase="Failed", code=1), ended)
        assert failed.status(going).phase == phase


def test_members_in_place_that_are_stopped_leave_and_the_others_go_on() -> None:
    job = a_job().elastic(1, 2, in_place=True).with_(replicas=2)
    job = job.status(phase="Running", start_time=NOW - 600)
    other = a_pod(1, phase="Running")
    for gone in (stopped(0), a_pod(0, conditions=[_disrupted("TerminationByKubelet")])):
        assert after(job, gone, other).status(job).phase == "Running"
        assert after(job, gone, stopped(1)).status(job).phase == "Restarting"


def test_a_success_that_was_told_shows_all_that_was_declared() -> None:
    job = running(work_steps=100)
    status = after(job, a_pod(0)).status(job)
    assert (status.phase, status.progress) == (
        "Succeeded",
        Progress(steps=100, total=100, percent=100),
    )


def test_a_pod_is_stopped_by_its_stage_alone() -> None:
    assert stopped(0).stage is PodStage.STOPPED
    assert stopped(0).stopped
    assert stopped(0, phase="Failed", code=143).stopped
    assert not a_pod(0).stopped
    assert not a_pod(0, phase="Failed", code=1).stopped
    assert not stopped(0, phase="Running").stopped
