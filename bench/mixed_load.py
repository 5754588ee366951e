# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An open-loop load: every request is sent when it is due, however slow the answers are.

Latency counts from the moment at which a request was due. A failed request is never sent again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final, Protocol

import aiohttp

from bench.apart import run_apart
from bench.mixed_record import Request

TIMEOUT_S: Final = 5.0
PIXELS: Final = tuple(float(number % 17) for number in range(64))
"""Any image will do: the work is the same for all of them."""
BODY: Final = json.dumps({"pixels": PIXELS}).encode()
HEADERS: Final = {"Content-Type": "application/json"}


class Takes(Protocol):
    """Where what came back is put."""

    def append(self, request: Request, /) -> None:
        """Take a request whose answer came, or never will."""


async def until_ready(url: str) -> None:
    """Wait until the server's health check answers, however long it takes."""
    async with _session() as session:
        while not await _is_well(session, url):
            await asyncio.sleep(0.2)


async def offer_apart(
    url: str, due_s: Sequence[float], started: float, into: list[Request]
) -> None:
    """As :func:`offer`, in a process of its own: nothing else of this one delays a request.

    Args:
        url: The server.
        due_s: When each request is due, seconds after ``started``.
        started: On the clock of the event loop, which both processes share.
        into: Where what came back is put.
    """
    await run_apart(_send, (url, tuple(due_s), started), into)


def _send(url: str, due_s: Sequence[float], started: float, sender: Connection) -> None:
    asyncio.run(offer(url, due_s, started, _Sent(sender)))


@dataclass(frozen=True, slots=True)
class _Sent:
    """Sends what came back to the process that asked for it."""

    sender: Connection

    def append(self, request: Request, /) -> None:
        self.sender.send(request)


async def offer(
    url: str, due_s: Sequence[float], started: float, into: Takes, timeout_s: float = TIMEOUT_S
) -> None:
    """Send every request that is due from now on, until the last one is answered.

    Args:
        url: The server.
        due_s: When each request is due, seconds after ``started``.
        started: On the clock of the event loop.
        into: Where what came back is put.
        timeout_s: Who has no answer after that has none, seconds.
    """
    loop = asyncio.get_running_loop()
    ready = loop.time()
    async with _session(timeout_s) as session, asyncio.TaskGroup() as tasks:
        for due in due_s:
            if started + due < ready:
                continue  # no one was there yet
            await asyncio.sleep(max(0.0, started + due - loop.time()))
            tasks.create_task(_one(session, url, due, started, into))


async def _one(
    session: aiohttp.ClientSession, url: str, due: float, started: float, into: Takes
) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with session.post(f"{url}/predict", data=BODY, headers=HEADERS) as answer:
            await answer.read()
            well = answer.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        well = False
    into.append(Request(due_s=due, latency_s=loop.time() - started - due if well else None))


async def _is_well(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url}/healthz") as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


def _session(timeout_s: float = TIMEOUT_S) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=2.0),
    )
