# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A preempted job waits before it competes again, twice as long with each preemption in a row."""

from __future__ import annotations

import pytest

from builders import NOW, Part, WorkloadBuilder, a_gpu_node, a_job, a_pod, a_slice, gpu, reported
from fakes.deciding import decided
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.status import SchedulingState
from ullage.scheduling.model.plan import CreatePod, DecideSettings

MOST_S = DecideSettings(epoch=1).preemption_backoff_max_s


def a_victim(state: SchedulingState) -> WorkloadBuilder:
    return a_job("low").aged(900).checkpointed().status(phase="Running", scheduling=state)


def running(job: WorkloadBuilder) -> list[Part]:
    record = job.build()
    pod = a_pod("low-0", owner=record, stage=PodStage.RUNNING, node="node-1")
    wanted = a_slice(pod, device=gpu("node-1", 0), percent=100)
    seen = reported(wanted, SlicePhase.ATTACHED)
    return [job, pod, a_gpu_node("node-1", devices=1, desired=[wanted], observed=[seen])]


def preempted(state: SchedulingState) -> tuple[SchedulingState, float]:
    """The state after a preemption at ``NOW``, and how long the job backs off."""
    winner = a_job("high").exclusive().priority(5)
    found = decided(*running(a_victim(state)), winner, *winner.pods(priority=5))
    status = found.status("low")
    assert status.phase == "Restarting"
    assert status.condition("Admitted").reason == Reason.PREEMPTED  # type: ignore[union-attr]
    return status.scheduling, status.retry_at - NOW


def test_each_preemption_in_a_row_doubles_the_wait() -> None:
    state, waits = SchedulingState(), []
    for _ in range(7):
        state, wait_s = preempted(state)
        waits.append(wait_s)
    assert waits == [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    assert state.preemptions == 7
    assert state.preempted_at == NOW


@pytest.mark.parametrize(("calm_s", "expected"), [(2 * MOST_S - 1, 40.0), (2 * MOST_S, 10.0)])
def test_a_job_that_was_left_alone_for_long_begins_with_the_first_wait(
    calm_s: float, expected: float
) -> None:
    _, wait_s = preempted(SchedulingState(preemptions=2, preempted_at=NOW - calm_s))
    assert wait_s == expected


def test_no_pod_is_made_before_the_wait_is_over() -> None:
    job = a_job("low").status(
        phase="Pending",
        retry_at=NOW + 20,
        scheduling=SchedulingState(preemptions=2, preempted_at=NOW - 1),
    )
    node = a_gpu_node("node-1", devices=1)
    early = decided(job, node)
    assert not early.all(CreatePod)
    assert early.plan.wake_at == NOW + 20
    assert [one.rank for one in decided(job, node, at=NOW + 20).all(CreatePod)] == [0]


def test_a_failure_is_no_preemption() -> None:
    state = SchedulingState(preemptions=2, preempted_at=NOW - 1)
    job = a_victim(state)
    failed = a_pod("low-0", owner=job.build(), stage=PodStage.FAILED, exit_code=1, node="node-1")
    status = decided(job, failed, a_gpu_node("node-1", devices=1)).status(job)
    assert status.restarts == 1
    assert status.scheduling == state


def test_a_forged_count_at_the_edge_of_the_api_stays_one_that_it_takes() -> None:
    state, _ = preempted(SchedulingState(preemptions=2**31 - 1, preempted_at=NOW - 1))
    assert state.preemptions == 2**31 - 1
