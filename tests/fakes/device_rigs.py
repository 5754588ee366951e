# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the device contract suite can do to a node: start containers, break devices.

A rig stands for the hardware and the container runtime below the backend's own code.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid as uuids
from pathlib import Path
from typing import Protocol

from fakes.cgroup_tree import CgroupTree, run_hook
from fakes.clock import FakeClock
from fakes.host_reader import HostReader
from fakes.nvml import FakeGpu, FakeMig, FakeNvml, PatientNvml, PidNamespace, patient_devices
from fakes.nvml_faults import NvmlFaults
from ullage.api.devices import Backend
from ullage_node.devices.emulated import EmulatedDevices, EmulatedDriver, EmulatedProbe
from ullage_node.devices.emulated_hook import HookScript
from ullage_node.devices.nvidia.device_files import MINORS
from ullage_node.devices.nvidia.driver import NvidiaDriver
from ullage_node.devices.nvidia.known import MpsShares
from ullage_node.devices.nvidia.mig import HostMig, MigReader
from ullage_node.devices.nvidia.nvml import NvmlSession
from ullage_node.devices.nvidia.probe import NvidiaProbe
from ullage_node.line_socket import LineServer
from ullage_node.model.devices import (
    BoundSlice,
    ContainerBinding,
    ContainerEdits,
    ContainerKey,
    DeviceBackend,
)

NODE = "node-a"
_SLOTS = itertools.count()


def a_binding(*gpus: str, percent: int = 100, pod_uid: str | None = None) -> ContainerBinding:
    """A container of a fresh pod with a slice on each device."""
    return ContainerBinding(
        key=ContainerKey(pod_uid=pod_uid or str(uuids.uuid4()), container="main"),
        pod_namespace="default",
        pod_name="trainer",
        slices=tuple(
            BoundSlice(
                slot=f"slot-{next(_SLOTS) % 100:02d}",
                index=index,
                gpu=gpu,
                percent=percent,
                memory_mib=512,
            )
            for index, gpu in enumerate(gpus)
        ),
    )


class Rig(Protocol):
    """A node below the seam."""

    kind: Backend
    gpus: tuple[str, ...]
    percent: int
    """What the suite's containers ask of one device."""

    def open(self) -> DeviceBackend:
        """A new backend, as after a restart of the agent."""
        ...

    async def settle(self, backend: DeviceBackend) -> None:
        """Whatever the backend needs beside itself is ready."""
        ...

    async def close(self) -> None: ...

    async def start_container(self, binding: ContainerBinding, edits: ContainerEdits) -> int:
        """What the runtime does with the edits; answers the host pid, which uses the device."""
        ...

    def end_container(self, binding: ContainerBinding) -> None: ...

    def escape(self, binding: ContainerBinding) -> None:
        """The container gets outside its limits."""
        ...

    def blind(self) -> None:
        """Nothing can be read of any container any more."""
        ...

    def lose(self, gpu: str) -> None: ...

    def find_again(self, gpu: str) -> None: ...

    def take_everything(self) -> None:
        """What the backend is made of is missing."""
        ...

    def give_everything(self) -> None: ...


class EmulatedRig:
    """Cores of a machine made of files; the hook is the real script, run by ``sh``."""

    kind = Backend.EMULATED
    percent = 100
    gpus = tuple(f"emulated-{NODE}-{number}" for number in range(3))

    def __init__(self, base: Path, version: int) -> None:
        self.tree = CgroupTree(base=base, version=version).build()
        self._pids = itertools.count(4000)
        self._places: dict[ContainerKey, str] = {}
        self._entries = [
            {"core": 0, "percent": 100, "memoryMiB": 8192, "model": "emulated"},
            {"core": 1, "percent": 50, "memoryMiB": 4096, "model": "emulated-slow"},
            {"core": 1, "percent": 50, "memoryMiB": 4096, "model": "emulated-slow"},
        ]
        self.write_config(self._entries)

    @property
    def config(self) -> Path:
        return self.tree.paths.state_dir / "emulated.json"

    def write_config(self, entries: list[dict[str, object]]) -> None:
        self.config.write_text(json.dumps({"devices": entries}))

    def open(self) -> DeviceBackend:
        paths = self.tree.paths
        devices, hook = EmulatedDevices(NODE, paths), HookScript(paths=paths)
        return DeviceBackend(
            probe=EmulatedProbe(devices, hook, contexts=8),
            driver=EmulatedDriver(devices, hook, paths),
        )

    async def settle(self, backend: DeviceBackend) -> None:
        return None

    async def close(self) -> None:
        return None

    async def start_container(self, binding: ContainerBinding, edits: ContainerEdits) -> int:
        pid = next(self._pids)
        place = self.tree.create(binding.key.pod_uid, f"c{pid}", pid)
        self._places[binding.key] = place
        self.tree.set_cpu_time(place, 5_000_000_000)
        self.tree.set_memory(place, 100 << 20, 36 << 20)
        for hook in edits.hooks:
            done = await asyncio.to_thread(run_hook, hook, pid)
            assert done.returncode == 0, done.stderr
        return pid

    def end_container(self, binding: ContainerBinding) -> None:
        self.tree.destroy(self._places.pop(binding.key))

    def escape(self, binding: ContainerBinding) -> None:
        self.tree.set_quota(self._places[binding.key], -1)

    def blind(self) -> None:
        for place in self._places.values():
            self.tree.set_cores(place, "gibberish")

    def lose(self, gpu: str) -> None:
        # Devices are numbered by their place in the file, so only the last one can leave it.
        if gpu == self.gpus[-1]:
            return self.write_config(self._entries[:-1])
        number = self.gpus.index(gpu)
        changed = [dict(entry) for entry in self._entries]
        changed[number]["memoryMiB"] = 1
        return self.write_config(changed)

    def find_again(self, gpu: str) -> None:
        self.write_config(self._entries)

    def take_everything(self) -> None:
        self.config.unlink()

    def give_everything(self) -> None:
        self.write_config(self._entries)


