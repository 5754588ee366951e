# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What passes between the coordinator and its parked workers: one JSON object a line.

Standard library only: a worker that sleeps in place of a GPU starts in milliseconds.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from dataclasses import asdict, dataclass
from typing import Final

LINE_MAX: Final = 4 << 20
Message = dict[str, object]


class WorkerGone(Exception):
    """The other end has closed, or said something that is no message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One window for one worker; times are seconds, the start is of the monotonic clock."""

    window: int
    start_s: float
    warm_s: float
    measured_s: float
    seed: str
    place: int
    members: list[list[str | int]]
    """Tenant and share of everyone; only workers without a GPU look at it."""
    rate: float = 0.0
    cores: list[int] | None = None

    def message(self) -> Message:
        """As it is sent."""
        return {"order": asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What a worker says once it stands ready."""

    key: str
    pid: int
    sm_count: int
    attached: bool
    """Whether it reached MPS, as far as the process itself can tell."""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a worker measured in one window.

    ``durations_ms`` are of whole iterations inside the measured part, from the scheduled arrival
    in an open loop; ``ends_s`` when they ended, from the start of the measured part.
    """

    window: int
    t_start_ns: int
    durations_ms: list[float]
    ends_s: list[float]
    cpu_util: float
    memory_mib: float | None = None
    launches: int | None = None
    graph_launches: int | None = None
    error: str = ""


class Line:
    """Messages over one socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._rest = b""

    def send(self, message: Message) -> None:
        """Send one message.

        Raises:
            WorkerGone: no one is there any more.
        """
        try:
            self.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise WorkerGone(str(error)) from error

    def receive(self, timeout_s: float | None) -> Message:
        """The next message.

        Raises:
            WorkerGone: the other end closed, or sent no JSON object.
            TimeoutError: none came in time.
        """
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                left_s = None if end_s is None else max(0.0, end_s - time.monotonic())
                if not selector.select(left_s):
                    raise TimeoutError(f"no message in {timeout_s:g} s")
                self._fill()
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            found = json.loads(line)
        except ValueError as error:
            raise WorkerGone(f"not a message: {line[:80]!r}") from error
        if not isinstance(found, dict):
            raise WorkerGone(f"not a message: {line[:80]!r}")
        return found

    def _fill(self) -> None:
        try:
            chunk = self.socket.recv(1 << 16)
        except OSError as error:
            raise WorkerGone(str(error)) from error
        if not chunk or len(self._rest) > LINE_MAX:
            raise WorkerGone("the connection is closed")
        self._rest += chunk
