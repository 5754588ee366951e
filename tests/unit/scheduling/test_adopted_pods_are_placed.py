# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pods of other controllers are placed, pinned and let go; others create and end them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    NOW,
    WorkloadBuilder,
    a_gpu_node,
    a_job,
    a_node,
    a_pod,
    a_shape,
    a_slice,
    an_adopted,
    gpu,
    reported,
)
from fakes.deciding import Decided, decided
from ullage.api.labels import GATE
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.codecs.pod_status import MOST_BYTES, kept_in_pods, scheduling_annotation
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.workload import AdoptedMember
from ullage.cluster.values.device_ref import DeviceRef
from ullage.scheduling.inventory.timeouts import Trouble
from ullage.scheduling.lifecycle import adopted
from ullage.scheduling.model.plan import (
    ApplyGPUNode,
    CreatePod,
    DeletePod,
    Emit,
    EvictPod,
    TellPod,
    UngatePod,
)

KUEUE = "kueue.x-k8s.io/admission"
WEB = an_adopted("web").fractional(30, 60)
A_MONTH_S = 30 * 86_400.0


def pods_of(unit: WorkloadBuilder, count: int = 1, **fields: object) -> tuple[PodRecord, ...]:
    """Pods of a unit, the oldest first."""
    name = unit.record.ref.name
    return tuple(
        a_pod(f"{name}-{at}", owner=unit.record, rank=-1, created=NOW - 60 + at, **fields)  # type: ignore[arg-type]
        for at in range(count)
    )


def a_gang(size: int, exist: int) -> WorkloadBuilder:
    unit = an_adopted("g").fractional(30).gang(size)
    members = tuple(
        AdoptedMember(
            pod=replace(unit.record.ref, uid=f"uid-g-{at}", name=f"g-{at}"), is_current=False
        )
        for at in range(exist)
    )
    return unit.with_(adopted=members)


def holding(pods: tuple[PodRecord, ...], phase: SlicePhase = SlicePhase.RESERVED) -> object:
    """A node that holds a slice of each pod."""
    slices = tuple(a_slice(pod, device=gpu(index=at), percent=30) for at, pod in enumerate(pods))
    return a_gpu_node(
        devices=4, desired=slices, observed=tuple(reported(one, phase) for one in slices)
    )


def admitted(found: Decided, unit: WorkloadBuilder) -> tuple[str, str, str]:
    condition = found.condition(unit, "Admitted")
    return condition.status, condition.reason, condition.message


def test_a_pod_is_given_a_slice_and_told_in_its_own_status() -> None:
    found = decided(WEB, *pods_of(WEB), a_gpu_node())
    ((node, part),) = found.slices()
    assert (node, part.pod_name, part.percent) == ("node-1", "web-0", 60)
    assert found.all(UngatePod) == found.all(CreatePod) == []
    told = found.one(TellPod)
    assert (told.owner.kind, told.owner.name, told.unit) == ("Pod", "web-0", WEB.record.ref.uid)
    assert admitted(found, WEB)[:2] == ("True", Reason.PLACED)
    event = found.one(Emit)
    assert (event.target.name, event.reason, event.warning) == ("web-0", Reason.PLACED, False)


def test_it_is_pinned_and_ungated_in_one_patch_when_its_node_agrees() -> None:
    pods = pods_of(WEB)
    found = decided(WEB, *pods, holding(pods))  # type: ignore[arg-type]
    let_go = found.one(UngatePod)
    assert (let_go.pod.name, let_go.node) == ("web-0", "node-1")


def test_a_pod_without_room_waits_and_says_what_is_missing() -> None:
    unit = an_adopted("web").on("nvidia-h100-80gb-hbm3")
    found = decided(unit, *pods_of(unit), a_gpu_node())
    status, reason, message = admitted(found, unit)
    assert (status, reason) == ("False", Reason.UNKNOWN_ACCELERATOR)
    assert "nvidia-h100" in message
    assert found.slices() == []


