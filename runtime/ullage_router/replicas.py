# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replicas of a model: what each runs, until when, whether it is there, and what asks it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from multidict import CIMultiDict, CIMultiDictProxy

from ullage_router.generation_times import GenerationTimes
from ullage_router.run_times import RunTimes
from ullage_router.settings import Backend

CONNECT_S: Final = 1.0
OK: Final = 200
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


class KeptConnectionEnded(Broken):
    """A kept connection ended without a byte of an answer.

    Servers close idle ones at any time, so it says nothing of the replica, nor whether the replica
    has seen the request.
    """


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
        self.overdue = False
        """It took longer than an answer may."""
        self.look: Callable[[bytes], None] | None = None
        """Sees each part as it comes."""
        self.abandon: Callable[[], None] | None = None
        """Ends the exchange at once when the client leaves before its end."""

    async def put(self, part: bytes) -> None:
        """Hand a part on; waits while the client is behind."""
        if self.look is not None:
            self.look(part)
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
        if self.abandon is not None and not self._ended:
            self.abandon()


Begun = Callable[[Reply, Stream], None]
"""Told when the first part of an answer is there that comes in parts."""
Again = Callable[[], bool]
"""Asked whether a request may be sent once more, after a kept connection ended unanswered."""


@dataclass(slots=True, kw_only=True, eq=False)
class Replica:
    """One replica; ``times`` is shared by those on equal devices at equal shares."""

    number: int
    backend: Backend
    times: RunTimes | GenerationTimes
    most_in_flight: int
    up: bool = False
    cache_full: bool = False
    """Its KV cache is used above the limit, so it gets no new requests."""
    unready_models: set[str] = field(default_factory=set)
    """Paths that say whether a model is ready, of those for which it is not: it gets none."""
    ends_s: dict[int, float] = field(default_factory=dict)
    """When each batch that runs is predicted to end, on the router's clock."""
    ran: int = 0

    @property
    def free(self) -> bool:
        """Whether it takes another batch."""
        return self.up and not self.cache_full and len(self.ends_s) < self.most_in_flight

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
        again: Again | None = None,
        new: bool = False,
    ) -> Reply:
        """One exchange, on a ``new`` connection if asked; raises NotDelivered or Broken."""
        ...


def end_to_end(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """Headers without those of one connection, nor those that ``Connection`` names."""
    values = headers.getall("Connection", ())
    named = {word.strip().lower() for value in values for word in value.split(",")}
    left_out = HOP_BY_HOP | named
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in left_out
    )
