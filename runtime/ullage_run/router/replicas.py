# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replicas of a model: what each runs, until when, whether it is there; asked over HTTP."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from ullage_run.router.run_times import RunTimes
from ullage_run.router.settings import Backend

IDLE_S: Final = 4.0
"""An idle connection is kept for less than the five seconds after which common servers close it."""
CONNECT_S: Final = 1.0
OK: Final = 200
STREAMED: Final = frozenset({"text/event-stream", "application/x-ndjson"})
"""Content types of answers whose parts a client reads one by one."""
PARTS: Final = 8
"""Parts of an answer that wait for their client."""
HOP_BY_HOP: Final = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te"),
        *("trailer", "transfer-encoding", "upgrade", "content-length", "host", "expect", "date"),
        "server",
    }
)
"""Headers of one connection (RFC 9110, section 7.6.1), and those that each server sets itself."""


class NotDelivered(Exception):
    """No connection: the replica has not seen the request."""


class Broken(Exception):
    """The replica may have begun, and gave no answer that can be used."""


class TooLate(Broken):
    """The replica did not answer in the time that it had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A replica's answer as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Stream:
    """The parts of an answer on their way to its client, who sets the pace; for one event loop."""

    def __init__(self) -> None:
        self._parts: deque[bytes] = deque()
        self._more, self._room = asyncio.Event(), asyncio.Event()
        self._ended = False
        self.left = False
        """The client takes no more: the replica may stop."""
        self.broken = False
        """The replica did not send all of it."""

    async def put(self, part: bytes) -> None:
        """Hand a part on; waits while the client is behind."""
        while len(self._parts) >= PARTS and not self.left:
            self._room.clear()
            await self._room.wait()
        self._parts.append(part)
        self._more.set()

    def end(self, *, broken: bool) -> None:
        """There is no more."""
        self._ended, self.broken = True, broken
        self._more.set()

    async def next(self) -> bytes | None:
        """The next part; ``None`` = there is no more."""
        while not self._parts:
            if self._ended:
                return None
            self._more.clear()
            await self._more.wait()
        self._room.set()
        return self._parts.popleft()

    def leave(self) -> None:
        """The client is gone, or has everything: who waits to hand a part on goes on."""
        self.left = True
        self._room.set()


Begun = Callable[[Reply, Stream], None]
"""Told when the first part of an answer is there that comes in parts."""


@dataclass(slots=True, kw_only=True, eq=False)
class Replica:
    """One replica; ``times`` is shared by those on equal devices at equal shares."""

    number: int
    backend: Backend
    times: RunTimes
    most_in_flight: int
    up: bool = False
    ends_s: dict[int, float] = field(default_factory=dict)
    """When each batch that runs is predicted to end, on the router's clock."""
    ran: int = 0

    @property
    def free(self) -> bool:
        """Whether it takes another batch."""
        return self.up and len(self.ends_s) < self.most_in_flight

    def left_s(self, now_s: float) -> float:
        """Predicted time until it has run what it has and one request more, seconds."""
        return sum(max(end - now_s, 0.0) for end in self.ends_s.values()) + self.times.single_s

    def down(self) -> None:
        """Give it nothing until a probe succeeds."""
        self.up = False


def least_loaded(replicas: Sequence[Replica], now_s: float) -> Replica | None:
    """The free replica with the least predicted time left; among equal ones the least used."""
    free = [replica for replica in replicas if replica.free]
    if len(free) == 1:
        return free[0]
    return min(free, key=lambda one: (one.left_s(now_s), one.ran), default=None)


class Connections(Protocol):
    """Connections to all replicas; ``open`` and ``close`` once each."""

    async def open(self) -> None:
        """Be ready to ask."""

    async def close(self) -> None:
        """Close all."""

    def forget(self, replica: Replica) -> None:
        """A replica is no more; what it has begun may still be answered."""

    async def ask(
        self,
        replica: Replica,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        within_s: float,
        begun: Begun | None = None,
    ) -> Reply:
        """One exchange; raises NotDelivered, TooLate or Broken."""
        ...


