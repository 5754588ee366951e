# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""kubelet gives the slot of a container that has ended to the next one, whatever its device."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.lanes_rig import LaneRig, hello
from ullage.api.environment import LANE_SOCKET
from ullage.api.lanes import InLane
from ullage_node.lanes.members import LaneMember
from ullage_node.lanes.server import LaneServer, LaneTenant, SharedDevice


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LaneServer]:
    made = LaneServer(tmp_path / "lanes", Path("/proc"))
    yield made
    await made.close()


def on(**jobs: str) -> SharedDevice:
    """A device with these jobs in their slots."""
    tenants = tuple(
        LaneTenant(
            member=LaneMember(job=job, memory_mib=400, persistent_mib=100, ephemeral_mib=300),
            pod_uid=job,
            slot=slot,
        )
        for job, slot in jobs.items()
    )
    return SharedDevice(memory_mib=1000, counts_only=True, tenants=tenants)


async def answers(server: LaneServer, slot: str, tmp_path: Path) -> bool:
    """Whether a program in the container with this slot is answered."""
    rig = LaneRig(root=tmp_path / "other")
    wire = await rig.wire(server.folder(slot) / LANE_SOCKET)
    await wire.say(hello("new"))
    heard = await wire.hear()
    await rig.close()
    return isinstance(heard, InLane)


@pytest.mark.parametrize(("before", "after"), [("gpu-b", "gpu-a"), ("gpu-a", "gpu-b")])
async def test_a_slot_of_another_device_serves_its_next_container(
    server: LaneServer, tmp_path: Path, before: str, after: str
) -> None:
    stay = {"gpu-a": {"one": "slot-1"}, "gpu-b": {"two": "slot-2"}}

    def with_one_more(device: str, job: str) -> dict[str, SharedDevice]:
        held = {**stay, device: {**stay[device], job: "slot-0"}}
        return {name: on(**held[name]) for name in sorted(held)}

    await server.settle(with_one_more(before, "old"))
    await server.settle(with_one_more(after, "new"))
    assert await answers(server, "slot-0", tmp_path)


async def test_slots_that_are_exchanged_serve_both(server: LaneServer, tmp_path: Path) -> None:
    await server.settle({"gpu": on(a="slot-0", b="slot-1")})
    await server.settle({"gpu": on(a="slot-1", b="slot-0")})
    assert await answers(server, "slot-0", tmp_path)
    assert await answers(server, "slot-1", tmp_path)


async def test_a_container_that_moves_to_another_device_keeps_a_socket(
    server: LaneServer, tmp_path: Path
) -> None:
    await server.settle({"gpu-a": on(one="slot-1"), "gpu-b": on(two="slot-2", moves="slot-0")})
    await server.settle({"gpu-a": on(one="slot-1", moves="slot-0"), "gpu-b": on(two="slot-2")})
    assert await answers(server, "slot-0", tmp_path)
