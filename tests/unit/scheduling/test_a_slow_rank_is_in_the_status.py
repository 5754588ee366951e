# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The status of a running job names its slow rank, and is written when that changes only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import NOW, Part, WorkloadBuilder, a_gpu_node, a_job, a_pod, a_slice, gpu, reported
from fakes.deciding import decided
from ullage.api.reasons import ConditionType
from ullage.api.slices import SlicePhase
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.status import Condition, WorkloadStatus
from ullage.cluster.records.straggler import StragglerRecord
from ullage.engines.stragglers.detector import SlowCause
from ullage.scheduling.assignment.cycle_cache import CycleCache

JOB = a_job().exclusive().aged(600)
UID = JOB.build().ref.uid
SLOW = StragglerRecord(
    rank=3,
    pod="train-0",
    pod_uid="uid-default-train-0",
    node="node-1",
    cause=SlowCause.COMPUTE,
    ratio_percent=190,
    since=NOW - 60,
)


def parts(job: WorkloadBuilder) -> list[Part]:
    pod = a_pod("train-0", owner=job.build(), stage=PodStage.RUNNING, node="node-1")
    wanted = a_slice(pod, device=gpu("node-1", 0), percent=100)
    seen = reported(wanted, SlicePhase.ATTACHED)
    return [job, pod, a_gpu_node("node-1", devices=1, desired=[wanted], observed=[seen])]


def after(status: WorkloadStatus, slow: StragglerRecord | None, at: float = NOW) -> WorkloadStatus:
    """The status of the next cycle, as it reads back."""
    job = JOB.with_(status=status)
    stragglers = {} if slow is None else {UID: slow}
    decision = decided(*parts(job), at=at, stragglers=stragglers)
    now = decision.status(job)
    assert bool(decision.actions) == (now != status)
    return as_stored(job.build().kind, now)


def shown(status: WorkloadStatus) -> Condition | None:
    return status.condition(ConditionType.STRAGGLER_PRESENT)


@pytest.fixture
def running() -> WorkloadStatus:
    """A job that runs, once its status has settled."""
    status = JOB.status(phase="Running", start_time=NOW - 300).build().status
    for _ in range(3):
        job = JOB.with_(status=status)
        status = as_stored(job.build().kind, decided(*parts(job), stragglers={}).status(job))
    return status


def test_a_slow_rank_is_named_with_its_cause(running: WorkloadStatus) -> None:
    assert shown(running) is None
    condition = shown(after(running, SLOW))
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "RankComputesLonger")
    assert condition.message == "rank 3 in train-0 on node-1"


def test_it_is_written_once(running: WorkloadStatus) -> None:
    first = after(running, SLOW)
    later = replace(SLOW, ratio_percent=230, since=NOW - 10)
    assert after(first, later, NOW + 600) == first


def test_another_cause_is_written_and_keeps_its_begin(running: WorkloadStatus) -> None:
    first = after(running, SLOW)
    second = shown(after(first, replace(SLOW, cause=SlowCause.THROTTLED), NOW + 90))
    assert second is not None
    assert (second.reason, second.since) == ("RankThrottled", NOW)


def test_another_rank_is_written(running: WorkloadStatus) -> None:
    first = after(running, SLOW)
    second = shown(after(first, replace(SLOW, rank=1), NOW + 90))
    assert second is not None
    assert second.message.startswith("rank 1 ")


def test_it_goes_with_the_slowness(running: WorkloadStatus) -> None:
    assert after(after(running, SLOW), None, NOW + 90) == running


def test_a_new_leader_keeps_it_until_it_knows_better(running: WorkloadStatus) -> None:
    status = after(running, SLOW)
    job = JOB.with_(status=status)
    assert not decided(*parts(job), at=NOW + 5, stragglers=None).actions
    assert shown(after(status, None, NOW + 70)) is None


@pytest.mark.parametrize("cause", SlowCause)
def test_each_cause_has_a_reason(running: WorkloadStatus, cause: SlowCause) -> None:
    condition = shown(after(running, replace(SLOW, cause=cause)))
    assert condition is not None
    assert condition.reason.startswith("Rank")


def test_cycles_that_reuse_the_last_one_see_it_come_and_go(running: WorkloadStatus) -> None:
    cache = CycleCache()
    job = JOB.with_(status=running)
    for stragglers, names in (({}, False), ({UID: SLOW}, True), ({}, False)):
        decision = decided(*parts(job), cache=cache, stragglers=stragglers)
        status = decision.status(job)
        assert (shown(status) is not None) is names
        job = JOB.with_(status=as_stored(job.build().kind, status))
        decided(*parts(job), cache=cache, stragglers=stragglers)
