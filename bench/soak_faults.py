# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Faults that no process of the operator ends by.

Connections are cut or stall, the API server restarts, the agents are killed, the leader is frozen.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from bench.kwok import HOME
from demo.cluster import LOCALCLUSTER

DEVICES_PER_NODE: Final = 2
FAULT_EVERY_S: Final = 75.0
STALL_S: Final = 8.0
"""No byte passes for so long: shorter than a watch's patience, longer than a write's."""
AGAIN_S: Final = 2.0
FAULTS: Final = ("cuts", "stalls", "agent_kills", "freezes", "api_restarts")


class Cutter:
    """Passes connections on to the API server, and can cut or stall them all."""

    def __init__(self, server_port: int) -> None:
        self.port = 0
        self._server_port = server_port
        self._open: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()

    async def start(self) -> None:
        """Listen on a free port."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """End every connection at once, without a word."""
        for one in list(self._open):
            one.transport.abort()

    async def stall(self) -> None:
        """Let nothing pass for a while."""
        self._flows.clear()
        await asyncio.sleep(STALL_S)
        self._flows.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, there[1]}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(reader, there[1]))
                both.create_task(self._pass(there[0], writer))
        finally:
            for one in (writer, there[1]):
                self._open.discard(one)
                one.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while part := await reader.read(65536):
                await self._flows.wait()
                writer.write(part)
                await writer.drain()
        except OSError:
            pass  # either side is gone, and so is the connection
        writer.transport.abort()


class Agents:
    """The fake agents' process, started again when it ends."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self._kubeconfig = kubeconfig
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        """Keep one running until cancelled."""
        with self._log.open("a") as output:
            while True:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "bench.fleet",
                    str(self._kubeconfig), str(DEVICES_PER_NODE),
                    stdout=output, stderr=output,
                )  # fmt: skip
                try:
                    await self._process.wait()
                finally:
                    if self._process.returncode is None:
                        self._process.terminate()
                        await self._process.wait()
                await asyncio.sleep(AGAIN_S)

    def kill(self) -> None:
        """End them at once; they come back."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


class Faults:
    """One fault after another, drawn from a seed."""

    def __init__(
        self, cutter: Cutter, agents: Agents, freeze: Callable[[], Awaitable[None]], *, seed: int
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._cutter = cutter
        self._agents = agents
        self._freeze = freeze
        self._random = random.Random(seed)

    async def run(self) -> None:
        """Do harm until cancelled."""
        while True:
            await asyncio.sleep(self._random.uniform(0.5, 1.5) * FAULT_EVERY_S)
            fault = self._random.choice(FAULTS)
            self.counts[fault] += 1
            match fault:
                case "cuts":
                    self._cutter.cut()
                case "stalls":
                    await self._cutter.stall()
                case "agent_kills":
                    self._agents.kill()
                case "freezes":
                    await self._freeze()
                case _:
                    await self._restart()

    def told(self) -> str:
        """What was done so far, in words."""
        return ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))

    async def _restart(self) -> None:
        kill = ("--kill",) if self._random.random() < 0.5 else ()
        if await self._localcluster("restart", *kill, "apiserver"):
            return
        self.counts["api_starts_failed"] += 1
        while not await self._localcluster("start", "apiserver"):
            await asyncio.sleep(AGAIN_S)  # another cluster of this machine may have its port

    async def _localcluster(self, *words: str) -> bool:
        """Whether a command of the local cluster did its work."""
        command = await asyncio.create_subprocess_exec(
            LOCALCLUSTER, *words, env={**os.environ, "LOCALCLUSTER_HOME": str(HOME)},
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        return await command.wait() == 0
