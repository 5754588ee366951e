# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses the backend by explicit configuration, never by detection.

Each backend is loaded only when it is asked for, so an emulated node needs no NVML and a GPU node
reads no cgroup file of the emulation.
"""

from __future__ import annotations

from ullage_node.model.devices import BackendPaths, DeviceBackend, Hardware


def open_backend(
    kind: Hardware,
    *,
    node_name: str,
    contexts: int,
    paths: BackendPaths | None = None,
    overhead_mib: int = 512,
) -> DeviceBackend:
    """Probe and driver of a node; nothing is opened before ``probe.start()``.

    Args:
        kind: the configured backend.
        node_name: name of the Node, part of an emulated device's uuid.
        contexts: containers that may share an emulated device; a whole GPU has one.
        overhead_mib: memory that a context costs on a shared GPU beside its tenant's.
        paths: where to read and write; the node's own places when left out.
    """
    places = paths or BackendPaths()
    if kind is Hardware.EMULATED:
        from ullage_node.devices.emulated import EmulatedDevices, EmulatedDriver, EmulatedProbe
        from ullage_node.devices.emulated_hook import HookScript

        cores, hook = EmulatedDevices(node_name, places), HookScript(paths=places)
        return DeviceBackend(
            probe=EmulatedProbe(cores, hook, contexts=contexts),
            driver=EmulatedDriver(cores, hook, places),
        )
    from ullage_node.devices.nvidia.driver import NvidiaDriver
    from ullage_node.devices.nvidia.gpm import NvmlSampler
    from ullage_node.devices.nvidia.known import MpsShares, NvidiaDevices
    from ullage_node.devices.nvidia.nvml import load_nvml
    from ullage_node.devices.nvidia.probe import NvidiaProbe
    from ullage_node.mps.client import MpsClient
    from ullage_node.mps.server import SOCKET

    port = MpsClient(places.run_dir / "mps" / SOCKET)
    gpus = NvidiaDevices(load_nvml(), MpsShares(port))
    return DeviceBackend(
        probe=NvidiaProbe(gpus),
        driver=NvidiaDriver(gpus, places, overhead_mib=overhead_mib),
        sampler=NvmlSampler(gpus.thread, lambda: gpus.known),
    )
