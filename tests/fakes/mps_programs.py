# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The fake of MPS behind the supervisor's own seam: no process, and time is the event loop's.

Programs are calls of the machine in memory, so the supervisor's whole code runs, on virtual time
if the loop has it. A test harms a daemon through :meth:`FakePrograms.machine`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from pathlib import Path

from fakes.mps import (
    Answer,
    Client,
    ClientState,
    Hello,
    Machine,
    MemoryLogs,
    Options,
    Script,
    StandInServers,
    run_words,
)
from ullage_node.mps.control import PROGRAM
from ullage_node.mps.programs import ProgramCall, ProgramMissing, ProgramResult, ProgramSilent
from ullage_node.mps.records import MEMORY, PIPE, SHARE, ClientEnvironment, Stranger

TICK_SECONDS = 0.05


class LoopTime:
    """The fake's clock on the loop's time."""

    def now(self) -> float:
        return 1_800_000_000.0 + self.monotonic()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class LoggedToFile(MemoryLogs):
    """Keeps the control daemon's log where the supervisor reads it."""

    def __init__(self, clock: LoopTime, path: Path) -> None:
        super().__init__(clock)
        self._path = path

    def control(self, text: str) -> None:
        super().control(text)
        if self._path.parent.is_dir():
            with self._path.open("a") as log:
                log.write(f"{self.control_lines[-1]}\n")


class PlainDirectories:
    """No mounts: the directories lie on a tmpfs already, and one device is served."""

    def mount(self, path: Path) -> None:
        path.chmod(0o1777)

    def unmount(self, path: Path) -> None:
        """Nothing is mounted."""


class FakeDaemon:
    """A daemon that was started; a ``Running`` of the seam."""

    def __init__(self, machine: Machine, pid: int) -> None:
        self.machine = machine
        self.pid = pid
        self.killed = False

    @property
    def returncode(self) -> int | None:
        self.machine.tick()
        if self.killed or self.machine.crashed:
            return -9
        return 0 if self.machine.stopped else None

    async def stop(self, patience_seconds: float) -> None:
        for server in list(self.machine.servers.values()):
            self.machine.stop_server(server)
        self.killed = True


