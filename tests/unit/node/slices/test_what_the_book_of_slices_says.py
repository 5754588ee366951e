# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from builders import reported
from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, SliceKey, SlicePhase
from ullage_node.model.devices import ContainerKey
from ullage_node.model.slices import NodeDevice, Pod, SliceRefusal, container_of
from ullage_node.slices.table import SliceTable, binding_of

KEY = ContainerKey(pod_uid="uid-1", container="main")


def a_slice(
    uid: str = "uid-1",
    gpu: str = "gpu-0",
    percent: int = 50,
    memory_mib: int = 1000,
    *,
    index: int = 0,
    epoch: int = 1,
) -> DesiredSlice:
    return DesiredSlice(
        key=SliceKey(pod_uid=uid, container="main", index=index),
        pod_namespace="team",
        pod_name=f"pod-of-{uid}",
        gpu=gpu,
        percent=percent,
        memory_mib=memory_mib,
        epoch=epoch,
    )


def a_pod(uid: str = "uid-1", phase: str = "Running") -> Pod:
    return Pod(uid=uid, namespace="team", name=f"pod-of-{uid}", phase=phase)


def a_table(*devices: NodeDevice) -> SliceTable:
    table = SliceTable()
    table.set_devices(devices or (NodeDevice(uuid="gpu-0", memory_mib=4000, contexts=3),))
    return table


def start(table: SliceTable, *parts: DesiredSlice, slot: int = 0) -> None:
    slots = [(part, f"slot-{slot + position:02d}") for position, part in enumerate(parts)]
    table.bind(binding_of(slots))


def phases(table: SliceTable) -> dict[str, str]:
    return {part.desired.key.pod_uid: part.phase.value for part in table.held}


def test_what_fits_is_reserved() -> None:
    table = a_table()
    table.intake(1, [a_slice("a"), a_slice("b")])
    assert phases(table) == {"a": "Reserved", "b": "Reserved"}


def test_memory_and_contexts_are_counted_in_order_of_decision() -> None:
    table = a_table()
    table.intake(2, [a_slice("late", memory_mib=2500, epoch=2), a_slice("early", memory_mib=2000)])
    assert phases(table) == {"early": "Reserved", "late": "Refused"}
    refused = table.held[1]
    assert (refused.reason, refused.message) == (
        "CapacityExceeded",
        "gpu-0: needs 2500 MiB with its context, 2000 of 4000 MiB are free beside "
        "team/pod-of-early (50 %)",
    )


def test_context_overhead_counts_once_per_container() -> None:
    table = a_table(NodeDevice(uuid="gpu-0", memory_mib=4000, contexts=8, overhead_mib=500))
    table.intake(1, [a_slice(name, memory_mib=1000) for name in ("a", "b", "c")])
    assert list(phases(table).values()) == ["Reserved", "Reserved", "Refused"]


def test_percent_may_sum_to_more_than_a_hundred() -> None:
    table = a_table()
    table.intake(1, [a_slice(name, percent=80, memory_mib=10) for name in ("a", "b", "c")])
    assert set(phases(table).values()) == {"Reserved"}


def test_no_more_containers_than_contexts() -> None:
    table = a_table()
    table.intake(1, [a_slice(name, memory_mib=10) for name in "abcd"])
    assert list(phases(table).values()).count("Refused") == 1
    assert table.held[3].message == "gpu-0: 3 of 3 places on it are taken"


def test_what_runs_in_a_lane_stays_in_it_whatever_is_decided_anew() -> None:
    """An operator that knows no lanes leaves them out; the lane's memory is promised once still."""
    table = a_table()
    step = {"lane": 2, "persistent_mib": 500, "ephemeral_mib": 3000}
    parts = [replace(a_slice(name, memory_mib=3500), **step) for name in "ab"]
    table.intake(1, parts)
    start(table, parts[0])
    start(table, parts[1], slot=1)
    unsaid = {"lane": 0, "persistent_mib": 0, "ephemeral_mib": 0, "epoch": 2, "protected": True}
    table.intake(2, [replace(part, **unsaid) for part in parts])
    assert [part.desired for part in table.held] == [
        replace(part, epoch=2, protected=True) for part in parts
    ]
    assert table.violations() == []
    version = table.version
    table.intake(2, [replace(part, **unsaid) for part in parts])
    assert table.version == version


@pytest.mark.parametrize(
    ("second", "fits"),
    [
        (a_slice("a", "gpu-1", 100, index=1), True),
        (a_slice("a", "gpu-0", 100, index=1), False),
        (a_slice("a", "gpu-1", 50, index=1), False),
    ],
)
def test_a_container_gets_several_slices_only_as_whole_devices(
    second: DesiredSlice, fits: bool
) -> None:
    table = a_table(
        NodeDevice(uuid="gpu-0", memory_mib=4000, contexts=8),
        NodeDevice(uuid="gpu-1", memory_mib=4000, contexts=8),
    )
    table.intake(1, [a_slice("a", percent=100), second])
    assert (table.held[1].phase is SlicePhase.RESERVED) == fits


