# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The router's page and the operator's reading of it are one contract, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from fakes.batch_server import batch_server
from fakes.routed import routed
from ullage.cluster.records.router import RouterReport
from ullage.kube.manifests.router import METRICS_PORT
from ullage.kube.router_reader import LOAD_PATH, RouterReader, RouterSilent
from ullage.kube.times import ROUTER_WAIT_S
from ullage_router import server as router_server
from ullage_router.times import LOAD_WAIT_MOST_S


def reader(port: int, timeout_s: float = 5.0) -> RouterReader:
    return RouterReader(port=port, timeout_s=timeout_s)


@asynccontextmanager
async def flooding(part: bytes) -> AsyncIterator[int]:
    """A server that repeats these bytes for as long as someone reads; gives its port."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while True:
                writer.write(part)
                await writer.drain()
        ended.set()

    ended = asyncio.Event()
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        async with asyncio.timeout(30.0):
            await ended.wait()


@asynccontextmanager
async def answering(body: bytes, after_s: float = 0.0) -> AsyncIterator[int]:
    """A server that answers each client with these bytes, after a while; gives its port."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(after_s)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        with suppress(OSError):
            await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        ended.release()

    ended = asyncio.Semaphore(0)
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        await ended.acquire()


def test_both_mean_the_same_page() -> None:
    assert LOAD_PATH == router_server.LOAD_PATH
    assert ROUTER_WAIT_S <= LOAD_WAIT_MOST_S
    assert METRICS_PORT == 9464


async def test_the_first_request_is_read_at_once() -> None:
    async with (
        batch_server(ready=False) as server,
        routed(server, up=0, hold_s=30.0) as router,
    ):
        asks = reader(router.server.metrics_port)
        first = await asks.read("127.0.0.1", None)
        assert replace(first, idle_seconds=0) == RouterReport(arrived=0, idle_seconds=0)
        waits = asyncio.create_task(asks.read("127.0.0.1", 0))
        await asyncio.sleep(0.1)
        assert not waits.done()
        request = asyncio.create_task(router.infer())
        async with asyncio.timeout(30.0):
            found = await waits
        assert (found.arrived, found.waiting) == (1, 1)
        assert found.idle_seconds <= 5
        server.ready = True
        await request
        assert (await asks.read("127.0.0.1", None)).wake_millis > 0


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{}",
        b'{"arrived": 1}',
        b'{"arrived": -1, "idleSeconds": 0}',
        b'{"arrived": 1, "idleSeconds": -1}',
        b'{"arrived": 1, "idleSeconds": 999999999999}',
        b'{"arrived": 1, "idleSeconds": 0.5}',
        b'{"arrived": 1, "idleSeconds": 1, "waiting": true}',
        b'{"arrived": 1, "idleSeconds": 1, "waiting": "x"}',
        b'{"arrived": 1, "idleSeconds": 1, "requestsMilli": 1e999}',
        b'{"arrived": 1, "idleSeconds": 1, "wakeMillis": -5}',
        b'{"arrived": 1, "idleSeconds": 1, "more": "' + b"x" * 20_000 + b'"}',
        b"{" * 10_000,
        b"",
    ],
)
async def test_what_no_router_says_is_not_believed(body: bytes) -> None:
    async with answering(body) as port:
        asks = reader(port)
        with pytest.raises(RouterSilent):
            await asks.read("127.0.0.1", None)


async def test_figures_are_bounded() -> None:
    body = b'{"arrived": %d, "idleSeconds": 1, "waiting": %d}' % (10**18, 10**18)
    async with answering(body) as port:
        asks = reader(port)
        found = await asks.read("127.0.0.1", None)
    assert found.waiting < 2**54
    assert found.arrived < 2**54


async def test_one_that_never_answers_is_silent_after_a_while() -> None:
    async with answering(b"{}", after_s=0.5) as port:
        asks = reader(port, timeout_s=0.1)
        with pytest.raises(RouterSilent):
            await asks.read("127.0.0.1", 0)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1_000, "status code 103"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1_000, "a head of more than"),
        (b"x" * 10_000, "a head of more than"),
    ],
)
async def test_one_that_answers_without_end_is_left_at_once(part: bytes, said: str) -> None:
    async with flooding(part) as port:
        with pytest.raises(RouterSilent, match=said):
            await reader(port).read("127.0.0.1", None)


@pytest.mark.parametrize("address", ["metadata.internal", "169.254.169.254", "::ffff:169.254.1.1"])
async def test_only_pods_are_asked(address: str) -> None:
    with pytest.raises(RouterSilent, match="no address of a pod"):
        await reader(1).read(address, None)
