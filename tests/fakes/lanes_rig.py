# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A lane server on real sockets in a temporary directory, and programs as real processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ullage.api.environment import LANE_SOCKET
from ullage.api.lanes import LINE_MAX, Hello, Message, decode, encode
from ullage_node.devices.processes import identified
from ullage_node.lanes.device import IdleLimits
from ullage_node.lanes.members import LaneMember
from ullage_node.lanes.reports import StepReport
from ullage_node.lanes.server import LaneServer, LaneTenant, SharedDevice
from ullage_node.model import switching
from ullage_node.model.devices import ContainerKey

PATIENCE_S = 60.0
IDLE = IdleLimits(idle_s=0.05, busy_s=0.5, least_resident_s=0.05)
PROGRAM = """
import json, os, sys, time
from ullage_run import lanes

told = json.loads(sys.argv[1])
lane = lanes.Lane(told["path"], told["persistent"], told["ephemeral"], lanes.Plain())
print("ready", flush=True)
for number in range(told["steps"]):
    with lane.step():
        print("begin", time.monotonic(), flush=True)
        time.sleep(told["seconds"])
        print("end", time.monotonic(), flush=True)
print("done", flush=True)
time.sleep(told.get("lingers", 0))
"""


@dataclass(kw_only=True)
class LaneRig:
    """One node with the device ``gpu``; ``restart`` is another agent on the same directory."""

    root: Path
    memory_mib: int = 1000
    counts_only: bool = True
    tenants: dict[str, LaneTenant] = field(default_factory=dict)
    reports: list[StepReport] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    switch: switching.ProcessSwitch | None = None
    idle: IdleLimits = IDLE
    pids: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Processes that are seen on the device, where they are not this one."""
    server: LaneServer = field(init=False)

    def __post_init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self.server = LaneServer(self.root, Path("/proc"))
        self.server.on_report = self.reports.append
        self.server.idle = self.idle
        self.server.moves.switch = self.switch
        self.server.moves.find = self._find

    def _find(self, job: str) -> switching.Program | None:
        tenant = self.tenants.get(job)
        if tenant is None:
            return None
        key = ContainerKey(pod_uid=job, container="main")
        processes = identified(Path("/proc"), self.pids.get(job, (os.getpid(),)))
        return switching.Program(
            key=key, processes=processes, memory_mib=tenant.member.persistent_mib
        )

    async def hold(
        self, job: str, persistent_mib: int = 0, ephemeral_mib: int = 0, **more: int
    ) -> Path:
        """A container gets a slice; the path of its socket."""
        memory_mib = more.get("memory_mib", persistent_mib + ephemeral_mib)
        member = LaneMember(
            job=job,
            memory_mib=memory_mib,
            persistent_mib=persistent_mib,
            ephemeral_mib=ephemeral_mib,
            lane=more.get("lane", 0),
            suspendable=bool(more.get("suspendable", 0)),
        )
        slot = f"slot-{len(self.tenants):02d}"
        self.tenants[job] = LaneTenant(member=member, pod_uid=job, slot=slot)
        await self.settle()
        return self.server.folder(slot) / LANE_SOCKET

    async def settle(self) -> None:
        """As the agent does when something changed."""
        device = SharedDevice(
            memory_mib=self.memory_mib,
            counts_only=self.counts_only,
            tenants=tuple(self.tenants.values()),
        )
        await self.server.settle({"gpu": device})

    async def restart(self) -> None:
        """The agent dies and another one begins."""
        await self.server.close()
        self._start()
        await self.settle()

    async def wire(self, path: Path) -> Wire:
        """Connect to a socket of the node."""
        reader, writer = await asyncio.open_unix_connection(str(path), limit=LINE_MAX)
        self.wires.append(Wire(reader=reader, writer=writer))
        return self.wires[-1]

    async def close(self) -> None:
        """End everything."""
        for wire in self.wires:
            await wire.close()
        await self.server.close()

    def holder_of(self, job: str) -> str | None:
        """Who may launch in the lane of a job."""
        memory = self.server.devices["gpu"].table.memory
        return memory.lanes[memory.residents[job].lane].holder


@dataclass(kw_only=True)
class Program:
    """A process that takes steps, and what it prints."""

    process: asyncio.subprocess.Process

    async def line(self) -> list[str]:
        """The next line, as words."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            return (await self.process.stdout.readline()).decode().split()

    async def until(self, word: str) -> list[str]:
        """The next line that begins with this word."""
        while True:
            words = await self.line()
            assert words, f"the program ended before it said {word}"
            if words[0] == word:
                return words

    async def spans(self) -> list[tuple[float, float]]:
        """Begin and end of every step, once it has ended."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            text = (await self.process.stdout.read()).decode()
        told = [line.split() for line in text.splitlines()]
        begins = [float(words[1]) for words in told if words[0] == "begin"]
        ends = [float(words[1]) for words in told if words[0] == "end"]
        return list(zip(begins, ends, strict=True))


@contextlib.asynccontextmanager
async def program(path: Path, **told: float) -> AsyncIterator[Program]:
    """Run a program on a socket; it is killed at the end."""
    said: Mapping[str, object] = {
        "path": str(path),
        "persistent": 100,
        "ephemeral": 300,
        "steps": 3,
        "seconds": 0.01,
        **told,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, json.dumps(said), stdout=asyncio.subprocess.PIPE
    )
    try:
        yield Program(process=process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@dataclass(kw_only=True)
class Wire:
    """A connection that says what a test wants."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def say(self, *messages: Message) -> None:
        """Send messages."""
        for message in messages:
            self.writer.write(encode(message))
        await self.writer.drain()

    async def raw(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def hear(self) -> Message | None:
        """The next message; ``None`` = the node ended the connection."""
        async with asyncio.timeout(PATIENCE_S):
            line = await self.reader.readline()
        return decode(line) if line else None

    async def silent(self, seconds: float = 0.05) -> bool:
        """Whether nothing comes for a while."""
        try:
            async with asyncio.timeout(seconds):
                await self.reader.readexactly(1)
        except TimeoutError:
            return True
        return False

    async def close(self) -> None:
        """End the connection."""
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


def hello(session: str = "one", *, caches: bool = False, lease: int = 0) -> Hello:
    """A greeting of a job of 100 + 300 MiB."""
    return Hello(session=session, persistent_mib=100, ephemeral_mib=300, caches=caches, lease=lease)


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.005)