def test_an_unknown_device_is_refused() -> None:
    table = a_table()
    table.intake(1, [a_slice(gpu="gpu-9")])
    assert table.held[0].reason == "DeviceLost"


def test_an_unhealthy_device_takes_nothing_new() -> None:
    why = SliceRefusal(reason=Reason.DEVICE_UNHEALTHY, message="gpu-0: Xid 13")
    table = a_table(NodeDevice(uuid="gpu-0", memory_mib=4000, contexts=3, refusal=why))
    table.intake(1, [a_slice()])
    assert (table.held[0].phase, table.held[0].message) == (SlicePhase.REFUSED, "gpu-0: Xid 13")


def test_a_refused_slice_stays_refused_until_it_is_decided_again() -> None:
    table = a_table()
    table.intake(1, [a_slice("a", memory_mib=4000), a_slice("b")])
    table.intake(1, [a_slice("b")])
    assert phases(table) == {"b": "Refused"}
    table.intake(2, [a_slice("b", epoch=2)])
    assert phases(table) == {"b": "Reserved"}


def test_an_unstarted_slice_ends_with_the_spec() -> None:
    table = a_table()
    table.intake(1, [a_slice()])
    table.intake(1, [])
    assert table.held == ()


def test_a_started_slice_outlives_the_spec_and_holds_its_room() -> None:
    table = a_table()
    part = a_slice(memory_mib=4000)
    table.intake(1, [part])
    start(table, part)
    table.intake(1, [a_slice("b")])
    assert phases(table) == {"b": "Refused", "uid-1": "Prepared"}
    assert not table.held[1].in_spec


@pytest.mark.parametrize("change", [{"percent": 60}, {"memory_mib": 2000}, {"gpu": "gpu-9"}])
def test_an_older_epoch_changes_nothing(change: dict[str, object]) -> None:
    table = a_table()
    table.intake(5, [a_slice(epoch=5)])
    older = replace(a_slice(epoch=4), **change)  # type: ignore[arg-type]
    new = a_slice("new", epoch=4)
    assert set(table.intake(5, [older, new])) == {older.key, new.key}
    assert phases(table) == {"uid-1": "Reserved"}
    assert table.held[0].desired == a_slice(epoch=5)


def test_an_unchanged_older_slice_stays_valid_under_a_new_leader() -> None:
    table = a_table()
    table.intake(1, [a_slice()])
    assert table.intake(2, [a_slice(), a_slice("b", epoch=2)]) == ()
    assert set(phases(table).values()) == {"Reserved"}
    assert table.epoch == 2


def test_the_epoch_never_falls() -> None:
    table = a_table()
    table.intake(7, [])
    table.intake(3, [])
    assert table.epoch == 7


def test_a_running_container_keeps_its_share_when_the_decision_changes() -> None:
    table = a_table()
    table.intake(1, [a_slice()])
    start(table, a_slice())
    table.intake(2, [a_slice(percent=90, epoch=2)])
    assert table.held[0].desired.percent == 50
    table.intake(3, [a_slice(percent=50, epoch=3)])
    assert table.held[0].desired.epoch == 3  # the same share under a new leader is taken over


def test_a_reservation_survives_until_its_pod_was_seen_and_is_gone() -> None:
    table = a_table()
    table.intake(1, [a_slice()])
    assert table.see_pods({}, ()) == ()
    assert phases(table) == {"uid-1": "Reserved"}
    table.see_pods({"uid-1": a_pod(phase="Pending")}, ())
    table.see_pods({}, ())
    assert table.held == ()


def test_an_ended_reservation_does_not_come_back_from_the_old_spec() -> None:
    table = a_table()
    table.intake(1, [a_slice()])
    table.see_pods({"uid-1": a_pod(phase="Failed")}, ())
    table.intake(1, [a_slice()])
    assert table.held == ()
    table.intake(1, [])
    table.intake(1, [a_slice()])
    assert phases(table) == {"uid-1": "Reserved"}


def test_a_container_is_over_when_its_pod_is_terminal_or_gone() -> None:
    table = a_table()
    table.intake(1, [a_slice()])
    start(table, a_slice())
    assert table.see_pods({"uid-1": a_pod()}, ()) == ()
    assert table.see_pods({"uid-1": a_pod(phase="Succeeded")}, ()) == (KEY,)
    assert table.see_pods({}, (KEY,)) == (KEY,)
    table.free(KEY)
    assert (table.held, dict(table.slots)) == ((), {})


def test_a_pod_that_kubelet_knows_before_our_watch_is_not_over() -> None:
    table = a_table()
    table.intake(1, [a_slice()])
    start(table, a_slice())
    assert table.see_pods({}, (KEY,)) == ()
    assert table.see_pods({}, ()) == (KEY,)


def test_a_slot_has_one_holder() -> None:
    table = a_table()
    table.intake(1, [a_slice("a"), a_slice("b")])
    start(table, a_slice("a"))
    with pytest.raises(ValueError, match="slot-00 is bound to a_main"):
        start(table, a_slice("b"))


def test_only_held_slices_are_bound() -> None:
    with pytest.raises(ValueError, match="not held as bound"):
        start(a_table(), a_slice())


