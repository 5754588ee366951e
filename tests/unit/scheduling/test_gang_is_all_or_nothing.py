# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""No member is let go before every member is reserved; what leads nowhere is taken back."""

from __future__ import annotations

from dataclasses import replace

from builders import EPOCH, NOW, WorkloadBuilder, a_gpu_node, a_job, a_node, a_slice, gpu, reported
from fakes.deciding import Decided, decided
from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, SlicePhase
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.snapshot import RefusedWrite
from ullage.scheduling.model.plan import DeletePod, UngatePod

PAIR = a_job().gang(2)


def _slices(pods: tuple[PodRecord, ...], *nodes: str) -> list[DesiredSlice]:
    return [
        a_slice(pod, device=gpu(node), percent=100, memory_mib=16_384)
        for pod, node in zip(pods, nodes, strict=True)
    ]


def _node(name: str, held: DesiredSlice | None, *seen: SlicePhase, **more: object) -> GPUNodeRecord:
    observed = [reported(held, phase) for phase in seen] if held else []
    desired = [held] if held else []
    return a_gpu_node(name, devices=1, desired=desired, observed=observed, **more)  # type: ignore[arg-type]


def _reserved(
    first: tuple[SlicePhase, ...], second: tuple[SlicePhase, ...], **more: object
) -> tuple[Decided, WorkloadBuilder]:
    pods = PAIR.pods()
    held = _slices(pods, "node-1", "node-2")
    nodes = _node("node-1", held[0], *first, **more), _node("node-2", held[1], *second, **more)
    return decided(PAIR, *pods, *nodes), PAIR


def test_members_that_do_not_all_fit_get_nothing() -> None:
    job = a_job().gang(2)
    other = a_job("other")
    busy = other.pods(PodStage.RUNNING, node="node-1")
    held = _slices(busy, "node-1")[0]
    node = _node("node-1", held, SlicePhase.ATTACHED)
    spare = a_gpu_node("node-2", devices=1)
    found = decided(job, *job.pods(), other, *busy, node, spare)
    assert list(found.places()) == ["other-0"]
    assert found.status(job).phase == "Pending"


def test_no_one_is_let_go_while_one_answer_is_missing() -> None:
    found, job = _reserved((SlicePhase.RESERVED,), ())
    assert not found.all(UngatePod)
    assert found.status(job).phase == "Reserving"
    assert found.plan.wake_at == NOW + 30


def test_an_answer_to_an_older_epoch_is_none() -> None:
    pods = PAIR.pods()
    held = _slices(pods, "node-1", "node-2")
    stale = reported(held[1], SlicePhase.RESERVED, epoch=EPOCH - 1)
    nodes = (
        _node("node-1", held[0], SlicePhase.RESERVED),
        replace(_node("node-2", held[1]), observed=(stale,)),
    )
    assert not decided(PAIR, *pods, *nodes).all(UngatePod)


def test_slices_of_an_older_leader_stay_valid() -> None:
    pods = PAIR.pods()
    held = [replace(one, epoch=EPOCH - 3) for one in _slices(pods, "node-1", "node-2")]
    nodes = [
        _node(f"node-{at + 1}", one, SlicePhase.RESERVED, epoch=EPOCH - 3)
        for at, one in enumerate(held)
    ]
    found = decided(PAIR, *pods, *nodes)
    assert len(found.all(UngatePod)) == 2
    assert [one for _, one in found.slices()] == held


def test_all_are_let_go_in_one_pass_to_the_nodes_of_their_slices() -> None:
    found, job = _reserved((SlicePhase.RESERVED,), (SlicePhase.RESERVED,))
    patches = found.all(UngatePod)
    assert [(one.pod.name, one.node, one.gate_index) for one in patches] == [
        ("train-0", "node-1", 0),
        ("train-1", "node-2", 0),
    ]
    assert found.status(job).phase == "Starting"


def test_the_pass_is_resumed_by_whoever_leads() -> None:
    pods = PAIR.pods()
    held = _slices(pods, "node-1", "node-2")
    nodes = [_node(f"node-{at + 1}", one, SlicePhase.RESERVED) for at, one in enumerate(held)]
    gone = replace(pods[0], stage=PodStage.UNSCHEDULED, gates=())
    found = decided(PAIR, gone, pods[1], *nodes)
    assert [one.pod.name for one in found.all(UngatePod)] == ["train-1"]


