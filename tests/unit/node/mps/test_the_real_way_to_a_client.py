# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Socket, supervisor, control program and CUDA client as processes; the program is the stand-in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fakes.mps import BIN
from fakes.mps_programs import FakeProcesses, FakePrograms, PlainDirectories
from ullage.api.devices import MpsState
from ullage_node.line_socket import exchange
from ullage_node.mps.client import MpsClient, MpsUnreachable
from ullage_node.mps.control import DaemonDirectories
from ullage_node.mps.places import Places
from ullage_node.mps.probe import Processes
from ullage_node.mps.programs import ProgramCall, ProgramMissing, ProgramRunner, ProgramSilent
from ullage_node.mps.records import MpsLimits, MpsReport, MpsServer, ServerOrder
from ullage_node.mps.server import SOCKET, supervisor_socket
from ullage_node.mps.supervisor import MpsSupervisor

GPU = "GPU-cb1213a3-d6a4-be7f-74d4-3ed3cdf7e667"
PATIENCE_SECONDS = 60.0
DRIVER = "615.71.05"
PYTHON = Path(sys.executable).parent
"""Where the stand-in finds its python3; a wrapper that chooses one costs more than the program."""


def with_stand_in_memory(place: DaemonDirectories, call: ProgramCall) -> ProgramCall:
    """The stand-in takes the shared memory from a variable where the product mounts it."""
    env = {**call.env, "FAKE_MPS_SHM_DIRECTORY": str(place.shm)}
    return ProgramCall(words=call.words, stdin=call.stdin, env=env)


