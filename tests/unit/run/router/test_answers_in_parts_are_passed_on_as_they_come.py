# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Server-sent events of a generative server reach the client one by one, at the client's pace."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from fakes.routed import Routed, routed, until
from ullage_router.replicas import PARTS
from ullage_router.settings import ClientLimits, ReplicaAddress

COMPLETIONS = "/v1/chat/completions"


@dataclass(slots=True, kw_only=True)
class TokenServer:
    """Answers with one token an event; it goes on when it is let."""

    go: asyncio.Semaphore
    tokens: int = 3
    dies_after: int = 0
    size: int = 1
    kind: str = "text/event-stream"
    status: int = 200
    sent: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    @property
    def backend(self) -> ReplicaAddress:
        return ReplicaAddress(url=f"http://127.0.0.1:{self.port}")

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path != COMPLETIONS:
            return web.Response()
        await request.read()
        answer = web.StreamResponse(status=self.status, headers={"Content-Type": self.kind})
        try:
            await answer.prepare(request)
            for number in range(self.tokens):
                await self.go.acquire()
                if self.dies_after and number == max(self.dies_after, 0):
                    assert request.transport is not None
                    request.transport.abort()
                    return answer
                await answer.write(b"data: " + b"x" * self.size + b"%d\n\n" % number)
                self.sent += 1
            await answer.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            self.gone.set()
            raise
        return answer


@asynccontextmanager
async def token_server(**given: int | str) -> AsyncIterator[TokenServer]:
    server = TokenServer(go=asyncio.Semaphore(0), **given)  # type: ignore[arg-type]
    low = web.Server(server.handle, access_log=None, handler_cancellation=True)
    runner = web.ServerRunner(low, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()


def asked(client: aiohttp.ClientSession, url: str, **more: object) -> object:
    body = {"model": "m", "stream": True, "messages": []}
    return client.post(url + COMPLETIONS, data=json.dumps(body), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["text/event-stream", "application/x-ndjson"])
async def test_a_part_is_there_before_the_next_one_is_made(kind: str) -> None:
    async with token_server(kind=kind) as server, routed(server.backend) as router:
        server.go.release()
        async with asked(router.client, router.url) as answer:  # type: ignore[attr-defined]
            for number in range(3):
                assert await answer.content.readuntil(b"\n\n") == b"data: x%d\n\n" % number
                assert server.sent == number + 1
                server.go.release()
            assert await answer.content.read() == b""
            assert answer.headers["Content-Type"] == kind
        await until(lambda: router.dispatcher.idle)
        assert await router.metric("ullage_first_part_seconds_count") == 1
        assert await router.metric("ullage_requests_total", outcome="met") == 1


@pytest.mark.slow
async def test_a_first_part_after_the_deadline_is_late_and_still_passed_on() -> None:
    async with token_server(tokens=1) as server, routed(server.backend) as router:
        asking = asyncio.create_task(_read(router.client, router.url, "1000"))
        await asyncio.sleep(1.2)
        server.go.release()
        assert await asking == (200, b"data: x0\n\n")
        await until(lambda: router.dispatcher.idle)
        assert await router.metric("ullage_requests_total", outcome="late") == 1
        assert await router.metric("ullage_first_part_seconds_sum") >= 1


async def _read(client: aiohttp.ClientSession, url: str, deadline_ms: str) -> tuple[int, bytes]:
    headers = {"x-deadline-ms": deadline_ms}
    async with asked(client, url, headers=headers) as answer:  # type: ignore[attr-defined]
        return answer.status, await answer.read()


async def test_a_replica_that_dies_before_the_first_part_is_an_error_of_its_own() -> None:
    async with token_server(dies_after=-1) as server, routed(server.backend) as router:
        server.go.release()
        assert (await _read(router.client, router.url, "60000"))[0] == 502
        assert await router.metric("ullage_first_part_seconds_count") == 0


async def test_a_stream_without_a_part_is_an_empty_answer() -> None:
    async with token_server(tokens=0) as server, routed(server.backend) as router:
        assert await _read(router.client, router.url, "60000") == (200, b"")


async def test_a_replica_that_dies_midway_breaks_the_answer_off() -> None:
    async with token_server(dies_after=2) as server, routed(server.backend) as router:
        for _ in range(3):
            server.go.release()
        with pytest.raises(aiohttp.ClientError):
            async with asked(router.client, router.url) as answer:  # type: ignore[attr-defined]
                await answer.read()
        await until(lambda: router.dispatcher.idle)
        assert await router.metric("ullage_requests_total", outcome="failed") == 1
        assert await router.metric("ullage_requests_retried_total") == 0
        await until(lambda: router.dispatcher.ready)  # a probe brings it back


@pytest.mark.slow
async def test_a_replica_that_stops_sending_is_given_up() -> None:
    limits = ClientLimits(answer_s=1.0)
    async with token_server() as server, routed(server.backend, limits=limits) as router:
        server.go.release()
        with pytest.raises(aiohttp.ClientError):
            async with asked(router.client, router.url) as answer:  # type: ignore[attr-defined]
                await answer.read()
        await until(lambda: router.dispatcher.idle)
        assert server.sent == 1


async def test_a_client_that_leaves_ends_the_work() -> None:
    async with (
        token_server(tokens=10_000) as server,
        routed(server.backend) as router,
    ):
        server.go.release()
        async with asked(router.client, router.url) as answer:  # type: ignore[attr-defined]
            assert await answer.content.readuntil(b"\n\n") == b"data: x0\n\n"
            answer.close()
        for _ in range(50):
            server.go.release()
        await until(server.gone.is_set)
        await until(lambda: router.dispatcher.idle)
        assert server.sent < 10_000


async def test_a_client_that_left_before_the_first_part_ends_the_work() -> None:
    async with token_server(tokens=10_000) as server, routed(server.backend) as router:
        asking = asyncio.create_task(_read(router.client, router.url, "60000"))
        await until(lambda: not router.dispatcher.idle and not router.dispatcher.queue)
        asking.cancel()
        await until(lambda: router.server._open == 0)
        for _ in range(100):
            server.go.release()
        await until(lambda: router.dispatcher.idle)
        await until(server.gone.is_set)


async def test_a_client_that_does_not_read_holds_the_replica_back() -> None:
    size = 64 * 1024
    async with (
        token_server(tokens=2_000, size=size) as server,
        routed(server.backend, limits=ClientLimits(body_s=0.5)) as router,
    ):
        for _ in range(2_000):
            server.go.release()
        reader, writer = await asyncio.open_connection("127.0.0.1", router.server.port)
        writer.write(
            f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}".encode()
        )
        await until(lambda: router.dispatcher.idle and server.sent > 0)
        # buffers of sockets on both ways, and a few parts: never the 125 MiB of it all
        assert server.sent * size < 64 * 2**20 + PARTS * size
        assert await router.metric("ullage_requests_refused_total", reason="slow") == 1
        writer.close()
        del reader


