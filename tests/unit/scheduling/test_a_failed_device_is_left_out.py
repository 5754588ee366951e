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
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import decided
from ullage.api.contract import Reason, SlicePhase
from ullage.cluster.records.status import (
    MOST_EXCLUSIONS,
    DecisionRecord,
    Exclusion,
    SchedulingState,
)
from ullage.scheduling.inventory.exclusions import EXCLUDED_S

DEVICE = gpu("node-1", 0)


def an_exclusion(reason: Reason, since: float, device: str = DEVICE) -> Exclusion:
    lasts_s = EXCLUDED_S[reason]
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


@pytest.mark.parametrize("reason", [one for one, lasts_s in EXCLUDED_S.items() if lasts_s])
def test_the_device_is_tried_again_when_its_time_is_over(reason: Reason) -> None:
    job = a_waiting_job(an_exclusion(reason, NOW))
    ends = NOW + EXCLUDED_S[reason]
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
