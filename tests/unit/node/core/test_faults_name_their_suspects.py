# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.api.faults import MAX_FAULTS, MAX_SUSPECTS, DeviceFault
from ullage.api.slices import DesiredSlice, SliceKey, SlicePhase
from ullage_node.faults import FaultBook
from ullage_node.model.devices import FaultEvent, FaultReading
from ullage_node.model.slices import HeldSlice
from ullage_node.times import FAULT_KEPT_S, SAME_FAULT_S

WALL = 1_800_000_000.0


def held(
    pod: str,
    gpu: str = "gpu-0",
    kind: str = "train",
    phase: SlicePhase = SlicePhase.ATTACHED,
    namespace: str = "team",
) -> HeldSlice:
    return HeldSlice(
        desired=DesiredSlice(
            key=SliceKey(pod_uid=pod, container="main"),
            pod_namespace=namespace,
            pod_name=pod,
            gpu=gpu,
            percent=25,
            memory_mib=1,
            workload_class=kind,
            epoch=1,
        ),
        phase=phase,
    )


def event(xid: int = 31, gpu: str = "gpu-0") -> FaultEvent:
    return FaultEvent(gpu=gpu, gpus=(gpu,), xid=xid)


def reading(*events: FaultEvent, settled_at: float = 0.0) -> FaultReading:
    return FaultReading(events=events, settled_at=settled_at)


def suspects(fault: DeviceFault) -> list[str]:
    return [suspect.pod_uid for suspect in fault.suspects]


def test_who_is_on_the_device_is_suspected_and_no_one_else() -> None:
    book = FaultBook()
    book.see([held("a"), held("b"), held("c", gpu="gpu-1")], now=1.0)
    assert book.take(reading(event()), WALL)
    (fault,) = book.faults
    assert (fault.gpu, fault.xid, fault.at_s) == ("gpu-0", 31, WALL)
    assert suspects(fault) == ["a", "b"]
    assert fault.suspects[0].workload_class == "train"


@pytest.mark.parametrize("phase", [SlicePhase.RESERVED, SlicePhase.REFUSED])
def test_a_pod_that_never_started_is_no_suspect(phase: SlicePhase) -> None:
    book = FaultBook()
    book.see([held("a"), held("b", phase=phase)], now=1.0)
    book.take(reading(event()), WALL)
    assert suspects(book.faults[0]) == ["a"]


def test_a_pod_that_left_before_the_fault_was_read_is_suspected_too() -> None:
    book = FaultBook()
    book.see([held("a")], now=1.0)
    book.take(reading(settled_at=2.0), WALL)
    book.see([held("b")], now=3.0)
    book.take(reading(event(), settled_at=4.0), WALL)
    assert suspects(book.faults[0]) == ["a", "b"]


def test_a_pod_that_left_between_reading_and_taking_is_suspected_at_the_next_reading() -> None:
    book = FaultBook()
    book.see([held("a")], now=1.0)
    book.see([held("b")], now=5.0)  # the driver's queue was read at 4, before a left
    book.take(reading(settled_at=4.0), WALL)
    book.take(reading(event(), settled_at=6.0), WALL)
    assert suspects(book.faults[0]) == ["a", "b"]


def test_a_pod_that_left_before_everything_was_read_is_no_suspect_any_more() -> None:
    book = FaultBook()
    book.see([held("a")], now=1.0)
    book.see([held("b")], now=3.0)
    book.take(reading(settled_at=4.0), WALL)
    book.take(reading(event(), settled_at=6.0), WALL)
    assert suspects(book.faults[0]) == ["b"]


def test_no_pod_is_forgotten_while_events_are_still_to_be_read() -> None:
    book = FaultBook()
    book.see([held("a")], now=1.0)
    book.see([held("b")], now=3.0)
    for second in range(10):  # a flood: every reading ends before the queue does
        book.take(reading(event(xid=second), settled_at=0.0), WALL)
    assert all(suspects(fault) == ["a", "b"] for fault in book.faults)


def test_the_numbers_of_one_broken_program_are_one_fault() -> None:
    book = FaultBook()
    book.see([held("a")], now=1.0)
    book.take(reading(event(13), event(13), event(31), event(43)), WALL)
    book.take(reading(event(13)), WALL + SAME_FAULT_S - 1)
    assert [fault.xid for fault in book.faults] == [13]
    book.take(reading(event(13)), WALL + SAME_FAULT_S)
    assert [fault.xid for fault in book.faults] == [13, 13]
    assert book.counts["gpu-0", "13"] == 4


