# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Who sees which process on a GPU: the driver's rule, and how the agent gets around it.

The fake answers as NVIDIA's open kernel modules do (``os_find_ns_pid`` is ``pid_vnr``): numbers of
the caller's PID namespace, and nobody who has none there. This machine's kernel is asked, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pynvml
import pytest

from fakes.nvml import FakeGpu, FakeNvml, PatientNvml, PidNamespace
from ullage_node.devices.nvidia.host_processes import HostProcesses, ProcessesUnseen, ProcessReader
from ullage_node.devices.nvidia.nvml import NvmlApi, NvmlSession
from ullage_node.devices.nvidia.read import GpuProcess, read_processes
from ullage_node.devices.processes import identity
from ullage_node.line_socket import LineServer, exchange

A, B = "GPU-aaaa", "GPU-bbbb"
TENANT, CLIENT = 9001, 9002


@pytest.fixture
def nvml() -> FakeNvml:
    gpus = FakeGpu(uuid=A, minor=0, processes={TENANT: 64}), FakeGpu(uuid=B, minor=1)
    gpus[1].mps_processes[CLIENT] = 32
    nvml = FakeNvml(*gpus)
    nvml.nvmlInit()
    return nvml


@pytest.fixture
def place() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="um"))
    yield made
    shutil.rmtree(made)


def pids(api: NvmlApi) -> set[int]:
    return {process.pid for process in read_processes(api, (A, B)).processes}


class TestTheDriversRule:
    def test_the_host_sees_everybody(self, nvml: FakeNvml) -> None:
        assert pids(nvml) == {TENANT, CLIENT}

    def test_a_container_sees_nobody_else_and_no_error(self, nvml: FakeNvml) -> None:
        usage = read_processes(nvml.seen_from(PidNamespace()), (A, B))
        assert (usage.processes, dict(usage.unread)) == ((), {})

    def test_a_container_sees_its_own_by_its_own_numbers(self, nvml: FakeNvml) -> None:
        assert pids(nvml.seen_from(PidNamespace({TENANT: 7}))) == {7}


SERVE = """
import asyncio, sys
from pathlib import Path
from fakes.nvml import FakeGpu, FakeNvml, PatientNvml
from ullage_node.devices.nvidia.host_processes import ProcessReader
from ullage_node.devices.nvidia.nvml import NvmlSession
from ullage_node.line_socket import LineServer

async def serve():
    nvml = FakeNvml(FakeGpu(uuid="GPU-aaaa", minor=0, processes={9001: 64}))
    async with LineServer(Path(sys.argv[1]), ProcessReader(NvmlSession(PatientNvml(nvml))).answer):
        print("serves", flush=True)
        await asyncio.Event().wait()

asyncio.run(serve())
"""
OWN_NUMBERS = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


