# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Commands of ``nvidia-cuda-mps-control`` and the parsers of its answers.

Protocol 2 is one command per call on standard input, protocol 3 command-line arguments with answers
as CSV. Every part of a command was validated before (records). An answer that cannot be read is an
error, never a guess: "unknown" must not look like "healthy". Source of both: NVIDIA's MPS
documentation, release 615.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ullage.api.devices import MpsState
from ullage_node.mps.programs import ProgramCall, ProgramResult, ProgramRunner, ProgramSilent
from ullage_node.mps.records import Installed, MpsLimits
from ullage_node.times import CONTROL_S, QUIT_S, TERMINATE_S

PROGRAM: Final = "nvidia-cuda-mps-control"
SERVER: Final = "u"
"""Name of our only server under protocol 3; short, because socket paths end at 108 bytes."""
DEFAULT_NAMESPACE_PERCENT: Final = 10
"""Share of a client without one of our namespaces (protocol 3): just enough to be detected."""
ORDINAL: Final = "0"
"""The only device that one of our daemons and its clients see."""
NOBODY_THERE: Final = ("cannot find mps control daemon", "failed to connect", "no mps control")

_STATES: Final = {
    "ACTIVE": MpsState.ACTIVE,
    "READY": MpsState.ACTIVE,
    "INITIALIZING": MpsState.STARTING,
    "STARTING": MpsState.STARTING,
    "FAULT": MpsState.FAULT,
}


_LIMIT: Final = re.compile(r"(\d{1,9}) ?([MG])(?:i?B)?", re.ASCII)
_MIB_OF: Final = {"M": 1, "G": 1024}


class ControlDown(Exception):
    """No control daemon listens there."""


class ControlUnclear(Exception):
    """The daemon's answer is unreadable or an error; the text is the daemon's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonDirectories:
    """Directories of one device's daemon: ``<root>/<index>/{pipe,log,shm}``."""

    uuid: str
    directory: Path
    memory_mib: int = 0
    """Memory of the device, 0 = unknown."""

    @property
    def pipe(self) -> Path:
        """The daemon's pipe directory; clients find it by this path."""
        return self.directory / "pipe"

    @property
    def log(self) -> Path:
        """``control.log``, ``server.log``, and ``daemon.log``, the daemon's output."""
        return self.directory / "log"

    @property
    def shm(self) -> Path:
        """Shared memory of daemon and clients; their ``/dev/shm``."""
        return self.directory / "shm"

    @property
    def env(self) -> dict[str, str]:
        """Environment of the daemon and of its callers."""
        return {
            "CUDA_VISIBLE_DEVICES": self.uuid,
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self.log),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonState:
    """One reading of a daemon; ``server_pid`` 0 = it has no server."""

    server_pid: int
    state: MpsState
    default_percent: int = 0
    """Share of a client without its own setting; 0 = not read."""
    clients: Mapping[int, str] = field(default_factory=dict)
    """Host pid to the client's namespace ("" under protocol 2)."""


class Control(ABC):
    """One daemon, with any protocol. Every call has a deadline.

    Each may raise :class:`ControlDown`, :class:`ControlUnclear` or :class:`ProgramSilent`.
    """

    default_percent: int
    """The intended default."""
    memory_key: str = ""
    """Name of the device with which the daemon reported back a memory limit; "" = none."""

    def __init__(
        self, place: DaemonDirectories, programs: ProgramRunner, installed: Installed
    ) -> None:
        self._place = place
        self._programs = programs
        self.multi_user = installed.multi_user
        """True if the daemon is started for clients of every uid."""

    @abstractmethod
    def start_otherwise(self) -> None:
        """Choose another way to start the next daemon, if any: the last ended without output."""

    @abstractmethod
    def daemon(self) -> ProgramCall:
        """The call that runs the daemon in the foreground."""

    @abstractmethod
    async def look(self) -> DaemonState:
        """State of the server and its clients."""

    @abstractmethod
    async def begin(self) -> None:
        """Set our defaults and start the server, so that the first client does not wait."""

    @abstractmethod
    async def terminate(self, look: DaemonState, pid: int) -> None:
        """Terminate one client's contexts; its process is safe to kill afterwards."""

    @abstractmethod
    async def limit(self, limits: MpsLimits) -> None:
        """Create a namespace with these limits, or set them on an unused one."""

    @abstractmethod
    async def unlimit(self, name: str) -> None:
        """Remove a namespace; a missing one is no error."""

    @abstractmethod
    async def quit(self) -> None:
        """Request the daemon's exit."""

    async def _ask(self, *words: str, stdin: str = "", timeout_seconds: float = CONTROL_S) -> str:
        """Call the program for this daemon's directories."""
        call = ProgramCall(words=(PROGRAM, *words), stdin=stdin, env=self._place.env)
        done = await self._programs.run(call, timeout_seconds)
        if any(text in (done.stdout + done.stderr).lower() for text in NOBODY_THERE):
            raise ControlDown(_one_line(done))
        if done.code != 0:
            raise ControlUnclear(f"exit status {done.code}: {_one_line(done)}")
        return done.stdout.strip()


