# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""State shared by the probe and the driver of a node: GPUs, sharing of each, servers.

Only this module queries the supervisor. While the supervisor is away, a device stays shared as
before: a restarted container or a slow program does not change its tenants. A report older than
:data:`MPS_REPORT_AGE_S` proves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

import structlog

from ullage.api.devices import Backend, MpsState, MpsStatus
from ullage_node.devices.nvidia.choice import (
    MPS_BACKENDS,
    WHOLE_PERCENT,
    Driver,
    SharingChoice,
    choose,
)
from ullage_node.devices.nvidia.cuda_checkpoint import HostCheckpoint
from ullage_node.devices.nvidia.host_processes import ProcessesUnseen, ProcessSource
from ullage_node.devices.nvidia.mig import MigSource, MigUnseen
from ullage_node.devices.nvidia.nvml import NvmlApi, NvmlThread
from ullage_node.devices.nvidia.read import NvidiaDevice, Usage
from ullage_node.model.devices import ContainerBinding, ContainerKey
from ullage_node.mps.client import MpsClient, MpsUnreachable
from ullage_node.mps.records import INDEX_MAX, Installed, MpsReport, MpsServer, ServerOrder
from ullage_node.times import MPS_REPORT_AGE_S

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class NvidiaDevices:
    """The devices ever found, the NVML thread, and the sources of their processes."""

    def __init__(self, api: NvmlApi, shares: MpsShares, processes: ProcessSource) -> None:
        self.thread = NvmlThread(api)
        self.known: dict[str, NvidiaDevice] = {}
        self.driver = Driver()
        self.shares = shares
        self._processes = processes
        self.unseen: str | None = None
        """Reason why processes are not seen, "" = they are, ``None`` = not checked yet."""
        self.mig: MigSource | None = None
        """Reader of MIG devices; ``None`` = this process itself, as far as it may see them."""
        self.checkpoint: HostCheckpoint | None = None
        """Client of cuda-checkpoint; ``None`` = programs are not suspended."""
        self.unable: str | None = None
        """Reason why it suspends none, "" = it does, ``None`` = it is off."""

    async def look(self) -> Usage:
        """Processes on all devices, by host PID.

        Raises:
            ProcessesUnseen: they cannot be determined now.
        """
        try:
            usage = await self._processes.look(sorted(self.known))
        except ProcessesUnseen as error:
            self.unseen = str(error)
            raise
        self.unseen = ""
        return usage

    async def with_parts(self, seen: Sequence[NvidiaDevice]) -> tuple[NvidiaDevice, ...]:
        """These GPUs, those in MIG mode replaced by their MIG devices.

        If the reader does not answer, the known MIG devices are kept: work runs on them.

        Raises:
            MigUnseen: the reader does not answer, and a GPU in MIG mode was never read before.
        """
        cut = [gpu for gpu in seen if gpu.mig]
        if self.mig is None or not cut:
            return tuple(seen)
        try:
            parts = await self.mig.parts(cut)
        except MigUnseen:
            known = self.known.values()
            if not {gpu.uuid for gpu in cut} <= {device.gpu for device in known if device.in_mig}:
                raise
            parts = {
                gpu.uuid: tuple(device for device in known if device.parent == gpu.uuid)
                for gpu in cut
            }
        return tuple(device for gpu in seen for device in parts.get(gpu.uuid) or (gpu,))

    async def ask_checkpoint(self) -> None:
        """Check if cuda-checkpoint can run, where it is enabled."""
        if self.checkpoint is not None:
            self.unable = await self.checkpoint.problem()

    def suspends(self, uuid: str) -> bool:
        """True if programs on a known device can be suspended.

        Not on MIG devices, which cuda-checkpoint does not support (NVIDIA/cuda-checkpoint, issue
        42).
        """
        shared = self.choice(uuid).backend is not Backend.EXCLUSIVE
        return self.unable == "" and shared and not self.known[uuid].parent

    @property
    def driver_version(self) -> str:
        """Version of the kernel driver, as NVML reports it."""
        return self.driver.version

    def choice(self, uuid: str) -> SharingChoice:
        """The sharing choice of a known device."""
        return self.shares.choice(self.known[uuid], self.driver)

    def problem(self, uuid: str) -> str:
        """The obstacle to sharing a device by MPS; empty = none."""
        choice = self.choice(uuid)
        if choice.problem or not choice.protocol:
            return choice.problem
        server = self.shares.server(uuid)
        if server is None:
            return self.shares.problem
        if not server.ready:
            return f"its MPS server is {server.state.value}: {server.why}"
        return self.shares.rival(uuid)

    def mps_status(self, uuid: str) -> MpsStatus | None:
        """Status of a device's server, ``None`` where MPS is impossible."""
        choice = self.choice(uuid)
        if not choice.protocol:
            return None
        server = self.shares.server(uuid)
        return MpsStatus(
            protocol=choice.protocol,
            state=server.state if server else MpsState.UNKNOWN,
            server_pid=server.server_pid if server else 0,
            contexts=len(server.clients or ()) if server else 0,
            context_limit=choice.context_limit,
        )


