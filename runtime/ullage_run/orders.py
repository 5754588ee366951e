# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Messages between a coordinator and the members of its job, as values and as bytes.

It must never accept a value of the wrong shape from a peer: members act on what they receive.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ullage_run.frames import Buffer, FrameError

MAX_ORDER_BYTES: Final = 1 << 20
MAX_PARTS_BYTES: Final = 64 << 20
"""Most bytes of one gathering; larger values go over the framework's own channels."""
MAX_NAME: Final = 253
MAX_DIGITS: Final = 9
ENV_LEAD: Final = "ULLAGE_LEAD"
ENV_KEEPER: Final = "ULLAGE_KEEPER"
ENV_TOKEN: Final = "ULLAGE_GROUP_TOKEN_FILE"
ENV_MEMBER: Final = "ULLAGE_MEMBER"
ENV_NODE: Final = "ULLAGE_NODE"
ENV_POOL: Final = "ULLAGE_POOL"
ENV_TIER: Final = "ULLAGE_TIER"
ENV_EVERY: Final = "ULLAGE_BACKUP_EVERY_STEPS"
ENV_LAG: Final = "ULLAGE_BACKUP_MAX_LAG_STEPS"
ENV_SHARDS: Final = "ULLAGE_SHARDS"
"""Variable with the number of shards of the job's state."""
RELIABLE: Final = "reliable"

_COUNT: Final = struct.Struct(">I")
_PART: Final = struct.Struct(">HI")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCopy:
    """Contents of the state store.

    Attributes:
        epoch: Epoch of its maps.
        committed: The complete step; ``None`` = none yet.
        shards: Their number; 0 = no maps yet.
    """

    epoch: int
    committed: int | None
    shards: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Identity of a member.

    Attributes:
        name: Unique in its job.
        node: Its machine.
        pool: Of the machine; empty = unknown.
        reliable: On capacity that is not preempted.
    """

    name: str
    node: str
    pool: str = ""
    reliable: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Identity:
        """Read the identity that the operator writes into the container.

        Raises:
            ValueError: this process is not a member of a job in tiers.
        """
        env = os.environ if environment is None else environment
        name = env.get(ENV_MEMBER, "")
        if not name:
            raise ValueError(f"{ENV_MEMBER} is not set: this is no member of a job in tiers")
        return cls(
            name=name,
            node=env.get(ENV_NODE, name),
            pool=env.get(ENV_POOL, ""),
            reliable=env.get(ENV_TIER, "") == RELIABLE,
        )

    def encode(self) -> bytes:
        """Encode the payload of JOIN."""
        return _dump(
            {"name": self.name, "node": self.node, "pool": self.pool, "reliable": self.reliable}
        )

    @classmethod
    def decode(cls, data: Buffer) -> Identity:
        """Decode the payload of JOIN.

        Raises:
            FrameError: it is invalid.
        """
        fields = _load(data)
        name, node, pool = (_text(fields, key) for key in ("name", "node", "pool"))
        if not name:
            raise FrameError("a member without a name")
        return cls(name=name, node=node or name, pool=pool, reliable=fields.get("reliable") is True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAssignment:
    """Work of a member from the next step on.

    Attributes:
        shards: Owned shards.
        load: Owned shards to load from the copy.
        blocks: Its blocks of the data.
        block_count: Number of blocks of the data.
        members: Sorted names of all participants.
        push: It pushes after each step.
        committed: The copy's step; ``None`` = no copy.
    """

    shards: tuple[int, ...]
    load: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    block_count: int = 0
    members: tuple[str, ...] = ()
    push: bool = False
    committed: int | None = None

    def encode(self) -> bytes:
        """Encode the payload of ASSIGN."""
        return _dump(
            {
                "shards": self.shards,
                "load": self.load,
                "blocks": self.blocks,
                "blockCount": self.block_count,
                "members": self.members,
                "push": self.push,
                "committed": self.committed,
            }
        )

    @classmethod
    def decode(cls, data: Buffer) -> MemberAssignment:
        """Decode the payload of ASSIGN.

        Raises:
            FrameError: it is invalid.
        """
        fields = _load(data)
        committed, members = fields.get("committed"), fields.get("members")
        if not isinstance(members, list) or not all(isinstance(member, str) for member in members):
            raise FrameError("an assignment without members")
        return cls(
            shards=_numbers(fields, "shards"),
            load=_numbers(fields, "load"),
            blocks=_numbers(fields, "blocks"),
            block_count=_number(fields, "blockCount"),
            members=tuple(members),
            push=fields.get("push") is True,
            committed=None if committed is None else _number(fields, "committed"),
        )


def milliseconds(data: Buffer) -> int:
    """Payload of LEAVING.

    Raises:
        FrameError: it is invalid.
    """
    if not 0 < len(data) <= MAX_DIGITS or not bytes(data).isdigit():
        raise FrameError("the time that is left is no number of milliseconds")
    return int(bytes(data))


def encode_parts(parts: Mapping[str, Buffer]) -> bytes:
    """Encode the parts of all members as the payload of PARTS."""
    pieces = [_COUNT.pack(len(parts))]
    for name, data in sorted(parts.items()):
        raw, view = name.encode(), memoryview(data).cast("B")
        pieces += [_PART.pack(len(raw), len(view)), raw, bytes(view)]
    return b"".join(pieces)


def decode_parts(data: Buffer) -> dict[str, bytes]:
    """Decode the payload of PARTS.

    Raises:
        FrameError: it is invalid.
    """
    view, at = memoryview(data), _COUNT.size
    parts: dict[str, bytes] = {}
    try:
        (count,) = _COUNT.unpack_from(view)
        for _ in range(count):
            of_name, of_data = _PART.unpack_from(view, at)
            at += _PART.size
            if at + of_name + of_data > len(view):
                raise FrameError("parts are cut off")
            name = bytes(view[at : at + of_name]).decode()
            at += of_name
            parts[name] = bytes(view[at : at + of_data])
            at += of_data
    except (struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"no parts: {error}") from error
    return parts


def _dump(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _load(data: Buffer) -> dict[str, object]:
    try:
        fields: object = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise FrameError(f"the order is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise FrameError("the order is no object")
    return fields


def _text(fields: Mapping[str, object], key: str) -> str:
    value = fields.get(key, "")
    if not isinstance(value, str) or len(value) > MAX_NAME:
        raise FrameError(f"{key} is no short text")
    return value


def _number(fields: Mapping[str, object], key: str) -> int:
    value = fields.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise FrameError(f"{key} is no count")
    return value


def _numbers(fields: Mapping[str, object], key: str) -> tuple[int, ...]:
    numbers = fields.get(key, [])
    if not isinstance(numbers, list):
        raise FrameError(f"{key} is no list")
    return tuple(_number({key: number}, key) for number in numbers)
