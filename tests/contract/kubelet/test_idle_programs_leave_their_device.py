# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The whole agent: two programs of which the device holds one, a guard that stops containers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest_asyncio

from fakes.kubelet_backend import FakeDevices, a_device
from fakes.kubelet_node import NodeRig
from fakes.kubelet_state import KubeletPod
from fakes.lanes_rig import Wire
from ullage.api.environment import LANE_MOUNT, LANE_SOCKET
from ullage.api.lanes import LINE_MAX, Acquire, Done, Grant, Hello, InLane, InQueue, Release
from ullage.engines.lanes.records import LaneLease
from ullage_node.devices.backend import Hardware
from ullage_node.guard.protocol import guard_socket
from ullage_node.lanes.saved import SavedLanes
from ullage_node.settings import CheckpointSettings

KEEPS_MIB, STEP_MIB = 9_000, 1_000
QUICKLY = CheckpointSettings(
    enabled=True, idle_seconds=0.05, busy_seconds=0.5, resident_seconds=0.05
)


class Guard:
    """Answers the agent, and notes whom it stops."""

    def __init__(self) -> None:
        self.frozen: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            asked = json.loads(line)
            if asked["verb"] == "freeze":
                self.frozen += [one["podUID"] for one in asked["containers"]]
            writer.write(json.dumps({"version": 1, "number": asked["number"]}).encode() + b"\n")
            await writer.drain()
        writer.close()


@pytest_asyncio.fixture
async def guard() -> Guard:
    return Guard()


@pytest_asyncio.fixture
async def rig(guard: Guard) -> AsyncIterator[NodeRig]:
    async with NodeRig(FakeDevices(devices=[a_device()])) as made:
        made.settings = replace(made.settings, backend=Hardware.EMULATED, checkpoint=QUICKLY)
        path = guard_socket(made.settings.paths.run_dir)
        path.parent.mkdir(parents=True)
        server = await asyncio.start_unix_server(guard.serve, path=str(path))
        await made.start_agent()
        yield made
        await made.stop_agent()
        server.close()


async def started(rig: NodeRig) -> tuple[KubeletPod, Path]:
    """A container that may be suspended runs; the socket of its lane."""
    pod = rig.a_pod()
    part = rig.place(pod, percent=60, memory_mib=KEEPS_MIB + STEP_MIB, write=False)
    rig._slices[part.key] = replace(
        part, persistent_mib=KEEPS_MIB, ephemeral_mib=STEP_MIB, lane=1, suspendable=True
    )
    rig.write_spec()
    await rig.phase(pod, "Reserved")
    rig.show_pod(pod)
    await rig.kubelet.admit(pod)
    made = await rig.start(pod)
    await rig.phase(pod, "Attached")
    return pod, Path(made.mounts[LANE_MOUNT]) / LANE_SOCKET


async def greeted(pod: KubeletPod, path: Path) -> Wire:
    reader, writer = await asyncio.open_unix_connection(str(path), limit=LINE_MAX)
    wire = Wire(reader=reader, writer=writer)
    hello = Hello(session=pod.uid, persistent_mib=KEEPS_MIB, ephemeral_mib=STEP_MIB)
    await wire.say(hello)
    return wire


async def step(wire: Wire) -> None:
    await wire.say(Acquire())
    while not isinstance(heard := await wire.hear(), Grant):
        assert isinstance(heard, InLane | Done)
    await wire.say(Release(lease=heard.lease, emptied=True))
    while not isinstance(await wire.hear(), Done):
        pass


def told(rig: NodeRig, reason: str) -> list[str]:
    return [event["involvedObject"]["name"] for event in rig.events(reason)]


def leases_kept(rig: NodeRig) -> list[LaneLease]:
    """Leases that another agent of the node would find."""
    saved = SavedLanes(rig.settings.paths.run_dir / "lanes/state").read(a_device().uuid)
    assert saved is not None
    residents = (one for lane in saved.table.lanes for one in lane.residents)
    return [one.lease for one in residents if one.lease is not None]


async def test_two_programs_take_turns_on_memory_for_one_across_a_restart(
    rig: NodeRig, guard: Guard
) -> None:
    (one, one_path), (two, two_path) = await started(rig), await started(rig)
    first = await greeted(one, one_path)
    assert isinstance(await first.hear(), InLane)
    second = await greeted(two, two_path)
    assert isinstance(await second.hear(), InQueue)
    assert isinstance(await second.hear(), InLane)
    await rig.until(lambda: (seen := rig.slice_of(one)) and seen.suspended)
    assert rig.status()["lanes"][0]["suspended"] == 1
    assert guard.frozen == [one.uid]
    await step(second)
    await step(first)
    assert guard.frozen == [one.uid, two.uid, one.uid]
    await rig.until(lambda: told(rig, "LaneResumed"))
    assert sorted(set(told(rig, "LaneSuspended"))) == sorted([one.name, two.name])
    for wire in (first, second):
        await wire.close()
    await rig.until(lambda: not leases_kept(rig))
    await rig.kill_agent()
    two_path.unlink(missing_ok=True)
    await rig.start_agent()
    await rig.until(two_path.exists)
    second = await greeted(two, two_path)
    assert isinstance(await second.hear(), InQueue), "the next agent knows that it is suspended"
    assert isinstance(await second.hear(), InLane)
    await step(second)
    assert guard.frozen[3:] == [one.uid, two.uid]
    await second.close()
