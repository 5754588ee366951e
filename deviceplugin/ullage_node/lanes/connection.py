# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One connection of a container to its lane's socket: untrusted input, bounded.

An asyncio protocol, not streams: a step takes two lines and two answers, and a stream costs a task
and a timer for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

import structlog

from ullage.api.lanes import LINE_MAX, LaneRefusal, Message, Refused, decode, encode
from ullage.api.readers import WireError
from ullage_node.lanes.allowance import ContainerAllowance
from ullage_node.lanes.peers import PeerProcess, peer_of
from ullage_node.times import GREETING_S

LINES_AT_ONCE: Final = 8
"""Lines read before other connections are served."""
UNREAD_MOST: Final = 64 << 10
"""Bytes of answers that a program may leave unread."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class LaneConnection(asyncio.BufferedProtocol):
    """A connection; it is closed if the peer greets too late, sends too much, or does not read.

    Args:
        job: The container, for logs.
        allowance: The container's rate limits.
        clock: Seconds.
        opened: Called when a process has connected.
        heard: Called with each message; ``OSError`` and ``ValueError`` end the connection.
        closed: Called when the connection has ended; the process may live.
    """

    peer: PeerProcess
    """The process at the other end."""

    def __init__(
        self,
        job: str,
        allowance: ContainerAllowance,
        clock: Callable[[], float],
        *,
        opened: Callable[[LaneConnection], None],
        heard: Callable[[LaneConnection, Message], None],
        closed: Callable[[LaneConnection], None],
    ) -> None:
        self._job = job
        self._allowance = allowance
        self._clock = clock
        self._opened, self._heard, self._closed = opened, heard, closed
        self._buffer = bytearray(LINE_MAX)
        self._filled = 0
        self._known = False
        self._silent: asyncio.TimerHandle | None = None
        self._paused: asyncio.Handle | None = None
        self._transport: asyncio.Transport

    @property
    def closing(self) -> bool:
        """True if no more messages are received or sent."""
        return self._transport.is_closing()

    def say(self, message: Message) -> None:
        """Send a message, unless too many are unread."""
        if self.closing:
            return
        self._transport.write(encode(message))
        if self._transport.get_write_buffer_size() > UNREAD_MOST:
            self.abort()

    def refuse(self, reason: LaneRefusal, message: str) -> None:
        """Send the reason, and close."""
        self.say(Refused(reason=reason, message=message))
        self._close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def greeted(self) -> None:
        """Record the greeting: the peer has identified itself and may stay idle."""
        _stop(self._silent)

    # -- asyncio callbacks -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A process connected."""
        self._transport = cast(asyncio.Transport, transport)
        try:
            self.peer = peer_of(transport.get_extra_info("socket"))
        except OSError as error:
            self._end(str(error))
            return
        self._known = True
        self._silent = _later(GREETING_S, lambda: self._end("it did not greet"))
        self._opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The free part of the buffer: never empty, see :meth:`_read`."""
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes."""
        self._filled += nbytes
        self._read()

    def eof_received(self) -> None:
        """The peer has closed its sending side."""
        self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended."""
        _stop(self._silent)
        _stop(self._paused)
        if self._known:
            self._closed(self)

    def _read(self) -> None:
        """Process the complete lines, at most at the allowed rate."""
        heard = 0
        while not self.closing and (line := self._line()):
            self._hear(line)
            heard += 1
            wait_s = self._allowance.lines.wait_s(self._clock())
            if wait_s or heard == LINES_AT_ONCE:
                self._transport.pause_reading()
                loop = asyncio.get_running_loop()
                self._paused = (
                    _later(wait_s, self._go_on) if wait_s else loop.call_soon(self._go_on)
                )
                return
        if self._filled == len(self._buffer):
            self._end(f"the line has more than {LINE_MAX} bytes")

    def _line(self) -> bytes:
        end = self._buffer.find(b"\n", 0, self._filled) + 1
        line = bytes(self._buffer[:end])
        if end:
            self._buffer[: self._filled - end] = self._buffer[end : self._filled]
            self._filled -= end
        return line

    def _hear(self, line: bytes) -> None:
        try:
            message = decode(line)
        except WireError as error:
            self.refuse(LaneRefusal.UNREADABLE, str(error)[:200])
            return
        try:
            self._heard(self, message)
        except (OSError, ValueError) as error:
            self._end(str(error))

    def _go_on(self) -> None:
        self._transport.resume_reading()
        self._read()

    def _close(self) -> None:
        if self._transport.get_write_buffer_size():
            self.abort()  # else it stays open until its peer reads
        self._transport.close()

    def _end(self, why: str) -> None:
        allowance = self._allowance
        if allowance.logs_now(self._clock()):
            unlogged, allowance.unlogged = allowance.unlogged, 0
            _log.info("lane connection ends", job=self._job, why=why, unlogged=unlogged)
        self.abort()


def _later(seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, then)


def _stop(timer: asyncio.Handle | None) -> None:
    if timer is not None:
        timer.cancel()
