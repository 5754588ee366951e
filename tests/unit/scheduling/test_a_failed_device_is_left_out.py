# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A device that failed a workload is left out for a time that no later decision prolongs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    NOW,
    Part,
    WorkloadBuilder,
    a_gpu_node,
    a_job,
    a_pod,
    a_service,
    a_slice,
    an_adopted,
    gpu,
    reported,
)
from fakes.deciding import decided
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.status import (
    MOST_EXCLUSIONS,
    DecisionRecord,
    Exclusion,
    SchedulingState,
)
from ullage.scheduling.inventory.exclusions import excluded_s
from ullage.scheduling.times import NODE_STUCK_FIRST_S, NODE_STUCK_FORGOTTEN_S, NODE_STUCK_MOST_S

DEVICE = gpu("node-1", 0)


def an_exclusion(reason: Reason, since: float, device: str = DEVICE) -> Exclusion:
    lasts_s = excluded_s(reason)
    return Exclusion(
        reason=reason,
        node="node-1",
        gpu=device,
        since=since,
        until=since + lasts_s if lasts_s else 0.0,
        message="it failed",
    )


def a_waiting_job(*exclusions: Exclusion) -> WorkloadBuilder:
    return (
        a_job("train")
        .exclusive()
        .status(phase="Pending", scheduling=SchedulingState(exclusions=exclusions))
    )


def place(job: WorkloadBuilder, *more: Part, at: float = NOW, heard: float = NOW) -> list[str]:
    node = replace(a_gpu_node("node-1", devices=1), heartbeat=heard)
    return decided(job, *job.pods(), node, *more, at=at).places().get("train-0", [])


@pytest.mark.parametrize("reason", [reason for reason in Reason if excluded_s(reason)])
def test_the_device_is_tried_again_when_its_time_is_over(reason: Reason) -> None:
    job = a_waiting_job(an_exclusion(reason, NOW))
    ends = NOW + (excluded_s(reason) or 0.0)
    assert not place(job, at=ends - 0.5, heard=ends)
    assert place(job, at=ends, heard=ends)


def test_a_silent_node_is_tried_again_once_its_agent_has_spoken() -> None:
    job = a_waiting_job(an_exclusion(Reason.RESERVATION_EXPIRED, NOW - 5))
    assert not place(job, heard=NOW - 5)
    assert place(job, heard=NOW - 1)


def test_a_later_decision_prolongs_nothing() -> None:
    job = a_waiting_job(an_exclusion(Reason.RESERVATION_REFUSED, NOW))
    later = DecisionRecord(
        time=NOW + 9,
        epoch=1,
        inputs_hash="",
        chosen="",
        runner_up="",
        reason=Reason.NO_CAPACITY,
        message="",
    )
    job = job.status(phase="Pending", scheduling=job.build().status.scheduling, decision=later)
    assert place(job, at=NOW + 10)


def test_a_text_decides_nothing() -> None:
    job = a_waiting_job(an_exclusion(Reason.INTERFERING, NOW))
    retold = a_waiting_job(replace(an_exclusion(Reason.INTERFERING, NOW), message=""))
    assert place(job) == place(retold) == []


def test_a_refusal_is_remembered_once_and_the_oldest_is_forgotten() -> None:
    held = [
        an_exclusion(Reason.INTERFERING, NOW - at, gpu("node-1", at)) for at in range(16, 0, -1)
    ]
    job = a_waiting_job(*held)
    (pod,) = job.pods()
    wanted = a_slice(pod, device=DEVICE, percent=100)
    refused = reported(wanted, SlicePhase.REFUSED)
    node = a_gpu_node("node-1", devices=1, desired=[wanted], observed=[refused])
    state = decided(job, pod, node).status(job).scheduling
    assert len(state.exclusions) == MOST_EXCLUSIONS
    assert state.exclusions[:-1] == tuple(held[1:])
    new = state.exclusions[-1]
    assert (new.reason, new.gpu, new.since) == (Reason.RESERVATION_REFUSED, DEVICE, NOW)
    again = job.status(phase="Pending", scheduling=state)
    assert decided(again, pod, node, at=NOW + 1).status(again).scheduling == state


def a_stuck_pod(kind: str, *before: Exclusion) -> tuple[Part, ...]:
    """A pod that kube-scheduler did not take to node-1 in its time, beside a second node."""
    owner = {"job": a_job("train"), "service": a_service("train"), "pods": an_adopted("train")}[
        kind
    ]
    owner = owner.fractional(20, 20).status(
        phase="Starting", scheduling=SchedulingState(exclusions=before)
    )
    pod = a_pod("train-0", owner=owner.build(), stage=PodStage.UNSCHEDULED, since=NOW - 600)
    pod = replace(pod, gates=(), controlled=kind == "pods", rank=0 if kind == "job" else -1)
    held = a_slice(pod, device=DEVICE, percent=20)
    node = a_gpu_node("node-1", devices=2, desired=[held], observed=[reported(held)])
    return owner, pod, node, a_gpu_node("node-2", devices=1)


def stuck_for(lasts_s: float, ended: float = NOW - 100, node: str = "node-1") -> Exclusion:
    return Exclusion(
        reason=Reason.STUCK_UNSCHEDULED,
        node=node,
        gpu=gpu(node),
        since=ended - lasts_s,
        until=ended,
        message="",
    )


@pytest.mark.parametrize("kind", ["job", "service", "pods"])
def test_a_node_that_a_pod_was_not_taken_to_is_left_out_for_a_minute(kind: str) -> None:
    found = decided(*a_stuck_pod(kind))
    (new,) = found.status("train").scheduling.exclusions
    assert (new.reason, new.node, new.since, new.until) == (
        Reason.STUCK_UNSCHEDULED, "node-1", NOW, NOW + NODE_STUCK_FIRST_S,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "lasts_s"),
    [
        ((stuck_for(60.0),), 120.0),
        ((stuck_for(60.0), stuck_for(480.0)), 960.0),
        ((stuck_for(3000.0),), NODE_STUCK_MOST_S),
        ((stuck_for(480.0, NOW - NODE_STUCK_FORGOTTEN_S),), NODE_STUCK_FIRST_S),
        ((stuck_for(480.0, node="node-2"),), NODE_STUCK_FIRST_S),
    ],
)
def test_it_is_left_out_for_twice_as_long_each_time(
    before: tuple[Exclusion, ...], lasts_s: float
) -> None:
    found = decided(*a_stuck_pod("job", *before))
    new = found.status("train").scheduling.exclusions[-1]
    assert new.until - new.since == lasts_s
    kept = [one for one in before if one.node != "node-1"]
    assert list(found.status("train").scheduling.exclusions[:-1]) == kept


def test_the_whole_node_is_left_out_until_its_time_is_over() -> None:
    job = a_waiting_job(stuck_for(60.0, NOW + 30))
    both = (replace(a_gpu_node("node-1", devices=2), heartbeat=NOW + 30),)
    parts = (job, *job.pods(), *both)
    assert decided(*parts).places() == {}
    assert decided(*parts, at=NOW + 30).places() == {"train-0": [DEVICE]}
    elsewhere = a_gpu_node("node-2", devices=1)
    assert decided(*parts, elsewhere).places() == {"train-0": [gpu("node-2", 0)]}
