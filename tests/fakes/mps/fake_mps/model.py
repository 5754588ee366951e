# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The nouns of the fake: servers, clients, limits and answers. No behaviour and no I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from fake_mps.hardware import Gpu

Message = dict[str, object]


class Clock(Protocol):
    """Time as the fake sees it; tests give one that only they move."""

    def now(self) -> float:
        """Seconds since the epoch, for log lines."""

    def monotonic(self) -> float:
        """Seconds that never go back, for delays."""


class Processes(Protocol):
    """Who makes the server processes."""

    def spawn(self, uid: int) -> int:
        """Start a server process and give its PID."""

    def stop(self, pid: int) -> None:
        """End a server process; one that is gone already is no error."""

    def share(self, name: str) -> None:
        """Make a named shared memory region."""


class Logs(Protocol):
    """Where the two logs go."""

    def opened(self, pid: int, folder: str | None) -> None:
        """A server begins to log; under v3 in a folder of its own."""

    def control(self, text: str) -> None:
        """One line of control.log."""

    def server(self, pid: int, text: str) -> None:
        """One line of server.log."""


class ServerState(StrEnum):
    """What get_server_status prints."""

    INITIALIZING = "INITIALIZING"
    ACTIVE = "ACTIVE"
    FAULT = "FAULT"


class ClientState(StrEnum):
    """Where a client stands."""

    WAITING = "waiting"
    ATTACHED = "attached"
    TERMINATED = "terminated"
    REFUSED = "refused"
    GONE = "gone"


@dataclass(slots=True, kw_only=True)
class Limits:
    """Ceilings of a server, a namespace or the defaults; absent means none."""

    percent: float | None = None
    memory_mib: dict[str, int] = field(default_factory=dict)
    priority: int | None = None

    def copy(self) -> Limits:
        """An independent copy."""
        return Limits(
            percent=self.percent, memory_mib=dict(self.memory_mib), priority=self.priority
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What a client process brings along when it connects; its environment is read only here."""

    pid: int
    uid: int = 0
    command: str = "./nbody"
    percent: float | None = None
    memory_limit: str | None = None
    priority: int | None = None
    contexts: int = 1
    connections: int = 2
    partition: str | None = None
    visible_devices: str | None = None
    pid_namespace: int = 4026531836
    server: str | None = None
    namespace: str = "default"


@dataclass(slots=True, kw_only=True, eq=False)
class Client:
    """One attached or waiting client process; ``inbox`` is what it has yet to be told."""

    hello: Hello
    state: ClientState = ClientState.WAITING
    id: int = 0
    gpu: Gpu | None = None
    sm_count: int = 0
    memory_cap_mib: int | None = None
    busy: bool = False
    faulted: bool = False
    listed: bool = True
    inbox: list[Message] = field(default_factory=list)


@dataclass(slots=True, kw_only=True, eq=False)
class Server:
    """One nvidia-cuda-mps-server."""

    pid: int
    uid: int
    name: str
    gpus: tuple[Gpu, ...]
    limits: Limits
    namespaces: dict[str, Limits]
    allowed: str = "all"
    region: str = ""
    state: ServerState = ServerState.INITIALIZING
    clients: list[Client] = field(default_factory=list)
    waiting: list[Client] = field(default_factory=list)
    next_id: int = 0
    terminating: int = 0
    hung: bool = False
    gone: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class Answer:
    """Reply to a command; ``text`` stays None while the command blocks."""

    text: str | None = None
    exit_code: int = 0
    crash: bool = False
    on_done: Callable[[], None] | None = None

    @property
    def done(self) -> bool:
        """Whether the command has returned."""
        return self.text is not None

    def finish(self, text: str, exit_code: int = 0) -> None:
        """Give the reply, once."""
        if self.text is None:
            self.text, self.exit_code = text, exit_code
            if self.on_done is not None:
                self.on_done()
