# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import socket
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from fakes.lanes_rig import LaneRig, eventually, hello
from ullage.api.lanes import (
    LINE_MAX,
    Acquire,
    Grant,
    Hello,
    InLane,
    LaneRefusal,
    Message,
    Refused,
    Release,
    encode,
)
from ullage_node.lanes import connection
from ullage_node.lanes.allowance import (
    DIALS_BURST,
    LINES_BURST,
    LINES_PER_SECOND,
    LOGS_BURST,
    ContainerAllowance,
    TokenBucket,
)
from ullage_node.lanes.connection import LaneConnection
from ullage_node.lanes.listener import BACKLOG
from ullage_node.lanes.server import CONNECTIONS_MOST
from ullage_node.times import GREETING_S

GARBAGE = (
    b"\n",
    b"[]\n",
    b"{}\n",
    b'{"type":"GRANT"}\n',
    b'{"type":"HELLO","version":true}\n',
    b'{"type":"HELLO","version":1,"session":"x","persistentMiB":-1,"ephemeralMiB":1e999}\n',
    b'{"type":"ACQUIRE","ephemeralMiB":99999999999999999999999999}\n',
    b"[" * (LINE_MAX - 1) + b"\n",
    b"\x00\xff\n",
    b"x" * (2 * LINE_MAX) + b"\n",
    b'{"type":"HELLO","version":1,"session":"\\ud800","persistentMiB":NaN,"ephemeralMiB":1}\n',
)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[LaneRig]:
    made = LaneRig(root=tmp_path, memory_mib=500)
    yield made
    await made.close()


