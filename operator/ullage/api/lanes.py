# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Messages between a program that shares a lane and its node: one JSON object a line.

Every message is flat and bounded in size, so either side reads what comes as if a stranger had
sent it. Standard library only; a program of an older image sends it, so a field never changes its
meaning. What each side does with them: ``ullage_run.lanes`` and ``ullage_node.lanes``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Final

from ullage.api.codec import Wire
from ullage.api.readers import WireError, quoted, text
from ullage.api.times import HOUR_MS
from ullage.api.wire_fields import NEEDED, Flag, Text, at_most, between, word

LANES_VERSION: Final = 1
LINE_MAX: Final = 4096
"""Bytes of a line, its end included."""
MEMORY_MOST: Final = 1 << 31
NUMBER_MOST: Final = 1 << 53

Mebibytes = Annotated[int, between(0, MEMORY_MOST)]
Number = Annotated[int, between(0, NUMBER_MOST)]
Milliseconds = Annotated[int, between(0, 24 * HOUR_MS)]


class IterationPolicy(StrEnum):
    """Order of the programs that wait for the next step of a lane."""

    FAIR = "FAIR"
    """The least running time."""
    RR = "RR"
    """The fewest steps."""
    PACK = "PACK"
    """The first that asked."""
    FIFO = "FIFO"
    """The first to arrive, until it ends."""
    SRTF = "SRTF"
    """The least time left, counting its wait."""


class LaneRefusal(StrEnum):
    """Reasons to refuse a message."""

    UNREADABLE = "Unreadable"
    """It is no message; the node closes the connection."""
    NO_HELLO = "NoHello"
    """The program has not said who it is, or waits for its lane."""
    VERSION = "Version"
    """The program speaks a version that the node does not know."""
    FOREIGN_PROCESS = "ForeignProcess"
    """The process belongs to another pod."""
    BUSY = "Busy"
    """Another process of the container holds the lane, or an earlier one has not ended."""
    EXCEEDS_SLICE = "ExceedsSlice"
    """Persistent and ephemeral memory are more than the slice's."""
    EXCEEDS_LANE = "ExceedsLane"
    """The step took more than the lane has: out of memory on a device that counts it."""
    CANNOT_GROW = "CannotGrow"
    """The step needs more than the job declared, and no lane has so much beside the others."""
    HOLDS_LEASE = "HoldsLease"
    """The program asks for a step while the last one runs."""
    LEASE_UNKNOWN = "LeaseUnknown"
    """The lease is not the program's."""
    STUCK = "Stuck"
    """The program was suspended and its memory could not be brought back: it must start again."""
    QUEUE_FULL = "QueueFull"
    """As many jobs wait for the device as may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello(Wire):
    """A process says who it is, and what it still holds; first on every connection."""

    version: Annotated[int, between(1, 1 << 16), NEEDED] = LANES_VERSION
    session: Annotated[Text, at_most(64), NEEDED]
    """The same on every connection of a process, and of no other process."""
    persistent_mib: Annotated[Mebibytes, NEEDED]
    """Memory that stays between steps, the context included."""
    ephemeral_mib: Annotated[Mebibytes, NEEDED]
    """Peak of one step above it."""
    caches: Flag = False
    """The framework keeps a step's memory when it ends, until it is told to give it back."""
    lease: Number = 0
    """Lease of the step that the process is in, 0 = none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquire(Wire):
    """Asks for one step; the answer comes when the lane is free."""

    iteration: Number = 0
    ephemeral_mib: Mebibytes = 0
    """What the step needs, where it is more than declared; 0 = as declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(Wire):
    """The step has ended and the device has done its work."""

    lease: Annotated[Number, NEEDED]
    emptied: Flag = False
    """The memory of the step was given back to the device."""
    peak_mib: Mebibytes = 0
    """What the step took at most above the persistent memory, 0 = not measured."""
    persistent_mib: Mebibytes = 0
    """What the process keeps, 0 = not measured."""
    step_ms: Milliseconds = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InLane(Wire):
    """The job is in a lane; sent again when it moves."""

    lane: Annotated[Number, NEEDED]
    size_mib: Annotated[Mebibytes, NEEDED]
    limit_mib: Annotated[Mebibytes, NEEDED]
    """What the process may have at most: its persistent memory and the lane's."""
    epoch: Annotated[Number, NEEDED]
    lease: Number = 0
    """Lease that the node knows of, 0 = none: what the process holds beside it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InQueue(Wire):
    """The job waits for room on the device; ``InLane`` follows."""

    position: Annotated[Number, NEEDED]
    waiting: Number = 0
    missing_mib: Mebibytes = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Wire):
    """The last message is refused, or the job cannot go on."""

    reason: Annotated[LaneRefusal | None, word(LaneRefusal, LaneRefusal.UNREADABLE)] = None
    message: Annotated[Text, at_most(512)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant(Wire):
    """The right to launch until the step ends."""

    lease: Annotated[Number, NEEDED]
    lane: Number = 0
    size_mib: Mebibytes = 0
    epoch: Number = 0
    deadline_ms: Milliseconds = 0
    """Time after which the step is reported as stalled; the right does not end then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Wire):
    """The lease has ended, or stays with the job while nobody else asks (``kept``)."""

    size_mib: Mebibytes = 0
    epoch: Number = 0
    kept: Flag = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty(Wire):
    """Another job waits: give the memory of the last step back, then ``Release`` again."""

    lease: Annotated[Number, NEEDED]


Message = Hello | Acquire | Release | InLane | InQueue | Refused | Grant | Done | Empty

TYPES: Final[Mapping[str, type[Message]]] = MappingProxyType(
    {
        "HELLO": Hello,
        "ACQUIRE": Acquire,
        "RELEASE": Release,
        "LANE": InLane,
        "QUEUED": InQueue,
        "REFUSED": Refused,
        "GRANT": Grant,
        "OK": Done,
        "EMPTY": Empty,
    }
)
"""Word of each message on the wire."""
_WORDS: Final = {kind: word for word, kind in TYPES.items()}
ASKED: Final = (Hello, Acquire, Release)
"""What a program may say."""


def encode(message: Message) -> bytes:
    """A message as a line."""
    body = {"type": _WORDS[type(message)], **message.to_wire()}
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Read a line.

    Raises:
        WireError: it is none, too long, or not a message; the text says in what way.
    """
    if len(line) > LINE_MAX:
        raise WireError(f"the line has more than {LINE_MAX} bytes")
    if not line.endswith(b"\n"):
        raise WireError("the line has no end")
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WireError("the line is no JSON") from error
    if not isinstance(raw, dict):
        raise WireError("the line is no JSON object")
    stated = text(raw, "type")
    kind = TYPES.get(stated)
    if kind is None:
        raise WireError(f"type: {quoted(stated)} is no message")
    return kind.from_wire(raw)
