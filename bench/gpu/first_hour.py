# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The first hour on a GPU: the product's own code against this machine, in the order of failing.

The reader of processes, the MPS supervisor and the container's variables are the product's; the
clients are small CUDA programs, or the fake's where no GPU is used. Each step has its own result;
one that cannot be tried here says ``unconfirmed``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pynvml

from bench.gpu.client import ClientSilent, RunningClient
from bench.gpu.preflight import Result, StepFailed
from bench.gpu.rig import Rig
from ullage_node.devices.nvidia.host_processes import HostProcesses, ProcessesUnseen, ProcessReader
from ullage_node.devices.nvidia.nvml import NvmlSession, NvmlThread
from ullage_node.devices.nvidia.proof import sms_of
from ullage_node.devices.nvidia.read import NvidiaDevice, read_inventory
from ullage_node.devices.nvidia.sharing import client_edits
from ullage_node.devices.nvidia.sight import DecidedShare, departure
from ullage_node.line_socket import LineServer
from ullage_node.model.devices import BoundSlice
from ullage_node.mps.control import ORDINAL, PROGRAM
from ullage_node.mps.places import Mounts, Places
from ullage_node.mps.probe import Processes
from ullage_node.mps.programs import ProgramRunner
from ullage_node.mps.records import MEMORY, PIPE, MpsServer, ServerOrder
from ullage_node.mps.supervisor import MpsSupervisor, StillLooking
from ullage_node.mps.versions import NAMESPACES_SINCE, branch_of

PERCENT: Final = 25
CAP_MIB: Final = 1024
REPORT_S: Final = 30.0
READY_S: Final = 30.0
SEEN_S: Final = 5.0
STRANGE_UID: Final = 1000
UNCONFIRMED: Final = "unconfirmed"

_LIST: Final = (
    "import sys, pynvml as n; n.nvmlInit(); h = n.nvmlDeviceGetHandleByUUID(sys.argv[1]);"
    " print(*(p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(h)))"
)


class _NoMounts(Mounts):
    """Daemon and clients of one machine share its /dev/shm anyway."""

    def mount(self, path: Path) -> None:
        path.chmod(0o1777)

    def unmount(self, path: Path) -> None:
        """Nothing was mounted."""


