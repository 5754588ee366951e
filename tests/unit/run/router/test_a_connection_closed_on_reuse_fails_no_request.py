# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A replica closes kept connections whenever it likes: repeatable requests are answered all the
same, others are never sent twice, and the replica stays in service.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.batch_server import doubled
from fakes.generative_server import COMPLETIONS
from fakes.routed import Routed, routed
from ullage_router.settings import Backend, Generative

LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Close(Enum):
    """How a connection that has carried an exchange ends."""

    NEVER = "it is kept"
    IDLE = "closed a while after the answer"
    END = "closed when the next request comes"
    RESET = "reset when the next request comes"
    ONE_BYTE = "closed after the first byte of the next answer"


@dataclass(slots=True, kw_only=True)
class Closing:
    """A model server; ``ways`` are how its connections end after one answer after the other."""

    ways: list[tuple[Close, float]] = field(default_factory=list)
    """With seconds from the answer; behind the last it keeps connections."""
    came: Counter[str] = field(default_factory=Counter)
    """Requests that reached it, by their header ``X-Number`` or element."""
    port: int = 0

    @property
    def backend(self) -> Backend:
        return Backend(url=f"http://127.0.0.1:{self.port}")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        how, idle_s = Close.NEVER, 0.0
        try:
            while True:
                async with asyncio.timeout(idle_s if how is Close.IDLE else None):
                    head = await reader.readuntil(b"\r\n\r\n")
                length = LENGTH.search(head)
                body = await reader.readexactly(int(length[1]) if length else 0)
                answer, name = self._answer(head.decode(), body)
                if not name:  # probes neither end a connection nor begin the end of one
                    writer.write(answer)
                    continue
                self.came[name] += 1
                if how is Close.RESET:
                    raw: socket.socket = writer.get_extra_info("socket")
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                elif how is Close.ONE_BYTE:
                    writer.write(answer[:1])
                if how in (Close.END, Close.RESET, Close.ONE_BYTE):
                    return
                writer.write(answer)
                how, idle_s = self.ways.pop(0) if self.ways else (Close.NEVER, 0.0)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionResetError):
            return
        finally:
            writer.close()

    def _answer(self, head: str, body: bytes) -> tuple[bytes, str]:
        """An answer, and the name of the request; empty for a probe."""
        said, name = b"ok", ""
        if "/infer " in head:
            asked = orjson.loads(body)
            said, name = doubled(asked), str(asked["inputs"][0]["data"][0])
        elif not head.startswith("GET "):
            name = head.partition(" HTTP")[0]
        kind = b"Content-Type: application/json\r\n"
        return b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (kind, len(said), said), name


@asynccontextmanager
async def closing(
    *ways: tuple[Close, float], **settings: Any
) -> AsyncIterator[tuple[Closing, Routed]]:
    """A server that closes connections so, and the router before it."""
    replica = Closing(ways=list(ways))
    server = await asyncio.start_server(replica.serve, "127.0.0.1", 0)
    replica.port = server.sockets[0].getsockname()[1]
    try:
        async with routed(replica.backend, **settings) as router:
            yield replica, router
    finally:
        server.close()


async def post(router: Routed, path: str, body: bytes = b"{}", **headers: str) -> int:
    async with router.client.post(router.url + path, data=body, headers=headers) as answer:
        await answer.read()
        return answer.status


WAYS = st.lists(
    st.tuples(
        st.sampled_from([Close.NEVER, Close.IDLE, Close.END, Close.RESET]), st.floats(0, 0.003)
    ),
    max_size=30,
)


@given(ways=WAYS, pauses=st.lists(st.floats(0, 0.003), min_size=4, max_size=8))
@settings(max_examples=15, deadline=None)
def test_whenever_connections_are_closed_all_that_may_be_repeated_is_answered(
    ways: list[tuple[Close, float]], pauses: list[float]
) -> None:
    async def play() -> None:
        async with closing(*ways, in_flight=2) as (_, router):
            for number, pause in enumerate(pauses):
                rows = [float(3 * number + one) for one in range(3)]
                answers = await asyncio.gather(*(router.infer([row]) for row in rows))
                assert [status for status, _ in answers] == [200] * 3
                assert [body["outputs"][0]["data"] for _, body in answers] == [
                    [2 * row] for row in rows
                ]
                await asyncio.sleep(pause)
            assert await router.metric("ullage_batches_failed_total") == 0

    asyncio.run(play())


