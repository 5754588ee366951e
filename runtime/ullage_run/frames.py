# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Messages between the members of a job, its coordinator and its state store.

A message is a header of fixed size, with a checksum of its own, and a payload whose length the
receiver accepts before it reserves memory for it. It must never allocate what a peer merely claims,
nor hand on bytes whose checksum is wrong.
"""

from __future__ import annotations

import socket
import struct
import time
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

MAGIC: Final = b"ULSK"
VERSION: Final = 2
NO_STEP: Final = -1
"""In place of a step: none is held."""
CHUNK_BYTES: Final = 256 * 1024
"""Sent between two looks at the rate, and dropped at a time from what is not wanted."""
MAX_TEXT_BYTES: Final = 4096
"""Of an explanation."""
MAX_PORT: Final = 65535
MAX_MAPS_BYTES: Final = 1 << 20
"""Of maps, in whatever form their writer gives them."""

_HEADER: Final = struct.Struct(">4sBBHIQqQI")
_CHECK: Final = struct.Struct(">I")
HEADER_BYTES: Final = _HEADER.size + _CHECK.size

Buffer = bytes | bytearray | memoryview


class FrameError(ConnectionError):
    """The peer speaks another protocol, or bytes were changed on the way; close the connection."""


class ConnectionEnded(ConnectionError):
    """The peer closed the connection."""


class FrameKind(IntEnum):
    """Kind of a message."""

    HELLO = 1
    """First on a connection; payload: the client's nonce."""
    BEGIN = 2
    """New maps: epoch, in ``shard`` the number of shards; payload: the maps, which are kept."""
    OFFER = 3
    """A push is ready: shard, step, epoch; payload: its length, eight bytes."""
    PUSH = 4
    """The shard itself, after the answer GO."""
    FETCH = 5
    """Asks for a shard of the committed step."""
    ASK = 6
    """Asks what is held; with a step: waits a while until that step is committed."""
    MAPS = 7
    """Asks for the maps of the present epoch."""
    PROOF = 8
    """Third on a connection; payload: the client's proof that it holds the job's token."""
    VERDICT = 16
    """Answer: what became of a push; code in ``flags``; payload of TOO_LARGE: a text."""
    STATE = 17
    """Answer to FETCH and MAPS."""
    HELD = 18
    """Answer: epoch, committed step, number of shards in ``shard``."""
    REFUSED = 19
    """Answer: payload says why; the connection ends."""
    CHALLENGE = 20
    """Answer to HELLO; payload: the server's nonce and its proof that it holds the token."""
    JOIN = 32
    """Member to coordinator: I run; payload: who it is. ``step``: its own state's."""
    READY = 33
    """Member to coordinator: these maps are carried out."""
    PART = 34
    """Member to coordinator: its part of a gathering, whose number in the step is in ``shard``."""
    DONE = 35
    """Member to coordinator: the step is finished."""
    FLUSHED = 36
    """Member to coordinator: what it owns is in the copy."""
    LEAVING = 37
    """Member to coordinator: its machine goes; payload: milliseconds that are left."""
    BEAT = 38
    """Member to coordinator: alive, and nothing else to say."""
    ASSIGN = 48
    """Coordinator to member: new maps; payload: its part of them."""
    GO = 49
    """Coordinator to member: begin the step."""
    PARTS = 50
    """Coordinator to member: what all gave, by name."""
    FLUSH = 51
    """Coordinator to member: wait until what you own is in the copy; with a flag: push it first."""
    LEAVE = 52
    """Coordinator to member: end; the reason is in ``flags``."""


class Ending(IntEnum):
    """Reason why a member must end."""

    FINISHED = 0
    """All steps are done."""
    MOVED = 1
    """It has to go; others have its part, or all go and each keeps its own."""
    STATE_LOST = 2
    """Shards are gone and no complete copy is left: begin again from a checkpoint."""
    TOO_LARGE = 3
    """The state does not fit into its copy; payload of LEAVE: a text."""


class Receipt(IntEnum):
    """Result of a push."""

    GO = 0
    """An offer that is welcome: send it."""
    STORED = 1
    """Here; other shards of its step are missing."""
    COMMITTED = 2
    """Here; it completed its step."""
    OLD_EPOCH = 3
    """Sent under maps that hold no more: dropped."""
    NEW_EPOCH = 4
    """Sent under maps that the state store does not know yet."""
    REPEATED = 5
    """This shard of this step, or a later step, is here already."""
    BUSY = 6
    """An earlier step is still incomplete: to be offered again."""
    TOO_LARGE = 7
    """The copy would be larger than the state store may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A header.

    Attributes:
        kind: What it says.
        flags: A code of the kind.
        shard: Number of a shard, or how many there are.
        epoch: Of the maps.
        step: After which the values hold.
        length: Bytes of the payload.
        checksum: CRC-32 of the payload.
    """

    kind: FrameKind
    flags: int = 0
    shard: int = 0
    epoch: int = 0
    step: int = NO_STEP
    length: int = 0
    checksum: int = 0


