# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, SliceKey, SlicePhase
from ullage_node.kubelet.pod_resources import Listing, SlotOwner
from ullage_node.model.devices import ContainerKey
from ullage_node.model.slices import HeldSlice, NodeDevice, Pod, SliceRefusal
from ullage_node.slices.prestart import ContainerStart, Leftover, decide, owner_of
from ullage_node.slices.table import binding_of

OWNER = SlotOwner(namespace="team", pod="trainer", container="main")
OTHER = SlotOwner(namespace="team", pod="other", container="main")
WANTED = DesiredSlice(
    key=SliceKey(pod_uid="uid-1", container="main"),
    pod_namespace="team",
    pod_name="trainer",
    gpu="gpu-0",
    percent=40,
    memory_mib=1000,
    epoch=3,
)
HELD = HeldSlice(desired=WANTED, phase=SlicePhase.RESERVED)
DEVICE = NodeDevice(uuid="gpu-0", memory_mib=4000, contexts=4)


def a_start(**change: object) -> ContainerStart:
    start = ContainerStart(
        slots=("slot-07",),
        container=ContainerKey(pod_uid="uid-1", container="main"),
        pod="team/trainer",
        wanted=(WANTED,),
        held=(HELD,),
        everyone=(HELD,),
        devices={"gpu-0": DEVICE},
    )
    return replace(start, **change)  # type: ignore[arg-type]


def refused(start: ContainerStart) -> SliceRefusal:
    verdict = decide(start)
    assert isinstance(verdict, SliceRefusal)
    return verdict


def a_leftover(*, live: bool, pids: tuple[int, ...]) -> Leftover:
    old = replace(WANTED, key=SliceKey(pod_uid="old", container="main"), pod_name="old")
    return Leftover(binding=binding_of([(old, "slot-07")]), live=live, pids=pids)


def test_a_reserved_slice_becomes_the_slot() -> None:
    assert decide(a_start()) == binding_of([(WANTED, "slot-07")])


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ({"wanted": ()}, Reason.PLACEMENT_MISSING, "container main of team/trainer"),
        ({"held": ()}, Reason.PLACEMENT_MISSING, "on this node"),
        ({"slots": ("slot-01", "slot-02")}, Reason.SLOT_COUNT, "2 slots for 1 slices"),
        (
            {"wanted": (replace(WANTED, epoch=4),)},
            Reason.EPOCH_STALE,
            "decided in epoch 4, reserved is epoch 3",
        ),
        ({"wanted": (replace(WANTED, percent=50),)}, Reason.EPOCH_STALE, "reserved is epoch 3"),
        (
            {"leftovers": (a_leftover(live=False, pids=(1, 2)),)},
            Reason.DRAINING,
            "2 processes of team/old",
        ),
        (
            {"leftovers": (a_leftover(live=True, pids=()),)},
            Reason.DRAINING,
            "slot-07 still belongs to live pod team/old",
        ),
        ({"devices": {}}, Reason.DEVICE_LOST, "gpu-0 is not on this node"),
        (
            {"devices": {"gpu-0": replace(DEVICE, memory_mib=900)}},
            Reason.CAPACITY_EXCEEDED,
            "needs 1000 MiB with its context, 900 of 900 MiB are free",
        ),
    ],
)
def test_every_refusal_names_what_binds(
    change: dict[str, object], reason: Reason, words: str
) -> None:
    refusal = refused(a_start(**change))
    assert refusal.reason is reason
    assert words in refusal.message


def test_a_drained_predecessor_does_not_matter() -> None:
    assert not isinstance(
        decide(a_start(leftovers=(a_leftover(live=False, pids=()),))), SliceRefusal
    )


def test_a_lasting_refusal_never_comes_before_the_old_process_ended() -> None:
    start = a_start(slots=("slot-01", "slot-02"), leftovers=(a_leftover(live=False, pids=(1,)),))
    assert refused(start).reason is Reason.DRAINING


def test_what_was_refused_for_good_is_refused_in_the_same_words() -> None:
    held = replace(HELD, phase=SlicePhase.REFUSED, reason="CapacityExceeded", message="short")
    assert refused(a_start(held=(held,))).text == "CapacityExceeded: short; retrying"


def listing(**slots: set[SlotOwner]) -> Listing:
    return Listing(owners={name.replace("_", "-"): frozenset(who) for name, who in slots.items()})


def test_the_owner_is_whom_kubelet_lists() -> None:
    assert owner_of(["slot-01"], listing(slot_01={OWNER}, slot_02={OTHER}), ()) == OWNER


def test_all_slots_belong_to_one_container() -> None:
    found = owner_of(["slot-01", "slot-02"], listing(slot_01={OWNER}, slot_02={OTHER}), ())
    assert isinstance(found, SliceRefusal)
    assert found.reason is Reason.SLOT_UNKNOWN


@pytest.mark.parametrize(("phase", "known"), [("Succeeded", True), ("Running", False)])
def test_finished_pods_that_are_still_listed_do_not_count(phase: str, known: bool) -> None:
    other = Pod(uid="o", namespace="team", name="other", phase=phase)
    found = owner_of(["slot-01"], listing(slot_01={OWNER, OTHER}), [other])
    assert (found == OWNER) == known


def test_an_unlisted_slot_is_unknown() -> None:
    found = owner_of(["slot-01"], listing(), ())
    assert isinstance(found, SliceRefusal)
    assert found.text == "SlotUnknown: slot-01: kubelet lists no pod for it; retrying"
