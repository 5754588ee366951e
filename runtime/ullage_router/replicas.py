# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replicas of a model: running requests, predicted ends, readiness, and connections."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from multidict import CIMultiDict, CIMultiDictProxy

from ullage_router.generation_times import GenerationTimes
from ullage_router.run_times import RunTimes
from ullage_router.settings import ReplicaAddress

OK: Final = 200
PARTS: Final = 8
"""Most buffered parts of an answer."""
HOP_BY_HOP: Final = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te"),
        *("trailer", "transfer-encoding", "upgrade", "content-length", "host", "expect", "date"),
        "server",
    }
)
"""Headers of one connection (RFC 9110, section 7.6.1), and those that each server sets itself."""


class NotDelivered(Exception):
    """No connection: the replica has not received the request."""


class Broken(Exception):
    """The replica may have begun, and gave no usable answer."""


class KeptConnectionEnded(Broken):
    """A kept connection ended without a byte of an answer.

    Servers close idle ones at any time, so this is no sign of failure, and the replica may or may
    not have received the request.
    """


class TooLate(Broken):
    """The replica did not answer in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A replica's unmodified answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class AnswerStream:
    """The parts of an answer for its client, which sets the pace; for one event loop."""

    def __init__(self) -> None:
        self._parts: deque[bytes] = deque()
        self._more, self._room = asyncio.Event(), asyncio.Event()
        self._ended = False
        self.left = False
        """The client has left: the replica may stop."""
        self.broken = False
        """The replica did not send all of it."""
        self.overdue = False
        """It exceeded the time limit of an answer."""
        self.look: Callable[[bytes], None] | None = None
        """Called with each part on arrival."""
        self.abandon: Callable[[], None] | None = None
        """Ends the exchange at once when the client leaves before its end."""

    async def put(self, part: bytes) -> None:
        """Pass a part on; waits while the client is behind."""
        if self.look is not None:
            self.look(part)
        while len(self._parts) >= PARTS and not self.left:
            self._room.clear()
            await self._room.wait()
        self._parts.append(part)
        self._more.set()

    def end(self, *, broken: bool) -> None:
        """Mark the end of the stream."""
        self._ended, self.broken = True, broken
        self._more.set()

    async def next(self) -> bytes | None:
        """The next part; ``None`` = end of the stream."""
        while not self._parts:
            if self._ended:
                return None
            self._more.clear()
            await self._more.wait()
        self._room.set()
        return self._parts.popleft()

    def leave(self) -> None:
        """Mark that the client is gone or done: releases a blocked ``put``."""
        self.left = True
        self._room.set()
        if self.abandon is not None and not self._ended:
            self.abandon()


Begun = Callable[[Reply, AnswerStream], None]
"""Called on the first part of a streamed answer."""
Again = Callable[[], bool]
"""True if a request may be resent after a kept connection ended unanswered."""


@dataclass(slots=True, kw_only=True, eq=False)
class RouterReplica:
    """One replica; ``times`` is shared by those on equal devices at equal shares."""

    number: int
    backend: ReplicaAddress
    times: RunTimes | GenerationTimes
    most_in_flight: int
    up: bool = False
    cache_full: bool = False
    """Its KV cache use is above the limit, so it gets no new requests."""
    unready_models: set[str] = field(default_factory=set)
    """Readiness paths of models for which it is not ready: it gets none of their requests."""
    ends_s: dict[int, float] = field(default_factory=dict)
    """Predicted end of each running batch, on the router's clock."""
    ran: int = 0

    @property
    def free(self) -> bool:
        """True if it accepts another batch."""
        return self.up and not self.cache_full and len(self.ends_s) < self.most_in_flight

    def left_s(self, now_s: float) -> float:
        """Predicted time until it has run its requests and one more, seconds."""
        return sum(max(end - now_s, 0.0) for end in self.ends_s.values()) + self.times.single_s

    def down(self) -> None:
        """Send it nothing until a probe succeeds."""
        self.up = False


def least_loaded(replicas: Sequence[RouterReplica], now_s: float) -> RouterReplica | None:
    """The free replica with the least predicted time left; among equal ones the least used."""
    free = [replica for replica in replicas if replica.free]
    if len(free) == 1:
        return free[0]
    return min(free, key=lambda replica: (replica.left_s(now_s), replica.ran), default=None)


class ReplicaConnections(Protocol):
    """Connections to all replicas; ``open`` and ``close`` once each."""

    async def open(self) -> None:
        """Prepare for exchanges."""

    async def close(self) -> None:
        """Close all."""

    def forget(self, replica: RouterReplica) -> None:
        """Remove a replica; its running requests may still be answered."""

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
        """One exchange, on a ``new`` connection if requested; raises NotDelivered or Broken."""
        ...


def end_to_end(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """Headers without those of one connection, nor those that ``Connection`` names."""
    values = headers.getall("Connection", ())
    named = {word.strip().lower() for value in values for word in value.split(",")}
    left_out = HOP_BY_HOP | named
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in left_out
    )