class HttpConnections:
    """Connections to all replicas, kept open and used again; ``open`` and ``close`` once each."""

    def __init__(self, answer_bytes: int) -> None:
        """No answer may be longer than ``answer_bytes``."""
        self._answer_bytes = answer_bytes
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Connections are made when they are needed."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )

    async def close(self) -> None:
        """Close all."""
        if self._session is not None:
            await self._session.close()

    def forget(self, replica: Replica) -> None:
        """Its idle connections end by themselves."""

    async def ask(
        self,
        replica: Replica,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        within_s: float,
        begun: Begun | None = None,
    ) -> Reply:
        """One exchange; ``path`` is sent as it is.

        An answer that comes in parts is handed on part by part where ``begun`` is given: each may
        take as long as the whole of another answer.

        Raises:
            NotDelivered: no connection was made.
            TooLate: no whole answer came in time.
            Broken: the connection ended, or the answer is no HTTP or too long.
        """
        if self._session is None:
            raise RuntimeError("connections are used before they are opened")
        url = URL(replica.backend.url + path, encoded=True)
        try:
            async with (
                asyncio.timeout(within_s) as limit,
                self._session.request(
                    method, url, headers=headers, data=body or None, allow_redirects=False
                ) as answer,
            ):
                reply = Reply(status=answer.status, headers=end_to_end(answer.headers), body=b"")
                if begun is not None and _comes_in_parts(answer):
                    await _handed_on(answer, reply, begun, limit, within_s)
                    return reply
                return replace(reply, body=await self._body(answer))
        except aiohttp.ClientConnectorError as error:
            raise NotDelivered(f"no connection: {error}") from None
        except aiohttp.ConnectionTimeoutError:
            raise NotDelivered(f"no connection in {CONNECT_S:g} s") from None
        except TimeoutError:
            raise TooLate(f"no answer in {within_s:.3g} s") from None
        except (aiohttp.ClientError, ValueError, OSError) as error:
            raise Broken(f"the connection ended: {error or type(error).__name__}") from None

    async def _body(self, answer: aiohttp.ClientResponse) -> bytes:
        if (answer.content_length or 0) > self._answer_bytes:
            raise Broken(f"the answer has more than {self._answer_bytes} bytes")
        body = bytearray()
        async for chunk in answer.content.iter_any():
            body += chunk
            if len(body) > self._answer_bytes:
                raise Broken(f"the answer has more than {self._answer_bytes} bytes")
        return bytes(body)


def _comes_in_parts(answer: aiohttp.ClientResponse) -> bool:
    return answer.status == OK and answer.content_type in STREAMED


async def _handed_on(
    answer: aiohttp.ClientResponse,
    reply: Reply,
    begun: Begun,
    limit: asyncio.Timeout,
    idle_s: float,
) -> None:
    """Hand an answer on, part by part; a client who leaves ends it at the replica, too.

    It begins with its first part: until then a failure is one of the whole exchange.
    """
    stream, whole = Stream(), False
    now_s = asyncio.get_running_loop().time
    parts = answer.content.iter_any()
    first = await anext(parts, None)
    if first is None:
        return
    begun(reply, stream)
    try:
        await stream.put(first)
        _renew(limit, now_s() + idle_s)
        async for part in parts:
            _renew(limit, None)  # how long the client may take is the server's to say
            await stream.put(part)
            if stream.left:
                answer.close()
                return
            _renew(limit, now_s() + idle_s)
        whole = True
    finally:
        stream.end(broken=not whole)


def _renew(limit: asyncio.Timeout, until_s: float | None) -> None:
    """Move a time-out that has not ended this task yet."""
    if not limit.expired():
        limit.reschedule(until_s)


def end_to_end(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """Headers without those of one connection, nor those that ``Connection`` names."""
    values = headers.getall("Connection", ())
    named = {word.strip().lower() for value in values for word in value.split(",")}
    left_out = HOP_BY_HOP | named
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in left_out
    )
