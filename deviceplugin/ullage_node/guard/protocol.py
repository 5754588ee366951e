# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What agent and freezer say to each other over their socket: one JSON object a line.

The agent decides, the freezer stops: it takes no path, no signal and no command from the agent,
only the names of containers. Both sides refuse what they do not understand whole.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ullage_node.model.devices import ContainerKey

VERSION: Final = 1
FOLDER: Final = "guard"
"""Folder of the socket and the journal, below the run directory."""
SOCKET: Final = "guard.sock"
LINE_BYTES: Final = 1 << 16
"""Longest line; more is no message of ours."""
MAX_CONTAINERS: Final = 64
MAX_PIDS: Final = 512
MAX_FREEZE_SECONDS: Final = 10.0
"""No container stands still for longer, whatever anyone asks for."""
HEARTBEAT_SECONDS: Final = 1.0
SECONDS_MOST: Final = 1e6
"""No number of seconds is larger; what is none at all is not smaller either."""
SILENCE_SECONDS: Final = 10.0
"""An agent that says nothing for so long is taken for dead: everyone runs again."""

_POD_UID: Final = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CONTAINER: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def guard_socket(run_dir: Path) -> Path:
    """Where the freezer listens."""
    return run_dir / FOLDER / SOCKET


class ProtocolError(ValueError):
    """A line is no message of this version; the text says what is wrong."""


class Verb(StrEnum):
    """What the agent may ask for."""

    FREEZE = "freeze"
    THAW = "thaw"
    BEAT = "beat"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A container and the host's ids of some of its processes, by which it is found."""

    key: ContainerKey
    pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One line of the agent."""

    verb: Verb
    number: int
    targets: tuple[Target, ...] = ()
    limit_seconds: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One line of the freezer; ``problem`` is empty when what was asked for holds."""

    number: int
    problem: str = ""


def encode_request(request: Request) -> bytes:
    """The line of a request."""
    body = {
        "version": VERSION,
        "verb": request.verb.value,
        "number": request.number,
        "containers": [
            {
                "podUID": target.key.pod_uid,
                "container": target.key.container,
                "pids": list(target.pids[:MAX_PIDS]),
            }
            for target in request.targets
        ],
        "limitSeconds": request.limit_seconds,
        "why": request.why[:500],
    }
    return json.dumps(body).encode() + b"\n"


def encode_answer(answer: Answer) -> bytes:
    """The line of an answer."""
    body = {"version": VERSION, "number": answer.number, "problem": answer.problem[:1000]}
    return json.dumps(body).encode() + b"\n"


def decode_request(line: bytes) -> Request:
    """Read the agent's line.

    Raises:
        ProtocolError: it is none, or asks for something that no one may ask for.
    """
    body = _object(line)
    try:
        verb = Verb(str(body.get("verb")))
    except ValueError as error:
        raise ProtocolError(f"verb: {error}") from error
    raw = body.get("containers", [])
    if not isinstance(raw, list) or len(raw) > MAX_CONTAINERS:
        raise ProtocolError(f"containers: expected at most {MAX_CONTAINERS}")
    limit = body.get("limitSeconds", 0.0)
    if isinstance(limit, bool) or not isinstance(limit, int | float):
        raise ProtocolError("limitSeconds: expected seconds")
    if not abs(limit) < SECONDS_MOST:
        raise ProtocolError("limitSeconds: expected seconds")
    targets = tuple(_target(one) for one in raw)
    if verb is Verb.FREEZE and (not targets or not 0 < limit <= MAX_FREEZE_SECONDS):
        raise ProtocolError(f"freeze needs containers and a limit of 0 to {MAX_FREEZE_SECONDS} s")
    return Request(
        verb=verb,
        number=_whole(body, "number"),
        targets=targets,
        limit_seconds=float(limit),
        why=str(body.get("why", ""))[:500],
    )


def decode_answer(line: bytes) -> Answer:
    """Read the freezer's line.

    Raises:
        ProtocolError: it is none.
    """
    body = _object(line)
    problem = body.get("problem", "")
    if not isinstance(problem, str):
        raise ProtocolError("problem: expected a text")
    return Answer(number=_whole(body, "number"), problem=problem)


def _object(line: bytes) -> dict[str, object]:
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"no JSON: {error}") from error
    if not isinstance(body, dict):
        raise ProtocolError("expected an object")
    if body.get("version") != VERSION:
        raise ProtocolError(
            f"version {body.get('version')!r}, expected {VERSION}; agent and guard must come from "
            "the same image"
        )
    return body


def _target(raw: object) -> Target:
    if not isinstance(raw, dict):
        raise ProtocolError("containers: expected objects")
    uid, container, pids = raw.get("podUID"), raw.get("container"), raw.get("pids", [])
    if not isinstance(uid, str) or not _POD_UID.fullmatch(uid):
        raise ProtocolError(f"podUID: {uid!r} is none")
    if not isinstance(container, str) or not _CONTAINER.fullmatch(container):
        raise ProtocolError(f"container: {container!r} is no name")
    if not isinstance(pids, list) or len(pids) > MAX_PIDS:
        raise ProtocolError(f"pids: expected at most {MAX_PIDS}")
    if not all(
        isinstance(pid, int) and not isinstance(pid, bool) and 1 < pid < 1 << 31 for pid in pids
    ):
        raise ProtocolError("pids: expected process ids above 1")
    return Target(key=ContainerKey(pod_uid=uid, container=container), pids=tuple(pids))


def _whole(body: dict[str, object], name: str) -> int:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ProtocolError(f"{name}: expected a whole number")
    return value
