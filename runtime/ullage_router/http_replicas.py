# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replicas of a model over HTTP: kept-open connections with one exchange each.

It uses aiohttp's HTTP parser, but not its session: that takes longer per exchange than the rest of
the router (``make bench-router`` measures the cost of a request).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError

from ullage_router.replicas import (
    OK,
    Again,
    AnswerStream,
    Begun,
    Broken,
    KeptConnectionEnded,
    NotDelivered,
    Reply,
    RouterReplica,
    TooLate,
    end_to_end,
)
from ullage_router.times import KEPT_IDLE_S, REPLICA_CONNECT_S

STREAMED: Final = frozenset({"text/event-stream", "application/x-ndjson"})
"""Content types of answers whose parts a client reads one by one."""
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods (RFC 9110, section 9.2.1) that may always be resent; without a body they send no length.
"""
SWITCHING: Final = 101
INFORMATIONAL: Final = range(100, 200)


class ReplicaConnection(ResponseHandler):
    """A connection that records if any bytes of an answer to its last request arrived."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.answered = False

    def data_received(self, data: bytes) -> None:
        """Process bytes of an answer."""
        self.answered = True
        super().data_received(data)


@dataclass(frozen=True, slots=True)
class IdleConnections:
    """A kept connection, and the time since when, on the loop's clock."""

    connection: ReplicaConnection
    since_s: float


class HttpConnections:
    """Connections to all replicas, kept open and reused; ``open`` and ``close`` once each."""

    def __init__(self, answer_bytes: int, stream_s: float) -> None:
        """Limits of an answer: its bytes, and the duration of a stream."""
        self._answer_bytes = answer_bytes
        self._stream_s = stream_s
        self._idle: dict[int, deque[IdleConnections]] = {}

    async def open(self) -> None:
        """Do nothing: connections are opened on demand."""

    async def close(self) -> None:
        """Close all."""
        for number in list(self._idle):
            self._close_idle(number)

    def forget(self, replica: RouterReplica) -> None:
        """Close idle connections; those in use end with their exchange."""
        self._close_idle(replica.number)

    async def ask(
        self,
        replica: RouterReplica,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        within_s: float,
        begun: Begun | None = None,
        again: Again | None = None,
        new: bool = False,
    ) -> Reply:
        """One exchange; ``path`` is sent unchanged.

        A streamed answer is passed on part by part where ``begun`` is given: each part has the time
        limit of a whole answer, all together that of a stream.

        A server may close a kept connection just when a request is sent on it. Then the request is
        resent on a new connection, if its method is safe or ``again`` permits it (RFC 9112, section
        9.3.1). A request that must avoid this uses a ``new`` connection at once.

        Raises:
            NotDelivered: no connection.
            TooLate: no complete answer in time.
            KeptConnectionEnded: a kept connection ended without a byte of an answer, and the
                request may not be resent.
            Broken: the connection ended, or the answer is not HTTP or too long.
        """
        try:
            sent = _written(replica, method, path, headers, body)
            async with asyncio.timeout(within_s) as limit:
                kept = None if new else self._kept(replica)
                if kept is None:
                    connection = await _connected(replica)
                else:
                    try:
                        return await self._exchange(
                            replica, kept, method, sent, limit, within_s, begun
                        )
                    except aiohttp.ClientConnectionError as error:
                        if kept.answered:
                            raise
                        if method not in SAFE and not (again is not None and again()):
                            raise KeptConnectionEnded(_ended(error)) from None
                    connection = await _connected_again(replica)
                return await self._exchange(
                    replica, connection, method, sent, limit, within_s, begun
                )
        except TimeoutError:
            raise TooLate(f"no answer in {within_s:.3g} s") from None
        except (aiohttp.ClientError, HttpProcessingError, ValueError, OSError) as error:
            raise Broken(_ended(error)) from None

    async def _exchange(
        self,
        replica: RouterReplica,
        connection: ReplicaConnection,
        method: str,
        sent: bytes,
        limit: asyncio.Timeout,
        within_s: float,
        begun: Begun | None,
    ) -> Reply:
        """Send and receive; the connection is kept if it can be used again."""
        whole = False
        try:
            connection.set_response_params(
                skip_payload=method == "HEAD", read_until_eof=True, auto_decompress=False
            )
            if connection.transport is None:
                raise aiohttp.ServerDisconnectedError
            connection.answered = False
            connection.transport.write(sent)
            message, content = await _answered(connection)
            given = end_to_end(message.headers)
            if begun is not None and _comes_in_parts(message):
                reply = Reply(status=message.code, headers=given, body=b"")
                end_s = asyncio.get_running_loop().time() + self._stream_s
                whole = await _handed_on(content, reply, begun, limit, within_s, end_s)
                return reply
            body = await self._body(message, content)
            whole = True
            return Reply(status=message.code, headers=given, body=body)
        finally:
            if whole and not connection.should_close:
                self._keep(replica, connection)
            else:
                connection.abort()

    async def _body(self, message: RawResponseMessage, content: aiohttp.StreamReader) -> bytes:
        too_long = f"the answer has more than {self._answer_bytes} bytes"
        if content.is_eof() and content.total_bytes <= self._answer_bytes:
            return content.read_nowait(-1)
        if int(message.headers.get("Content-Length", 0)) > self._answer_bytes:
            raise Broken(too_long)
        body = bytearray()
        async for chunk in content.iter_any():
            body += chunk
            if len(body) > self._answer_bytes:
                raise Broken(too_long)
        return bytes(body)

    def _kept(self, replica: RouterReplica) -> ReplicaConnection | None:
        """The most recently used idle connection, if one is still usable."""
        idle = self._idle.get(replica.number)
        oldest_s = asyncio.get_running_loop().time() - KEPT_IDLE_S
        while idle:
            last = idle.pop()
            usable = last.connection.is_connected() and not last.connection.should_close
            if usable and last.since_s >= oldest_s:
                return last.connection
            last.connection.close()
        return None

    def _keep(self, replica: RouterReplica, connection: ReplicaConnection) -> None:
        now = asyncio.get_running_loop().time()
        idle = self._idle.setdefault(replica.number, deque())
        while idle and idle[0].since_s < now - KEPT_IDLE_S:
            idle.popleft().connection.close()
        idle.append(IdleConnections(connection, now))

    def _close_idle(self, number: int) -> None:
        for idle in self._idle.pop(number, ()):
            idle.connection.close()


