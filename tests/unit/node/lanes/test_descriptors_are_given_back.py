# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A program cannot make the agent keep descriptors, nor close those of others."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.lanes_rig import LaneRig, eventually, hello
from ullage.api.lanes import InLane
from ullage_node.lanes.peers import PeerProcess


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[LaneRig]:
    made = LaneRig(root=tmp_path)
    yield made
    await made.close()


def has_ended(connection: socket.socket) -> bool:
    """Whether the other end was closed; what it sent before stays unread."""
    poll = select.poll()
    poll.register(connection, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


async def test_answers_that_nobody_reads_keep_no_connection(rig: LaneRig) -> None:
    path = await rig.hold("a", 100, 300)
    place = rig.server._places["a"]
    with socket.socket(socket.AF_UNIX) as program:
        program.connect(str(path))
        await eventually(lambda: bool(place.connections))
        (kept,) = place.connections
        theirs = kept._transport.get_extra_info("socket")
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # full after a few answers
        while not kept._transport.get_write_buffer_size():
            program.sendall(b'{"type":"ACQUIRE"}\n')
            await asyncio.sleep(0.001)
        program.shutdown(socket.SHUT_WR)
        await eventually(lambda: not place.connections)
        await eventually(lambda: has_ended(program))


@pytest.mark.parametrize("over", [False, True])
async def test_the_descriptor_of_a_process_is_closed_once(
    rig: LaneRig, monkeypatch: pytest.MonkeyPatch, over: bool
) -> None:
    closed: list[int] = []
    close = PeerProcess.close

    def counted(peer: PeerProcess) -> None:
        closed.append(peer.pidfd)
        if closed.count(peer.pidfd) == 1:
            close(peer)

    wire = await rig.wire(await rig.hold("a", 100, 300))
    await wire.say(hello("a"))
    assert isinstance(await wire.hear(), InLane)
    place = rig.server._places["a"]
    assert place.process is not None
    monkeypatch.setattr(PeerProcess, "close", counted)
    # The end of the process is seen with the end of its connection, before the loop tells it.
    monkeypatch.setattr(PeerProcess, "ended", property(lambda _: over))
    descriptor = place.process.pidfd
    await wire.close()
    await eventually(lambda: not place.connections)
    assert closed == [descriptor] * over
    await rig.close()
    assert closed == [descriptor]
