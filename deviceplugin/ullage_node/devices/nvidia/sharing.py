# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Container edits for a client of its device's MPS server, with its share. Pure.

A memory limit has one entry, and the client sees one device: an entry for another device makes the
client drop all its limits (measured by NVIDIA's users on driver 615.71). The device is named as the
daemon reported it back, else by its ordinal: NVIDIA's device plugin does so because limits by uuid
were accepted and not applied.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from ullage_node.devices.nvidia.read import NvidiaDevice
from ullage_node.model.devices import BindMount, BoundSlice, ContainerEdits, ContainerKey
from ullage_node.mps.control import ORDINAL, SERVER
from ullage_node.mps.records import MEMORY, PIPE, SHARE, MpsLimits

NAMESPACE_DIGITS: Final = 10
"""Digits of the hash that names a namespace: few, because it is part of a socket's path."""
BELOW_NORMAL: Final = 1
NORMAL: Final = 0


def client_edits(
    run_dir: Path,
    device: NvidiaDevice,
    part: BoundSlice,
    *,
    cap_mib: int,
    namespace: str,
    memory_key: str = "",
) -> ContainerEdits:
    """Variables and mounts of one share.

    Args:
        run_dir: the run directory, at the same path in daemon and client.
        device: the server's device.
        part: the decided share.
        cap_mib: its memory including the context overhead.
        namespace: of protocol 3, "" under protocol 2.
        memory_key: name of the device in a memory limit, "" = its ordinal.
    """
    home = run_dir / "mps" / str(device.minor)
    pipe = home / "pipe"
    return ContainerEdits(
        env={
            PIPE: pipe_of(run_dir, device, namespace),
            SHARE: str(part.percent),
            MEMORY: f"{memory_key or ORDINAL}={cap_mib}M",
            "CUDA_MPS_CLIENT_PRIORITY": str(priority_of(part)),
        },
        mounts=(
            BindMount(host_path=str(pipe), container_path=str(pipe)),
            BindMount(host_path=str(home / "shm"), container_path="/dev/shm"),
        ),
    )


def pipe_of(run_dir: Path, device: NvidiaDevice, namespace: str) -> str:
    """Pipe directory of a client's server; ``namespace`` is "" under protocol 2."""
    pipe = run_dir / "mps" / str(device.minor) / "pipe"
    return str(pipe / SERVER / namespace if namespace else pipe)


def limits_of(part: BoundSlice, name: str, cap_mib: int) -> MpsLimits:
    """The namespace of one share."""
    return MpsLimits(
        name=name, percent=part.percent, memory_mib=cap_mib, priority=priority_of(part)
    )


def priority_of(part: BoundSlice) -> int:
    """Tenants without an objective, or on probation, get the lower priority."""
    return NORMAL if part.protected and not part.probation else BELOW_NORMAL


def namespace_of(key: ContainerKey) -> str:
    """Name of a container's namespace."""
    return hashlib.sha256(key.directory.encode()).hexdigest()[:NAMESPACE_DIGITS]
