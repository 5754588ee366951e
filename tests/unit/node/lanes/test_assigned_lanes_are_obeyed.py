# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from ullage.api import lanes as wire
from ullage.api.lanes import IterationPolicy, LaneRefusal, Message
from ullage.api.readers import WireError
from ullage_node.lanes.device import DeviceLanes
from ullage_node.lanes.members import LaneMember
from ullage_node.slices.desired import read_gpu_node

JOB = LaneMember(job="a", memory_mib=300, persistent_mib=100, ephemeral_mib=200, lane=1)
NAMES = "abcdefgh"


class Heard:
    """What programs were told, by job."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Message]] = []

    def of(self, job: str, kind: type[Message]) -> list[Message]:
        """Messages of a kind to one job."""
        return [message for name, message in self.said if name == job and isinstance(message, kind)]

    def holders(self) -> list[str]:
        """Who was granted, in order."""
        return [name for name, message in self.said if isinstance(message, wire.Grant)]


def device(*members: LaneMember, capacity_mib: int = 1000) -> tuple[DeviceLanes, Heard]:
    heard = Heard()
    lanes = DeviceLanes(
        capacity_mib=capacity_mib, send=lambda job, said: heard.said.append((job, said))
    )
    for member in members:
        lanes.hold(member, 0.0)
        greeting = wire.Hello(session=f"s-{member.job}", persistent_mib=100, ephemeral_mib=200)
        lanes.hear(member.job, greeting, 0.0)
    return lanes, heard


def test_eight_residents_of_one_lane_hold_more_than_their_peaks_would() -> None:
    lanes, heard = device(*[replace(JOB, job=name) for name in NAMES])
    assert all(heard.of(name, wire.InLane) for name in NAMES)
    assert len(lanes.table.memory.lanes) == 1
    for name in NAMES:
        lanes.hear(name, wire.Acquire(), 1.0)
    assert heard.holders() == ["a"]


def test_two_lanes_that_were_assigned_run_side_by_side() -> None:
    lanes, heard = device(JOB, replace(JOB, job="b", lane=2))
    for name in "ab":
        lanes.hear(name, wire.Acquire(), 1.0)
    assert sorted(heard.holders()) == ["a", "b"]


@pytest.mark.parametrize(("stays", "step"), [(101, 199), (50, 201)])
def test_a_program_declares_no_more_than_its_lane_was_told(stays: int, step: int) -> None:
    lanes, heard = device()
    lanes.hold(JOB, 0.0)
    lanes.hear("a", wire.Hello(session="s", persistent_mib=stays, ephemeral_mib=step), 0.0)
    (refused,) = heard.of("a", wire.Refused)
    assert isinstance(refused, wire.Refused)
    assert refused.reason is LaneRefusal.EXCEEDS_SLICE
    assert "lane 1 has 100 and 200 MiB" in refused.message


def test_a_device_that_is_lost_frees_all_its_residents_at_once() -> None:
    lanes, heard = device(*[replace(JOB, job=name) for name in NAMES])
    for name in NAMES:
        lanes.hear(name, wire.Acquire(), 1.0)
    for name in NAMES:
        lanes.gone(name, 2.0)
    assert not lanes.table.memory.residents
    assert not lanes.table.memory.lanes
    before = len(heard.holders())
    for name in NAMES:
        lanes.hear(name, wire.Hello(session="again", persistent_mib=100, ephemeral_mib=200), 3.0)
        lanes.hear(name, wire.Acquire(), 3.0)
    assert len(heard.holders()) == before + 1, "a program that reconnects takes turns again"


def test_a_peak_beyond_the_declared_one_grows_the_lane_for_all() -> None:
    lanes, heard = device(replace(JOB, memory_mib=400), replace(JOB, job="b"))
    lanes.hear("a", wire.Acquire(), 1.0)
    (grant,) = heard.of("a", wire.Grant)
    assert isinstance(grant, wire.Grant)
    lanes.hear("a", wire.Release(lease=grant.lease, peak_mib=280), 2.0)
    lanes.hear("a", wire.Acquire(), 3.0)
    (lane,) = lanes.table.memory.lanes.values()
    assert lane.size_mib == 280
    assert set(lane.residents) == {"a", "b"}


@pytest.mark.parametrize(("stays", "refused"), [(100, False), (101, True)])
def test_who_keeps_more_than_its_own_is_out_of_memory_where_that_is_counted(
    stays: int, refused: bool
) -> None:
    lanes, heard = device(JOB, replace(JOB, job="b"))
    lanes.enforce = True
    lanes.hear("a", wire.Acquire(), 1.0)
    (grant,) = heard.of("a", wire.Grant)
    assert isinstance(grant, wire.Grant)
    lanes.hear("a", wire.Release(lease=grant.lease, persistent_mib=stays, peak_mib=150), 2.0)
    said = heard.of("a", wire.Refused)
    assert bool(said) is refused
    if refused:
        assert isinstance(said[0], wire.Refused)
        assert said[0].reason is LaneRefusal.EXCEEDS_LANE
        assert said[0].message == "101 MiB stay after the step, 100 MiB are its own"
    assert len(lanes.reports) == refused
    lanes.hear("b", wire.Acquire(), 3.0)
    assert heard.of("b", wire.Grant), "its neighbour goes on"


def test_turns_follow_another_policy_from_then_on() -> None:
    lanes, heard = device(*[replace(JOB, job=name) for name in "abc"])
    lanes.order_by(IterationPolicy.FIFO)
    now = 1.0
    for name in "cba":  # the order of asking does not count, that of coming does
        lanes.hear(name, wire.Acquire(), now)
    for _ in range(2):
        holder = heard.holders()[-1]
        grant = heard.of(holder, wire.Grant)[-1]
        assert isinstance(grant, wire.Grant)
        now += 1
        lanes.hear(holder, wire.Release(lease=grant.lease), now)
        lanes.tick(now + 1)
    assert heard.holders() == ["c", "a", "b"]


def test_the_program_with_the_fewest_steps_left_is_next() -> None:
    lanes, heard = device(replace(JOB, steps=100), replace(JOB, job="b", steps=12))
    lanes.order_by(IterationPolicy.SRTF)
    now = 1.0
    for name in "ab":
        lanes.hear(name, wire.Acquire(), now)
    for _ in range(40):
        holder = heard.holders()[-1]
        grant = heard.of(holder, wire.Grant)[-1]
        assert isinstance(grant, wire.Grant)
        now += 0.02
        lanes.hear(holder, wire.Release(lease=grant.lease), now)
        if heard.holders().count(holder) < (100 if holder == "a" else 12):
            lanes.hear(holder, wire.Acquire(), now)
        lanes.tick(now)
    order = heard.holders()
    assert order.count("b") == 12
    assert order.index("b") < 12
    assert "a" not in order[10 : len(order) - order[::-1].index("b")]


def gpu_node(**spec: object) -> dict[str, object]:
    return {"metadata": {"uid": "u", "generation": 1}, "spec": {"epoch": 1, **spec}}


def test_a_node_reads_whose_step_is_next() -> None:
    assert read_gpu_node(gpu_node()).lane_policy is IterationPolicy.FAIR
    assert read_gpu_node(gpu_node(lanePolicy="SRTF")).lane_policy is IterationPolicy.SRTF
    wild = read_gpu_node(gpu_node(lanePolicy="Lottery"))
    assert wild.lane_policy is IterationPolicy.FAIR
    assert "spec.lanePolicy: 'Lottery'" in wild.problems[0]
    with pytest.raises(WireError, match="lanePolicy"):
        read_gpu_node(gpu_node(lanePolicy=["FAIR"]))


def test_a_lane_without_its_memory_is_a_faulty_slice() -> None:
    slice_ = {
        "podUID": "p",
        "container": "main",
        "index": 0,
        "podNamespace": "team",
        "podName": "a",
        "gpu": "gpu-0",
        "percent": 50,
        "memoryMiB": 300,
        "epoch": 1,
        "lane": 1,
    }
    (_, why), *_ = read_gpu_node(gpu_node(slices=[slice_])).faulty
    assert why.startswith("lane: belongs to a slice with persistentMiB and ephemeralMiB")
    whole = {**slice_, "persistentMiB": 100, "ephemeralMiB": 200}
    (part,) = read_gpu_node(gpu_node(slices=[whole])).slices
    assert part.lane == 1
    ((_, why),) = read_gpu_node(gpu_node(slices=[{**whole, "lane": 1024}])).faulty
    assert "lane" in why
