# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Connections of one port, within bounds that no client can use up for the others.

Each costs memory from its first byte on, with TLS about 300 KiB. So a connection waits as a bare
socket, which costs next to nothing, until its first byte has arrived and a slot is free. Slots go
to the address with the fewest. When all are in use, an idle one is closed: in its handshake, in the
head of a request, or between requests, for a second. A request in progress is never cut off here;
its handler bounds its time (:func:`sent`).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, cast

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from ullage.process.times import (
    ANSWER_SEND_S,
    CONNECTION_QUIET_S,
    FIRST_BYTE_S,
    ROOM_LOOK_S,
    TLS_HANDSHAKE_S,
)

log = structlog.get_logger("ullage.connections")

MOST_SERVED: Final = 128
"""Connections with a slot; requests are sequential on each."""
MOST_WAITING: Final = 1024
"""Connections without a slot, of a port that the API server calls in bursts."""
FEW_WAITING: Final = 256
"""Connections without a slot, of other ports: a process may have no more than 1,024 files."""
RECEIVE_BYTES: Final = 16 * 1024
"""Receive buffer of a connection in the kernel (which doubles it)."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A bare socket; closed when its first byte does not arrive in time."""

    socket: socket.socket
    address: str
    handlers: web.Server
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True, eq=False)
class _Served:
    """A connection that has a slot, or is in its handshake."""

    address: str
    quiet_since: float
    """Seconds of the event loop's clock."""
    close: Callable[[], object]
    requests: int = 0
    """Under way."""