@given(ways=WAYS, pauses=st.lists(st.floats(0, 0.003), min_size=4, max_size=8))
@settings(max_examples=15, deadline=None)
def test_whenever_connections_are_closed_nothing_else_is_sent_twice(
    ways: list[tuple[Close, float]], pauses: list[float]
) -> None:
    async def play() -> None:
        async with closing(*ways, in_flight=2) as (replica, router):
            for number, pause in enumerate(pauses):
                asked = [
                    post(router, f"/own/{number}"),
                    router.infer([float(number)], parameters={"sequence_id": 1}),
                ]
                plain, (in_sequence, _) = await asyncio.gather(*asked)  # type: ignore[misc]
                assert {plain, in_sequence} <= {200, 502}
                await asyncio.sleep(pause)
            assert max(replica.came.values()) == 1

    asyncio.run(play())


@pytest.mark.parametrize("how", [Close.END, Close.RESET])
async def test_it_is_sent_once_more_on_a_new_connection(how: Close) -> None:
    async with closing((how, 0.0), objective_s=5.0, probe_s=60.0) as (replica, router):
        assert (await router.infer([1.0]))[0] == 200
        assert (await router.infer([2.0]))[0] == 200
        assert replica.came == {"1.0": 1, "2.0": 2}
        assert await router.metric("ullage_requests_retried_total") == 1
        assert await router.metric("ullage_batches_failed_total") == 0


@pytest.mark.parametrize("how", [Close.END, Close.RESET])
async def test_a_request_that_may_not_be_repeated_fails_and_takes_no_replica_out(
    how: Close,
) -> None:
    async with closing((how, 0.0), objective_s=5.0, probe_s=60.0) as (replica, router):
        assert await post(router, "/own/1") == 200
        assert await post(router, "/own/2") == 502
        assert await post(router, "/own/3") == 200, "no probe has asked since"
        assert max(replica.came.values()) == 1


async def test_a_key_makes_any_request_repeatable() -> None:
    async with closing((Close.END, 0.0), probe_s=60.0) as (replica, router):
        assert await post(router, "/own/1") == 200
        assert await post(router, "/own/2", **{"Idempotency-Key": "k"}) == 200
        assert replica.came["POST /own/2"] == 2


async def test_a_request_for_text_is_repeated() -> None:
    async with closing((Close.END, 0.0), probe_s=60.0, generative=Generative()) as (_, router):
        body = orjson.dumps({"model": "m", "prompt": "x"})
        for _ in range(2):
            assert await post(router, COMPLETIONS, body) == 200
        assert await router.metric("ullage_requests_retried_total") == 1


async def test_one_byte_of_an_answer_says_that_the_replica_has_begun() -> None:
    async with closing((Close.ONE_BYTE, 0.0), probe_s=60.0) as (replica, router):
        assert (await router.infer([1.0]))[0] == 200
        assert (await router.infer([2.0]))[0] == 502
        assert replica.came["2.0"] == 1


async def test_a_batch_is_sent_once_more_as_it_is() -> None:
    async with closing((Close.END, 0.0), objective_s=5.0, probe_s=60.0) as (replica, router):
        await router.taught(0.05)
        answers = await asyncio.gather(*(router.infer([float(n)]) for n in range(9)))
        assert [status for status, _ in answers] == [200] * 9
        assert sorted(replica.came.values())[-1] == 2
        assert await router.metric("ullage_batches_failed_total") == 0


async def test_what_a_replica_may_have_seen_is_not_taken_for_undelivered() -> None:
    """A replica that ends with its connection gets the request once, and its client an answer."""
    replica = Closing(ways=[(Close.END, 0.0)])
    server = await asyncio.start_server(replica.serve, "127.0.0.1", 0)
    replica.port = server.sockets[0].getsockname()[1]
    async with routed(replica.backend, probe_s=60.0) as router:
        assert (await router.infer([1.0]))[0] == 200
        server.close()
        status, body = await router.infer([2.0])
        assert (status, replica.came["2.0"]) == (502, 1)
        assert "the connection ended, and then no connection" in body["error"]
        assert not router.dispatcher.ready