async def _connected(replica: RouterReplica) -> ReplicaConnection:
    loop = asyncio.get_running_loop()
    split = urlsplit(replica.backend.url)
    host, port = split.hostname or "", split.port or 0
    try:
        async with asyncio.timeout(REPLICA_CONNECT_S):
            _, connection = await loop.create_connection(
                lambda: ReplicaConnection(loop), host, port
            )
    except TimeoutError:
        raise NotDelivered(f"no connection in {REPLICA_CONNECT_S:g} s") from None
    except OSError as error:
        raise NotDelivered(f"no connection: {error}") from None
    return connection


async def _connected_again(replica: RouterReplica) -> ReplicaConnection:
    """A connection to resend a request; failures do not count as not delivered."""
    try:
        return await _connected(replica)
    except NotDelivered as error:
        raise Broken(f"the connection ended, and then {error}") from None


def _ended(error: Exception) -> str:
    return f"the connection ended: {error or type(error).__name__}"


def _written(
    replica: RouterReplica, method: str, path: str, headers: Mapping[str, str], body: bytes
) -> bytes:
    """The bytes of a request.

    Raises:
        ValueError: it would contain more than one request.
    """
    lines = [f"{method} {path} HTTP/1.1", f"Host: {replica.backend.url.partition('://')[2]}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body or method not in SAFE:
        lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join(lines)
    if head.count("\n") >= len(lines) or head.count("\r") >= len(lines):
        raise ValueError("a header has more than one line")
    return head.encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body


async def _answered(
    connection: ReplicaConnection,
) -> tuple[RawResponseMessage, aiohttp.StreamReader]:
    """The head of an answer, and the reader of its body."""
    while True:
        message, content = await connection.read()
        if message.code not in INFORMATIONAL:
            return message, content
        if message.code == SWITCHING:
            raise ValueError("the replica switches protocols unasked")


def _comes_in_parts(message: RawResponseMessage) -> bool:
    kind = message.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return message.code == OK and kind in STREAMED


async def _handed_on(
    content: aiohttp.StreamReader,
    reply: Reply,
    begun: Begun,
    limit: asyncio.Timeout,
    idle_s: float,
    end_s: float,
) -> bool:
    """Pass an answer on, part by part; ``False`` = its client left, so the exchange is ended.

    It begins with its first part: until then a failure fails the whole exchange. No part may take
    longer than ``idle_s``, nor arrive after ``end_s`` on the loop's clock.
    """
    stream, whole = AnswerStream(), False
    now_s = asyncio.get_running_loop().time
    parts = content.iter_any()
    first = await anext(parts, None)
    if first is None:
        return True
    begun(reply, stream)
    try:
        _renew(limit, end_s)
        await stream.put(first)
        _renew(limit, min(now_s() + idle_s, end_s))
        async for part in parts:
            _renew(limit, end_s)  # the server limits the client's time
            await stream.put(part)
            if stream.left:
                return False
            _renew(limit, min(now_s() + idle_s, end_s))
        whole = True
    finally:
        stream.overdue = not whole and now_s() >= end_s
        stream.end(broken=not whole)
    return True


def _renew(limit: asyncio.Timeout, until_s: float) -> None:
    """Move a timeout that has not cancelled this task yet."""
    if not limit.expired():
        limit.reschedule(until_s)
