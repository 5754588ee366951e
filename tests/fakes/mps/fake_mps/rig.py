# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The machine without a single process: for tests that want its behaviour in microseconds.

::

    rig = Rig(Script(starts=(Start(init_s=2.0),)))
    client = rig.client(percent=25)
    rig.run("get_server_list"); rig.pass_time(2.0); client.sm_count
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from fake_mps.dispatch import run_line
from fake_mps.host import stamp
from fake_mps.machine import Machine, Options
from fake_mps.model import Answer, Client, Clock, Hello, Server
from fake_mps.script import Script


class StillClock:
    """Time that moves only when told to."""

    def __init__(self, start_s: float = 1_800_000_000.0) -> None:
        self._start_s = start_s
        self._passed_s = 0.0

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._start_s + self._passed_s

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._passed_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._passed_s += seconds


class StandInServers:
    """PIDs without processes."""

    def __init__(self, first_pid: int = 6472) -> None:
        self._pids = itertools.count(first_pid)
        self.alive: set[int] = set()
        self.regions: list[str] = []

    def spawn(self, uid: int) -> int:
        """A new PID."""
        pid = next(self._pids)
        self.alive.add(pid)
        return pid

    def stop(self, pid: int) -> None:
        """The PID is gone."""
        self.alive.discard(pid)

    def share(self, name: str) -> None:
        """Remember the region."""
        self.regions.append(name)


class MemoryLogs:
    """Both logs as lists of whole lines."""

    def __init__(self, clock: Clock, control_pid: int = 1) -> None:
        self._clock = clock
        self._control_pid = control_pid
        self.control_lines: list[str] = []
        self.server_lines: list[str] = []

    def opened(self, pid: int, folder: str | None) -> None:
        """All servers share one list."""

    def control(self, text: str) -> None:
        """A line of control.log."""
        self.control_lines.append(
            f"{stamp(self._clock.now(), 'Control', self._control_pid)} {text}"
        )

    def server(self, pid: int, text: str) -> None:
        """A line of server.log."""
        self.server_lines.append(f"{stamp(self._clock.now(), 'Other', pid)} {text}")


class Rig:
    """A daemon, its clock and its logs."""

    def __init__(self, script: Script | None = None, options: Options | None = None) -> None:
        self.clock = StillClock()
        self.logs = MemoryLogs(self.clock)
        self.processes = StandInServers()
        self.machine = Machine(
            script or Script(),
            options or Options(),
            clock=self.clock,
            processes=self.processes,
            logs=self.logs,
        )
        self._pids = itertools.count(9741)

    def client(self, **hello: object) -> Client:
        """Connect a client process; words are those of Hello, the PID is made up."""
        base = Hello(pid=next(self._pids))
        return self.machine.connect(replace(base, **hello))  # type: ignore[arg-type]

    def ask(self, line: str, uid: int = 0) -> Answer:
        """Start a command, which may block."""
        return run_line(self.machine, line, uid)

    def run(self, line: str, uid: int = 0) -> str:
        """Run a command that answers at once.

        Raises:
            AssertionError: it blocks.
        """
        answer = self.ask(line, uid)
        assert answer.text is not None, f"{line!r} blocks"
        return answer.text

    def pass_time(self, seconds: float) -> None:
        """Let time pass and everything happen that becomes due."""
        self.clock.advance(seconds)
        self.machine.tick()

    @property
    def server(self) -> Server:
        """The only server."""
        (only,) = self.machine.servers.values()
        return only