def test_a_restart_may_bring_other_slots() -> None:
    table = a_table()
    table.intake(1, [a_slice()])
    start(table, a_slice(), slot=1)
    start(table, a_slice(), slot=2)
    assert dict(table.slots) == {"slot-02": KEY}


def test_a_lasting_refusal_gives_room_and_slots_back() -> None:
    table = a_table()
    table.intake(1, [a_slice(memory_mib=4000)])
    start(table, a_slice(memory_mib=4000))
    ended = table.refuse(KEY, SliceRefusal(reason=Reason.EPOCH_STALE, message="x"))
    assert ended is not None
    assert phases(table) == {"uid-1": "Refused"}
    table.intake(1, [a_slice(memory_mib=4000), a_slice("b", memory_mib=4000)])
    assert phases(table)["b"] == "Reserved"


def test_a_passing_refusal_leaves_the_slice_as_it_is() -> None:
    table = a_table()
    table.intake(1, [a_slice()])
    assert table.refuse(KEY, SliceRefusal(reason=Reason.DRAINING, message="one process")) is None
    assert (phases(table), table.held[0].reason) == ({"uid-1": "Reserved"}, "Draining")
    start(table, a_slice())
    assert table.held[0].reason == ""


def test_a_failed_slice_stays_failed_until_its_container_is_gone() -> None:
    table = a_table()
    table.intake(1, [a_slice()])
    start(table, a_slice())
    table.set_phase(
        KEY, SlicePhase.FAILED, SliceRefusal(reason=Reason.UNENFORCED, message="no quota")
    )
    table.set_phase(KEY, SlicePhase.ATTACHED)
    table.refuse(KEY, SliceRefusal(reason=Reason.DRAINING, message="x"))
    assert (phases(table), table.held[0].reason) == ({"uid-1": "Failed"}, "Unenforced")


def test_a_lost_device_fails_runners_and_refuses_waiters() -> None:
    table = a_table()
    table.intake(1, [a_slice("a"), a_slice("b")])
    start(table, a_slice("a"))
    lost = SliceRefusal(reason=Reason.DEVICE_LOST, message="gone")
    table.set_devices([NodeDevice(uuid="gpu-0", memory_mib=4000, contexts=3, refusal=lost)])
    assert phases(table) == {"a": "Failed", "b": "Refused"}


def test_an_unhealthy_device_leaves_its_tenants_alone() -> None:
    table = a_table()
    table.intake(1, [a_slice("a"), a_slice("b")])
    start(table, a_slice("a"))
    sick = SliceRefusal(reason=Reason.DEVICE_UNHEALTHY, message="hot")
    table.set_devices([NodeDevice(uuid="gpu-0", memory_mib=4000, contexts=3, refusal=sick)])
    assert phases(table) == {"a": "Prepared", "b": "Reserved"}


def test_nothing_new_is_no_change() -> None:
    table = a_table()
    table.intake(1, [a_slice()])
    start(table, a_slice())
    table.see_pods({"uid-1": a_pod()}, ())
    before = table.version
    table.intake(1, [a_slice()])
    table.see_pods({"uid-1": a_pod()}, ())
    table.set_devices(table.devices.values())
    assert table.version == before


def test_names_of_pods_in_play() -> None:
    table = a_table()
    table.intake(1, [a_slice("a"), replace(a_slice("b"), pod_name="pod-of-a")])
    assert table.uids_named("team", "pod-of-a") == {"a", "b"}
    table.see_pods({"a": replace(a_pod("a"), phase="Failed")}, ())
    assert table.uids_named("team", "pod-of-a") == {"b"}


def test_what_runs_is_adopted_as_it_was_started() -> None:
    table = a_table()
    table.intake(1, [a_slice(percent=10)])
    table.adopt([(a_slice(percent=70), "slot-03")])
    assert (table.held[0].desired.percent, table.held[0].phase) == (70, SlicePhase.PREPARED)
    assert table.holder("slot-03") == table.binding(container_of(a_slice()))
    assert table.held[0].in_spec


def test_after_a_reboot_slots_are_forgotten_and_slices_reserved() -> None:
    table = a_table()
    table.intake(1, [a_slice()])
    start(table, a_slice())
    table.release_slots(KEY)
    assert (phases(table), dict(table.slots)) == ({"uid-1": "Reserved"}, {})


def test_what_an_earlier_agent_reported_holds_its_room_until_the_spec_says_more() -> None:
    runs = a_slice("runs", memory_mib=3000)
    waits = a_slice("waits", memory_mib=500)
    table = a_table()
    table.remember([reported(runs, SlicePhase.PREPARED), reported(waits, SlicePhase.RESERVED)])
    (held,) = table.held  # what had not started holds nothing
    assert (held.desired.key, held.phase, held.in_spec) == (runs.key, SlicePhase.PREPARED, False)
    table.intake(1, [a_slice("new", memory_mib=2000)])
    assert phases(table) == {"new": "Refused", "runs": "Prepared"}
    table.intake(1, [runs])
    (held,) = table.held
    assert held.in_spec