class House:
    """A supervisor behind its socket, and the agent's way to it."""

    def __init__(self, root: Path, protocol: int) -> None:
        self.root = root
        self.order = ServerOrder(uuid=GPU, index=0, protocol=protocol, memory_mib=81_559)
        self.supervisor = MpsSupervisor(
            ProgramRunner(),
            Places(root=root, mounts=PlainDirectories()),
            Processes(),
            with_stand_in_memory,
        )
        self.client = MpsClient(root / SOCKET)
        self.processes: list[asyncio.subprocess.Process] = []

    async def server(self, *, fresh: bool = True) -> MpsServer:
        report: MpsReport = await self.client.look([self.order], [GPU] if fresh else [], DRIVER)
        return report.servers[GPU]

    async def until_ready(self) -> MpsServer:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                with contextlib.suppress(MpsUnreachable):  # it looks around first
                    if (server := await self.server(fresh=False)).ready:
                        return server
                await asyncio.sleep(0.05)

    async def start_client(self, namespace: str = "") -> tuple[int, dict[str, object]]:
        """A CUDA process; answers its pid and the first thing that it says."""
        home = self.root / "0"
        pipe = home / "pipe" / "u" / namespace if namespace else home / "pipe"
        process = await asyncio.create_subprocess_exec(
            str(BIN / "fake_cuda_client"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={
                "PATH": os.environ["PATH"],
                "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "40",
                "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1024M",
                "FAKE_MPS_SHM_DIRECTORY": str(home / "shm"),
            },
        )
        self.processes.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            said = json.loads(await process.stdout.readline())
        return process.pid, said

    async def close(self) -> None:
        await self.supervisor.retire()
        for process in self.processes:
            if process.returncode is None:
                process.kill()
            await process.communicate()


@pytest_asyncio.fixture(params=[2, 3])
async def house(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[House]:
    root = Path(tempfile.mkdtemp(prefix="um"))
    script = root / "script.json"
    script.write_text(json.dumps({"protocols": [2, 3] if request.param == 3 else [2]}))
    monkeypatch.setenv("PATH", f"{BIN}:{PYTHON}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_MPS_SCRIPT", str(script))
    (root / "mps").mkdir()
    made = House(root / "mps", request.param)
    try:
        async with supervisor_socket(made.supervisor, made.root):
            yield made
            await made.close()
    finally:
        shutil.rmtree(root)


@pytest.mark.slow
async def test_a_client_gets_its_share_is_seen_is_terminated_and_nothing_stays(
    house: House,
) -> None:
    await house.until_ready()
    namespace = ""
    if house.order.protocol == 3:
        namespace = "ab12"
        limits = MpsLimits(name=namespace, percent=40, memory_mib=1024, priority=1)
        assert await house.client.limit(GPU, limits) == ""
        await asyncio.sleep(0.1)
    pid, said = await house.start_client(namespace)
    assert (said["event"], said["sm_count"]) == ("attached", 52)
    seen = await house.server()
    assert seen.clients == (pid,)
    (began,) = seen.environments
    assert (began.pid, began.share, began.memory) == (pid, "40", "0=1024M")
    assert began.pipe.startswith(str(house.root / "0" / "pipe")), "as the kernel shows it"
    assert await house.client.terminate(GPU, pid) == ""
    assert (await house.server()).clients == ()
    assert (await house.server()).ready
    if namespace:
        assert await house.client.unlimit(GPU, namespace) == ""
        assert await house.client.unlimit(GPU, namespace) == "", "gone already"

    else:
        await replaced_when_killed(house)
    await house.client.retire()
    assert {entry.name for entry in house.root.iterdir()} == {SOCKET}
    assert not (await house.supervisor.look(None)).servers


async def replaced_when_killed(house: House) -> None:
    first = await house.server()
    daemon = house.supervisor._daemons[GPU][0]
    assert daemon._running is not None
    pid = daemon._running.pid
    os.killpg(pid, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await house.server(fresh=False)).restarts == 0:
            await asyncio.sleep(0.05)
    again = await house.until_ready()
    assert again.server_pid != first.server_pid


NONSENSE = (
    b"",
    b"{",
    b"[]",
    b'{"op": "halt"}',
    b'{"op": "look", "orders": [{"uuid": "GPU-x\\nquit", "index": 0, "protocol": 2}]}',
    b'{"op": "look", "orders": [{"uuid": "GPU-x", "index": -1, "protocol": 2}]}',
    b'{"op": "look", "orders": [{"uuid": "GPU-x", "index": 1, "protocol": 9}]}',
    b'{"op": "terminate", "uuid": "GPU-x", "pid": 1}',
    b'{"op": "limit", "uuid": "GPU-x", "limits": {"name": "../..", "percent": 5}}',
    b'{"op": "unlimit", "uuid": "GPU-x", "name": "a b"}',
)


async def test_only_root_may_speak_to_it_and_nonsense_changes_nothing(tmp_path: Path) -> None:
    programs = FakePrograms()
    places = Places(root=Path(tempfile.mkdtemp(prefix="um")), mounts=PlainDirectories())
    supervisor = MpsSupervisor(programs, places, FakeProcesses(), with_stand_in_memory)
    client = MpsClient(places.root / SOCKET)
    async with supervisor_socket(supervisor, places.root):
        assert stat.S_IMODE((places.root / SOCKET).stat().st_mode) == 0o600
        await client.look([ServerOrder(uuid=GPU, index=0)], driver=DRIVER)
        for line in NONSENSE:
            answer = await exchange(places.root / SOCKET, line + b"\n")
            assert "error" in json.loads(answer), line
        assert set((await client.look(None)).servers) == {GPU}
        await client.retire()
    shutil.rmtree(places.root)


async def test_no_one_behind_the_socket_is_an_error_and_no_empty_report(tmp_path: Path) -> None:
    client = MpsClient(tmp_path / SOCKET)
    with pytest.raises(MpsUnreachable, match="not reached"):
        await client.look(None)


async def test_without_the_program_the_node_says_so(tmp_path: Path) -> None:
    class Nothing(ProgramRunner):
        def found(self, name: str) -> bool:
            return super().found("no-such-program")

    places = Places(root=tmp_path, mounts=PlainDirectories())
    supervisor = MpsSupervisor(Nothing(), places, Processes(), with_stand_in_memory)
    report = await supervisor.look([ServerOrder(uuid=GPU, index=0)], driver=DRIVER)
    assert "nvidia-cuda-mps-control is not there" in report.installed.problem
    assert report.servers[GPU].state is MpsState.DOWN
    assert "runtime class nvidia" in report.servers[GPU].why


async def test_a_program_that_hangs_is_killed_in_time() -> None:
    with pytest.raises(ProgramSilent):
        await ProgramRunner().run(ProgramCall(words=("sleep", "60")), 0.2)
    with pytest.raises(ProgramMissing):
        await ProgramRunner().start(ProgramCall(words=("/no/such/program",)))
