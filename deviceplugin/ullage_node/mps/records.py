# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Messages between the node agent and the MPS supervisor: one JSON object a line.

The agent orders (which devices to serve, with which protocol), the supervisor reports what stands.
Both sides read everything as if a stranger had written it: a uuid becomes part of a command, a
number the name of a directory, a pid the target of a termination. No I/O here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ullage.api.contract import JsonObject, MpsState, WireError, flag, objects, section, text, whole

UUID: Final = re.compile(r"^GPU-[0-9A-Za-z][0-9A-Za-z-]{0,63}$")
NAMESPACE: Final = re.compile(r"^[a-z0-9]{1,16}$")
INDEX_MAX: Final = 255
PID_MAX: Final = 1 << 22
"""Largest pid of a 64-bit kernel (``PID_MAX_LIMIT``)."""
PROTOCOLS: Final = (2, 3)
LINE_MAX: Final = 1 << 20
"""Bytes of one message: 256 devices with 60 clients each take less than half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One device that the agent wants served; ``index`` names its directory."""

    uuid: str
    index: int
    protocol: int = 2

    def to_wire(self) -> dict[str, object]:
        """The JSON of the socket."""
        return {"uuid": self.uuid, "index": self.index, "protocol": self.protocol}

    @classmethod
    def from_wire(cls, raw: JsonObject) -> Order:
        """Read an order.

        Raises:
            WireError: a field is missing, or is nothing that may stand in a path or a command.
        """
        index, protocol = whole(raw, "index"), whole(raw, "protocol")
        if not 0 <= index <= INDEX_MAX:
            raise WireError(f"index: {index} is outside 0..{INDEX_MAX}")
        if protocol not in PROTOCOLS:
            raise WireError(f"protocol: {protocol} is neither 2 nor 3")
        return cls(uuid=read_uuid(raw), index=index, protocol=protocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A namespace of protocol 3: the share and memory of one slice."""

    name: str
    percent: int
    memory_mib: int
    priority: int

    def to_wire(self) -> dict[str, object]:
        """The JSON of the socket."""
        return {
            "name": self.name,
            "percent": self.percent,
            "memoryMiB": self.memory_mib,
            "priority": self.priority,
        }

    @classmethod
    def from_wire(cls, raw: JsonObject) -> Limits:
        """Read limits.

        Raises:
            WireError: a field is missing or out of range.
        """
        found = cls(
            name=read_namespace(raw),
            percent=whole(raw, "percent"),
            memory_mib=whole(raw, "memoryMiB"),
            priority=whole(raw, "priority"),
        )
        if not 1 <= found.percent <= 100 or found.memory_mib < 1 or found.priority not in (0, 1):
            raise WireError(f"limits: out of range: {found}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranger:
    """A control daemon that someone else runs; no ``gpus`` = it serves all of them."""

    pid: int
    gpus: tuple[str, ...] = ()

    def serves(self, uuid: str) -> bool:
        """Whether the device is one of its own."""
        return not self.gpus or uuid in self.gpus

    def to_wire(self) -> dict[str, object]:
        """The JSON of the socket."""
        return {"pid": self.pid, "gpus": list(self.gpus)}

    @classmethod
    def from_wire(cls, raw: JsonObject) -> Stranger:
        """Read one.

        Raises:
            WireError: a field is missing.
        """
        return cls(pid=whole(raw, "pid"), gpus=strings(raw, "gpus"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The node's MPS: protocols of its control program, or why there are none.

    ``multi_user`` says whether one server may take clients of every uid.
    """

    version: str = ""
    protocols: tuple[int, ...] = ()
    multi_user: bool = False
    problem: str = ""
    strangers: tuple[Stranger, ...] = ()

    def to_wire(self) -> dict[str, object]:
        """The JSON of the socket."""
        return {
            "version": self.version,
            "protocols": list(self.protocols),
            "multiUser": self.multi_user,
            "problem": self.problem,
            "strangers": [one.to_wire() for one in self.strangers],
        }

    @classmethod
    def from_wire(cls, raw: JsonObject) -> Installed:
        """Read it.

        Raises:
            WireError: a field is missing or of the wrong type.
        """
        return cls(
            version=text(raw, "version"),
            protocols=numbers(raw, "protocols"),
            multi_user=flag(raw, "multiUser"),
            problem=text(raw, "problem"),
            strangers=tuple(Stranger.from_wire(one) for one in objects(raw, "strangers")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The MPS server of one device, as it was last seen.

    ``clients`` are host pids, ``age_ms`` is how old their list is; where it is ``None`` no one
    knows who is attached. ``draining`` = a client could not be terminated: nothing may attach
    before the server was started again. ``why`` explains every state but Active.
    """

    uuid: str
    protocol: int
    state: MpsState
    why: str = ""
    server_pid: int = 0
    clients: tuple[int, ...] | None = None
    age_ms: int = 0
    draining: bool = False
    faults: int = 0
    restarts: int = 0

    @property
    def ready(self) -> bool:
        """Whether a client may be sent there."""
        return self.state is MpsState.ACTIVE and not self.draining

    def to_wire(self) -> dict[str, object]:
        """The JSON of the socket."""
        return {
            "uuid": self.uuid,
            "protocol": self.protocol,
            "state": self.state.value,
            "why": self.why,
            "serverPID": self.server_pid,
            "clients": None if self.clients is None else list(self.clients),
            "ageMs": self.age_ms,
            "draining": self.draining,
            "faults": self.faults,
            "restarts": self.restarts,
        }

    @classmethod
    def from_wire(cls, raw: JsonObject) -> Server:
        """Read it.

        Raises:
            WireError: a field is missing or of the wrong type, or the state is unknown.
        """
        try:
            state = MpsState(text(raw, "state"))
        except ValueError as error:
            raise WireError(f"state: {error}") from error
        known = raw.get("clients") is not None
        return cls(
            uuid=read_uuid(raw),
            protocol=whole(raw, "protocol"),
            state=state,
            why=text(raw, "why"),
            server_pid=whole(raw, "serverPID"),
            clients=numbers(raw, "clients") if known else None,
            age_ms=whole(raw, "ageMs"),
            draining=flag(raw, "draining"),
            faults=whole(raw, "faults"),
            restarts=whole(raw, "restarts"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that the supervisor knows, by device."""

    installed: Installed = field(default_factory=Installed)
    servers: Mapping[str, Server] = field(default_factory=dict)

    def to_wire(self) -> dict[str, object]:
        """The JSON of the socket."""
        return {
            "installed": self.installed.to_wire(),
            "servers": [one.to_wire() for _, one in sorted(self.servers.items())],
        }

    @classmethod
    def from_wire(cls, raw: JsonObject) -> Report:
        """Read it.

        Raises:
            WireError: it is no report.
        """
        servers = [Server.from_wire(one) for one in objects(raw, "servers")]
        return cls(
            installed=Installed.from_wire(section(raw, "installed")),
            servers={one.uuid: one for one in servers},
        )


def read_uuid(raw: JsonObject) -> str:
    """A device's uuid that may stand in a command.

    Raises:
        WireError: it is none.
    """
    uuid = text(raw, "uuid")
    if not UUID.match(uuid):
        raise WireError(f"uuid: {uuid!r} is none of a GPU")
    return uuid


def read_namespace(raw: JsonObject) -> str:
    """A namespace's name that may stand in a command and a path.

    Raises:
        WireError: it is none.
    """
    name = text(raw, "name")
    if not NAMESPACE.match(name):
        raise WireError(f"name: {name!r} is no name of a namespace")
    return name


def read_pid(raw: JsonObject) -> int:
    """A process that may be terminated.

    Raises:
        WireError: it is none; 0 and 1 would hit everyone.
    """
    pid = whole(raw, "pid")
    if not 1 < pid <= PID_MAX:
        raise WireError(f"pid: {pid} is no client")
    return pid


def strings(raw: JsonObject, name: str) -> tuple[str, ...]:
    """A list of strings.

    Raises:
        WireError: it is none.
    """
    value = raw.get(name) or []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise WireError(f"{name}: expected a list of strings")
    return tuple(value)


def numbers(raw: JsonObject, name: str) -> tuple[int, ...]:
    """A list of whole numbers.

    Raises:
        WireError: it is none.
    """
    value = raw.get(name) or []
    if not isinstance(value, list) or not all(type(one) is int for one in value):
        raise WireError(f"{name}: expected a list of whole numbers")
    return tuple(value)
