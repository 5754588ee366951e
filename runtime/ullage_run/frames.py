# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Messages between the members of a job, its coordinator and its state store.

A message is a header of fixed size, with its own checksum, and a payload whose length the receiver
accepts before it reserves memory for it. It must never allocate memory on a peer's claim alone, nor
pass on bytes with a wrong checksum.
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
"""Value of a step: none is held."""
CHUNK_BYTES: Final = 256 * 1024
"""Bytes sent between two checks of the rate, and chunk size for discarding payloads."""
MAX_TEXT_BYTES: Final = 4096
"""Most bytes of an explanation."""
MAX_PORT: Final = 65535
MAX_MAPS_BYTES: Final = 1 << 20
"""Most bytes of maps, in the writer's own format."""

_HEADER: Final = struct.Struct(">4sBBHIQqQI")
_CHECK: Final = struct.Struct(">I")
HEADER_BYTES: Final = _HEADER.size + _CHECK.size

Buffer = bytes | bytearray | memoryview


class FrameError(ConnectionError):
    """The peer speaks another protocol, or bytes were corrupted; close the connection."""


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
    """Requests a shard of the committed step."""
    ASK = 6
    """Requests the state held; with a step: waits a while until that step is committed."""
    MAPS = 7
    """Requests the maps of the current epoch."""
    PROOF = 8
    """Third on a connection; payload: the client's proof that it holds the job's token."""
    VERDICT = 16
    """Answer: result of a push; code in ``flags``; payload of TOO_LARGE: a text."""
    STATE = 17
    """Answer to FETCH and MAPS."""
    HELD = 18
    """Answer: epoch, committed step, number of shards in ``shard``."""
    REFUSED = 19
    """Answer: refusal, with the reason as payload; the connection ends."""
    CHALLENGE = 20
    """Answer to HELLO; payload: the server's nonce and its proof that it holds the token."""
    JOIN = 32
    """Member to coordinator: running; payload: its identity. ``step``: its own state's."""
    READY = 33
    """Member to coordinator: these maps are applied."""
    PART = 34
    """Member to coordinator: its part of a gathering, whose number in the step is in ``shard``."""
    DONE = 35
    """Member to coordinator: the step is finished."""
    FLUSHED = 36
    """Member to coordinator: its shards are in the copy."""
    LEAVING = 37
    """Member to coordinator: its machine is leaving; payload: milliseconds left."""
    BEAT = 38
    """Member to coordinator: heartbeat."""
    ASSIGN = 48
    """Coordinator to member: new maps; payload: its part of them."""
    GO = 49
    """Coordinator to member: start the step."""
    PARTS = 50
    """Coordinator to member: the parts of all members, by name."""
    FLUSH = 51
    """Coordinator to member: wait until its shards are in the copy; flag: push them first."""
    LEAVE = 52
    """Coordinator to member: end; the reason is in ``flags``."""


class Ending(IntEnum):
    """Reason why a member must end."""

    FINISHED = 0
    """All steps are done."""
    MOVED = 1
    """It has to leave; others have its part, or all leave and each keeps its own."""
    STATE_LOST = 2
    """Shards are gone and no complete copy is left: restart from a checkpoint."""
    TOO_LARGE = 3
    """The state does not fit into its copy; payload of LEAVE: a text."""


class Receipt(IntEnum):
    """Result of a push."""

    GO = 0
    """Offer accepted: send it."""
    STORED = 1
    """Stored; other shards of its step are missing."""
    COMMITTED = 2
    """Stored; it completed its step."""
    OLD_EPOCH = 3
    """Sent under outdated maps: dropped."""
    NEW_EPOCH = 4
    """Sent under maps unknown to the state store."""
    REPEATED = 5
    """This shard of this step, or a later step, is already stored."""
    BUSY = 6
    """An earlier step is still incomplete: offer again."""
    TOO_LARGE = 7
    """The copy would be larger than the state store may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A header.

    Attributes:
        kind: Kind of the message.
        flags: A code of the kind.
        shard: Number of a shard, or of shards.
        epoch: Epoch of the maps.
        step: After which the values are valid.
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
    """Host and port of ``HOST:PORT``; an IPv6 host may be in brackets.

    Args:
        text: Value of an option or a variable.
        what: Its name, for the error.

    Raises:
        ValueError: it is invalid; the text gives the required form.
    """
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > MAX_PORT:
        raise ValueError(f"{what} is not HOST:PORT: {text!r}")
    return host.strip("[]"), int(port)


class BytePace:
    """Limits the rate of bytes, to leave the link to the job's own traffic.

    Args:
        bytes_per_s: Rate limit; ``None`` = as fast as the link.
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
    """The bytes before a payload; length and checksum of the frame are set here."""
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
        payload: The message's payload.
        pace: How fast.

    Raises:
        OSError: the connection is gone or timed out.
    """
    view = memoryview(payload).cast("B")
    link.sendall(header(frame, view))
    for start in range(0, len(view), CHUNK_BYTES):
        chunk = view[start : start + CHUNK_BYTES]
        link.sendall(chunk)
        pace.sent(len(chunk))


def receive(link: socket.socket) -> Frame:
    """Read one header; the caller must read or drop its payload.

    Raises:
        ConnectionEnded: the peer left.
        FrameError: this is not a valid header.
        OSError: timeout.
    """
    raw = bytearray(HEADER_BYTES)
    _fill(link, memoryview(raw))
    return parse(raw)


def parse(raw: bytearray) -> Frame:
    """The frame of a header's bytes.

    Raises:
        FrameError: they are not a valid header.
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
        link: The header's connection.
        frame: The header.
        most: Bytes that the caller accepts.
        pace: How fast.

    Raises:
        FrameError: more is announced than accepted, or the checksum is wrong.
        OSError: the connection is gone or timed out.
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
    """Send the reason before the connection ends; errors of the peer are ignored."""
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
