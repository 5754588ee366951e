# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry

from ullage.api import lanes as wire
from ullage.api.lanes import Message
from ullage.api.slices import ObservedLane, ObservedSlice, SliceKey, SlicePhase
from ullage.process.metric_families import FiguresCollector
from ullage_node.lanes.device import DeviceLanes
from ullage_node.lanes.members import LaneMember
from ullage_node.lanes.metrics import LaneTurns, lane_figures
from ullage_node.lanes.reports import StepFault
from ullage_node.lanes.server import LaneServer
from ullage_node.model.slices import LaneReading
from ullage_node.status import turned_slices

MIB = 1 << 20


def device() -> tuple[DeviceLanes, list[Message]]:
    """Two jobs of lane 2; ``a`` ran one step while ``b`` waited, and took more than it said."""
    said: list[Message] = []
    lanes = DeviceLanes(capacity_mib=1000, send=lambda _, message: said.append(message))
    for job in "ab":
        member = LaneMember(job=job, memory_mib=300, persistent_mib=100, ephemeral_mib=200, lane=2)
        lanes.hold(member, 0.0)
        lanes.hear(job, wire.Hello(session=job, persistent_mib=100, ephemeral_mib=200), 0.0)
    lanes.hear("a", wire.Acquire(), 1.0)
    lanes.hear("b", wire.Acquire(), 1.0)
    (grant,) = [one for one in said if isinstance(one, wire.Grant)]
    released = wire.Release(lease=grant.lease, persistent_mib=90, peak_mib=9_999)
    lanes.hear("a", released, 3.0)
    return lanes, said


def test_readings_say_waits_and_peaks_within_the_device() -> None:
    lanes, _ = device()
    assert lanes.readings(4.0) == {
        "a": LaneReading(persistent_peak_mib=90, ephemeral_peak_mib=1000),
        "b": LaneReading(wait_percent=50),
    }


def test_lanes_are_observed_by_their_assigned_numbers() -> None:
    lanes, _ = device()
    assert lanes.observed("gpu-0") == (
        ObservedLane(gpu="gpu-0", lane=2, size_mib=200, residents=2, waiting=0),
    )


def test_slices_carry_what_their_lanes_say() -> None:
    part = ObservedSlice(
        key=SliceKey(pod_uid="pod", container="main"),
        phase=SlicePhase.ATTACHED,
        gpu="gpu-0",
        percent=50,
        memory_mib=300,
        epoch=1,
    )
    other = ObservedSlice(
        key=SliceKey(pod_uid="other", container="main"),
        phase=SlicePhase.ATTACHED,
        gpu="gpu-0",
        percent=50,
        memory_mib=300,
        epoch=1,
    )
    reading = LaneReading(wait_percent=7, ephemeral_peak_mib=180)
    found = turned_slices([part, other], {"pod_main": reading})
    assert (found[0].lane_wait_percent, found[0].ephemeral_peak_mib) == (7, 180)
    assert found[1] == other


def test_metrics_tell_lanes_memory_waits_and_switches(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    server = LaneServer(tmp_path, Path("/proc"))
    server.on_turn = LaneTurns(registry).take
    registry.register(FiguresCollector(lambda: lane_figures(server.devices)))
    lanes, _ = device()
    server._add("gpu-0", lanes)
    server._deliver("gpu-0")

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("ullage_lanes", UUID="gpu-0") == 1
    assert value("ullage_lane_residents", UUID="gpu-0") == 2
    assert value("ullage_lane_queue_length", UUID="gpu-0") == 0
    kinds = {
        kind: value("ullage_gpu_lane_memory_bytes", UUID="gpu-0", kind=kind)
        for kind in ("persistent", "lane", "free")
    }
    assert kinds == {"persistent": 200 * MIB, "lane": 200 * MIB, "free": 600 * MIB}
    assert value("ullage_lane_wait_seconds_count") == 2
    assert value("ullage_lane_wait_seconds_sum") == 2.0
    assert value("ullage_lane_switch_seconds_count") == 1
    assert value("ullage_lane_switch_seconds_sum") == 0.0


def test_events_say_who_waits_for_memory_and_what_grew() -> None:
    said: list[Message] = []
    lanes = DeviceLanes(capacity_mib=700, send=lambda _, message: said.append(message))
    roomy = LaneMember(job="a", memory_mib=400, persistent_mib=100, ephemeral_mib=200, lane=2)
    lanes.hold(roomy, 0.0)
    lanes.hear("a", wire.Hello(session="a", persistent_mib=100, ephemeral_mib=200), 0.0)
    lanes.hear("a", wire.Acquire(ephemeral_mib=300), 1.0)
    (grew,) = lanes.reports
    assert (grew.job, grew.fault) == ("a", StepFault.RESIZED)
    assert grew.message == "lane 2 has 300 MiB for steps, 200 MiB before"
    lanes.hold(
        LaneMember(job="b", memory_mib=400, persistent_mib=200, ephemeral_mib=200, lane=3), 2.0
    )
    lanes.hear("b", wire.Hello(session="b", persistent_mib=200, ephemeral_mib=200), 2.0)
    waits = lanes.reports[-1]
    assert (waits.job, waits.fault) == ("b", StepFault.QUEUED)
    assert waits.message == "waits for memory of the device: place 1 of 1, 100 MiB are missing"


def test_what_is_suspended_is_told_of_slice_lane_and_device() -> None:
    lanes = DeviceLanes(capacity_mib=300, send=lambda *_: None)
    for job in "ab":
        member = LaneMember(
            job=job,
            memory_mib=300,
            persistent_mib=100,
            ephemeral_mib=200,
            lane=2,
            suspendable=True,
        )
        lanes.hold(member, 0.0)
        lanes.hear(job, wire.Hello(session=job, persistent_mib=100, ephemeral_mib=200), 0.0)
    lanes.tick(100.0)
    (order,) = lanes.orders
    lanes.carried_out(order, "", 101.0)
    assert {job: one.suspended for job, one in lanes.readings(102.0).items()} == {
        "a": True,
        "b": False,
    }
    assert lanes.observed("gpu-0") == (
        ObservedLane(gpu="gpu-0", lane=2, size_mib=200, residents=1, suspended=1),
    )
    assert lane_figures({"gpu-0": lanes}).suspended == {"gpu-0": 1}
    lanes.drop("b", 103.0)
    assert lanes.observed("gpu-0") == (ObservedLane(gpu="gpu-0", lane=2, suspended=1),)
    part = ObservedSlice(
        key=SliceKey(pod_uid="pod", container="main"),
        phase=SlicePhase.ATTACHED,
        gpu="gpu-0",
        percent=50,
        memory_mib=300,
        epoch=1,
    )
    (told,) = turned_slices([part], {part.key.directory: LaneReading(suspended=True)})
    assert told.suspended
