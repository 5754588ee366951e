# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Windows of the node's volumes: what each container moved and how long it waited.

A container that comes or goes within a window is left out of it. A wait is not counted per device:
it is that of the device on which a container moves most, and less of others in proportion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from ullage.engines.dataio.fairness import VolumeUse
from ullage_node.devices.cgroup_io import (
    IoCgroup,
    IoCount,
    IoCounters,
    WaitSampler,
    find_containers,
    io_root,
    read_counters,
)
from ullage_node.devices.cgroups import CgroupUnreadable, CgroupVersion

MOST_VOLUMES: Final = 64
"""Volumes of a node that are followed, those with the most traffic."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class IoReading:
    """Counters of all containers at a time, monotonic seconds."""

    at_s: float
    containers: Mapping[IoCgroup, IoCounters]


@dataclass(slots=True)
class IoReader:
    """Reads the counters of containers of pods.

    Attributes:
        cgroup_root: The host's cgroup tree.
        sampler: For waits that the kernel does not count.
    """

    cgroup_root: Path
    sampler: WaitSampler
    _unreadable: set[str] = field(default_factory=set)

    @property
    def asks_to_count(self) -> bool:
        """True where the guard has to ask the kernel to count (version 1)."""
        return io_root(self.cgroup_root)[1] is CgroupVersion.V1

    def read(self, now: float) -> IoReading:
        """One reading; containers that vanish meanwhile are left out."""
        base, version = io_root(self.cgroup_root)
        containers: dict[IoCgroup, IoCounters] = {}
        for container, folder in find_containers(base).items():
            try:
                counters = read_counters(self.cgroup_root, version, folder)
            except CgroupUnreadable as error:
                if str(error) not in self._unreadable and len(self._unreadable) < 100:
                    self._unreadable.add(str(error))
                    _log.warning("I/O of a container not read", error=str(error))
                continue
            if counters is not None:
                containers[container] = counters
        self.sampler.follow(
            [
                container
                for container, counters in containers.items()
                if counters.stalled_us is None and counters.devices
            ]
        )
        return IoReading(at_s=now, containers=containers)


def window(
    before: IoReading,
    after: IoReading,
    sampled: Mapping[IoCgroup, float],
    data_waits: Mapping[str, float],
) -> dict[str, list[VolumeUse]]:
    """Uses of volumes between two readings, by major:minor number.

    Args:
        before: The earlier reading.
        after: The later one.
        sampled: Parts of the window in which containers waited, where the kernel does not say.
        data_waits: Part of a step that the programs of a pod (uid) wait for data, where known.
    """
    seconds = after.at_s - before.at_s
    volumes: dict[str, list[VolumeUse]] = {}
    if seconds <= 0:
        return volumes
    for container, now in after.containers.items():
        earlier = before.containers.get(container)
        if earlier is None:
            continue
        moved = {
            device: IoCount(
                max(0, count.bytes - earlier.devices.get(device, IoCount()).bytes),
                max(0, count.requests - earlier.devices.get(device, IoCount()).requests),
            )
            for device, count in now.devices.items()
        }
        most = max((count.bytes for count in moved.values()), default=0)
        stalled = sampled.get(container, 0.0)
        if now.stalled_us is not None and earlier.stalled_us is not None:
            stalled = _part(now.stalled_us - earlier.stalled_us, seconds)
        for device, count in moved.items():
            volumes.setdefault(device, []).append(
                VolumeUse(
                    key=container,
                    bytes_per_s=count.bytes / seconds,
                    requests_per_s=count.requests / seconds,
                    stalled=stalled * (count.bytes / most if most else 1.0),
                    throttled=_part(now.throttled_us - earlier.throttled_us, seconds),
                    data_wait=data_waits.get(container.pod_uid),
                )
            )
    busiest = sorted(volumes, key=lambda at: -sum(use.bytes_per_s for use in volumes[at]))
    return {device: volumes[device] for device in busiest[:MOST_VOLUMES]}


def _part(micros: int, seconds: float) -> float:
    """Part of a window, 0 to 1."""
    return min(1.0, max(0.0, micros / 1e6 / seconds))