def test_another_pod_another_device_another_cause_are_other_faults() -> None:
    book = FaultBook()
    book.see([held("a"), held("b", gpu="gpu-1")], now=1.0)
    book.take(reading(event(31), event(31, "gpu-1"), event(45), event(79)), WALL)
    assert [(fault.gpu, fault.xid) for fault in book.faults] == [
        ("gpu-0", 31),
        ("gpu-1", 31),
        ("gpu-0", 45),
        ("gpu-0", 79),
    ]


def test_a_fault_of_a_gpu_in_parts_is_about_all_of_them() -> None:
    book = FaultBook()
    book.see([held("a", gpu="mig-a"), held("b", gpu="mig-b")], now=1.0)
    book.take(reading(FaultEvent(gpu="gpu-0", gpus=("mig-a", "mig-b"), xid=31)), WALL)
    (fault,) = book.faults
    assert (fault.gpu, suspects(fault)) == ("gpu-0", ["a", "b"])


@pytest.mark.slow
def test_a_flood_of_one_device_hides_no_other() -> None:
    book = FaultBook()
    book.see([held("a"), held("b", gpu="gpu-1")], now=1.0)
    book.take(reading(event(31, "gpu-1")), WALL)
    for minute in range(100):
        book.take(reading(*(event(xid) for xid in range(64))), WALL + 60 * minute)
    assert len(book.faults) == MAX_FAULTS
    assert sum(fault.gpu == "gpu-1" for fault in book.faults) == 1
    assert book.faults[-1].at_s == WALL + 60 * 99  # the newest are kept


def test_faults_leave_the_status_after_a_week() -> None:
    book = FaultBook()
    book.take(reading(event()), WALL)
    assert not book.take(reading(), WALL + FAULT_KEPT_S)
    assert not book.faults


def test_a_restarted_agent_keeps_the_identity_of_what_was_reported() -> None:
    old, new = FaultBook(), FaultBook()
    old.see([held("a")], now=1.0)
    old.take(reading(event()), WALL)
    new.see([held("a")], now=1.0)
    new.restore(old.faults)
    new.restore(old.faults)
    assert not new.take(reading(event(43)), WALL + 5)  # the rest of the same fault
    assert new.faults == old.faults


def test_too_many_suspects_leave_no_class_out() -> None:
    book = FaultBook()
    many = [held(f"a{number:02d}") for number in range(3 * MAX_SUSPECTS)]
    book.see([*many, held("z", kind="other")], now=1.0)
    book.take(reading(event()), WALL)
    named = book.faults[0].suspects
    assert len(named) == MAX_SUSPECTS
    assert {suspect.workload_class for suspect in named} == {"train", "other"}


def test_numbers_that_are_not_listed_share_a_label() -> None:
    book = FaultBook()
    book.take(reading(event(119), event(2**31 - 1)), WALL)
    assert book.counts == {("gpu-0", "other"): 2}


stays = st.lists(
    st.tuples(
        st.sampled_from("abcdef"),
        st.sampled_from(["gpu-0", "gpu-1"]),
        st.integers(0, 20),
        st.integers(1, 10),
    ),
    max_size=8,
    unique_by=lambda stay: stay[0],
)


@given(
    stays=stays,
    faults=st.lists(st.tuples(st.sampled_from(["gpu-0", "gpu-1"]), st.integers(0, 30))),
    reads=st.sets(st.integers(0, 31), max_size=6),
    late=st.integers(0, 3),
)
def test_the_pod_that_was_there_is_always_a_suspect(
    stays: list[tuple[str, str, int, int]],
    faults: list[tuple[str, int]],
    reads: set[int],
    late: int,
) -> None:
    """Whatever comes and goes between readings, and however late a reading is taken in."""
    book, queue, taken = FaultBook(), sorted(faults, key=lambda fault: fault[1]), []
    readings: dict[int, list[FaultReading]] = {}
    for second in range(40):
        there = [
            held(pod, gpu) for pod, gpu, begin, long in stays if begin <= second < begin + long
        ]
        book.see(there, now=float(second))
        if second in reads or second == 32:
            # one event a reading: each names its second by its number, so that none is the same
            events = tuple(event(200 + at, gpu) for gpu, at in queue if at < second)
            queue = [(gpu, at) for gpu, at in queue if at >= second]
            readings.setdefault(second + late, []).append(
                reading(*events, settled_at=float(second))
            )
        for told in readings.get(second, ()):
            for one in told.events:
                book._faults.clear()
                book.take(FaultReading(events=(one,), settled_at=0.0), WALL)
                taken.append((one, set(suspects(book.faults[0]))))
            book.take(FaultReading(settled_at=told.settled_at), WALL)
    assert len(taken) == len(faults)
    for one, named in taken:
        at = one.xid - 200
        guilty = {
            pod for pod, gpu, begin, long in stays if gpu == one.gpu and begin <= at < begin + long
        }
        assert guilty <= named