def test_gates_of_others_are_waited_for_however_long() -> None:
    (pod,) = pods_of(WEB, since=NOW - A_MONTH_S)
    found = decided(WEB, replace(pod, gates=(KUEUE, GATE)), a_gpu_node())
    status, reason, message = admitted(found, WEB)
    assert (status, reason) == ("False", Reason.WAITING_FOR_GATE)
    assert KUEUE in message
    assert found.slices() == []
    assert found.all(EvictPod) == found.all(DeletePod) == []
    assert found.plan.wake_at == 0.0 or found.plan.wake_at > NOW + 60


def test_a_gang_waits_until_all_its_pods_exist() -> None:
    unit = a_gang(4, 3)
    found = decided(unit, *pods_of(unit, 3), a_gpu_node(devices=4))
    status, reason, message = admitted(found, unit)
    assert (status, reason) == ("False", Reason.PODS_MISSING)
    assert "1 of 4 pods missing" in message
    assert found.slices() == []
    assert {one.owner.name for one in found.all(TellPod)} == {"g-0", "g-1", "g-2"}
    assert found.one(Emit).target.name == "g-0"


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    unit = a_gang(4, 4).exclusive()
    short = decided(unit, *pods_of(unit, 4), a_gpu_node(devices=3))
    assert short.slices() == []
    whole = decided(unit, *pods_of(unit, 4), a_gpu_node(devices=4))
    assert len(whole.slices()) == 4


def test_a_pod_too_many_waits() -> None:
    unit = a_gang(2, 3)
    pods = pods_of(unit, 3)
    found = decided(unit, *pods, a_gpu_node(devices=4))
    assert set(found.places()) == {"g-0", "g-1"}
    running = tuple(
        replace(one, stage=PodStage.RUNNING, gates=(), node="node-1") for one in pods[:2]
    )
    later = decided(unit, *running, pods[2], holding(running, SlicePhase.ATTACHED))  # type: ignore[arg-type]
    assert set(later.places()) == {"g-0", "g-1"}
    assert later.all(UngatePod) == []


def test_a_pod_too_many_is_told_so_and_the_gang_stays_admitted() -> None:
    unit = a_gang(2, 3)
    *members, extra = unit.record.adopted
    unit = unit.with_(adopted=(*members, replace(extra, too_many=True)))
    pods = pods_of(unit, 3)
    running = tuple(
        replace(one, stage=PodStage.RUNNING, gates=(), node="node-1", ready=True)
        for one in pods[:2]
    )
    found = decided(unit, *running, pods[2], holding(running, SlicePhase.ATTACHED))  # type: ignore[arg-type]
    assert admitted(found, unit)[:2] == ("True", Reason.PLACED)
    told = {one.owner.name: one.status.condition("Admitted") for one in found.all(TellPod)}
    assert {name: one and one.reason for name, one in told.items()} == {
        "g-0": Reason.PLACED,
        "g-1": Reason.PLACED,
        "g-2": Reason.GANG_COMPLETE,
    }
    status = replace(kept_in_pods(found.status(unit)), observed_generation=0)
    known = tuple(replace(one, is_current=not one.too_many) for one in unit.record.adopted)
    again = unit.with_(status=status, adopted=known)
    later = decided(again, *running, pods[2], holding(running, SlicePhase.ATTACHED))  # type: ignore[arg-type]
    assert [one.owner.name for one in later.all(TellPod)] == ["g-2"]


def test_failed_pods_of_a_gang_do_not_keep_it_from_being_admitted() -> None:
    unit = a_gang(2, 2)
    failed, *pods = pods_of(unit, 3)
    gone = replace(failed, stage=PodStage.FAILED, gates=(), node="node-1")
    runs = tuple(
        replace(one, stage=PodStage.RUNNING, gates=(), node="node-1", ready=True) for one in pods
    )
    found = decided(unit, gone, *runs, holding(runs, SlicePhase.ATTACHED))  # type: ignore[arg-type]
    assert admitted(found, unit)[:2] == ("True", Reason.PLACED)


