# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An open-loop load generator over plain sockets: requests leave when they are due.

The time of a request counts from when it was due, so that a stall is not left out of it. Its own
cost is small: one connection carries one request at a time, and answers are not parsed.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import orjson
import uvloop

LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
LAST_CHUNK: Final = b"0\r\n\r\n"
"""Ends a body without a length, such as Ray Serve's 408."""
CONNECTIONS: Final = 512
"""Beyond them requests wait, and their time counts."""
LEAD_S: Final = 0.2
OK: Final = 200
NO_ANSWER: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request: when it is due, seconds from the beginning, its bytes, and its time limit."""

    due_s: float
    payload: bytes
    limit_s: float = math.inf


@dataclass(slots=True, kw_only=True)
class Measured:
    """Times from due to answered, seconds, and how often each status came."""

    times_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    refusals: Counter[bytes] = field(default_factory=Counter)
    """Bodies of answers other than 200."""
    met: int = 0
    """Answers 200 within the request's limit."""
    span_s: float = 0.0

    def add(self, answer: tuple[int, bytes], seconds: float, limit_s: float = math.inf) -> None:
        """Take in an answer."""
        status, body = answer
        self.statuses[status] += 1
        self.times_s.append(seconds)
        if status != OK:
            self.refusals[body] += 1
        elif seconds <= limit_s:
            self.met += 1

    def quantile_ms(self, part: float) -> float:
        """A quantile of the times, milliseconds."""
        return float(np.quantile(self.times_s, part)) * 1e3


class _Client(asyncio.Protocol):
    """A connection; ``ask`` is answered with status and body."""

    def __init__(self) -> None:
        self._buffer = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: asyncio.Transport | None = None
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is no asyncio.Transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((NO_ANSWER, b"the connection ended"))

    def ask(self, payload: bytes) -> asyncio.Future[tuple[int, bytes]]:
        self._answer = asyncio.get_running_loop().create_future()
        assert self._transport is not None
        self._transport.write(payload)
        return self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found or not _whole(head, rest):
            return
        self._buffer = b""
        if self._answer is not None:
            self._answer.set_result((int(head[9:12]), rest))


def _whole(head: bytes, body: bytes) -> bool:
    length = LENGTH.search(head)
    if length is None:
        return body.endswith(LAST_CHUNK)
    return len(body) >= int(length[1])


class _Pool:
    """Connections that are free."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[_Client] = []
        self._room = asyncio.Semaphore(CONNECTIONS)

    async def ask(self, payload: bytes) -> tuple[int, bytes]:
        async with self._room:
            self._free = [client for client in self._free if not client.closed]
            client = self._free.pop() if self._free else await self._opened()
            answer = await client.ask(payload)
            self._free.append(client)
            return answer

    def close(self) -> None:
        for client in self._free:
            client.close()

    async def _opened(self) -> _Client:
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(_Client, "127.0.0.1", self._port)
        return client


def payload(element: float, deadline_ms: float | None = None) -> bytes:
    """A request of the Open Inference Protocol with one element."""
    tensor = {"name": "x", "datatype": "FP64", "shape": [1, 1], "data": [element]}
    body = orjson.dumps({"inputs": [tensor]})
    deadline = b"" if deadline_ms is None else b"x-deadline-ms: %.3f\r\n" % deadline_ms
    return http(b"/v2/models/timed/infer", body, deadline)


def http(path: bytes, body: bytes, headers: bytes = b"") -> bytes:
    """A POST of JSON; further headers end with a line break."""
    return (
        b"POST %b HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        b"%bContent-Length: %d\r\n\r\n%b" % (path, headers, len(body), body)
    )


def open_loop(port: int, requests: Sequence[Sent]) -> Measured:
    """Send each request when it is due, whatever became of those before."""
    return _run(_open_loop(port, requests))


def closed_loop(port: int, clients: int, seconds: float, body: bytes) -> Measured:
    """As many clients that each ask again at once: how much goes through."""
    return _run(_closed_loop(port, clients, seconds, body))


def closed_loop_of(port: int, bodies: Sequence[bytes]) -> Measured:
    """One client that asks these in order, each when the one before is answered."""
    return _run(_one_by_one(port, bodies))


def _run(load: Coroutine[object, object, Measured]) -> Measured:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(load)


async def _open_loop(port: int, requests: Sequence[Sent]) -> Measured:
    loop, found = asyncio.get_running_loop(), Measured()
    began = time.perf_counter() + LEAD_S

    async def one(pool: _Pool, request: Sent) -> None:
        due = began + request.due_s
        answer = await pool.ask(request.payload)
        found.add(answer, time.perf_counter() - due, request.limit_s)

    tasks = []
    with closing(_Pool(port)) as pool:
        for request in requests:
            early = began + request.due_s - time.perf_counter()
            if early > 0:
                await asyncio.sleep(early)
            tasks.append(loop.create_task(one(pool, request)))
        await asyncio.gather(*tasks)
    found.span_s = time.perf_counter() - began
    return found


async def _closed_loop(port: int, clients: int, seconds: float, body: bytes) -> Measured:
    found = Measured()
    began = time.perf_counter()

    async def client(pool: _Pool) -> None:
        while (at := time.perf_counter()) < began + seconds:
            answer = await pool.ask(body)
            found.add(answer, time.perf_counter() - at)

    with closing(_Pool(port)) as pool:
        await asyncio.gather(*(client(pool) for _ in range(clients)))
    found.span_s = time.perf_counter() - began
    return found


async def _one_by_one(port: int, bodies: Sequence[bytes]) -> Measured:
    found = Measured()
    began = time.perf_counter()
    with closing(_Pool(port)) as pool:
        for body in bodies:
            at = time.perf_counter()
            found.add(await pool.ask(body), time.perf_counter() - at)
    found.span_s = time.perf_counter() - began
    return found