def address_of(text: str, what: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; an IPv6 host may stand in brackets.

    Args:
        text: As an option or a variable says it.
        what: Its name, for the error.

    Raises:
        ValueError: it is none; the text says what is needed.
    """
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > MAX_PORT:
        raise ValueError(f"{what} is not HOST:PORT: {text!r}")
    return host.strip("[]"), int(port)


class BytePace:
    """Spreads bytes over time; a copy must leave the link to the job's own traffic.

    Args:
        bytes_per_s: Most that is sent; ``None`` = as fast as the link.
    """

    __slots__ = ("_bytes_per_s", "_free_at_s")

    def __init__(self, bytes_per_s: float | None) -> None:
        if bytes_per_s is not None and not bytes_per_s > 0:
            raise ValueError("a rate of sending is above 0 bytes per second")
        self._bytes_per_s = bytes_per_s
        self._free_at_s = 0.0

    def sent(self, count: int) -> None:
        """Wait until the link may be used again after ``count`` bytes."""
        if self._bytes_per_s is None:
            return
        now = time.monotonic()
        self._free_at_s = max(now, self._free_at_s) + count / self._bytes_per_s
        time.sleep(self._free_at_s - now)


UNPACED: Final = BytePace(None)


def header(frame: Frame, payload: Buffer) -> bytes:
    """The bytes that come before a payload; length and checksum of the frame are set here."""
    view = memoryview(payload).cast("B")
    head = _HEADER.pack(
        MAGIC,
        VERSION,
        frame.kind,
        frame.flags,
        frame.shard,
        frame.epoch,
        frame.step,
        len(view),
        zlib.crc32(view),
    )
    return head + _CHECK.pack(zlib.crc32(head))


def send(
    link: socket.socket, frame: Frame, payload: Buffer = b"", pace: BytePace = UNPACED
) -> None:
    """Send one message.

    Args:
        link: A connected stream.
        frame: Its length and checksum are set here.
        payload: What follows.
        pace: How fast.

    Raises:
        OSError: the connection is gone or its time is up.
    """
    view = memoryview(payload).cast("B")
    link.sendall(header(frame, view))
    for start in range(0, len(view), CHUNK_BYTES):
        chunk = view[start : start + CHUNK_BYTES]
        link.sendall(chunk)
        pace.sent(len(chunk))


def receive(link: socket.socket) -> Frame:
    """Read one header; its payload is still to be read or dropped.

    Raises:
        ConnectionEnded: the peer left.
        FrameError: this is no header of ours.
        OSError: the time is up.
    """
    raw = bytearray(HEADER_BYTES)
    _fill(link, memoryview(raw))
    return parse(raw)


def parse(raw: bytearray) -> Frame:
    """The frame of a header's bytes.

    Raises:
        FrameError: they are no header of ours.
    """
    head = bytes(raw[: _HEADER.size])
    magic, version, kind, flags, shard, epoch, step, length, checksum = _HEADER.unpack(head)
    if magic != MAGIC or zlib.crc32(head) != _CHECK.unpack(raw[_HEADER.size :])[0]:
        raise FrameError("the peer does not speak the state store's protocol")
    if version != VERSION:
        raise FrameError(f"protocol version {version}, ours is {VERSION}: use one release of both")
    try:
        known = FrameKind(kind)
    except ValueError:
        raise FrameError(f"unknown message {kind}") from None
    return Frame(
        kind=known,
        flags=flags,
        shard=shard,
        epoch=epoch,
        step=step,
        length=length,
        checksum=checksum,
    )


def payload(link: socket.socket, frame: Frame, most: int, pace: BytePace = UNPACED) -> bytearray:
    """Read the payload of a header.

    Args:
        link: Where the header came from.
        frame: The header.
        most: Bytes that the caller has room for.
        pace: How fast.

    Raises:
        FrameError: more is announced than there is room for, or the checksum is wrong.
        OSError: the connection is gone or its time is up.
    """
    if frame.length > most:
        raise FrameError(f"{frame.length} bytes are announced, {most} are allowed")
    data = bytearray(frame.length)
    _fill(link, memoryview(data), pace)
    check(frame, data)
    return data


def check(frame: Frame, data: Buffer) -> None:
    """Compare a payload with its header.

    Raises:
        FrameError: the checksum is wrong.
    """
    if zlib.crc32(data) != frame.checksum:
        raise FrameError("checksum of the payload is wrong")


def refuse(link: socket.socket, why: str) -> None:
    """Say why before the connection ends; a peer that is gone need not hear it."""
    try:
        send(link, Frame(kind=FrameKind.REFUSED), why.encode()[:MAX_TEXT_BYTES])
    except OSError:
        return


def _fill(link: socket.socket, view: memoryview, pace: BytePace = UNPACED) -> None:
    while len(view):
        count = link.recv_into(view[:CHUNK_BYTES])
        if count == 0:
            raise ConnectionEnded("the peer closed the connection")
        view = view[count:]
        pace.sent(count)