def test_the_successor_of_a_failed_pod_joins_its_gang() -> None:
    unit = a_gang(2, 2)
    old, new = pods_of(unit, 2)
    runs = replace(old, stage=PodStage.RUNNING, gates=(), node="node-1")
    found = decided(unit, runs, new, holding((runs,), SlicePhase.ATTACHED))  # type: ignore[arg-type]
    assert set(found.places()) == {"g-0", "g-1"}


def test_a_pod_that_ended_well_counts_and_one_that_failed_does_not() -> None:
    unit = a_gang(2, 1)
    done, new = pods_of(unit, 2)
    ended = replace(done, stage=PodStage.SUCCEEDED, gates=(), node="node-1")
    assert set(decided(unit, ended, new, a_gpu_node()).places()) == {"g-1"}
    failed = replace(ended, stage=PodStage.FAILED)
    assert decided(unit, failed, new, a_gpu_node()).slices() == []


def test_what_cannot_be_read_waits_and_the_others_are_placed() -> None:
    bad = an_adopted("bad").with_(
        invalid="label ullage.dev/share='x': write ...",
        shape=replace(WEB.record.shape, device_container=""),
    )
    found = decided(bad, *pods_of(bad), WEB, *pods_of(WEB), a_gpu_node())
    assert set(found.places()) == {"web-0"}
    status, reason, message = admitted(found, bad)
    assert (status, reason) == ("False", Reason.INVALID_OBJECT)
    assert "write ..." in message
    assert found.all(DeletePod) == found.all(EvictPod) == []


def stuck(pods: tuple[PodRecord, ...], *, controlled: bool) -> tuple[PodRecord, ...]:
    """Let go long ago, and not scheduled."""
    return tuple(
        replace(
            pod, stage=PodStage.UNSCHEDULED, gates=(), stage_since=NOW - 600, controlled=controlled
        )
        for pod in pods
    )


def test_a_stuck_pod_is_evicted_where_its_controller_creates_another() -> None:
    pods = stuck(pods_of(WEB), controlled=True)
    found = decided(WEB, *pods, holding(pods))  # type: ignore[arg-type]
    evicted = found.one(EvictPod)
    assert (evicted.pod.name, evicted.reason) == ("web-0", Reason.STUCK_UNSCHEDULED)
    assert found.all(DeletePod) == []


def test_a_stuck_bare_pod_is_left_alone_and_told() -> None:
    pods = stuck(pods_of(WEB), controlled=False)
    found = decided(WEB, *pods, holding(pods))  # type: ignore[arg-type]
    assert found.all(EvictPod) == found.all(DeletePod) == []
    status, reason, message = admitted(found, WEB)
    assert (status, reason) == ("False", Reason.STUCK_UNSCHEDULED)
    assert "create it again yourself" in message
    assert found.slices() == [], "it keeps no slice that it cannot use"
    later = decided(WEB, *pods, a_gpu_node())
    assert later.slices() == []
    assert admitted(later, WEB)[1] == Reason.STUCK_UNSCHEDULED


def test_a_bare_pod_that_is_bound_late_gets_a_slice_on_its_node() -> None:
    (pod,) = stuck(pods_of(WEB), controlled=False)
    bound = replace(pod, stage=PodStage.BOUND, node="node-2", shape=a_shape(cpu=40))
    small = a_node("node-2", cpu=64)
    found = decided(WEB, bound, a_gpu_node("node-1"), a_gpu_node("node-2"), small)
    assert [node for node, _ in found.slices()] == ["node-2"]
    assert found.all(UngatePod) == found.all(EvictPod) == found.all(DeletePod) == []


def without_image(pods: tuple[PodRecord, ...], reason: str = "ImagePullBackOff") -> PodRecord:
    """Bound long ago, and its image does not come."""
    (pod,) = pods
    return replace(
        pod,
        stage=PodStage.BOUND,
        gates=(),
        node="node-1",
        stage_since=NOW - 600,
        controlled=False,
        waiting_reason=reason,
        waiting_message="manifest unknown",
    )


