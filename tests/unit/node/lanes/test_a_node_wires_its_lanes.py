# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The agent's book of slices, its readings and its Events, joined with its lanes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from fakes.lanes_rig import LaneRig, Wire, eventually, hello
from fakes.proc_tree import a_process
from ullage.api.environment import LANE_SOCKET
from ullage.api.lanes import Acquire, Grant, Hello, InLane, Refused, Release
from ullage.api.slices import DesiredSlice, SliceKey
from ullage_node.devices.backend import Hardware
from ullage_node.events import AgentEvent
from ullage_node.lanes.device import IdleLimits
from ullage_node.model.devices import Attachment, AttachState, ContainerKey
from ullage_node.model.slices import NodeDevice
from ullage_node.model.switching import Program
from ullage_node.node_lanes import NodeLanes
from ullage_node.settings import AgentSettings, PathSettings
from ullage_node.slices.table import SliceTable, binding_of
from ullage_node.times import EVENT_QUIET_S

PLAIN = DesiredSlice(
    key=SliceKey(pod_uid="uid-1", container="main"),
    pod_namespace="team",
    pod_name="trainer",
    gpu="gpu-0",
    percent=40,
    memory_mib=400,
    epoch=1,
)
SHARER = replace(PLAIN, persistent_mib=100, ephemeral_mib=300)
KEY = ContainerKey(pod_uid="uid-1", container="main")


class Told:
    """Events that were said."""

    def __init__(self) -> None:
        self.events: list[AgentEvent] = []

    def say(self, event: AgentEvent) -> bool:
        """Keep it."""
        self.events.append(event)
        return True


@pytest.fixture
async def lanes(tmp_path: Path) -> AsyncIterator[NodeLanes]:
    """The lanes of an emulated node with one device and no slice."""
    table = SliceTable()
    table.set_devices([NodeDevice(uuid="gpu-0", memory_mib=1000, contexts=8)])
    settings = AgentSettings(
        name="node-a", backend=Hardware.EMULATED, paths=PathSettings(run_dir=tmp_path)
    )
    made = NodeLanes(settings, table, Told())  # type: ignore[arg-type]  # it only says
    yield made
    await made.server.close()


def hold(lanes: NodeLanes, part: DesiredSlice) -> Path:
    """The operator decides a slice and kubelet starts its container."""
    lanes._table.intake(part.epoch, (part,), ())
    lanes._table.bind(binding_of([(part, "slot-00")]))
    return lanes.folder(KEY, "slot-00") / LANE_SOCKET


async def test_a_node_without_lanes_makes_no_file(lanes: NodeLanes, tmp_path: Path) -> None:
    lanes._table.intake(1, (PLAIN,), ())
    lanes._table.bind(binding_of([(PLAIN, "slot-00")]))
    await lanes.look({KEY: Attachment(state=AttachState.ENFORCED, pids=(1,))})
    assert os.listdir(tmp_path) == []
    assert lanes.server.devices == {}


async def test_a_slice_with_a_lane_gets_a_socket_that_ends_with_it(
    lanes: NodeLanes, tmp_path: Path
) -> None:
    path = hold(lanes, SHARER)
    await lanes.look({})
    rig = LaneRig(root=tmp_path / "other")
    wire = await rig.wire(path)
    await wire.say(hello("a"))
    placed = await wire.hear()
    assert isinstance(placed, InLane)
    assert placed.limit_mib == 400
    lanes._table.free(KEY)
    lanes._table.intake(2, (), ())
    await lanes.look({})
    assert await wire.hear() is None
    assert not path.exists()
    await rig.close()


async def test_memory_beyond_the_slice_is_told_to_the_pod(lanes: NodeLanes) -> None:
    hold(lanes, SHARER)
    within = Attachment(state=AttachState.ENFORCED, pids=(1,), memory_used_mib=400)
    told = lanes._events
    assert isinstance(told, Told)
    await lanes.look({KEY: within})
    assert told.events == []
    await lanes.look({KEY: replace(within, memory_used_mib=401)})
    assert [one.reason for one in told.events] == ["MemoryContractExceeded"]
    assert told.events[0].subject.name == "trainer"


