# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The protocol of agent and freezer over their socket: one JSON object a line.

The agent decides, the freezer stops and limits: it takes no path, no signal and no command from the
agent, only the names of containers. Both sides refuse any message that is not fully valid.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, TypeVar

from ullage.api.codec import Wire
from ullage.api.readers import LARGEST, JsonObject, WireError, text, whole
from ullage.api.wire_fields import NEEDED, Embedded, Kind, between, cut, known_word, number
from ullage_node.devices.cgroup_io import DEVICE, IoCgroup
from ullage_node.model.devices import ContainerKey
from ullage_node.times import FREEZE_MOST_S

VERSION: Final = 1
FOLDER: Final = "guard"
"""Directory of the socket and the journal, below the run directory."""
SOCKET: Final = "guard.sock"
LINE_BYTES: Final = 1 << 16
"""Longest line of a valid message."""
MAX_CONTAINERS: Final = 64
MAX_PIDS: Final = 512
MAX_LIMITS: Final = 64
LIMIT_LEAST: Final = 1 << 20
"""Least bytes per second of a limit: less would hang a container."""

_POD_UID: Final = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CGROUP: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.:@]{0,254}")
_CONTAINER: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def guard_socket(run_dir: Path) -> Path:
    """The socket of the freezer."""
    return run_dir / FOLDER / SOCKET


class GuardVerb(StrEnum):
    """Requests of the agent."""

    FREEZE = "freeze"
    THAW = "thaw"
    BEAT = "beat"
    LIMIT = "limit"


def _version(raw: JsonObject, field: str) -> int:
    if (version := whole(raw, field)) != VERSION:
        raise WireError(
            f"version {version}, expected {VERSION}; agent and guard must come from the same image"
        )
    return version


def _key(raw: JsonObject) -> ContainerKey:
    uid, container = text(raw, "podUID"), text(raw, "container")
    if not _POD_UID.fullmatch(uid):
        raise WireError(f"podUID: {uid!r} is none")
    if not _CONTAINER.fullmatch(container):
        raise WireError(f"container: {container!r} is no name")
    return ContainerKey(pod_uid=uid, container=container)


def _pids(raw: JsonObject, field: str) -> tuple[int, ...]:
    pids = raw[field]
    if not isinstance(pids, list) or len(pids) > MAX_PIDS:
        raise WireError(f"{field}: expected at most {MAX_PIDS}")
    if not all(type(pid) is int and 1 < pid < 1 << 31 for pid in pids):
        raise WireError(f"{field}: expected process ids above 1")
    return tuple(pids)


_PIDS: Final = Kind(_pids, lambda pids: list(pids[:MAX_PIDS]), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeTarget(Wire):
    """A container and the host PIDs of some of its processes, by which it is found."""

    key: Annotated[
        ContainerKey,
        Embedded(_key, lambda key: {"podUID": key.pod_uid, "container": key.container}),
    ]
    pids: Annotated[tuple[int, ...], _PIDS] = ()


def _cgroup(raw: JsonObject) -> IoCgroup:
    uid, name = text(raw, "podUID"), text(raw, "cgroup")
    if not _POD_UID.fullmatch(uid):
        raise WireError(f"podUID: {uid!r} is none")
    if not _CGROUP.fullmatch(name):
        raise WireError(f"cgroup: {name!r} is no name")
    return IoCgroup(uid, name)


def _device(raw: JsonObject, field: str) -> str:
    device = text(raw, field)
    if not DEVICE.fullmatch(device):
        raise WireError(f"{field}: {device!r} is no major:minor number")
    return device


@dataclass(frozen=True, slots=True, kw_only=True)
class IoLimit(Wire):
    """A limit of a container on a device; its directory is searched, never joined to a path."""

    container: Annotated[
        IoCgroup,
        Embedded(_cgroup, lambda key: {"podUID": key.pod_uid, "cgroup": key.name}),
    ]
    device: Annotated[str, Kind(_device), NEEDED]
    """Its major:minor number."""
    bytes_per_s: Annotated[int, between(LIMIT_LEAST, LARGEST), "bytesPerSecond", NEEDED]
    """Bytes that it may read, and as many that it may write, a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message(Wire):
    """One line."""

    version: Annotated[int, Kind(_version), NEEDED] = VERSION
    number: Annotated[int, between(0, LARGEST), NEEDED]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRequest(_Message):
    """One line of the agent."""

    verb: Annotated[GuardVerb, known_word(GuardVerb), NEEDED]
    targets: Annotated[tuple[FreezeTarget, ...], "containers"] = ()
    limit_seconds: Annotated[float, number()] = 0.0
    why: Annotated[str, cut(500)] = ""
    limits: tuple[IoLimit, ...] = ()
    """All limits of I/O of the node; with ``limit``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardAnswer(_Message):
    """One line of the freezer; ``problem`` is empty on success."""

    problem: Annotated[str, cut(1000)] = ""


_Line = TypeVar("_Line", bound=_Message)


def encode(message: _Message) -> bytes:
    """The line of a request or an answer."""
    return json.dumps(message.to_wire()).encode() + b"\n"


def decode(kind: type[_Line], line: bytes) -> _Line:
    """Read a line.

    Raises:
        WireError: it is not a message of this kind and version; the text says what is wrong.
    """
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WireError(f"no JSON: {error}") from error
    if not isinstance(body, dict):
        raise WireError("expected an object")
    return kind.from_wire(body)


def decode_request(line: bytes) -> GuardRequest:
    """Read the agent's line.

    Raises:
        WireError: it is invalid, or a forbidden request.
    """
    request = decode(GuardRequest, line)
    if len(request.targets) > MAX_CONTAINERS:
        raise WireError(f"containers: expected at most {MAX_CONTAINERS}")
    if len(request.limits) > MAX_LIMITS:
        raise WireError(f"limits: expected at most {MAX_LIMITS}")
    limit = request.limit_seconds
    if request.verb is GuardVerb.FREEZE and not (request.targets and 0 < limit <= FREEZE_MOST_S):
        raise WireError(f"freeze needs containers and a limit of 0 to {FREEZE_MOST_S} s")
    return request
