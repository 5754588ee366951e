# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A gate of another controller is waited for without a time limit, and nothing is reserved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    NOW,
    a_deployment,
    a_gpu_node,
    a_job,
    a_kube_service,
    a_pod,
    a_service,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import decided
from fakes.toy_elastic import JOINS_S, UID, here, in_place, told
from fakes.toy_rounds import FAST, Turns, a_turn_policy
from ullage.api.labels import GATE
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.status import MadeRoom, SizeRecord
from ullage.scheduling.model.plan import DeletePod, Emit, EvictPod, UngatePod

KUEUE = "kueue.x-k8s.io/admission"
A_MONTH_S = 30 * 86_400.0
PAIR = a_job().gang(2)


def blocked(pod: PodRecord, *gates: str) -> PodRecord:
    """A pod that others hold back as well."""
    return replace(pod, gates=(*(gates or (KUEUE,)), *pod.gates))


def test_a_job_waits_for_the_gate_of_another_however_long_and_holds_nothing() -> None:
    (pod,) = a_job().pods(created=NOW - A_MONTH_S, since=NOW - A_MONTH_S)
    found = decided(a_job(), blocked(pod), a_gpu_node())
    assert found.slices() == []
    assert found.all(UngatePod) == found.all(DeletePod) == found.all(EvictPod) == []
    assert found.status("train").phase == "Pending"
    admitted = found.condition("train", "Admitted")
    assert (admitted.status, admitted.reason) == ("False", Reason.WAITING_FOR_GATE)
    assert f"train-0 waits for another controller to remove {KUEUE}" in admitted.message
    assert found.decision("train").reason is Reason.WAITING_FOR_GATE
    assert not found.one(Emit).warning
    assert found.plan.wake_at == 0.0 or found.plan.wake_at > NOW + 60


def test_it_is_placed_when_the_gate_is_gone() -> None:
    found = decided(a_job(), *a_job().pods(), a_gpu_node())
    assert [node for node, _ in found.slices()] == ["node-1"]


def test_a_gang_waits_while_one_member_is_held_back() -> None:
    first, second = PAIR.pods()
    found = decided(PAIR, first, blocked(second), a_gpu_node())
    assert found.slices() == []
    assert "train-1 waits" in found.condition("train", "Admitted").message


def test_all_members_that_are_held_back_are_counted() -> None:
    pods = [blocked(pod, KUEUE, "other.example/gate") for pod in PAIR.pods()]
    message = decided(PAIR, *pods, a_gpu_node()).condition("train", "Admitted").message
    assert message == (
        f"train-0 waits for another controller to remove {KUEUE}, other.example/gate, and so do 1"
        " more of 2 members; nothing is reserved before"
    )


def test_the_message_follows_the_members_that_are_still_held() -> None:
    gang = a_job().gang(2)
    both = [blocked(pod) for pod in gang.pods()]
    first = decided(a_gpu_node(), gang, *both)
    assert "1 more of 2 members" in first.decision(gang).message
    told = replace(gang.build(), status=first.status(gang))
    one, other = both
    later = decided(a_gpu_node(), told, replace(one, gates=(GATE,)), other)
    status = later.status(gang)
    assert status.decision is not None
    for text in (status.decision.message, later.condition(gang, "Admitted").message):
        assert text.startswith("train-1 waits")
        assert "more of 2 members" not in text


def test_what_was_reserved_before_is_given_back() -> None:
    (pod,) = a_job().pods()
    held = a_slice(pod, percent=100)
    node = a_gpu_node(devices=1, desired=[held], observed=[reported(held, SlicePhase.RESERVED)])
    found = decided(a_job(), blocked(pod), node)
    assert found.slices() == []
    assert found.all(UngatePod) == []


def test_another_job_takes_the_device_meanwhile() -> None:
    (pod,) = a_job("old").aged(900).pods()
    other = a_job("other")
    found = decided(
        a_job("old").aged(900), blocked(pod), other, *other.pods(), a_gpu_node(devices=1)
    )
    assert list(found.places()) == ["other-0"]


def test_no_one_is_preempted_for_it() -> None:
    low = a_job("low").checkpointed().status(phase="Running")
    (running,) = low.pods(PodStage.RUNNING, node="node-1")
    held = a_slice(running, percent=100)
    node = a_gpu_node(devices=1, desired=[held], observed=[reported(held, SlicePhase.ATTACHED)])
    high = a_job("high").priority(100)
    (waiting,) = high.pods(priority=100)
    assert decided(low, running, node, high, waiting).all(EvictPod)
    assert not decided(low, running, node, high, blocked(waiting)).all(EvictPod)


