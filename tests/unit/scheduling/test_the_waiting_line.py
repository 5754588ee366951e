# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Priority, then age; who does not fit is passed over, but not for ever."""

from __future__ import annotations

from dataclasses import replace

from builders import (
    MODEL,
    NOW,
    Part,
    a_gpu_node,
    a_job,
    a_pod,
    a_policy,
    a_profile,
    a_service,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import decided, decided_on
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.profile import ProfileStatus, SoloEntry
from ullage.scheduling.model.plan import CreatePod


def _tenant(name: str, node: str, device: int = 0, **pod: object) -> tuple[list[Part], PodRecord]:
    job = a_job(name)
    fields = {"stage": PodStage.RUNNING, "node": node} | pod
    one = a_pod(f"{name}-0", owner=job.build(), **fields)  # type: ignore[arg-type]
    return [job], one


def test_the_higher_priority_goes_first() -> None:
    low, high = a_job("low").aged(500), a_job("high").aged(10).priority(5)
    node = a_gpu_node(devices=1)
    found = decided(node, low, *low.pods(), high, *high.pods(priority=5))
    assert list(found.places()) == ["high-0"]


def test_the_priority_that_the_pod_got_from_its_class_counts() -> None:
    plain, classed = a_job("plain").aged(500), a_job("classed").aged(10)
    node = a_gpu_node(devices=1)
    found = decided(node, plain, *plain.pods(), classed, *classed.pods(priority=9))
    assert list(found.places()) == ["classed-0"]
    assert found.slices()[0][1].priority == 9


def test_of_equal_priority_the_older_goes_first() -> None:
    young, old = a_job("a-young").aged(10), a_job("z-old").aged(500)
    node = a_gpu_node(devices=1)
    found = decided(node, young, *young.pods(), old, *old.pods())
    assert list(found.places()) == ["z-old-0"]


def test_who_does_not_fit_is_passed_over() -> None:
    big, small = a_job("big").exclusive(2).aged(100), a_job("small").aged(50)
    jobs, busy = _tenant("busy", "node-1")
    held = a_slice(busy, percent=100)
    node = a_gpu_node(devices=2, desired=[held], observed=[reported(held, SlicePhase.ATTACHED)])
    found = decided(node, *jobs, busy, big, *big.pods(), small, *small.pods())
    assert found.places()["small-0"] == [gpu("node-1", 1)]
    assert found.decision(big).reason is Reason.NO_CAPACITY


def test_who_waited_too_long_holds_what_becomes_free() -> None:
    policy = a_policy(round_seconds=100, gang_skip_limit=2)
    big, small = a_job("big").exclusive(2).aged(100), a_job("small").aged(50)
    jobs, busy = _tenant("busy", "node-1")
    held = a_slice(busy, percent=100)
    node = a_gpu_node(devices=2, desired=[held], observed=[reported(held, SlicePhase.ATTACHED)])
    for waited, holds in ((200, False), (201, True)):
        old = big.pods(created=NOW - waited)
        found = decided(node, policy, *jobs, busy, big, *old, small, *small.pods())
        assert ("small-0" in found.places()) is not holds
    decision = found.decision(small)
    assert decision.reason is Reason.HELD_FOR_ANOTHER
    assert "default/big" in decision.message
    assert not [reason for reason, _ in found.events() if reason == "HeldForAnother"]


def test_only_devices_that_suit_the_holder_are_held() -> None:
    policy = a_policy(gang_skip_limit=0)
    big, small = a_job("big").exclusive(2).on("h100").aged(100), a_job("small").aged(50)
    jobs, busy = _tenant("busy", "node-1")
    held = a_slice(busy, percent=100)
    h100 = a_gpu_node(
        devices=2, model="h100", desired=[held], observed=[reported(held, SlicePhase.ATTACHED)]
    )
    other = a_gpu_node("node-2", devices=1)
    found = decided(h100, other, policy, *jobs, busy, big, *big.pods(), small, *small.pods())
    assert found.places()["small-0"] == [gpu("node-2")]


def test_no_more_devices_are_held_than_the_holder_needs() -> None:
    policy = a_policy(gang_skip_limit=0)
    jobs, busy = _tenant("busy", "node-1")
    more, also = _tenant("also", "node-2")
    first, second = a_slice(busy, percent=100), a_slice(also, device=gpu("node-2", 0), percent=100)
    nodes = (
        a_gpu_node(devices=2, desired=[first], observed=[reported(first, SlicePhase.ATTACHED)]),
        a_gpu_node(
            "node-2",
            devices=2,
            desired=[second],
            observed=[reported(second, SlicePhase.ATTACHED)],
        ),
    )
    big, small = a_job("big").exclusive(2).aged(100), a_job("small").aged(50)
    found = decided(
        *nodes, policy, *jobs, busy, *more, also, big, *big.pods(), small, *small.pods()
    )
    assert found.places()["small-0"] == [gpu("node-2", 1)], "two devices of node-1 are enough"
    one = a_gpu_node("node-3", devices=1)
    found = decided(nodes[0], one, policy, *jobs, busy, big, *big.pods(), small, *small.pods())
    assert found.places()["small-0"] == [gpu("node-3")], "it needs two devices of one node"


def test_of_types_the_one_that_serves_the_holder_best_is_held() -> None:
    policy = a_policy(gang_skip_limit=0)
    jobs, busy = _tenant("busy", "node-1")
    more, also = _tenant("also", "node-2")
    slow, fast = a_slice(busy, percent=100), a_slice(also, device=gpu("node-2", 0), percent=100)
    nodes = (
        a_gpu_node(devices=2, desired=[slow], observed=[reported(slow, SlicePhase.ATTACHED)]),
        a_gpu_node(
            "node-2",
            devices=2,
            model="h100",
            desired=[fast],
            observed=[reported(fast, SlicePhase.ATTACHED)],
        ),
    )
    solo = tuple(
        SoloEntry(device=kind, share=100, steps_per_second=rate, samples=9)
        for kind, rate in ((MODEL, 1.0), ("h100", 3.0))
    )
    known = replace(a_profile("big", workload_class="big"), status=ProfileStatus(solo=solo))
    big, small = a_job("big").gang(2).aged(100), a_job("small").aged(50)
    found = decided(
        *nodes, known, policy, *jobs, busy, *more, also, big, *big.pods(), small, *small.pods()
    )
    assert "big-0" not in found.places(), "one of each is free, and a gang is of one type"
    assert found.places()["small-0"] == [gpu("node-1", 1)]


def test_there_is_one_holder_at_a_time() -> None:
    policy = a_policy(gang_skip_limit=0)
    jobs, busy = _tenant("busy", "node-1")
    held = a_slice(busy, percent=100)
    node = a_gpu_node(devices=2, desired=[held], observed=[reported(held, SlicePhase.ATTACHED)])
    first, second = a_job("first").exclusive(2).aged(99), a_job("second").gang(2).aged(98)
    found = decided(node, policy, *jobs, busy, first, *first.pods(), second, *second.pods())
    assert found.decision(first).reason is Reason.NO_CAPACITY
    assert "default/first" in found.decision(second).message


def test_what_is_about_to_become_free_is_kept_for_the_first_in_line() -> None:
    jobs, leaving = _tenant("leaving", "node-1", deleting=True)
    held = a_slice(leaving, percent=100)
    node = a_gpu_node(devices=2, desired=[held], observed=[reported(held, SlicePhase.ATTACHED)])
    big, small = a_job("big").exclusive(2).aged(100), a_job("small").aged(50)
    found = decided(node, *jobs, leaving, big, *big.pods(), small, *small.pods())
    assert "small-0" not in found.places()
    assert "about to become free" in found.decision(big).message
    assert found.decision(small).reason is Reason.NO_CAPACITY


def test_capacity_is_free_only_when_neither_spec_nor_status_name_a_slice() -> None:
    gone = a_slice("uid-gone-0", percent=100)
    job = a_job()
    for desired, observed in (([gone], []), ([], [reported(gone)]), ([gone], [reported(gone)])):
        node = a_gpu_node(devices=1, desired=desired, observed=observed)
        found = decided(node, job, *job.pods())
        assert not found.places(), "still taken; the slice of the pod that is gone goes"
    node = a_gpu_node(devices=1, observed=[reported(gone, SlicePhase.REFUSED)])
    assert decided(node, job, *job.pods()).places()


def test_pods_of_a_service_are_placed_one_by_one() -> None:
    service = a_service().replicas(2)
    pods = [a_pod(f"serve-{at}", owner=service.build(), rank=-1) for at in (1, 2)]
    found = decided(a_gpu_node(devices=1), service, *pods)
    assert list(found.places()) == ["serve-1"]
    assert found.decision(service).reason is Reason.NO_CAPACITY


def test_an_expired_rest_is_slept_off() -> None:
    job = a_job()
    pod = replace(job.pods()[0], created=NOW)
    refusals = {(pod.uid, gpu("node-1", at)): (NOW - 3, NOW - 2, NOW - 1) for at in (0, 1)}
    node = a_gpu_node(heartbeat=NOW + 500)
    snapshot = replace(decided(node, job, pod).snapshot, node_refusals=refusals)
    found = decided_on(snapshot)
    assert not found.places()
    assert found.decision(job).reason is Reason.RESERVATION_REFUSED
    assert found.plan.wake_at == NOW - 1 + 600
    assert decided_on(snapshot, at=NOW + 599).places()
    twice = {key: times[:2] for key, times in refusals.items()}
    assert decided_on(replace(snapshot, node_refusals=twice)).places()


def test_a_cycle_does_a_bounded_amount_and_comes_back_for_the_rest() -> None:
    jobs = [a_job(f"job-{at:03}").aged(1000 - at) for at in range(501)]
    node = a_gpu_node(devices=1)
    created = decided(node, *jobs).all(CreatePod)
    assert len(created) == 500
    assert "job-500-0" not in {one.name for one in created}, "the youngest waits"
    found = decided(node, *jobs)
    assert found.plan.wake_at == NOW + 0.05
    assert found.status(jobs[500]) == jobs[500].build().status, "nothing is said to it yet"