class NvidiaRig(NvmlFaults):
    """GPUs of a driver in memory; the runtime hands on device files."""

    kind = Backend.EXCLUSIVE
    percent = 100
    gpus = tuple(f"GPU-{number:08x}-1111-2222-3333-444444444444" for number in range(3))

    def __init__(self, base: Path) -> None:
        self.tree = CgroupTree(base=base, version=1).build()
        self.fakes = {gpu: FakeGpu(uuid=gpu, minor=number) for number, gpu in enumerate(self.gpus)}
        self.nvml = FakeNvml(*self.fakes.values())
        self._pids = itertools.count(9000)
        self._running: dict[ContainerKey, int] = {}

    def open(self) -> DeviceBackend:
        reader = HostReader(PatientNvml(self.nvml))
        gpus = patient_devices(self.nvml.seen_from(PidNamespace()), MpsShares(None), reader)
        return DeviceBackend(probe=NvidiaProbe(gpus), driver=NvidiaDriver(gpus, self.tree.paths))

    async def settle(self, backend: DeviceBackend) -> None:
        return None

    async def close(self) -> None:
        return None

    async def start_container(self, binding: ContainerBinding, edits: ContainerEdits) -> int:
        pid = next(self._pids)
        self.tree.create(binding.key.pod_uid, f"c{pid}", pid)
        visible = {node.path for node in edits.device_nodes}
        for fake in self.fakes.values():
            if f"/dev/nvidia{fake.minor}" in visible:
                fake.processes[pid] = 64 // len(binding.slices)
        self._running[binding.key] = pid
        return pid

    def end_container(self, binding: ContainerBinding) -> None:
        pid = self._running.pop(binding.key)
        for fake in self.fakes.values():
            fake.processes.pop(pid, None)

    def escape(self, binding: ContainerBinding) -> None:
        given = {part.gpu for part in binding.slices}
        other = next(fake for gpu, fake in self.fakes.items() if gpu not in given)
        other.processes[self._running[binding.key]] = 1


MIG_MINORS = """config 1
monitor 2
gpu0/gi1/access 12
gpu0/gi1/ci0/access 13
gpu0/gi5/access 48
gpu0/gi5/ci0/access 49
"""


class MigRig(NvidiaRig):
    """The first GPU in MIG mode with two MIG devices, the others as they were.

    With a ``socket`` the agent may see no MIG device and asks there.
    """

    def __init__(self, base: Path, socket: Path | None = None) -> None:
        super().__init__(base)
        self.socket = socket
        self.clock = FakeClock()
        self.gpu = self.fakes[self.gpus[0]]
        self.small = FakeMig.of(self.gpu, 1, "1g.10gb", 9_728)
        self.large = FakeMig.of(self.gpu, 5, "3g.40gb", 40_192)
        self.large.sm_count = 60
        minors = self.tree.paths.proc_root / MINORS
        minors.parent.mkdir(parents=True)
        minors.write_text(MIG_MINORS)

    def open(self) -> DeviceBackend:
        reader = HostReader(PatientNvml(self.nvml))
        api = self.nvml.seen_from(PidNamespace(), mig=self.socket is None)
        gpus = patient_devices(api, MpsShares(None), reader)
        if self.socket is not None:
            gpus.mig = HostMig(self.socket)
        probe = NvidiaProbe(gpus, clock=self.clock.monotonic)
        return DeviceBackend(probe=probe, driver=NvidiaDriver(gpus, self.tree.paths))

    def reader(self) -> LineServer:
        """The process that may see MIG devices, at the socket."""
        assert self.socket is not None
        return LineServer(self.socket, MigReader(NvmlSession(PatientNvml(self.nvml))).answer)