class MpsShares:
    """The supervisor as the agent sees it; ``port`` ``None`` = the node has none."""

    def __init__(self, port: MpsClient | None, *, clock: Callable[[], float] | None = None) -> None:
        self.port = port
        """The supervisor's client."""
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._report = MpsReport()
        self._reported_at: float | None = None
        self._problem = "the MPS supervisor was not asked yet"
        self._installed: Installed | None = None
        self._choices: dict[str, SharingChoice] = {}
        self._whole: dict[str, ContainerKey] = {}
        self.ordering = False
        """True once servers may be requested: not before the node's containers are known."""

    @property
    def problem(self) -> str:
        """The reason why the supervisor does not answer; empty = it answers."""
        if self._reported_at is None or self._problem:
            return self._problem
        age = self._clock() - self._reported_at
        if age <= MPS_REPORT_AGE_S:
            return ""
        return f"the MPS supervisor's last word is older than {MPS_REPORT_AGE_S:g} s"

    @property
    def installed(self) -> Installed | None:
        """The node's MPS as last reported by the supervisor, ``None`` = unknown now."""
        return None if self.problem else self._installed

    def server(self, uuid: str) -> MpsServer | None:
        """A device's current server; ``None`` = unknown, or none is requested."""
        return None if self.problem else self._report.servers.get(uuid)

    def choice(self, device: NvidiaDevice, driver: Driver) -> SharingChoice:
        """The way of sharing a device.

        MPS once chosen stays while nothing newer is known, and a running server is judged by its
        state: a failed check of the installation, or a rival started later, ends none of our
        tenants.
        """
        before = self._choices.get(device.uuid)
        installed = self.installed
        shared = before is not None and before.backend in MPS_BACKENDS
        if before is not None and shared and (installed is None or installed.problem):
            return before
        serving = self._serving(device.uuid)
        if installed is not None and serving:
            installed = replace(installed, problem="", protocols=(serving,), strangers=())
        elif installed is not None and shared:
            installed = replace(installed, strangers=())
        choice = choose(device, driver, installed, self.problem)
        if choice != before:
            _log.info(
                "way of sharing", gpu=device.uuid, backend=choice.backend.value, why=choice.problem
            )
        self._choices[device.uuid] = choice
        return choice

    def rival(self, uuid: str) -> str:
        """Reason to refuse a device's shares although its server is healthy; empty = none."""
        installed = self.installed
        strangers = installed.strangers if installed else ()
        other = next((stranger for stranger in strangers if stranger.serves(uuid)), None)
        return (
            f"process {other.pid} of someone else runs a second MPS control daemon for it: "
            "processes that use that one take turns with our tenants, beside their shares; stop it"
            if other
            else ""
        )

    def _serving(self, uuid: str) -> int:
        """Protocol of our server running there, also after an agent restart; 0 = none."""
        server = self._report.servers.get(uuid)
        return server.protocol if server is not None and server.server_pid > 0 else 0

    def stand_aside(self, binding: ContainerBinding) -> None:
        """Stop the servers of these devices while a container has the devices whole."""
        for part in binding.slices:
            if part.percent == WHOLE_PERCENT:
                self._whole[part.gpu] = binding.key

    def come_back(self, binding: ContainerBinding) -> None:
        """Allow servers on the devices again: the container is gone."""
        self._whole = {gpu: key for gpu, key in self._whole.items() if key != binding.key}

    async def refresh(
        self, devices: Iterable[NvidiaDevice], driver: Driver, fresh: Collection[str] = ()
    ) -> None:
        """Query the servers' state, and request those that are missing; never raises."""
        if self.port is None:
            self._problem = "no MPS supervisor runs on this node (chart value node.mps.enabled)"
            return
        try:
            if self._installed is None:
                self._take(await self.port.look(None, driver=driver.version))
            orders = self._orders(devices, driver) if self.ordering else None
            self._take(await self.port.look(orders, sorted(fresh), driver.version))
        except MpsUnreachable as error:
            if self._problem != str(error):
                _log.warning("MPS supervisor", why=str(error))
            self._problem = str(error)

    def _take(self, report: MpsReport) -> None:
        self._report, self._installed, self._problem = report, report.installed, ""
        self._reported_at = self._clock()

    def _orders(self, devices: Iterable[NvidiaDevice], driver: Driver) -> list[ServerOrder]:
        wanted = []
        for device in devices:
            choice = self.choice(device, driver)
            if choice.protocol and device.uuid not in self._whole and device.minor <= INDEX_MAX:
                wanted.append(
                    ServerOrder(
                        uuid=device.uuid,
                        index=device.minor,
                        protocol=choice.protocol,
                        memory_mib=device.memory_mib,
                    )
                )
        return wanted
