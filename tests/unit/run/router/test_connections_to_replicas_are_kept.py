# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Connections to replicas are used again, and only where that is safe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from fakes.routed import until
from ullage.engines.batching.batch_time import BatchCosts
from ullage.engines.batching.chooser import BatchRules
from ullage_router import http_replicas
from ullage_router.http_replicas import HttpConnections
from ullage_router.replicas import Broken, NotDelivered, RouterReplica, TooLate
from ullage_router.run_times import RunTimes
from ullage_router.settings import ReplicaAddress

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass(slots=True)
class Scripted:
    """A server that says these bytes, one after the other, on whatever connection asks."""

    says: list[bytes | None]
    """``None`` ends the connection; behind the last it says what is good."""
    heard: list[bytes] = field(default_factory=list)
    connections: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            self.heard.append(head)
            said = self.says.pop(0) if self.says else GOOD
            if said is None:
                break
            writer.write(said)
        writer.close()


@asynccontextmanager
async def scripted(*says: bytes | None) -> AsyncIterator[tuple[Scripted, Callable[..., object]]]:
    """A server, and what asks it."""
    script = Scripted(list(says))
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    times = RunTimes(
        rules=BatchRules(),
        prior=BatchCosts(fixed_s=0, factors=dict.fromkeys((1, 2, 4, 8, 16), 1.0)),
    )
    replica = RouterReplica(
        number=0,
        backend=ReplicaAddress(url=f"http://127.0.0.1:{port}"),
        times=times,
        most_in_flight=1,
    )
    connections = HttpConnections(1000, stream_s=60.0)
    await connections.open()

    async def ask(
        method: str = "POST", path: str = "/", within_s: float = 5.0, **headers: str
    ) -> tuple[int, bytes]:
        reply = await connections.ask(replica, method, path, headers, b"", within_s)
        return reply.status, reply.body

    try:
        yield script, ask
    finally:
        await connections.close()
        for writer in script.writers:
            writer.close()
        server.close()


async def test_one_connection_carries_one_exchange_after_the_other() -> None:
    async with scripted() as (server, ask):
        for _ in range(5):
            assert await ask() == (200, b"ok")
        assert server.connections == 1
        await asyncio.gather(*(ask() for _ in range(3)))
        assert server.connections == 3


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        GOOD + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother",
    ],
)
async def test_a_connection_that_may_hold_something_else_is_not_used_again(said: bytes) -> None:
    async with scripted(said) as (server, ask):
        assert await ask() == (200, b"ok")
        assert await ask() == (200, b"ok")
        assert server.connections == 2


async def test_what_comes_unasked_on_an_idle_connection_answers_no_one() -> None:
    async with scripted() as (server, ask):
        assert await ask() == (200, b"ok")
        server.writers[0].write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother")
        await server.writers[0].drain()
        await asyncio.sleep(0.05)
        assert await ask() == (200, b"ok")
        assert server.connections == 2


async def test_an_idle_connection_is_not_kept_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_replicas, "KEPT_IDLE_S", 0.0)
    async with scripted() as (server, ask):
        await ask()
        await asyncio.sleep(0.01)
        await ask()
        assert server.connections == 2


async def test_a_connection_that_is_closed_on_reuse_is_tried_once_more_where_that_is_safe() -> None:
    async with scripted(GOOD, None, GOOD, None) as (server, ask):
        await ask()
        assert await ask("GET") == (200, b"ok")
        assert server.connections == 2
        with pytest.raises(Broken):
            await ask("POST")
        assert server.connections == 2
        assert await ask("POST") == (200, b"ok")


async def test_an_informational_answer_is_passed_over_and_a_switch_is_an_error() -> None:
    first = b"HTTP/1.1 103 Early Hints\r\n\r\n" + GOOD
    switch = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
    async with scripted(first, switch) as (_, ask):
        assert await ask() == (200, b"ok")
        with pytest.raises(Broken):
            await ask()
        assert await ask() == (200, b"ok")


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n"
        + b"x" * 2000
        + b"\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nContent-Length: 2\r\n\r\nok",
        b"nonsense\r\n\r\n",
        GOOD + b"more",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
)
async def test_a_wild_answer_ends_its_connection_alone(said: bytes) -> None:
    async with scripted(said) as (server, ask):
        with pytest.raises(Broken):
            await ask()
        assert await ask() == (200, b"ok")
        assert server.connections == 2


async def test_an_answer_that_does_not_come_ends_its_connection() -> None:
    async with scripted(b"") as (server, ask):
        with pytest.raises(TooLate):
            await ask(within_s=0.1)
        assert await ask() == (200, b"ok")
        assert server.connections == 2


async def test_a_header_with_two_lines_is_never_sent() -> None:
    async with scripted() as (server, ask):
        for wild in ("a\r\nX-Other: b", "a\nb", "a\rb"):
            with pytest.raises(Broken):
                await ask(**{"X-Own": wild})
        with pytest.raises(Broken):
            await ask(path="/ HTTP/1.1\r\nX-Other: b\r\n\r\n")
        assert server.heard == []
        await until(lambda: server.connections == 0)


async def test_no_server_means_not_delivered() -> None:
    async with scripted() as (_, ask):
        pass
    with pytest.raises(NotDelivered):
        await ask()