def test_a_refused_member_is_placed_again_and_the_others_keep_theirs() -> None:
    pods = PAIR.pods()
    held = _slices(pods, "node-1", "node-2")
    nodes = (
        _node("node-1", held[0], SlicePhase.RESERVED),
        _node("node-2", held[1], SlicePhase.REFUSED),
    )
    found = decided(PAIR, *pods, *nodes, a_gpu_node("node-3", devices=1))
    assert found.places() == {"train-0": [gpu("node-1")], "train-1": [gpu("node-3")]}
    lines = found.decision(PAIR).refusals
    assert [(one.reason, one.nearest) for one in lines] == [
        (Reason.RESERVATION_REFUSED, "node-2/GPU-node-2-0")
    ]


def test_a_gang_whose_refused_member_finds_no_place_gives_everything_back() -> None:
    found, job = _reserved((SlicePhase.RESERVED,), (SlicePhase.REFUSED,))
    assert not found.slices()
    assert found.status(job).phase == "Pending"
    assert found.condition(job, "Admitted").status == "False"


def test_a_reservation_without_an_answer_ends_after_30_seconds() -> None:
    found, job = _reserved((SlicePhase.RESERVED,), (), desired_since=NOW - 29)
    assert len(found.slices()) == 2
    found, job = _reserved((SlicePhase.RESERVED,), (), desired_since=NOW - 30)
    assert not found.slices()
    assert found.condition(job, "Admitted").reason == Reason.RESERVATION_EXPIRED
    assert "node-2 did not answer" in found.condition(job, "Admitted").message


def test_a_node_that_did_not_answer_is_passed_over_until_its_agent_speaks() -> None:
    job = a_job()
    pods = job.pods()
    held = _slices(pods, "node-1")[0]
    late = _node("node-1", held, desired_since=NOW - 30, heartbeat=NOW - 20)
    spare = a_gpu_node("node-2", devices=1)
    expired = decided(job, *pods, late, spare)
    job = job.with_(status=expired.status(job))
    silent = a_gpu_node("node-1", devices=1, heartbeat=NOW - 20)
    assert decided(job, *pods, silent, spare).places() == {"train-0": [gpu("node-2")]}
    spoke = a_gpu_node("node-1", devices=1, heartbeat=NOW + 5)
    found = decided(job, *pods, spoke, spare, at=NOW + 6)
    assert found.places() == {"train-0": [gpu("node-1")]}


def test_no_one_is_sent_to_a_node_that_was_lost_meanwhile() -> None:
    pods = PAIR.pods()
    held = _slices(pods, "node-1", "node-2")
    nodes = [_node(f"node-{at + 1}", one, SlicePhase.RESERVED) for at, one in enumerate(held)]
    cordoned = a_node("node-2", unschedulable=True)
    spare = a_gpu_node("node-3", devices=1)
    found = decided(PAIR, *pods, cordoned, *nodes, spare)
    assert not found.all(UngatePod)
    assert found.places() == {"train-0": [gpu("node-1")], "train-1": [gpu("node-3")]}


def test_members_left_behind_for_a_minute_start_the_gang_again() -> None:
    pods = PAIR.pods()
    held = _slices(pods, "node-1", "node-2")
    node = _node("node-1", held[0], SlicePhase.ATTACHED)
    refusing = _node("node-2", held[1], SlicePhase.REFUSED)
    started = replace(
        pods[0], stage=PodStage.RUNNING, gates=(), node="node-1", stage_since=NOW - 59
    )
    found = decided(PAIR, started, pods[1], node, refusing)
    assert found.status(PAIR).phase == "Pending"
    assert list(found.places()) == ["train-0"]
    started = replace(started, stage_since=NOW - 60)
    found = decided(PAIR, started, pods[1], node, refusing)
    assert found.status(PAIR).phase == "Restarting"
    assert found.condition(PAIR, "Admitted").reason == Reason.GANG_INCOMPLETE
    assert not found.all(DeletePod), "the status comes first"


def test_a_refusal_to_ungate_is_the_users_to_see() -> None:
    job = a_job()
    pods = job.pods()
    held = _slices(pods, "node-1")[0]
    refused = RefusedWrite(reason=Reason.NODE_AFFINITY_CONFLICT, message="term 0 is empty")
    found = decided(
        job,
        *pods,
        _node("node-1", held, SlicePhase.RESERVED),
        refused_writes={("Pod", "default", "train-0"): refused},
    )
    assert not found.all(UngatePod)
    admitted = found.condition(job, "Admitted")
    assert (admitted.reason, admitted.message) == (
        Reason.NODE_AFFINITY_CONFLICT,
        "term 0 is empty",
    )
