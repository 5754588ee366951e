# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""GPUs of a driver in memory with the supervisor beside them: what shares are made of.

A container that starts becomes a client of the server that its edits name, as CUDA would do it: a
wrong or missing pipe gives it the whole device without a word.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
from dataclasses import replace
from pathlib import Path

from fakes.cgroup_tree import CgroupTree
from fakes.host_reader import HostReader
from fakes.mps import Client, Script
from fakes.mps_programs import FakeProcesses, FakePrograms, PlainDirectories
from fakes.nvml import FakeGpu, FakeNvml, PatientNvml, PidNamespace, patient_devices
from fakes.nvml_faults import NvmlFaults
from fakes.scratch import fast_directory
from ullage.api.devices import Backend
from ullage.api.environment import STEPS_FILE
from ullage.api.steps import STEP_LAYOUT, STEP_MAGIC, STEP_VERSION
from ullage_node.devices.nvidia.driver import NvidiaDriver
from ullage_node.devices.nvidia.known import MpsShares
from ullage_node.devices.nvidia.probe import NvidiaProbe
from ullage_node.model.devices import ContainerBinding, ContainerEdits, ContainerKey, DeviceBackend
from ullage_node.mps.places import Places
from ullage_node.mps.supervisor import MpsSupervisor

SMS = 132
WAIT_TURNS = 400
DRIVERS = {Backend.MPS2: "580.65.06", Backend.MPS3: "615.71.05", Backend.TIME_SLICE: "580.65.06"}


class MpsRig(NvmlFaults):
    """Three GPUs that are shared, the way ``kind`` says."""

    gpus = ("GPU-1111", "GPU-2222", "GPU-3333")
    percent = 40

    def __init__(self, base: Path, kind: Backend, script: Script | None = None) -> None:
        self.kind = kind
        self.tree = CgroupTree(base=base, version=2).build()
        self.run_dir = fast_directory("um")
        self.paths = replace(self.tree.paths, run_dir=self.run_dir)
        (self.run_dir / "mps").mkdir()
        capability = (6, 0) if kind is Backend.TIME_SLICE else (9, 0)
        self.fakes = {
            uuid: FakeGpu(uuid=uuid, minor=minor, capability=capability)
            for minor, uuid in enumerate(self.gpus)
        }
        self.nvml = FakeNvml(*self.fakes.values(), driver_version=DRIVERS[kind])
        self.programs = FakePrograms(script or Script(protocols=(2, 3)))
        self.processes = FakeProcesses()
        self.supervisor = self.new_supervisor()
        self.clients: dict[int, Client] = {}
        self.running: dict[ContainerKey, list[int]] = {}
        self._pids = itertools.count(9000)

    def new_supervisor(self) -> MpsSupervisor:
        return MpsSupervisor(
            self.programs,
            Places(root=self.run_dir / "mps", mounts=PlainDirectories()),
            self.processes,
            lambda place, call: call,
        )

    def open(self) -> DeviceBackend:
        reader = HostReader(PatientNvml(self.nvml))
        shares = MpsShares(self.supervisor)
        gpus = patient_devices(self.nvml.seen_from(PidNamespace()), shares, reader)
        return DeviceBackend(probe=NvidiaProbe(gpus), driver=NvidiaDriver(gpus, self.paths))

    async def settle(self, backend: DeviceBackend) -> None:
        """Two rounds of probes, and the servers that they order are ready."""
        await backend.probe.health()
        for _ in range(WAIT_TURNS):
            await backend.probe.health()
            report = await self.supervisor.look(None)
            if all(server.ready for server in report.servers.values()):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(report)

    async def close(self) -> None:
        """Containers end first: a daemon waits a second for clients that stay."""
        for pid in list(self.clients):
            self.end_process(pid)
        await self.supervisor.retire()
        shutil.rmtree(self.run_dir, ignore_errors=True)

    # -- containers ------------------------------------------------------------------------------

    async def start_container(self, binding: ContainerBinding, edits: ContainerEdits) -> int:
        return self.start_process(binding, dict(edits.env), memory_mib=64)

    def start_process(
        self,
        binding: ContainerBinding,
        env: dict[str, str],
        *,
        memory_mib: int = 64,
        reports: bool = True,
        hidden: bool = False,
    ) -> int:
        """A CUDA process of the container, with this environment; ``reports`` its SM count.

        ``hidden``: the kernel does not show the environment.
        """
        pid = next(self._pids)
        if not hidden:
            self.processes.began[pid] = env
        self.tree.create(binding.key.pod_uid, f"c{pid}", pid)
        client = self.programs.connect(env, pid)
        if client is not None:
            self.clients[pid] = client
        sms = client.sm_count if client else SMS
        for part in binding.slices:
            fake = self.fakes[part.gpu]
            listing = fake.mps_processes if client else fake.processes
            listing[pid] = memory_mib // len(binding.slices)
        if reports:
            self.report_sms(binding, sms)
        self.running.setdefault(binding.key, []).append(pid)
        return pid

    def report_sms(self, binding: ContainerBinding, sms: int) -> None:
        """What ullage_run writes at its import."""
        place = self.run_dir / "steps" / binding.key.directory
        place.mkdir(parents=True, exist_ok=True)
        record = STEP_LAYOUT.pack(STEP_MAGIC, STEP_VERSION, 0, 0, 0, 0, sms, 0, 0, 0)
        (place / STEPS_FILE).write_bytes(record)

    def end_container(self, binding: ContainerBinding, *, clean: bool = True) -> None:
        for pid in self.running.pop(binding.key):
            self.end_process(pid, clean=clean)

    def end_process(self, pid: int, *, clean: bool = True) -> None:
        """The process is gone; not ``clean`` = killed."""
        client = self.clients.pop(pid, None)
        self.processes.began.pop(pid, None)
        if client is not None:
            for daemon in self.programs.living:
                daemon.machine.disconnect(client, clean=clean)
        for fake in self.fakes.values():
            fake.processes.pop(pid, None)
            fake.mps_processes.pop(pid, None)

    def escape(self, binding: ContainerBinding) -> None:
        given = {part.gpu for part in binding.slices}
        other = next(fake for gpu, fake in self.fakes.items() if gpu not in given)
        other.processes[self.running[binding.key][0]] = 1