class FakePrograms:
    """All daemons of a node, by the directory of their pipe."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or Script()
        self.scripts: dict[str, Script] = {}
        """By uuid, where a device has one of its own."""
        self.missing = ""
        self.refused = ""
        """An option with which a daemon ends at once, with words on its standard error."""
        self.prints = False
        """A daemon in the foreground prints its log and keeps no file of it."""
        self.deaf_keys: tuple[str, ...] = ()
        """Names of a device under which a memory limit is refused."""
        self.daemons: dict[str, FakeDaemon] = {}
        self.calls: list[ProgramCall] = []
        self.starts = 0
        self.terminated: list[int] = []
        self.servers = StandInServers()
        self._pids = itertools.count(700)

    def machine(self, uuid: str) -> Machine:
        """The device's newest machine."""
        found = [
            daemon.machine
            for daemon in self.daemons.values()
            if daemon.machine.options.visible_devices == uuid
        ]
        assert found, f"no daemon was started for {uuid}"
        return found[-1]

    @property
    def living(self) -> list[FakeDaemon]:
        """Daemons that run."""
        return [daemon for daemon in self.daemons.values() if daemon.returncode is None]

    def connect(self, env: Mapping[str, str], pid: int, uid: int = 0) -> Client | None:
        """A CUDA process with this environment; ``None`` = it finds no daemon."""
        wanted = env.get(PIPE, "")
        for pipe, daemon in self.daemons.items():
            rest = Path(wanted).relative_to(pipe).parts if wanted.startswith(pipe) else None
            depths = (0, 2) if daemon.machine.options.protocol == 3 else (0,)
            if rest is None or len(rest) not in depths or daemon.returncode is not None:
                continue
            percent = env.get(SHARE)
            where = dict(zip(("server", "namespace"), rest, strict=False))
            hello = Hello(
                pid=pid,
                uid=uid,
                percent=float(percent) if percent else None,
                memory_limit=env.get(MEMORY),
                **where,
            )
            client = daemon.machine.connect(hello)
            return None if client.state is ClientState.REFUSED else client
        return None

    # -- the seam --------------------------------------------------------------------------------

    def found(self, name: str) -> bool:
        return not self.missing

    async def start(self, call: ProgramCall, log: Path | None = None) -> FakeDaemon:
        self.calls.append(call)
        if self.missing:
            raise ProgramMissing(self.missing)
        self.starts += 1
        words, env = call.words[call.words.index(PROGRAM) :], call.env
        uuid = env["CUDA_VISIBLE_DEVICES"]
        protocol = 3 if "-p" in words and words[words.index("-p") + 1] == "3" else 2
        script = self.scripts.get(uuid, self.script)
        machine = Machine(
            script,
            Options(
                protocol=protocol,
                multiuser="-multiuser-server" in words or "-m" in words,
                visible_devices=uuid,
                pipe_directory=env[PIPE],
            ),
            clock=LoopTime(),
            processes=self.servers,
            logs=LoggedToFile(
                LoopTime(),
                log
                if self.prints and log is not None
                else Path(env["CUDA_MPS_LOG_DIRECTORY"]) / "control.log",
            ),
        )
        daemon = FakeDaemon(machine, next(self._pids))
        if protocol not in script.protocols:
            daemon.killed = True
        if self.refused and self.refused in words:
            daemon.killed = True
            _print(log, f"Unrecognized option {self.refused}\n")
        self.daemons[env[PIPE]] = daemon
        return daemon

    async def run(self, call: ProgramCall, timeout_seconds: float) -> ProgramResult:
        self.calls.append(call)
        if self.missing:
            raise ProgramMissing(self.missing)
        words = call.words[1:]
        assert not {"-v", "--help"} & set(words), "-v is documented for Tegra only, --help nowhere"
        daemon = self.daemons.get(call.env[PIPE])
        if daemon is None or daemon.returncode is not None:
            return ProgramResult(code=1, stdout="Cannot find MPS control daemon process\n")
        asked = tuple(words) or tuple(call.stdin.split())
        if "pinned_mem_limit" in asked[0] and asked[1] in self.deaf_keys:
            return ProgramResult(code=0, stdout=f"Invalid device {asked[1]}\n")
        if asked[:1] == ("terminate_client",):
            self.terminated.append(int(asked[2]))
        if asked[:2] == ("client", "terminate"):
            self.terminated += [int(word) for word in asked if word.isdigit()]
        return await self._wait(daemon, run_words(daemon.machine, asked), timeout_seconds)

    async def _wait(
        self, daemon: FakeDaemon, answer: Answer, timeout_seconds: float
    ) -> ProgramResult:
        deadline = LoopTime().monotonic() + timeout_seconds
        while not answer.done:
            if daemon.machine.crashed:
                return ProgramResult(code=1, stdout="", stderr="Lost the connection to the daemon")
            if LoopTime().monotonic() >= deadline:
                raise ProgramSilent(f"{PROGRAM} gave no answer in {timeout_seconds:g} s")
            await asyncio.sleep(TICK_SECONDS)
            daemon.machine.tick()
        text = answer.text or ""
        return ProgramResult(code=answer.exit_code, stdout=f"{text}\n" if text else "")


def _print(log: Path | None, words: str) -> None:
    if log is not None:
        log.write_text(words)


class FakeProcesses:
    """Who else runs a daemon, and with which variables processes began."""

    def __init__(self) -> None:
        self.found: tuple[Stranger, ...] = ()
        self.began: dict[int, Mapping[str, str]] = {}
        """By pid; the kernel shows no other."""

    def environment(self, pid: int) -> ClientEnvironment | None:
        env = self.began.get(pid)
        if env is None:
            return None
        pipe, share, memory = (env.get(name, "") for name in (PIPE, SHARE, MEMORY))
        return ClientEnvironment(pid=pid, pipe=pipe, share=share, memory=memory)

    def strangers(self, root: Path) -> tuple[Stranger, ...]:
        return self.found