def test_a_bare_pod_whose_image_does_not_come_gives_its_share_back_and_is_told() -> None:
    pod = without_image(pods_of(WEB))
    found = decided(WEB, pod, holding((pod,)))  # type: ignore[arg-type]
    assert found.all(EvictPod) == found.all(DeletePod) == []
    assert found.slices() == [], "others may have the share meanwhile"
    status, reason, message = admitted(found, WEB)
    assert (status, reason) == ("False", Reason.IMAGE_PULL_FAILED)
    assert "manifest unknown" in message
    assert "gets one on its node again once kubelet has the image" in message
    later = decided(WEB, pod, a_gpu_node())
    assert later.slices() == []
    assert admitted(later, WEB)[1:] == (reason, message)


def test_a_bare_pod_whose_image_came_late_gets_a_share_on_its_node() -> None:
    pod = without_image(pods_of(WEB), "CreateContainerConfigError")
    found = decided(WEB, pod, a_gpu_node("node-1"), a_gpu_node("node-2"))
    assert [node for node, _ in found.slices()] == ["node-1"]
    assert found.all(EvictPod) == found.all(DeletePod) == []


def test_a_bare_pod_keeps_its_share_where_a_container_uses_it_and_another_lacks_its_image() -> None:
    pod = without_image(pods_of(WEB))
    found = decided(WEB, pod, holding((pod,), SlicePhase.ATTACHED))  # type: ignore[arg-type]
    assert found.all(ApplyGPUNode) == []
    assert admitted(found, WEB)[1] == Reason.IMAGE_PULL_FAILED
    assert "create it again yourself" in admitted(found, WEB)[2]


def test_a_stuck_bare_pod_that_saves_its_work_is_evicted() -> None:
    unit = WEB.with_(checkpoint=True)
    pods = stuck(pods_of(unit), controlled=False)
    found = decided(unit, *pods, holding(pods))  # type: ignore[arg-type]
    assert found.one(EvictPod).pod.name == "web-0"


def test_a_device_where_it_disturbed_others_is_left_out_for_its_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (pod,) = pods_of(WEB)
    runs = replace(pod, stage=PodStage.RUNNING, gates=(), node="node-1", controlled=True)
    device = DeviceRef("node-1", gpu())
    trouble = Trouble(Reason.INTERFERING, "it slows others down", device)
    monkeypatch.setattr(adopted.timeouts, "trouble", lambda view, member: trouble)
    found = decided(WEB, runs, holding((runs,), SlicePhase.ATTACHED))  # type: ignore[arg-type]
    assert found.one(EvictPod).reason is Reason.INTERFERING
    (exclusion,) = found.status(WEB).scheduling.exclusions
    assert exclusion.device == device


@pytest.mark.parametrize(("exist", "left"), [(1, 0), (2, 2)])
def test_a_gang_that_lacks_a_pod_again_gives_its_reservations_back(exist: int, left: int) -> None:
    unit = a_gang(2, exist)
    pods = pods_of(unit, exist)
    found = decided(unit, *pods, holding(pods))  # type: ignore[arg-type]
    assert len(found.slices()) == left


def test_of_pods_too_many_the_one_with_a_place_keeps_it() -> None:
    unit = a_gang(1, 2)
    old, young = pods_of(unit, 2)
    found = decided(unit, old, young, holding((young,)))  # type: ignore[arg-type]
    assert set(found.places()) == {"g-1"}


def test_a_pod_that_cannot_be_read_any_more_gives_its_reservation_back() -> None:
    bad = WEB.with_(
        invalid="label ullage.dev/share='x': write ...",
        shape=replace(WEB.record.shape, device_container=""),
    )
    pods = pods_of(bad)
    found = decided(bad, *pods, holding(pods))  # type: ignore[arg-type]
    assert found.slices() == []