class FirstHour:
    """The steps on one rig."""

    def __init__(self, rig: Rig, tell: Callable[[Result], None]) -> None:
        self._rig = rig
        self._tell = tell
        self._api = rig.api or pynvml
        self.run_dir = Path(tempfile.mkdtemp(prefix="uf", dir="/dev/shm"))
        """Everything that the steps make lies below it."""
        self._driver = ""
        self._device: NvidiaDevice | None = None
        self._supervisor: MpsSupervisor | None = None
        self.results: list[Result] = []

    def run(self) -> list[Result]:
        """All steps; nothing stays on the machine."""
        try:
            with _on_path(self._rig.programs):
                asyncio.run(self._all())
        finally:
            shutil.rmtree(self.run_dir, ignore_errors=True)
        return self.results

    async def _all(self) -> None:
        if not await self._step("a driver and MPS by the driver's version", self._versions):
            return
        await self._step("b processes by the host's numbers", self._numbers)
        async with self._supervised():
            if not await self._step("  a daemon under the supervisor", self._ready):
                return
            await self._step("c proof of a share without the image's help", self._proof)
            await self._step("d memory limit by ordinal, then by UUID", self._memory)
            await self._step("e the daemon's log where health reads it", self._log)
            await self._step("f clients of several users on one daemon", self._users)

    async def _step(self, name: str, work: Callable[[], Awaitable[str]]) -> bool:
        begun_s = time.monotonic()
        try:
            ok, detail = True, await work()
        except (
            StepFailed, ClientSilent, ProcessesUnseen, StillLooking, OSError, pynvml.NVMLError,
        ) as error:  # fmt: skip
            ok, detail = False, str(error)
        result = Result(
            name=name, ok=ok, seconds=round(time.monotonic() - begun_s, 3), detail=detail
        )
        self.results.append(result)
        self._tell(result)
        return ok

    # -- steps -----------------------------------------------------------------------------------

    async def _versions(self) -> str:
        self._driver = self._api.nvmlSystemGetDriverVersion()
        branch = branch_of(self._driver)
        if not branch:
            raise StepFailed(f"NVML says {self._driver!r}, which names no branch")
        uuid = self._rig.device.facts.gpu_uuid
        self._device = next(one for one in read_inventory(self._api) if one.uuid == uuid)
        if not ProgramRunner().found(PROGRAM):
            raise StepFailed(f"{PROGRAM} is not on PATH")
        protocol = 3 if branch >= NAMESPACES_SINCE else 2
        return f"driver {self._driver}, protocol {protocol}; neither -v nor --help was asked"

    async def _numbers(self) -> str:
        """A program on the whole GPU is seen by its number, through the product's reader."""
        env = self._environment() | {PIPE: str(self.run_dir / "none")}
        uuid = self._rig.device.facts.gpu_uuid
        thread = NvmlThread(self._api)
        socket = self.run_dir / "processes" / "p.sock"
        try:
            async with (
                LineServer(socket, ProcessReader(NvmlSession(thread)).answer),
                self._client(env, attached=False) as client,
            ):
                await self._until_seen(HostProcesses(socket, Path("/proc")), uuid, client.pid)
                elsewhere = await asyncio.to_thread(self._elsewhere, uuid, client.pid)
        finally:
            thread.stop()
        return f"process {client.pid} is seen by its number; {elsewhere}"

    async def _until_seen(self, processes: HostProcesses, uuid: str, pid: int) -> None:
        end_s = time.monotonic() + SEEN_S
        while pid not in {process.pid for process in (await processes.look((uuid,))).processes}:
            if time.monotonic() > end_s:
                raise StepFailed(f"NVML does not show process {pid}, which uses the GPU")
            await asyncio.sleep(0.1)

    def _elsewhere(self, uuid: str, pid: int) -> str:
        """What another PID namespace sees of a process of ours."""
        if self._rig.dry:
            found = self._rig.seen_from_a_container()
            if found:
                raise StepFailed(f"the fake shows {found} to a container")
            return "another namespace sees nobody (fake)"
        command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", _LIST, uuid]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"another namespace: {UNCONFIRMED}: {error}"
        if done.returncode:
            return f"another namespace: {UNCONFIRMED}: {done.stderr.strip()[-120:]}"
        if str(pid) in done.stdout.split():
            return "another namespace sees it too (an older driver)"
        return "another namespace sees none of our processes"

    async def _ready(self) -> str:
        end_s = time.monotonic() + READY_S
        server: MpsServer | None = None
        while server is None or not server.ready:
            if time.monotonic() > end_s:
                raise StepFailed(f"no server in {READY_S:g} s: {server.why if server else 'none'}")
            await asyncio.sleep(0.1)
            with contextlib.suppress(StillLooking):
                server = await self._server()
        return f"server {server.server_pid} is active"

    async def _proof(self) -> str:
        device, server = self._known(), await self._server()
        decided = DecidedShare(uuid=device.uuid, percent=PERCENT, cap_mib=CAP_MIB)
        async with self._client(self._share(server)) as client:
            seen = await self._server()
            shown = {one.pid: one for one in seen.environments}.get(client.pid)
            if client.pid not in (seen.clients or ()):
                raise StepFailed(f"client {client.pid} is not among {seen.clients}")
            if shown is None:
                raise StepFailed(f"the kernel does not show what process {client.pid} began with")
            if why := departure(decided, shown):
                raise StepFailed(why)
            allowed = sms_of(self._rig.sm_count, PERCENT)
            if not 0 < client.sm_count <= allowed:
                raise StepFailed(f"{client.sm_count} SMs at its context, {allowed} were decided")
        return f"listed, environment as decided, {client.sm_count} SMs when its context was made"

    async def _memory(self) -> str:
        """The limit shows as free memory to its client (NVIDIA, MPS, memory limits)."""
        device, server = self._known(), await self._server()
        free: dict[str, int] = {}
        for key in (ORDINAL, device.uuid):
            env = self._share(server) | {MEMORY: f"{key}={CAP_MIB}M"}
            async with self._client(env) as client:
                free[key] = client.free_mib
        applied = [key for key, mib in free.items() if 0 < mib <= CAP_MIB]
        used = server.memory_key or ORDINAL
        if used not in applied:
            raise StepFailed(f"limits go by {used}, and clients saw MiB free: {free}")
        said = f"repeated by {server.memory_key}" if server.memory_key else "repeated by no name"
        return f"{said}, applied by {', '.join(applied)}; MiB free: {free}"

    async def _log(self) -> str:
        server = await self._server()
        if not server.log:
            raise StepFailed("neither control.log nor what the daemon prints holds a word")
        return f"health reads {server.log}"

    async def _users(self) -> str:
        server = await self._server()
        if not server.multi_user:
            raise StepFailed("the daemon refuses -multiuser-server: one uid at a time")
        words = self._rig.client_of(STRANGE_UID)
        if words is None:
            return f"{UNCONFIRMED}: started for every uid; another one needs root and setpriv"
        share = self._share(server)
        stranger = {"FAKE_CUDA_UID": str(STRANGE_UID)} if self._rig.dry else {}
        async with (
            self._client(share) as one,
            self._client(share | stranger, words=words) as other,
        ):
            seen = (await self._server()).clients or ()
            if not {one.pid, other.pid} <= set(seen):
                raise StepFailed(f"uids 0 and {STRANGE_UID}: clients {seen} of one server")
        return f"uids {os.geteuid()} and {STRANGE_UID} are clients of server {server.server_pid}"

    # -- what they stand on ----------------------------------------------------------------------

    def _known(self) -> NvidiaDevice:
        assert self._device is not None
        return self._device

    @contextlib.asynccontextmanager
    async def _supervised(self) -> AsyncIterator[None]:
        root = self.run_dir / "mps"
        root.mkdir()
        places = Places(root=root, mounts=_NoMounts())
        self._supervisor = MpsSupervisor(
            ProgramRunner(),
            places,
            Processes(),
            lambda place, call: self._rig.launched(place, call),
        )
        try:
            yield
        finally:
            await self._supervisor.retire()

    async def _server(self) -> MpsServer:
        assert self._supervisor is not None
        device = self._known()
        order = ServerOrder(
            uuid=device.uuid, index=device.minor, protocol=2, memory_mib=device.memory_mib
        )
        report = await self._supervisor.look([order], [device.uuid], self._driver)
        return report.servers[device.uuid]

    def _environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if "CUDA" not in name}

    def _share(self, server: MpsServer) -> dict[str, str]:
        """The variables that a container with this share gets."""
        device = self._known()
        part = BoundSlice(slot="s", index=0, gpu=device.uuid, percent=PERCENT, memory_mib=CAP_MIB)
        edits = client_edits(
            self.run_dir,
            device,
            part,
            cap_mib=CAP_MIB,
            namespace="",
            memory_key=server.memory_key,
        )
        shm = self.run_dir / "mps" / str(device.minor) / "shm"
        return self._environment() | dict(edits.env) | self._rig.shared_memory(shm)

    @contextlib.asynccontextmanager
    async def _client(
        self,
        env: Mapping[str, str],
        *,
        attached: bool = True,
        words: tuple[str, ...] = (),
    ) -> AsyncIterator[_Client]:
        """A small CUDA program that has its context."""
        running = await asyncio.to_thread(RunningClient.start, words or self._rig.client, env)
        try:
            said = await asyncio.to_thread(running.report, REPORT_S)
            if "sm_count" not in said:
                raise ClientSilent(f"client {running.pid}: {said}")
            self._rig.shows(running.pid, client=attached)
            yield _Client(running.pid, int(str(said["sm_count"])), _mib(said))
        finally:
            self._rig.forgets(running.pid)
            await asyncio.to_thread(running.__exit__, None, None, None)


class _Client:
    """What a client said when it had its context."""

    def __init__(self, pid: int, sm_count: int, free_mib: int) -> None:
        self.pid, self.sm_count, self.free_mib = pid, sm_count, free_mib


def _mib(said: Mapping[str, object]) -> int:
    free = said.get("memory_free_mib", 0)
    return free if isinstance(free, int) else 0


@contextlib.contextmanager
def _on_path(folder: Path | None) -> Iterator[None]:
    """Stand-in programs come first on PATH, as in the pod of the supervisor the driver's do."""
    before = os.environ["PATH"]
    if folder is not None:
        os.environ["PATH"] = f"{folder}:{Path(sys.executable).parent}:{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before