@pytest.mark.parametrize("line", GARBAGE)
async def test_garbage_ends_its_own_connection_alone(rig: LaneRig, line: bytes) -> None:
    first = await rig.hold("a", 100, 300)
    good, bad = await rig.wire(first), await rig.wire(first)
    await good.say(hello("a"), Acquire())
    assert isinstance(await good.hear(), InLane)
    grant = await good.hear()
    assert isinstance(grant, Grant)
    await bad.raw(line)
    try:
        refused = await bad.hear()
        assert refused is None or isinstance(refused, Refused)
        assert refused is None or await bad.hear() is None
    except ConnectionResetError:
        pass  # what it said was too long to be read
    await good.say(Release(lease=grant.lease), Acquire())
    await good.hear()
    assert isinstance(await good.hear(), Grant)


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=8))
def test_no_bytes_stop_the_server(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    async def run() -> None:
        rig = LaneRig(root=tmp_path_factory.mktemp("lanes"), memory_mib=500)
        first = await rig.hold("a", 100, 300)
        try:
            for line in lines:
                wire = await rig.wire(first)
                await wire.raw(line + b"\n")
            good = await rig.wire(first)
            await good.say(hello("a"))
            heard = await good.hear()
            assert isinstance(heard, InLane | Refused)
        finally:
            await rig.close()

    asyncio.run(run())


async def test_who_says_too_much_waits(rig: LaneRig) -> None:
    pace = TokenBucket()
    assert [pace.wait_s(0.0) for _ in range(int(LINES_BURST))] == [0.0] * int(LINES_BURST)
    assert pace.wait_s(0.0) == pytest.approx(1 / LINES_PER_SECOND)
    assert pace.wait_s(10.0) == 0.0


async def test_who_connects_again_waits_as_before(
    rig: LaneRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rig.server, "_clock", lambda: 5.0)
    waits: list[float] = []
    later = connection._later

    def counted(seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
        if seconds == GREETING_S:
            return later(seconds, then)
        waits.append(seconds)
        return later(0, then)

    path = await rig.hold("a", 100, 300)
    monkeypatch.setattr(connection, "_later", counted)
    beyond = 50
    lines = int(LINES_BURST) // 2
    for said in (lines, lines, beyond):
        assert not waits
        wire = await rig.wire(path)
        await wire.raw(b'{"type":"ACQUIRE"}\n' * said)
        for _ in range(said):
            assert isinstance(await wire.hear(), Refused)
        await wire.close()
    assert len(waits) >= beyond - 1  # the last of them may go on


@pytest.mark.slow
async def test_a_flood_of_one_container_does_not_hold_up_another(rig: LaneRig) -> None:
    first, second = await rig.hold("a", 20, 100), await rig.hold("b", 20, 100)
    flood, good = await rig.wire(first), await rig.wire(second)
    small = Hello(session="s", persistent_mib=20, ephemeral_mib=100)
    await flood.say(small)
    await flood.hear()
    flood.writer.write(b'{"type":"ACQUIRE"}\n' * 20_000)
    await good.say(small)
    assert isinstance(await good.hear(), InLane)
    for _ in range(20):
        await good.say(Acquire())
        grant = await good.hear()
        assert isinstance(grant, Grant)
        await good.say(Release(lease=grant.lease))
        await good.hear()


async def test_connections_beyond_the_pace_wait_in_the_kernel(
    rig: LaneRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of connections, each with a line of no use, costs the agent a bounded amount."""
    monkeypatch.setattr(rig.server, "_clock", lambda: 5.0)  # the pace gives no more
    first, second = await rig.hold("a", 20, 100), await rig.hold("b", 20, 100)
    opened: list[str] = []
    made = LaneConnection.connection_made

    def counted(this: LaneConnection, transport: asyncio.BaseTransport) -> None:
        opened.append(this._job)
        made(this, transport)

    monkeypatch.setattr(LaneConnection, "connection_made", counted)
    flood: list[socket.socket] = []
    with capture_logs() as logs:
        for _ in range(10 * BACKLOG):
            dial = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            dial.setblocking(False)
            flood.append(dial)
            with suppress(BlockingIOError, BrokenPipeError):
                dial.connect(str(first))
                dial.send(b"x" * 2 * LINE_MAX + b"\n")
            await asyncio.sleep(0)
        good = await rig.wire(second)
        await good.say(Hello(session="s", persistent_mib=20, ephemeral_mib=100), Acquire())
        assert isinstance(await good.hear(), InLane)
        assert isinstance(await good.hear(), Grant)
        await eventually(lambda: len(opened) >= DIALS_BURST)
    for dial in flood:
        dial.close()
    # the clock stands, the loop's does not: one more a tenth of a second
    monkeypatch.undo()
    of_the_flood = opened.count("a")
    assert DIALS_BURST <= of_the_flood < len(flood) / 2
    assert (
        1 <= len([line for line in logs if line["event"] == "lane connection ends"]) <= LOGS_BURST
    )


async def test_lines_left_out_of_the_log_are_counted() -> None:
    allowance = ContainerAllowance(0.0)
    told = [allowance.logs_now(0.0) for _ in range(50)]
    assert told == [True] * int(LOGS_BURST) + [False] * (50 - int(LOGS_BURST))
    assert allowance.unlogged == 50 - LOGS_BURST
    assert allowance.logs_now(60.0)


async def test_a_burst_of_one_container_lets_others_speak_between(rig: LaneRig) -> None:
    """Lines that came at once are not heard at once."""
    first, second = await rig.hold("a", 20, 100), await rig.hold("b", 20, 100)
    heard: list[str] = []
    hear = rig.server._hear

    def noted(place: Any, connection: LaneConnection, message: Message) -> None:
        heard.append(place.job)
        hear(place, connection, message)

    rig.server._hear = noted  # type: ignore[method-assign]
    for slot in ("a", "b"):  # sockets that hand over to it
        rig.server._close_place(slot)
    await rig.settle()
    flood, good = await rig.wire(first), await rig.wire(second)
    await asyncio.sleep(0)
    lines = int(LINES_BURST) // 2
    flood.writer.write(encode(Acquire()) * lines)
    good.writer.write(encode(Acquire()))
    await eventually(lambda: len(heard) == lines + 1)
    assert heard.index("b") < lines


async def test_a_container_has_few_connections(rig: LaneRig) -> None:
    first = await rig.hold("a", 100, 300)
    wires = [await rig.wire(first) for _ in range(CONNECTIONS_MOST)]
    await asyncio.sleep(0.05)
    one_more = await rig.wire(first)
    refused = await one_more.hear()
    assert isinstance(refused, Refused)
    assert refused.reason is LaneRefusal.BUSY
    assert await one_more.hear() is None
    await wires[0].say(hello("a"))
    assert isinstance(await wires[0].hear(), InLane)


async def test_only_the_container_reaches_its_socket(rig: LaneRig) -> None:
    path = await rig.hold("a", 100, 300)
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o666


async def test_who_has_not_greeted_is_given_nothing(rig: LaneRig) -> None:
    path = await rig.hold("a", 100, 300)
    wire = await rig.wire(path)
    await wire.say(Acquire())
    refused = await wire.hear()
    assert isinstance(refused, Refused)
    assert refused.reason is LaneRefusal.NO_HELLO


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (Hello(session="a", persistent_mib=101, ephemeral_mib=300), LaneRefusal.EXCEEDS_SLICE),
        (Hello(session="", persistent_mib=1, ephemeral_mib=1), LaneRefusal.UNREADABLE),
        (Hello(session="x" * 65, persistent_mib=1, ephemeral_mib=1), LaneRefusal.UNREADABLE),
        (Hello(version=2, session="a", persistent_mib=1, ephemeral_mib=1), LaneRefusal.VERSION),
    ],
)
async def test_a_greeting_that_lies_is_refused(
    rig: LaneRig, said: Hello, reason: LaneRefusal
) -> None:
    wire = await rig.wire(await rig.hold("a", 100, 300))
    await wire.say(said)
    refused = await wire.hear()
    assert isinstance(refused, Refused)
    assert refused.reason is reason
    await wire.say(hello("a"))
    assert isinstance(await wire.hear(), InLane)


async def test_a_lease_of_another_releases_nothing(rig: LaneRig) -> None:
    first, second = await rig.hold("a", 100, 300), await rig.hold("b", 100, 300)
    one, two = await rig.wire(first), await rig.wire(second)
    await one.say(hello("a"), Acquire())
    await one.hear()
    grant = await one.hear()
    assert isinstance(grant, Grant)
    await two.say(hello("b"))
    await two.hear()
    await two.say(Release(lease=grant.lease))
    heard = await two.hear()
    while not isinstance(heard, Refused):
        heard = await two.hear()
    assert rig.holder_of("a") == "a"


async def test_who_connects_and_does_not_greet_is_cut_off(
    rig: LaneRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "GREETING_S", 0.05)
    path = await rig.hold("a", 100, 300)
    silent, good = await rig.wire(path), await rig.wire(path)
    await good.say(hello("a"))
    assert isinstance(await good.hear(), InLane)
    with suppress(ConnectionResetError):
        assert await silent.hear() is None
    await asyncio.sleep(0.1)
    await good.say(Acquire())
    assert isinstance(await good.hear(), Grant)


async def test_a_line_may_come_in_pieces(rig: LaneRig) -> None:
    wire = await rig.wire(await rig.hold("a", 100, 300))
    whole = encode(hello("a")) + encode(Acquire())
    for at in range(0, len(whole), 7):
        await wire.raw(whole[at : at + 7])
        await asyncio.sleep(0)
    assert isinstance(await wire.hear(), InLane)
    assert isinstance(await wire.hear(), Grant)
