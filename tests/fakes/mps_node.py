# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A node with the MPS supervisor and nothing else, on virtual time."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from fakes.mps import Client, Script
from fakes.mps_programs import MEMORY, PIPE, SHARE, FakeProcesses, FakePrograms, PlainDirectories
from fakes.virtual_time import run_virtual
from ullage.api.devices import MpsState
from ullage_node.mps.control import ORDINAL, SERVER
from ullage_node.mps.places import Places
from ullage_node.mps.records import MpsServer, ServerOrder
from ullage_node.mps.supervisor import MpsSupervisor

A, B = "GPU-aaaa", "GPU-bbbb"
DRIVER = "615.71.05"


class MpsNode:
    """Two devices; ``order`` what the agent orders every second."""

    def __init__(self, script: Script | None = None, protocol: int = 2) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="um"))
        self.programs = FakePrograms(script)
        self.processes = FakeProcesses()
        self.supervisor = self.new_supervisor()
        self.order = [
            ServerOrder(uuid=uuid, index=index, protocol=protocol, memory_mib=81_559)
            for index, uuid in enumerate((A, B))
        ]
        self.history: list[tuple[float, MpsServer]] = []

    def new_supervisor(self) -> MpsSupervisor:
        return MpsSupervisor(
            self.programs,
            Places(root=self.root, mounts=PlainDirectories()),
            self.processes,
            lambda place, call: call,
        )

    async def look(self, uuid: str = A, *, fresh: bool = False) -> MpsServer:
        report = await self.supervisor.look(self.order, [uuid] if fresh else [], DRIVER)
        for server in report.servers.values():
            self.history.append((asyncio.get_running_loop().time(), server))
        return report.servers[uuid]

    async def until(self, fact: Callable[[MpsServer], object], uuid: str = A) -> float:
        """Ask every second until a fact; answers how long it took, at most two minutes."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while not fact(await self.look(uuid)):
            assert loop.time() - begun < 120, self.history[-4:]
            await asyncio.sleep(1)
        return loop.time() - begun

    async def ready(self, uuid: str = A) -> float:
        return await self.until(lambda server: server.ready, uuid)

    def client(self, uuid: str = A, pid: int = 9741, percent: int = 40, uid: int = 0) -> Client:
        order = next(order for order in self.order if order.uuid == uuid)
        pipe = self.root / str(order.index) / "pipe"
        env = {
            PIPE: str(pipe / SERVER / "default" if order.protocol == 3 else pipe),
            SHARE: str(percent),
            MEMORY: f"{ORDINAL}=1024M",
        }
        client = self.programs.connect(env, pid, uid)
        assert client is not None
        return client

    def states(self, uuid: str) -> set[MpsState]:
        """What a device's server was ever seen as."""
        return {server.state for _, server in self.history if server.uuid == uuid}


def refuse_many_users(node: MpsNode) -> None:
    """The node's program knows no server for users of every uid."""
    node.programs.refused = "-multiuser-server"


def on_node(
    test: Callable[[MpsNode], Awaitable[None]],
    script: Script | None = None,
    *,
    protocol: int = 2,
    harm: Callable[[MpsNode], None] | None = None,
) -> MpsNode:
    """Run a test on a node whose two servers are ready; ``harm`` is done to it before."""
    node = MpsNode(script, protocol)
    if harm is not None:
        harm(node)

    async def live() -> None:
        try:
            for uuid in (A, B):
                await node.ready(uuid)
            node.history.clear()
            await test(node)
        finally:
            await node.supervisor.retire()

    try:
        run_virtual(live())
    finally:
        shutil.rmtree(node.root)
    return node
