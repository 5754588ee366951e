# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of devices and telemetry.

Labels name devices and kinds, never pods: a million started pods must not leave a million series
behind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ullage.api.devices import Health, ObservedDevice
from ullage.engines.lanes.assignment import (
    LaneAssignment,
    assignment_of,
    counted_mib,
    counted_percent,
)
from ullage.process.metric_families import counter, gauge
from ullage_node.model.device_labels import DEVICE
from ullage_node.model.devices import Attachment, ContainerBinding, ContainerKey
from ullage_node.model.samples import DeviceSample

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFigures:
    """Shares held of each device."""

    memory: Mapping[tuple[str, str], int] = gauge(
        "ullage_device_memory_bytes",
        "Memory of a device: all of it, given to slices, and used by their containers.",
        DEVICE,
        "kind",
    )
    granted: Mapping[str, float] = gauge(
        "ullage_device_granted_ratio",
        "Part of a device's compute that is granted to started containers.",
        DEVICE,
    )
    headroom: Mapping[str, float] = gauge(
        "ullage_device_headroom_ratio",
        "Part of a device's compute that no started container holds; 0 while it may not be used.",
        DEVICE,
    )


def held_figures(
    devices: Sequence[ObservedDevice],
    bindings: Sequence[ContainerBinding],
    attachments: Mapping[ContainerKey, Attachment],
) -> HeldFigures:
    """The figures of the node's devices, of their tenants and their readings."""
    reserved, used = reserved_mib(bindings), used_mib(bindings, attachments)
    memory: dict[tuple[str, str], int] = {}
    for device in devices:
        memory[device.uuid, "total"] = device.memory_mib * _MIB
        memory[device.uuid, "reserved"] = reserved[device.uuid] * _MIB
        memory[device.uuid, "used"] = used[device.uuid] * _MIB
    granted = _granted(devices, bindings)
    return HeldFigures(
        memory=memory,
        granted=granted,
        headroom={
            device.uuid: 1.0 - granted[device.uuid] if device.health is Health.HEALTHY else 0.0
            for device in devices
        },
    )


def _granted(
    devices: Sequence[ObservedDevice], bindings: Sequence[ContainerBinding]
) -> dict[str, float]:
    held = _held(bindings)
    return {device.uuid: counted_percent(held[device.uuid]) / 100 for device in devices}


def reserved_mib(bindings: Sequence[ContainerBinding]) -> Counter[str]:
    """Memory given to started slices, by device, MiB; a lane counts once."""
    return Counter({gpu: sum(counted_mib(parts)) for gpu, parts in _held(bindings).items()})


def _held(bindings: Sequence[ContainerBinding]) -> defaultdict[str, list[LaneAssignment]]:
    assignments: defaultdict[str, list[LaneAssignment]] = defaultdict(list)
    for binding in bindings:
        for part in binding.slices:
            assignments[part.gpu].append(assignment_of(part))
    return assignments


def used_mib(
    bindings: Sequence[ContainerBinding], attachments: Mapping[ContainerKey, Attachment]
) -> Counter[str]:
    """Observed memory use of containers, by device, MiB.

    A container on several devices has one reading, divided equally.
    """
    seen: Counter[str] = Counter()
    for binding in bindings:
        attachment = attachments.get(binding.key)
        if attachment is None:
            continue
        for part in binding.slices:
            seen[part.gpu] += attachment.memory_used_mib // len(binding.slices)
    return seen


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFigures:
    """The newest counters of every device; a counter that is not reported has no series."""

    ratio: Mapping[tuple[str, str], float] = gauge(
        "ullage_device_gpm_ratio",
        "Mean of a GPM counter over the last second, of the whole device, 0 to 1.",
        DEVICE,
        "metric",
    )
    gpm: Mapping[str, float] = gauge(
        "ullage_device_gpm_supported", "1 = the device has GPM counters.", DEVICE
    )
    busy: Mapping[str, float] = gauge(
        "ullage_device_busy_ratio",
        "Time in which any kernel ran, as NVML says it; says little of how much ran.",
        DEVICE,
    )
    clock_ratio: Mapping[str, float] = gauge(
        "ullage_device_clock_ratio", "Clock of the multiprocessors over the highest.", DEVICE
    )
    power_watts: Mapping[str, float] = gauge(
        "ullage_device_power_watts", "Power that the device draws.", DEVICE
    )


def sample_figures(samples: Sequence[DeviceSample]) -> SampleFigures:
    """The figures of the newest samples."""

    def by_device(read: Callable[[DeviceSample], float | None]) -> dict[str, float]:
        values = ((sample.uuid, read(sample)) for sample in samples)
        return {uuid: value for uuid, value in values if value is not None}

    milliwatts = by_device(lambda sample: sample.power_milliwatts)
    return SampleFigures(
        ratio={
            (sample.uuid, metric.value): value
            for sample in samples
            for metric, value in sample.ratios.items()
        },
        gpm=by_device(lambda sample: sample.gpm),
        busy=by_device(lambda sample: sample.busy),
        clock_ratio=by_device(lambda sample: sample.clock_ratio),
        power_watts={uuid: value / 1000 for uuid, value in milliwatts.items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryFigures:
    """Counts since the agent started, except the current ``unmeasured``."""

    pages: int = counter("ullage_node_pages", "Metrics pages of pods that were read.")
    page_failures: int = counter("ullage_node_page_failures", "Metrics pages that could not be.")
    stretches: int = counter("ullage_node_steady_stretches", "Steady half minutes of a device.")
    observations: int = counter("ullage_node_observations", "Observations made.")
    left_out: Mapping[str, int] = counter(
        "ullage_node_observations_left_out",
        "Observations that were not told: the same as lately, or too many.",
        "why",
    )
    unmeasured: int = gauge(
        "ullage_node_objectives_unmeasured", "Tenants whose latency objective cannot be judged."
    )