async def test_a_stream_without_an_end_frees_its_place_and_says_why() -> None:
    async with (
        token_server(tokens=1_000_000) as server,
        routed(server.backend, limits=ClientLimits(stream_s=0.3)) as router,
    ):
        trickle = asyncio.create_task(_trickle(server))
        seen = await _until_it_breaks_off(router)
        trickle.cancel()
        error = json.loads(seen.rpartition(b"data: ")[2])["error"]
        assert error["code"] == "gateway_timeout"
        assert error["message"] == "the answer took more than 0.3 s; it ends here"
        await until(lambda: router.dispatcher.idle)
        await until(server.gone.is_set)
        assert router.dispatcher.ready, "who asks for a long answer takes no replica from others"
        assert await router.metric("ullage_requests_total", outcome="failed") == 1


async def _until_it_breaks_off(router: Routed) -> bytes:
    seen = b""
    async with asked(router.client, router.url) as answer:  # type: ignore[attr-defined]
        try:
            async for part in answer.content.iter_any():
                seen += part
        except aiohttp.ClientError:
            return seen
    raise AssertionError("it ended as if it were whole")


async def _trickle(server: TokenServer) -> None:
    while True:
        server.go.release()
        await asyncio.sleep(0.01)


async def test_a_client_that_leaves_frees_the_place_though_nothing_more_comes() -> None:
    async with token_server() as server, routed(server.backend) as router:
        server.go.release()
        async with asked(router.client, router.url) as answer:  # type: ignore[attr-defined]
            assert await answer.content.readuntil(b"\n\n") == b"data: x0\n\n"
            answer.close()
        await until(lambda: router.dispatcher.idle)
        assert server.sent == 1
        assert router.dispatcher.ready


async def test_a_client_that_leaves_before_any_byte_frees_the_place() -> None:
    async with token_server() as server, routed(server.backend) as router:
        asking = asyncio.create_task(_read(router.client, router.url, "60000"))
        await until(lambda: not router.dispatcher.idle and not router.dispatcher.queue)
        asking.cancel()
        await until(lambda: router.dispatcher.idle)
        assert server.sent == 0
        assert router.dispatcher.ready
        server.go.release()
        server.tokens = 1
        assert (await _read(router.client, router.url, "60000"))[0] == 200


async def test_an_error_is_no_stream() -> None:
    async with token_server(status=400, tokens=1) as server, routed(server.backend) as router:
        server.go.release()
        async with asked(router.client, router.url) as answer:  # type: ignore[attr-defined]
            assert answer.status == 400
            assert await answer.read() == b"data: x0\n\n"
        assert await router.metric("ullage_first_part_seconds_count") == 0


async def test_the_router_ends_while_a_client_is_behind() -> None:
    async with (
        token_server(tokens=1_000, size=64 * 1024) as server,
        routed(server.backend) as router,
    ):
        for _ in range(1_000):
            server.go.release()
        _, writer = await asyncio.open_connection("127.0.0.1", router.server.port)
        writer.write(
            f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}".encode()
        )
        await until(lambda: server.sent > PARTS)
        async with asyncio.timeout(30):
            await router.dispatcher.stop()
        writer.close()
