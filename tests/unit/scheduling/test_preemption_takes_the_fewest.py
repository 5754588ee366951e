# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lowest priority, then youngest, as few as needed, only who can checkpoint, one wave at a time."""

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
    gpu,
    reported,
)
from fakes.deciding import Decided, decided
from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, SlicePhase
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.scheduling.model.plan import DeletePod, EvictPod


def _running(*jobs: tuple[WorkloadBuilder, str, int], **pod: object) -> list[Part]:
    """Jobs that run, each on a device of a node, and the nodes (two devices each)."""
    parts: list[Part] = []
    held: dict[str, list[DesiredSlice]] = {}
    for job, node, device in jobs:
        record = job.build()
        fields = {"stage": PodStage.RUNNING, "node": node, "priority": record.priority} | pod
        one = a_pod(f"{record.ref.name}-0", owner=record, **fields)  # type: ignore[arg-type]
        held.setdefault(node, []).append(a_slice(one, device=gpu(node, device), percent=100))
        parts += [job.status(phase="Running"), one]
    for node, slices in held.items():
        seen = [reported(one, SlicePhase.ATTACHED) for one in slices]
        parts.append(a_gpu_node(node, devices=2, desired=slices, observed=seen))
    return parts


def _evicted(found: Decided) -> list[str]:
    return sorted(one.pod.name for one in found.all(EvictPod))


def _victim(name: str, priority: int = 0, age: float = 100) -> WorkloadBuilder:
    return a_job(name).priority(priority).aged(age).checkpointed()


def _wish(count: int = 1, replicas: int = 1) -> tuple[WorkloadBuilder, tuple[PodRecord, ...]]:
    job = a_job("wish").exclusive(count).gang(replicas).priority(5)
    return job, job.pods(priority=5)


def test_the_lowest_priority_goes_first_then_the_youngest() -> None:
    job, pods = _wish()
    parts = _running((_victim("low-old", 0, 900), "node-1", 0), (_victim("mid", 1), "node-1", 1))
    assert _evicted(decided(*parts, job, *pods)) == ["low-old-0"]
    parts = _running((_victim("old", 0, 900), "node-1", 0), (_victim("young", 0, 10), "node-1", 1))
    found = decided(*parts, job, *pods)
    assert _evicted(found) == ["young-0"]
    assert "room is made by preempting default/young" in found.decision(job).message


def test_of_equals_the_one_goes_that_saved_its_work_last() -> None:
    job, pods = _wish()
    ages = {"old": 20, "young": 500}
    parts = _running((_victim("old", 0, 900), "node-1", 0), (_victim("young", 0, 10), "node-1", 1))
    node = next(one for one in parts if isinstance(one, GPUNodeRecord))
    told = replace(
        node,
        observed=tuple(
            replace(seen, checkpoint_age_s=age)
            for seen, age in zip(node.observed, ages.values(), strict=True)
        ),
    )
    parts[parts.index(node)] = told
    assert _evicted(decided(*parts, job, *pods)) == ["old-0"]


def test_no_more_go_than_are_needed() -> None:
    job, pods = _wish(count=2)
    parts = _running(
        (_victim("a", 0, 1), "node-1", 0),
        (_victim("b", 0, 2), "node-2", 0),
        (_victim("c", 0, 3), "node-2", 1),
    )
    spare = _victim("d", 0, 4)
    parts += _running((spare, "node-3", 0), (_victim("e", 0, 5), "node-3", 1))
    assert _evicted(decided(*parts, job, *pods)) == ["a-0"], "node-1 has the other device free"


@pytest.mark.parametrize(
    "protected",
    [
        _victim("same", 5),
        a_job("no-checkpoint").aged(1),
        _victim("leaving").deleting(),
    ],
)
def test_who_may_not_be_preempted_is_not(protected: WorkloadBuilder) -> None:
    job, pods = _wish()
    parts = _running((protected, "node-1", 0), (_victim("even", 5), "node-1", 1))
    found = decided(*parts, job, *pods)
    assert not _evicted(found)
    assert "wish-0" not in found.places()


def test_a_service_is_never_preempted() -> None:
    service = a_service().priority(0).checkpointed()
    pod = a_pod("serve-1", owner=service.build(), stage=PodStage.RUNNING, node="node-1")
    held = a_slice(pod, percent=100)
    node = a_gpu_node(devices=1, desired=[held], observed=[reported(held, SlicePhase.ATTACHED)])
    job, pods = _wish()
    assert not _evicted(decided(service, pod, node, job, *pods))


def test_no_one_goes_when_it_would_not_help() -> None:
    job, pods = _wish(count=2, replicas=2)
    parts = _running((_victim("a"), "node-1", 0), (_victim("b", 9), "node-2", 0))
    found = decided(*parts, job, *pods)
    assert not _evicted(found)


def test_the_victim_is_told_who_took_its_place_and_starts_again_uncounted() -> None:
    job, pods = _wish()
    victim = _victim("victim")
    parts = _running((victim, "node-1", 0), (_victim("even", 5), "node-1", 1))
    found = decided(*parts, job, *pods)
    status = found.status(victim)
    assert (status.phase, status.restarts) == ("Restarting", 0)
    assert found.decision(victim).reason is Reason.PREEMPTED
    assert "preempted by default/wish" in found.decision(victim).message
    assert "victim-0" in found.places(), "its slice stays until its pod is gone"


def test_the_next_wave_waits_until_the_last_has_left() -> None:
    job, pods = _wish(count=2)
    victim, other = _victim("victim"), _victim("other", 1)
    first = decided(*_running((victim, "node-1", 0), (other, "node-1", 1)), job, *pods)
    assert _evicted(first) == ["other-0", "victim-0"]
    told = [one.with_(status=first.status(one)) for one in (victim, other)]
    leaving = [
        replace(one, deleting=True) if isinstance(one, PodRecord) else one
        for one in _running((told[0], "node-1", 0), (told[1], "node-1", 1))
    ]
    leaving = [one for one in leaving if not isinstance(one, WorkloadBuilder)]
    more = a_job("more").priority(5).aged(1)
    third = _running((_victim("third"), "node-2", 0), (_victim("fourth"), "node-2", 1))
    found = decided(*leaving, *told, *third, job, *pods, more, *more.pods(priority=5))
    assert not found.all(EvictPod)
    assert not found.all(DeletePod)
    assert "about to become free" in found.decision(job).message


def test_a_reservation_that_is_preempted_simply_ends() -> None:
    job, pods = _wish()
    victim = _victim("victim")
    gated = victim.pods()
    held = a_slice(gated[0], percent=100)
    node = a_gpu_node(devices=1, desired=[held], observed=[reported(held)])
    found = decided(victim.status(phase="Reserving"), *gated, node, job, *pods)
    assert not _evicted(found)
    assert not found.slices()
    # its gated pod goes in the next cycle, which nothing else need bring about
    assert 0 < found.plan.wake_at - NOW < 1