class TestOnThisKernel:
    """The proof of the numbers, with a reader that is a process, in and out of our namespace."""

    @pytest.mark.parametrize("prefix", [(), OWN_NUMBERS], ids=["the host's", "its own"])
    async def test_a_reader_is_believed_where_it_counts_as_we_do(
        self, place: Path, prefix: tuple[str, ...]
    ) -> None:
        socket = place / "p.sock"
        process = await asyncio.create_subprocess_exec(
            *prefix,
            sys.executable,
            "-c",
            SERVE,
            str(socket),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.timeout(60):
                if b"serves" not in await process.stdout.readline():
                    said = (await process.stderr.read()).decode()
                    assert prefix, said
                    pytest.skip(f"no namespaces here: {said.strip()[-200:]}")
            processes = HostProcesses(socket, Path("/proc"))
            if prefix:
                with pytest.raises(ProcessesUnseen, match="needs hostPID"):
                    await processes.look((A,))
            else:
                assert [one.pid for one in (await processes.look((A,))).processes] == [TENANT]
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()


@asynccontextmanager
async def serving(place: Path, nvml: FakeNvml, proc: Path) -> AsyncIterator[Path]:
    nvml.initialised = 0
    socket = place / "processes" / "p.sock"
    async with LineServer(socket, ProcessReader(NvmlSession(PatientNvml(nvml)), proc).answer):
        yield socket


class TestTheReader:
    async def test_the_agent_gets_the_hosts_numbers(self, place: Path, nvml: FakeNvml) -> None:
        async with serving(place, nvml, Path("/proc")) as socket:
            usage = await HostProcesses(socket, Path("/proc")).look((A, B))
        assert usage.processes == (
            GpuProcess(gpu=A, pid=TENANT, memory_mib=64),
            GpuProcess(gpu=B, pid=CLIENT, memory_mib=32),
        )
        assert usage.unread == {}

    async def test_a_reader_that_counts_otherwise_proves_nothing(
        self, place: Path, nvml: FakeNvml
    ) -> None:
        """Without hostPID the reader would see an empty device and say so with confidence."""
        proc = place / "proc"
        (proc / "self").mkdir(parents=True)
        (proc / "self" / "stat").write_text(stat_of(1, start=4711))
        async with serving(place, nvml, proc) as socket:
            with pytest.raises(ProcessesUnseen, match="needs hostPID"):
                await HostProcesses(socket, Path("/proc")).look((A,))

    async def test_a_number_that_was_given_to_another_process_is_noticed(
        self, place: Path, nvml: FakeNvml
    ) -> None:
        for root, start in (("theirs", 100), ("ours", 200)):
            home = place / root / ("self" if root == "theirs" else "77")
            home.mkdir(parents=True)
            (home / "stat").write_text(stat_of(77, start=start))
        async with serving(place, nvml, place / "theirs") as socket:
            with pytest.raises(ProcessesUnseen, match="namespace of its own"):
                await HostProcesses(socket, place / "ours").look((A,))

    async def test_a_device_that_cannot_be_read_is_named_and_the_others_are_read(
        self, place: Path, nvml: FakeNvml
    ) -> None:
        nvml.gpus[0].lost = True
        async with serving(place, nvml, Path("/proc")) as socket:
            usage = await HostProcesses(socket, Path("/proc")).look((A, B))
        assert [process.pid for process in usage.processes] == [CLIENT]
        assert "GPU is lost" in usage.unread[A]

    async def test_a_driver_that_comes_back_is_opened_again(
        self, place: Path, nvml: FakeNvml
    ) -> None:
        async with serving(place, nvml, Path("/proc")) as socket:
            processes = HostProcesses(socket, Path("/proc"))
            nvml.init_error = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
            with pytest.raises(ProcessesUnseen, match="modprobe nvidia"):
                await processes.look((A,))
            nvml.init_error = None
            assert len((await processes.look((A,))).processes) == 1
            nvml.initialised = 0  # unloaded and loaded again
            assert "Uninitialized" in (await processes.look((A,))).unread[A]
            assert len((await processes.look((A,))).processes) == 1

    async def test_nobody_behind_the_socket_is_no_empty_device(self, place: Path) -> None:
        with pytest.raises(ProcessesUnseen, match="see its pod on this node"):
            await HostProcesses(place / "none", Path("/proc")).look((A,))

    @pytest.mark.parametrize(
        "line",
        [b"", b"{", b"[]", b'{"uuids": 1}', b'{"uuids": [1]}', b'{"uuids": ["%s"]}' % (b"x" * 200)],
    )
    async def test_nonsense_gets_an_error(self, place: Path, nvml: FakeNvml, line: bytes) -> None:
        async with serving(place, nvml, Path("/proc")) as socket:
            assert "error" in json.loads(await exchange(socket, line + b"\n"))


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"seen": 1},
        {"seen": {"readerPid": "x", "readerStart": 1}},
        {"seen": {"readerPid": 1, "readerStart": 1, "processes": [{"gpu": A, "pid": 0}]}},
        {"seen": {"readerPid": 1, "readerStart": 1, "processes": [{"pid": 5, "memoryMiB": 1}]}},
    ],
)
async def test_an_answer_that_is_none_proves_nothing(
    place: Path, answer: dict[str, object]
) -> None:
    async def say(_: object) -> dict[str, object]:
        return answer

    async with LineServer(place / "s", say):
        with pytest.raises(ProcessesUnseen, match="not understood"):
            await HostProcesses(place / "s", Path("/proc")).look((A,))


def stat_of(pid: int, *, start: int) -> str:
    """A line of /proc/PID/stat, with a name that looks like its end."""
    return f"{pid} (a) b) S 1 {pid} {pid} 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 {start} 1 1\n"


def test_a_process_is_known_by_number_and_start(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text(stat_of(77, start=4711))
    assert identity(tmp_path) == (77, 4711)
    assert identity(Path("/proc/self"))[0] == os.getpid()
    (tmp_path / "stat").write_text("nothing")
    with pytest.raises(OSError, match="cannot be read"):
        identity(tmp_path)
