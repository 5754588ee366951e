# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of devices and telemetry, read from the agent's state when they are scraped.

Labels name devices and kinds, never pods: a cluster that starts a million pods must not leave a
million series behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ullage.api.contract import ObservedDevice
from ullage_node.model.devices import Attachment, ContainerBinding, ContainerKey
from ullage_node.model.samples import DeviceSample

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFigures:
    """Figures of the metrics: the node's devices, their tenants, and their readings."""

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


class DeviceCollector(Collector):
    """The newest counters of every device; what a device does not say has no series."""

    def __init__(self, samples: Callable[[], Sequence[DeviceSample]]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        """The metric families."""
        now = self._samples()
        ratio = GaugeMetricFamily(
            "ullage_device_gpm_ratio",
            "Mean of a GPM counter over the last second, of the whole device, 0 to 1.",
            labels=["gpu", "metric"],
        )
        for sample in now:
            for metric, value in sorted(sample.ratios.items()):
                ratio.add_metric([sample.uuid, metric.value], value)
        yield ratio
        yield _per_device(
            "ullage_device_gpm_supported",
            "1 = the device has GPM counters.",
            ((sample.uuid, float(sample.gpm)) for sample in now),
        )
        yield _per_device(
            "ullage_device_busy_ratio",
            "Time in which any kernel ran, as NVML says it; says little of how much ran.",
            ((sample.uuid, sample.busy) for sample in now),
        )
        yield _per_device(
            "ullage_device_clock_ratio",
            "Clock of the multiprocessors over the highest.",
            ((sample.uuid, sample.clock_ratio) for sample in now),
        )
        yield _per_device(
            "ullage_device_power_watts",
            "Power that the device draws.",
            (
                (
                    sample.uuid,
                    None if sample.power_milliwatts is None else sample.power_milliwatts / 1000,
                )
                for sample in now
            ),
        )


def _per_device(
    name: str, text: str, values: Iterable[tuple[str, float | None]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=["gpu"])
    for uuid, value in values:
        if value is not None:
            family.add_metric([uuid], value)
    return family


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryFigures:
    """Counts since the agent started, but for ``unmeasured``: as of now."""

    pages: int
    page_failures: int
    unmeasured: int
    """Tenants whose latency objective cannot be judged."""
    stretches: int
    observations: int
    left_out: Mapping[str, int]


class TelemetryCollector(Collector):
    """Metrics of the telemetry itself."""

    def __init__(self, figures: Callable[[], TelemetryFigures]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """The metric families."""
        now = self._figures()
        for name, text, value in (
            ("ullage_node_pages", "Metrics pages of pods that were read.", now.pages),
            ("ullage_node_page_failures", "Metrics pages that could not be.", now.page_failures),
            ("ullage_node_steady_stretches", "Steady half minutes of a device.", now.stretches),
            ("ullage_node_observations", "Observations made.", now.observations),
        ):
            yield CounterMetricFamily(name, text, value=value)
        left_out = CounterMetricFamily(
            "ullage_node_observations_left_out",
            "Observations that were not told: the same as lately, or too many.",
            labels=["why"],
        )
        for why, count in sorted(now.left_out.items()):
            left_out.add_metric([why], count)
        yield left_out
        yield GaugeMetricFamily(
            "ullage_node_objectives_unmeasured",
            "Tenants whose latency objective cannot be judged.",
            value=now.unmeasured,
        )