class Control2(Control):
    """Protocol 2: all released drivers."""

    default_percent = 100
    """The share is the client's own variable, which can only lower the server's value."""

    def __init__(
        self, place: DaemonDirectories, programs: ProgramRunner, installed: Installed
    ) -> None:
        super().__init__(place, programs, installed)
        self._may_take_all_users = installed.multi_user

    def start_otherwise(self) -> None:
        """Toggle the multi-user option until a daemon stays up."""
        self.multi_user = self._may_take_all_users and not self.multi_user

    def daemon(self) -> ProgramCall:
        """See :class:`Control`."""
        extra = ("-multiuser-server",) if self.multi_user else ()
        return ProgramCall(words=(PROGRAM, "-f", *extra), env=self._place.env)

    async def look(self) -> DaemonState:
        """See :class:`Control`."""
        servers = whole_lines(await self._command("get_server_list"))
        percent = read_percent(await self._command("get_default_active_thread_percentage"))
        if not servers:
            return DaemonState(server_pid=0, state=MpsState.DOWN, default_percent=percent)
        pid = servers[-1]
        state = read_state(await self._command(f"get_server_status {pid}"))
        clients = whole_lines(await self._command(f"get_client_list {pid}"))
        return DaemonState(
            server_pid=pid,
            state=state,
            default_percent=percent,
            clients=dict.fromkeys(clients, ""),
        )

    async def begin(self) -> None:
        """See :class:`Control`."""
        await self._command(f"set_default_active_thread_percentage {self.default_percent}")
        if self._place.memory_mib:
            self.memory_key = await self._repeated_key()
        await self._command("start_server -uid 0")

    async def _repeated_key(self) -> str:
        """The device name in the daemon's memory limits: its ordinal, else its uuid.

        The daemon sees one device, so the ordinal is 0. NVIDIA's device plugin names devices by
        ordinal because limits by uuid were accepted and not applied (release notes of 0.15.0).
        """
        whole_mib = self._place.memory_mib
        for key in (ORDINAL, self._place.uuid):
            with contextlib.suppress(ControlUnclear):
                await self._command(f"set_default_device_pinned_mem_limit {key} {whole_mib}M")
                answer = await self._command(f"get_default_device_pinned_mem_limit {key}")
                if read_mib(answer) == whole_mib:
                    return key
        return ""

    async def terminate(self, look: DaemonState, pid: int) -> None:
        """See :class:`Control`."""
        command = f"terminate_client {look.server_pid} {pid}"
        answer = await self._command(command, timeout_seconds=TERMINATE_S)
        if answer not in ("", "0"):
            raise ControlUnclear(f"terminate_client of {pid}: {answer}")

    async def limit(self, limits: MpsLimits) -> None:
        """Do nothing: protocol 2 has no namespaces, the client's own variables set its share."""

    async def unlimit(self, name: str) -> None:
        """See :meth:`limit`."""

    async def quit(self) -> None:
        """See :class:`Control`."""
        await self._command("quit -t 1", timeout_seconds=QUIT_S)

    async def _command(self, line: str, timeout_seconds: float = CONTROL_S) -> str:
        return await self._ask(stdin=f"{line}\n", timeout_seconds=timeout_seconds)