async def test_a_container_that_starts_again_begins_anew(lanes: NodeLanes, tmp_path: Path) -> None:
    path = hold(lanes, SHARER)
    await lanes.look({})
    rig = LaneRig(root=tmp_path / "other")
    first = await rig.wire(path)
    await first.say(hello("a"))
    assert isinstance(await first.hear(), InLane)
    lanes.folder(KEY, "slot-00")
    async with asyncio.timeout(10):
        assert await first.hear() is None
    second = await rig.wire(path)
    await second.say(hello("b"))
    assert not isinstance(await second.hear(), Refused)
    await rig.close()


async def granted(wire: Wire) -> Grant:
    """The next grant."""
    while not isinstance(heard := await wire.hear(), Grant):
        assert heard is not None
    return heard


async def test_figures_that_a_program_chooses_make_one_event_in_a_while(
    lanes: NodeLanes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("ullage_node.node_lanes.time", SimpleNamespace(monotonic=lambda: now))
    told = lanes._events
    assert isinstance(told, Told)
    path = hold(lanes, SHARER)
    await lanes.look({})
    rig = LaneRig(root=tmp_path / "other")
    wire = await rig.wire(path)
    await wire.say(hello("a"))
    peak_mib = 1000
    for counted in (1, 2):
        for _ in range(5):
            now, peak_mib = now + 1, peak_mib + 1
            await wire.say(Acquire())
            grant = await granted(wire)
            await wire.say(Release(lease=grant.lease, peak_mib=peak_mib, emptied=True))
            await wire.hear()
        assert [one.reason for one in told.events] == ["MemoryContractExceeded"] * counted
        now += EVENT_QUIET_S
    await rig.close()


async def test_a_container_without_a_lane_waits_until_idle_programs_have_left(
    lanes: NodeLanes, tmp_path: Path
) -> None:
    lanes.server.idle = IdleLimits(idle_s=0.0, busy_s=0.0, least_resident_s=0.0)
    moves: list[Program] = []
    may_end = asyncio.Event()

    class Switch:
        async def suspend(self, program: Program) -> None:
            moves.append(program)
            await may_end.wait()

        async def resume(self, program: Program) -> None:
            raise AssertionError("nothing is to be resumed")

    lanes.suspend_by(Switch())
    second = ContainerKey(pod_uid="uid-2", container="main")
    leaver = replace(
        SHARER, memory_mib=600, persistent_mib=300, ephemeral_mib=300, lane=1, suspendable=True
    )
    parts = (leaver, replace(leaver, key=SliceKey(pod_uid="uid-2", container="main")))
    lanes._table.intake(1, parts, ())
    rig = LaneRig(root=tmp_path / "other")
    lanes.server.moves.proc_root = tmp_path / "proc"
    seen = {}
    for number, (key, part) in enumerate(zip((KEY, second), parts, strict=True)):
        lanes._table.bind(binding_of([(part, f"slot-0{number}")]))
        a_process(lanes.server.moves.proc_root, 11 + number, pod_uid=key.pod_uid)
        seen[key] = Attachment(state=AttachState.ENFORCED, pids=(11 + number,))
    await lanes.look(seen)
    for number in range(2):
        wire = await rig.wire(lanes.server.folder(f"slot-0{number}") / LANE_SOCKET)
        await wire.say(Hello(session="a", persistent_mib=300, ephemeral_mib=300))
        assert isinstance(await wire.hear(), InLane)
    other = ContainerKey(pod_uid="uid-3", container="main")
    newcomer = replace(PLAIN, key=SliceKey(pod_uid="uid-3", container="main"), pod_name="server")
    lanes._table.intake(1, (*parts, newcomer), ())
    assert lanes.missing_room(other), "nobody has looked yet"
    await lanes.look(seen)
    await eventually(lambda: bool(moves))
    assert (moves[0].key, moves[0].memory_mib) == (KEY, 300)
    assert [process.pid for process in moves[0].processes] == [11]
    assert "idle programs are leaving gpu-0" in lanes.missing_room(other)
    assert not lanes.suspended(KEY)
    may_end.set()
    await eventually(lambda: lanes.suspended(KEY))
    assert lanes.missing_room(other) == ""
    told = lanes._events
    assert isinstance(told, Told)
    assert [one.reason for one in told.events] == ["LaneSuspended"]
    await rig.close()