@pytest.mark.parametrize("checkpoint", [True, False])
def test_only_pods_that_save_their_work_are_preempted(checkpoint: bool) -> None:
    unit = an_adopted("web").with_(checkpoint=checkpoint)
    (pod,) = pods_of(unit)
    runs = replace(pod, stage=PodStage.RUNNING, gates=(), node="node-1", ready=True)
    boss = a_job("boss").priority(10)
    (waiting,) = boss.pods(priority=10)
    part = a_slice(runs, device=gpu(), percent=100)
    node = a_gpu_node(devices=1, desired=(part,), observed=(reported(part, SlicePhase.ATTACHED),))
    found = decided(unit, runs, boss, waiting, node)
    assert [one.pod.name for one in found.all(EvictPod)] == (["web-0"] if checkpoint else [])
    if checkpoint:
        assert found.status(unit).condition("Admitted").reason == Reason.PREEMPTED  # type: ignore[union-attr]
        assert "its controller creates it again" in admitted(found, unit)[2]


def test_a_status_that_was_told_is_not_written_again() -> None:
    pods = pods_of(WEB)
    first = decided(WEB, *pods, a_gpu_node())
    status = kept_in_pods(first.status(WEB))
    told = WEB.with_(
        status=status,
        adopted=tuple(replace(one, is_current=True) for one in WEB.record.adopted),
    )
    part = first.slices()[0][1]
    again = decided(told, *pods, a_gpu_node(desired=(part,)))
    assert again.all(TellPod) == again.all(Emit) == []
    unit = an_adopted("x").on("none")
    waits = decided(unit, *pods_of(unit), a_gpu_node())
    unit = unit.with_(status=kept_in_pods(waits.status(unit)))
    assert decided(unit, *pods_of(unit), a_gpu_node()).all(TellPod) == []


def test_a_pod_that_joins_a_told_gang_is_told_alone() -> None:
    unit = a_gang(4, 3)
    found = decided(unit, *pods_of(unit, 3), a_gpu_node(devices=4))
    status = replace(kept_in_pods(found.status(unit)), observed_generation=0)
    members = tuple(replace(one, is_current=at < 2) for at, one in enumerate(unit.record.adopted))
    unit = unit.with_(status=status, adopted=members)
    again = decided(unit, *pods_of(unit, 3), a_gpu_node(devices=4))
    assert [one.owner.name for one in again.all(TellPod)] == ["g-2"]
    assert again.all(Emit) == []


def test_a_running_pod_is_left_in_peace() -> None:
    (pod,) = pods_of(WEB)
    runs = replace(pod, stage=PodStage.RUNNING, gates=(), node="node-1", ready=True)
    found = decided(WEB, runs, holding((runs,), SlicePhase.ATTACHED))  # type: ignore[arg-type]
    assert found.all(EvictPod) == found.all(UngatePod) == []
    assert {one.type: one.status for one in found.status(WEB).conditions} == {
        "Admitted": "True",
        "Enforced": "True",
    }


def test_a_pod_on_its_way_out_is_not_told_and_gives_its_reservation_back() -> None:
    (pod,) = pods_of(WEB, deleting=True)
    found = decided(WEB, pod, holding((pod,)))  # type: ignore[arg-type]
    assert found.slices() == []
    assert found.all(TellPod) == []


@pytest.mark.parametrize(("size", "observed"), [(1, "1.25"), (2, "")])
def test_pods_keep_what_they_hold_and_gangs_nothing_that_moves(size: int, observed: str) -> None:
    unit = WEB if size == 1 else a_gang(size, size)
    pods = pods_of(unit, size, stage=PodStage.RUNNING, node="node-1")
    held = [a_slice(pod, percent=30) for pod in pods]
    seen = [
        replace(reported(one, SlicePhase.ATTACHED), step_micros=15_000, solo_step_micros=12_000)
        for one in held
    ]
    node = a_gpu_node(devices=size, desired=held, observed=seen)
    for told in decided(unit, *pods, node).all(TellPod):
        sharing = told.status.sharing
        assert sharing is not None
        assert (sharing.percent, sharing.observed) == (30, observed)
        assert sharing.predicted
        assert len(scheduling_annotation(told.status)) <= MOST_BYTES