def test_a_pod_that_was_let_go_is_not_called_stuck_while_another_holds_it() -> None:
    job = a_job().status(phase="Starting")
    (pod,) = job.pods(since=NOW - A_MONTH_S)
    held = a_slice(pod, percent=100)
    node = a_gpu_node(devices=1, desired=[held], observed=[reported(held, SlicePhase.RESERVED)])
    found = decided(job, replace(pod, gates=(KUEUE,)), node)
    assert found.status("train").phase == "Starting"
    assert found.all(DeletePod) == []


def test_members_left_behind_by_another_gate_end_no_start() -> None:
    job = PAIR.status(phase="Starting")
    first, second = job.pods(since=NOW - A_MONTH_S)
    gone = replace(first, gates=(), stage=PodStage.RUNNING, node="node-1")
    held = a_slice(gone, percent=100)
    node = a_gpu_node(devices=2, desired=[held], observed=[reported(held, SlicePhase.ATTACHED)])
    found = decided(job, gone, blocked(second), node)
    assert found.status("train").phase == "Starting"
    assert found.condition("train", "Admitted").reason == Reason.WAITING_FOR_GATE
    assert found.all(DeletePod) == found.all(EvictPod) == []


def test_a_job_that_is_held_back_takes_no_turn() -> None:
    turns = Turns.of({"n1": FAST}, policy=a_turn_policy())
    held_back, other = a_job("held").checkpointed(), a_job("other").checkpointed()
    turns.add(held_back)
    turns.cycle()
    (pod,) = turns.toy.members("uid-default-held")
    turns.toy.pods[pod.uid] = blocked(pod)
    turns.add(other)
    turns.run(300)
    assert turns.holding() == {"other": FAST}
    assert turns.fraction("other") == {FAST: pytest.approx(1.0)}


def test_a_replica_waits_and_the_others_serve() -> None:
    service = a_service().replicas(2)
    record = service.build()
    serves = a_pod("serve-a", owner=record, stage=PodStage.RUNNING, node="node-1", rank=-1)
    waits = blocked(a_pod("serve-b", owner=record, rank=-1))
    held = a_slice(serves, device=gpu("node-1", 0), percent=100)
    node = a_gpu_node(devices=2, desired=[held], observed=[reported(held, SlicePhase.ATTACHED)])
    kept = a_deployment(record, surge=1, unavailable=0, ready=1), a_kube_service(record)
    found = decided(service, serves, waits, node, *kept)
    assert list(found.places()) == ["serve-a"]
    assert found.all(UngatePod) == []
    admitted = found.condition(service, "Admitted")
    assert (admitted.status, admitted.reason) == ("False", Reason.WAITING_FOR_GATE)
    assert found.status(service).phase == "Degraded"


def test_who_joins_in_place_stays_until_the_other_gate_is_gone() -> None:
    turns = in_place()
    victim = next(pod for pod in turns.toy.members(UID) if pod.rank == 2)
    turns.toy.delete_pod(victim)
    for _ in range(round(JOINS_S)):
        turns.run(1)
        newcomer = next((one for one in turns.toy.members(UID) if GATE in one.gates), None)
        if newcomer is not None:
            break
    else:
        raise AssertionError("no one joins")
    turns.toy.pods[newcomer.uid] = blocked(newcomer)
    made = turns.counts["CreatePod"]
    turns.run(1200)
    assert newcomer.uid in turns.toy.pods, "it is not taken away"
    assert list(here(turns)) == [0, 1]
    assert turns.counts["CreatePod"] == made, "no other is made in its place"
    turns.toy.pods[newcomer.uid] = replace(turns.toy.pods[newcomer.uid], gates=(GATE,))
    turns.run(10)
    assert told(turns) == 3


def test_no_room_is_kept_for_a_gang_that_is_held_back() -> None:
    size = SizeRecord(since=NOW - 60, reason=Reason.RESIZING, message="", resumes=NOW - 1)
    gang = a_job("gang").elastic(2, 4).status(phase="Pending", replicas=2, size=size)
    pods = [blocked(pod) for pod in gang.pods()]
    other = a_job("other").gang(2)
    found = decided(gang, *pods, other, *other.pods(), a_gpu_node(devices=2))
    assert sorted(found.places()) == ["other-0", "other-1"]


def test_no_share_is_kept_for_a_job_that_is_held_back() -> None:
    room = MadeRoom(
        time=NOW - 1,
        percent=50,
        node="node-1",
        gpu=gpu(),
        beneficiary="default/other",
        beneficiary_uid="uid-default-other",
    )
    smaller = a_job("smaller").fractional(30, 100).checkpointed()
    smaller = smaller.status(phase="Pending", made_room=room)
    (pod,) = smaller.pods()
    other = a_job("other").exclusive()
    found = decided(smaller, blocked(pod), other, *other.pods(), a_gpu_node(devices=1))
    assert list(found.places()) == ["other-0"]
