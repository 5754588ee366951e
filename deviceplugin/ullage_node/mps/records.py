# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Messages between the node agent and the MPS supervisor: one JSON object a line.

The agent orders (devices to serve, protocol to use), the supervisor reports the state. Both sides
treat all input as untrusted: a uuid becomes part of a command, a number the name of a directory, a
PID the target of a termination. No I/O here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeAlias, cast

from ullage.api.codec import Wire, derived, rows
from ullage.api.devices import MpsState
from ullage.api.readers import LARGEST, JsonObject, WireError, text, whole
from ullage.api.wire_fields import (
    KEPT,
    NEEDED,
    Embedded,
    Flag,
    Kind,
    Percent,
    Text,
    Whole,
    between,
    cut,
    known_word,
    strings,
)

PIPE: Final = "CUDA_MPS_PIPE_DIRECTORY"
SHARE: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
"""Variables that a client reads when it starts (NVIDIA, Multi-Process Service, appendix A)."""
UUID: Final = re.compile(r"^GPU-[0-9A-Za-z][0-9A-Za-z-]{0,63}$")
NAMESPACE: Final = re.compile(r"^[a-z0-9]{1,16}$")
INDEX_MAX: Final = 255
PID_MAX: Final = 1 << 22
"""Largest PID of a 64-bit kernel (``PID_MAX_LIMIT``)."""
PROTOCOLS: Final = (2, 3)
VARIABLE_MAX: Final = 128
"""Most characters reported of a client's variable: our values are shorter."""


def read_uuid(raw: JsonObject, field: str = "uuid") -> str:
    """A device's uuid, safe in a command.

    Raises:
        WireError: it is malformed.
    """
    uuid = text(raw, field)
    if not UUID.match(uuid):
        raise WireError(f"{field}: {uuid!r} is none of a GPU")
    return uuid


def read_namespace(raw: JsonObject, field: str = "name") -> str:
    """A namespace's name, safe in a command and a path.

    Raises:
        WireError: it is malformed.
    """
    name = text(raw, field)
    if not NAMESPACE.match(name):
        raise WireError(f"{field}: {name!r} is no name of a namespace")
    return name


def read_pid(raw: JsonObject) -> int:
    """A process that may be terminated.

    Raises:
        WireError: it is not one; 0 and 1 would hit all processes.
    """
    pid = whole(raw, "pid")
    if not 1 < pid <= PID_MAX:
        raise WireError(f"pid: {pid} is no client")
    return pid


def numbers(raw: JsonObject, name: str) -> tuple[int, ...]:
    """A list of whole numbers.

    Raises:
        WireError: it is malformed.
    """
    value = raw.get(name) or []
    if not isinstance(value, list) or not all(type(number) is int for number in value):
        raise WireError(f"{name}: expected a list of whole numbers")
    return tuple(value)


def _protocol(raw: JsonObject, field: str) -> int:
    protocol = whole(raw, field)
    if protocol not in PROTOCOLS:
        raise WireError(f"{field}: {protocol} is neither 2 nor 3")
    return protocol


_Clients: TypeAlias = Annotated[
    tuple[int, ...] | None,
    Embedded(
        lambda raw: None if raw.get("clients") is None else numbers(raw, "clients"),
        lambda held: {"clients": None if held is None else list(held)},
    ),
]
_NeededText: TypeAlias = Annotated[Text, NEEDED]
_Number: TypeAlias = Annotated[Whole, NEEDED]
_Uuid: TypeAlias = Annotated[str, Kind(read_uuid), NEEDED]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOrder(Wire):
    """One device that the agent wants served; ``index`` names its directory.

    ``memory_mib`` is the device's memory, 0 = not given.
    """

    uuid: _Uuid
    index: Annotated[int, between(0, INDEX_MAX), NEEDED]
    protocol: Annotated[int, Kind(_protocol), NEEDED] = 2
    memory_mib: Annotated[int, between(0, LARGEST), KEPT] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsLimits(Wire):
    """A namespace of protocol 3: the share and memory of one slice."""

    name: Annotated[str, Kind(read_namespace), NEEDED]
    percent: Percent
    memory_mib: Annotated[int, between(1, LARGEST), NEEDED]
    priority: Annotated[int, between(0, 1), NEEDED]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranger(Wire):
    """A control daemon that is not ours; no ``gpus`` = it serves all of them."""

    pid: _Number
    gpus: Annotated[tuple[str, ...], Kind(strings, list, ()), KEPT] = ()

    def serves(self, uuid: str) -> bool:
        """True if it serves this device."""
        return not self.gpus or uuid in self.gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed(Wire):
    """The node's MPS: protocols of its control program, or the reason why there are none.

    ``version`` is the driver's, ``multi_user`` = one server may serve clients of every uid.
    """

    version: _NeededText = ""
    protocols: Annotated[tuple[int, ...], Kind(numbers, list, ()), KEPT] = ()
    multi_user: Annotated[Flag, KEPT] = False
    problem: _NeededText = ""
    strangers: Annotated[tuple[Stranger, ...], KEPT] = ()

    def rival(self, uuid: str) -> str:
        """The other server of a device, and what to do; empty = none."""
        for stranger in self.strangers:
            if stranger.serves(uuid):
                return (
                    f"process {stranger.pid} of someone else runs an MPS control daemon for it; "
                    "stop that one, or take the node from Ullage"
                )
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientEnvironment(Wire):
    """The initial MPS variables of a client's process; "" = not set."""

    pid: _Number
    pipe: Annotated[str, cut(VARIABLE_MAX)] = ""
    share: Annotated[str, cut(VARIABLE_MAX)] = ""
    memory: Annotated[str, cut(VARIABLE_MAX)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsServer(Wire):
    """The last known state of one device's MPS server.

    ``clients`` are host PIDs, ``age_ms`` is the age of the list; ``None`` = the clients are
    unknown. ``environments`` are those of the clients where readable. ``draining`` = a client could
    not be terminated: nothing may attach before the server has restarted. ``why`` explains every
    state but Active. ``multi_user`` = clients of every uid may attach. ``memory_key`` is the name
    of the device with which the daemon reported back a memory limit, "" = none. ``log`` is the file
    with the daemon's messages, "" = none.
    """

    uuid: _Uuid
    protocol: _Number
    state: Annotated[MpsState, known_word(MpsState), NEEDED]
    why: _NeededText = ""
    server_pid: _Number = 0
    clients: _Clients = None
    age_ms: _Number = 0
    environments: tuple[ClientEnvironment, ...] = ()
    draining: Annotated[Flag, KEPT] = False
    multi_user: Annotated[Flag, KEPT] = False
    memory_key: Text = ""
    log: Text = ""
    faults: _Number = 0
    restarts: _Number = 0

    @property
    def ready(self) -> bool:
        """True if it accepts clients."""
        return self.state is MpsState.ACTIVE and not self.draining


_SERVERS: Final = rows(derived(MpsServer))


def _by_uuid(raw: JsonObject, field: str) -> dict[str, MpsServer]:
    return {
        server.uuid: server for server in cast("tuple[MpsServer, ...]", _SERVERS.read(raw, field))
    }


def _listed(servers: Mapping[str, MpsServer]) -> list[dict[str, object]]:
    return [server.to_wire() for _, server in sorted(servers.items())]


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsReport(Wire):
    """The supervisor's state, by device."""

    installed: Annotated[Installed, KEPT] = field(default_factory=Installed)
    servers: Annotated[Mapping[str, MpsServer], Kind(_by_uuid, _listed, {}), KEPT] = field(
        default_factory=dict
    )
