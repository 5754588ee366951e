# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of the devices' memory, read from the agent's state when they are scraped.

Labels name devices and kinds, never pods: a cluster that starts a million pods must not leave a
million series behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ullage.api.contract import ObservedDevice
from ullage_node.devices.protocol import Attachment, ContainerBinding, ContainerKey

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFigures:
    """What the metrics show: the node's devices, who is on them, and what was seen of them."""

    devices: Sequence[ObservedDevice]
    bindings: Sequence[ContainerBinding]
    attachments: Mapping[ContainerKey, Attachment]


class MemoryCollector(Collector):
    """Turns :class:`MemoryFigures` into metrics at scrape time."""

    def __init__(self, figures: Callable[[], MemoryFigures]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """The metric families."""
        now = self._figures()
        reserved = reserved_mib(now.bindings)
        used = used_mib(now.bindings, now.attachments)
        memory = GaugeMetricFamily(
            "ullage_device_memory_bytes",
            "Memory of a device: all of it, given to slices, and used by their containers.",
            labels=["gpu", "kind"],
        )
        for device in now.devices:
            memory.add_metric([device.uuid, "total"], device.memory_mib * _MIB)
            memory.add_metric([device.uuid, "reserved"], reserved[device.uuid] * _MIB)
            memory.add_metric([device.uuid, "used"], used[device.uuid] * _MIB)
        yield memory


def reserved_mib(bindings: Sequence[ContainerBinding]) -> Counter[str]:
    """Memory given to started slices, by device, MiB."""
    given: Counter[str] = Counter()
    for binding in bindings:
        for part in binding.slices:
            given[part.gpu] += part.memory_mib
    return given


def used_mib(
    bindings: Sequence[ContainerBinding], attachments: Mapping[ContainerKey, Attachment]
) -> Counter[str]:
    """Memory that containers were seen to use, by device, MiB.

    A container on several devices is one reading: it counts in equal parts.
    """
    seen: Counter[str] = Counter()
    for binding in bindings:
        attachment = attachments.get(binding.key)
        if attachment is None:
            continue
        for part in binding.slices:
            seen[part.gpu] += attachment.memory_used_mib // len(binding.slices)
    return seen