@dataclass(slots=True)
class ServerConnections:
    """All connections of one port; ``context`` is that of TLS, ``None`` = plain HTTP."""

    context: ssl.SSLContext | None = None
    most_waiting: int = field(default_factory=lambda: MOST_WAITING)
    _silent: dict[_Waiting, None] = field(default_factory=dict)
    """Connections without their first byte, the oldest first."""
    _ready: dict[str, deque[_Waiting]] = field(default_factory=dict)
    """Connections that wait for a slot, by address, the oldest first."""
    _served: dict[_Served, None] = field(default_factory=dict)
    _places: dict[object, _Served] = field(default_factory=dict)
    """By aiohttp's protocol of the connection."""
    _counts: Counter[str] = field(default_factory=Counter)
    """Number of slots by address."""
    _handshakes: set[asyncio.Task[None]] = field(default_factory=set)
    _again: asyncio.TimerHandle | None = None
    _is_closed: bool = False

    @property
    def waiting(self) -> int:
        """Number of connections without a slot."""
        return len(self._silent) + sum(map(len, self._ready.values()))

    @property
    def served(self) -> int:
        """Number of connections with one."""
        return len(self._served)

    def take(self, accepted: socket.socket, address: str, handlers: web.Server) -> None:
        """Accept a connection; with too many, the oldest of the busiest address is closed."""
        if self._is_closed:
            accepted.close()
            return
        if self.waiting >= self.most_waiting:
            self.make_room()
        waiting = _Waiting(accepted, address, handlers)
        loop = asyncio.get_running_loop()
        self._silent[waiting] = None
        loop.add_reader(accepted.fileno(), self._spoke, waiting)
        waiting.timer = loop.call_later(FIRST_BYTE_S, self._drop_silent, waiting)

    def make_room(self) -> None:
        """Close one without a slot: the oldest of the busiest address, a silent one first."""
        held = Counter({address: len(line) for address, line in self._ready.items()})
        held.update(waiting.address for waiting in self._silent)
        if not held:
            return
        ((busiest, _),) = held.most_common(1)
        silent = next((waiting for waiting in self._silent if waiting.address == busiest), None)
        if silent is not None:
            self._drop_silent(silent)
        else:
            self._next_of(busiest).socket.close()

    def middleware(self) -> Middleware:
        """Record the state of these connections' requests."""

        @web.middleware
        async def counted(request: web.Request, handler: Handler) -> web.StreamResponse:
            place = self._places.get(request.protocol)
            if place is None:  # it is being closed
                return await handler(request)
            place.requests += 1
            try:
                return await handler(request)
            finally:
                place.requests -= 1
                place.quiet_since = asyncio.get_running_loop().time()

        return counted

    async def refuse(self) -> None:
        """Accept no more; connections without a slot are closed."""
        self._is_closed = True
        for waiting in tuple(self._silent):
            self._drop_silent(waiting)
        for line in self._ready.values():
            for waiting in line:
                waiting.socket.close()
        self._ready.clear()
        if self._again is not None:
            self._again.cancel()
        for task in tuple(self._handshakes):
            task.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    # -- without a place ---------------------------------------------------------------------------

    def _spoke(self, waiting: _Waiting) -> None:
        self._forget_silent(waiting)
        try:
            is_over = not waiting.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            is_over = False
        except OSError:
            is_over = True
        if is_over:
            waiting.socket.close()
            return
        self._ready.setdefault(waiting.address, deque()).append(waiting)
        self._serve_those_ready()

    def _drop_silent(self, waiting: _Waiting) -> None:
        self._forget_silent(waiting)
        waiting.socket.close()

    def _forget_silent(self, waiting: _Waiting) -> None:
        asyncio.get_running_loop().remove_reader(waiting.socket.fileno())
        if waiting.timer is not None:
            waiting.timer.cancel()
        del self._silent[waiting]

    def _next_of(self, address: str) -> _Waiting:
        line = self._ready[address]
        waiting = line.popleft()
        if not line:
            del self._ready[address]
        return waiting

    # -- with a place ------------------------------------------------------------------------------

    def _serve_those_ready(self) -> None:
        """Grant free slots, to the address with the fewest; free one if needed."""
        while self._ready and not self._is_closed:
            if len(self._served) >= MOST_SERVED and not self._close_one_quiet():
                self._look_again()
                return
            address = min(self._ready, key=lambda peer: self._counts[peer])
            self._serve(self._next_of(address))

    def _look_again(self) -> None:
        if self._again is None:
            loop = asyncio.get_running_loop()
            self._again = loop.call_later(ROOM_LOOK_S, self._looked_again)

    def _looked_again(self) -> None:
        self._again = None
        self._serve_those_ready()

    def _close_one_quiet(self) -> bool:
        """Close the longest idle one, of the busiest address; true if there is one.

        Its slot is free at once; its resources are released as soon as the event loop runs.
        """
        before = asyncio.get_running_loop().time() - CONNECTION_QUIET_S
        quiet = [
            connection
            for connection in self._served
            if not connection.requests and connection.quiet_since <= before
        ]
        if not quiet:
            return False
        connection = min(
            quiet,
            key=lambda connection: (-self._counts[connection.address], connection.quiet_since),
        )
        self._leave(connection)
        connection.close()
        return True

    def _serve(self, waiting: _Waiting) -> None:
        loop = asyncio.get_running_loop()
        place = _Served(waiting.address, loop.time(), lambda: task.cancel())
        self._served[place] = None
        self._counts[waiting.address] += 1
        task = loop.create_task(self._begin(waiting, place))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _begin(self, waiting: _Waiting, place: _Served) -> None:
        loop, handler = asyncio.get_running_loop(), waiting.handlers()
        try:
            await loop.connect_accepted_socket(
                lambda: _Counted(handler, place, self),
                waiting.socket,
                ssl=self.context,
                ssl_handshake_timeout=TLS_HANDSHAKE_S if self.context is not None else None,
                ssl_shutdown_timeout=1.0 if self.context is not None else None,
            )
        except (OSError, asyncio.CancelledError) as error:  # ssl.SSLError is an OSError
            log.debug("not served", address=waiting.address, error=str(error))
            waiting.socket.close()
            self.left(place)

    def came(self, place: _Served, handler: asyncio.Protocol, transport: asyncio.Transport) -> None:
        """The first byte of a connection has arrived."""
        place.close = transport.abort
        place.quiet_since = asyncio.get_running_loop().time()
        self._places[handler] = place

    def left(self, place: _Served, handler: asyncio.Protocol | None = None) -> None:
        """A connection is gone."""
        self._places.pop(handler, None)
        if place in self._served:
            self._leave(place)
            self._serve_those_ready()

    def _leave(self, place: _Served) -> None:
        del self._served[place]
        self._counts[place.address] -= 1
        if not self._counts[place.address]:
            del self._counts[place.address]


class _Counted(asyncio.Protocol):
    """aiohttp's protocol of a connection; reports when its requests begin and end."""

    def __init__(
        self, handler: asyncio.Protocol, place: _Served, connections: ServerConnections
    ) -> None:
        self._handler = handler
        self._place = place
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is established."""
        self._connections.came(self._place, self._handler, cast(asyncio.Transport, transport))
        self._handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """A part of a request has arrived."""
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        """The client sends no more."""
        return self._handler.eof_received()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended, from either side."""
        self._handler.connection_lost(exc)
        self._connections.left(self._place, self._handler)


async def sent(request: web.Request, response: web.Response) -> web.StreamResponse:
    """Send an answer to a possibly slow reader, within a time limit.

    A reader that is gone, such as a probe that waited no longer, is no error.

    Raises:
        ConnectionResetError: the reader was too slow.
    """
    try:
        async with asyncio.timeout(ANSWER_SEND_S):
            with suppress(ConnectionResetError):
                await response.prepare(request)
                await response.write_eof()
    except TimeoutError:
        raise ConnectionResetError("the reader was too slow") from None
    return response
