# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every backend, by its value of ``ULLAGE_NODE_BACKEND``: configured, never detected.

Each backend is loaded only when it is selected, so an emulated node needs no NVML and a GPU node
reads no cgroup file of the emulation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ullage_node.model.devices import BackendPaths, DeviceBackend
from ullage_node.model.switching import ProcessSwitch, StandStill


class Hardware(StrEnum):
    """The hardware of a node; an administrator configures it, nothing is guessed."""

    NVIDIA = "nvidia"
    EMULATED = "emulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """Options of a backend.

    Attributes:
        node_name: Name of the Node, part of an emulated device's uuid.
        contexts: Containers that may share an emulated device; a whole GPU has one.
        paths: Where to read and write.
        overhead_mib: Memory that a context costs on a shared GPU beside its tenant's.
        suspends: Programs that share a lane may be suspended, where the devices permit it.
        mig: The reader of processes is asked for MIG devices.
    """

    node_name: str
    contexts: int
    paths: BackendPaths = field(default_factory=BackendPaths)
    overhead_mib: int = 512
    suspends: bool = False
    mig: bool = False


def _nvidia(options: BackendOptions) -> DeviceBackend:
    from ullage_node.devices.nvidia.cuda_checkpoint import SOCKET as CHECKPOINT_SOCKET
    from ullage_node.devices.nvidia.cuda_checkpoint import HostCheckpoint
    from ullage_node.devices.nvidia.driver import NvidiaDriver
    from ullage_node.devices.nvidia.gpm import NvmlSampler
    from ullage_node.devices.nvidia.host_processes import DIRECTORY, HostProcesses
    from ullage_node.devices.nvidia.host_processes import SOCKET as PROCESSES_SOCKET
    from ullage_node.devices.nvidia.known import MpsShares, NvidiaDevices
    from ullage_node.devices.nvidia.mig import SOCKET as MIG_SOCKET
    from ullage_node.devices.nvidia.mig import HostMig
    from ullage_node.devices.nvidia.nvml import load_nvml
    from ullage_node.devices.nvidia.probe import NvidiaProbe
    from ullage_node.mps.client import MpsClient
    from ullage_node.mps.server import SOCKET

    port = MpsClient(options.paths.run_dir / "mps" / SOCKET)
    processes = HostProcesses(
        options.paths.run_dir / DIRECTORY / PROCESSES_SOCKET, options.paths.proc_root
    )
    gpus = NvidiaDevices(load_nvml(), MpsShares(port), processes)
    if options.mig:
        gpus.mig = HostMig(options.paths.run_dir / DIRECTORY / MIG_SOCKET)
    if options.suspends:
        gpus.checkpoint = HostCheckpoint(options.paths.run_dir / DIRECTORY / CHECKPOINT_SOCKET)
    return DeviceBackend(
        probe=NvidiaProbe(gpus),
        driver=NvidiaDriver(gpus, options.paths, overhead_mib=options.overhead_mib),
        sampler=NvmlSampler(gpus.thread, lambda: gpus.known),
    )


def _emulated(options: BackendOptions) -> DeviceBackend:
    from ullage_node.devices.emulated import EmulatedDevices, EmulatedDriver, EmulatedProbe
    from ullage_node.devices.emulated_hook import HookScript

    cores = EmulatedDevices(options.node_name, options.paths)
    # the hook runs on the host, where its processes are not below the agent's mount of them
    hook = HookScript(paths=replace(options.paths, proc_root=Path("/proc")))
    return DeviceBackend(
        probe=EmulatedProbe(cores, hook, contexts=options.contexts, suspends=options.suspends),
        driver=EmulatedDriver(cores, hook, options.paths),
    )


def switch_of(hardware: Hardware, run_dir: Path, stand_still: StandStill) -> ProcessSwitch:
    """The switch that suspends programs on a node.

    Args:
        hardware: What the devices are.
        run_dir: The run directory.
        stand_still: Stops all processes of a container for a given time.
    """
    if hardware is Hardware.EMULATED:
        from ullage_node.devices.emulated import EmulatedSwitch

        return EmulatedSwitch(stand_still)
    from ullage_node.devices.nvidia.cuda_checkpoint import SOCKET, HostCheckpoint
    from ullage_node.devices.nvidia.host_processes import DIRECTORY

    return HostCheckpoint(run_dir / DIRECTORY / SOCKET)


BACKENDS: Final[Mapping[Hardware, Callable[[BackendOptions], DeviceBackend]]] = MappingProxyType(
    {Hardware.NVIDIA: _nvidia, Hardware.EMULATED: _emulated}
)
"""Makes probe and driver of a node; nothing is opened before ``probe.start()``."""