class Control3(Control):
    """Protocol 3: one server, a namespace for each slice."""

    default_percent = DEFAULT_NAMESPACE_PERCENT

    def __init__(
        self, place: DaemonDirectories, programs: ProgramRunner, installed: Installed
    ) -> None:
        super().__init__(place, programs, installed)
        self.multi_user = True

    def start_otherwise(self) -> None:
        """Do nothing, there is only one way: without ``-m`` a client would need the owner's uid."""

    def daemon(self) -> ProgramCall:
        """See :class:`Control`."""
        return ProgramCall(words=(PROGRAM, "-f", "-p", "3", "-m"), env=self._place.env)

    async def look(self) -> DaemonState:
        """See :class:`Control`."""
        rows = read_csv(await self._ask("server", "list", "--format=csv,noheader"), columns=4)
        ours = [row for row in rows if row[0] == SERVER]
        if not ours:
            return DaemonState(server_pid=0, state=MpsState.DOWN)
        clients = read_csv(await self._ask("client", "list", "--format=csv,noheader"), columns=4)
        return DaemonState(
            server_pid=read_whole(ours[0][2]),
            state=read_state(ours[0][3]),
            default_percent=(await self._namespaces()).get("default", 0),
            clients={read_whole(row[0]): row[3] for row in clients if row[1] == SERVER},
        )

    async def _namespaces(self) -> dict[str, int]:
        """Our namespaces and the percentage of each, 100 = unlimited."""
        words = ("namespace", "list", f"--server={SERVER}", "--format=csv,noheader")
        rows = read_csv(await self._ask(*words), columns=5)
        return {row[0]: 100 if row[4] == "-" else read_percent(row[4]) for row in rows}

    async def begin(self) -> None:
        """See :class:`Control`."""
        if (await self.look()).server_pid == 0:
            allowed = f"--allowed-devices={self._place.uuid}"
            await self._ask("server", "create", SERVER, allowed)
        percent = f"--active-thread-percentage={self.default_percent}"
        await self._ask("namespace", "set", "default", f"--server={SERVER}", percent)

    async def terminate(self, look: DaemonState, pid: int) -> None:
        """See :class:`Control`."""
        await self._ask("client", "terminate", str(pid), timeout_seconds=TERMINATE_S)

    async def limit(self, limits: MpsLimits) -> None:
        """See :class:`Control`."""
        if limits.name not in await self._namespaces():
            await self._ask("namespace", "create", limits.name, f"--server={SERVER}")
        await self._ask(
            "namespace",
            "set",
            limits.name,
            f"--server={SERVER}",
            f"--active-thread-percentage={limits.percent}",
            f"--pinned-memory-limit={limits.memory_mib}M",
            f"--client-priority={limits.priority}",
        )

    async def unlimit(self, name: str) -> None:
        """See :class:`Control`."""
        if name in await self._namespaces():
            await self._ask("namespace", "delete", name, f"--server={SERVER}")

    async def quit(self) -> None:
        """See :class:`Control`."""
        await self._ask("server", "delete", SERVER, "--force", timeout_seconds=QUIT_S)


def whole_lines(answer: str) -> tuple[int, ...]:
    """One number a line.

    Raises:
        ControlUnclear: a line is not a number.
    """
    return tuple(read_whole(line) for line in answer.splitlines() if line.strip())


def read_whole(word: str) -> int:
    """A PID or a count.

    Raises:
        ControlUnclear: it is malformed.
    """
    word = word.strip()
    if not (word.isascii() and word.isdigit()):
        raise ControlUnclear(f"{word[:80]!r} is no number")
    return int(word)


def read_percent(answer: str) -> int:
    """A percentage as the daemon prints it (``100.0``).

    Raises:
        ControlUnclear: it is malformed.
    """
    try:
        percent = float(answer)
    except ValueError:
        raise ControlUnclear(f"{answer[:80]!r} is no percentage") from None
    if not 0 <= percent <= 100:
        raise ControlUnclear(f"{percent:g} is no percentage")
    return round(percent)


def read_mib(answer: str) -> int:
    """A memory limit as the daemon prints it (``1024M``, ``2G``); the form is unconfirmed.

    Raises:
        ControlUnclear: it is malformed.
    """
    match = _LIMIT.fullmatch(answer.strip())
    if match is None:
        raise ControlUnclear(f"{answer[:80]!r} is no memory limit")
    return int(match[1]) * _MIB_OF[match[2]]


def read_state(word: str) -> MpsState:
    """State of a server.

    Raises:
        ControlUnclear: an unknown word.
    """
    try:
        return _STATES[word.strip().upper()]
    except KeyError:
        raise ControlUnclear(f"{word[:80]!r} is no state of a server") from None


def read_csv(answer: str, columns: int) -> Sequence[Sequence[str]]:
    """Rows of a CSV answer, each with a minimal number of columns.

    Raises:
        ControlUnclear: a row is shorter.
    """
    rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(answer)) if row]
    for row in rows:
        if len(row) < columns:
            raise ControlUnclear(f"{','.join(row)[:80]!r} has fewer than {columns} columns")
    return rows


def control_for(
    protocol: int, place: DaemonDirectories, programs: ProgramRunner, installed: Installed
) -> Control:
    """The control of one daemon for the installed protocol."""
    kind = Control3 if protocol == 3 else Control2
    return kind(place, programs, installed)


TROUBLE: Final = (ControlDown, ControlUnclear, ProgramSilent)
"""Errors of an answer; a missing program is handled separately."""


def _one_line(done: ProgramResult) -> str:
    return " ".join((done.stderr or done.stdout).split())[:200]
