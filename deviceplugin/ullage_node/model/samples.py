# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Readings of whole devices, and their attribution to a tenant.

Independent of device libraries. Under MPS counters belong to the device, never to a tenant: a mean
over a window becomes a fingerprint only when no other tenant ran during it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from ullage.api.observations import Fingerprint

KEPT: Final = 64
"""Readings kept of a device: a window of the learning loop and more."""


class Metric(StrEnum):
    """A device counter as a fraction of its peak; the values are labels."""

    GRAPHICS = "graphics"
    """Time in which any kernel ran."""
    SM = "sm"
    OCCUPANCY = "occupancy"
    INTEGER = "integer"
    TENSOR = "tensor"
    TENSOR_HMMA = "tensor_hmma"
    DRAM = "dram"
    FP64 = "fp64"
    FP32 = "fp32"
    FP16 = "fp16"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSample:
    """One reading of one device; ``None`` and absent = not reported.

    ``gpm`` = the device has these counters; ``ratios`` and the PCIe rates are means since the
    previous sample. ``busy`` is the time in which anything ran, not a measure of load. ``at_s`` is
    CLOCK_MONOTONIC.
    """

    uuid: str
    at_s: float
    gpm: bool = False
    ratios: Mapping[Metric, float] = field(default_factory=dict)
    pcie_tx_kib_per_s: int | None = None
    pcie_rx_kib_per_s: int | None = None
    busy: float | None = None
    power_milliwatts: int | None = None
    clock_ratio: float | None = None
    """Current clock of the multiprocessors, over the highest."""
    pcie_replays: int | None = None


class DeviceSampler(Protocol):
    """Source of readings."""

    async def sample(self, now: float) -> tuple[DeviceSample, ...]:
        """One sample of every device; empty when there is no answer. Never waits over 2 s."""
        ...

    async def close(self) -> None:
        """Release all resources."""
        ...


class Samples:
    """The newest readings of every device."""

    def __init__(self) -> None:
        self._kept: dict[str, deque[DeviceSample]] = {}

    def take(self, samples: Iterable[DeviceSample]) -> None:
        """Add a sample of the devices."""
        for sample in samples:
            self._kept.setdefault(sample.uuid, deque(maxlen=KEPT)).append(sample)

    @property
    def newest(self) -> tuple[DeviceSample, ...]:
        """The last reading of every device, sorted by uuid."""
        return tuple(kept[-1] for _, kept in sorted(self._kept.items()))

    def between(self, uuid: str, begin_s: float, end_s: float) -> tuple[DeviceSample, ...]:
        """Readings of a device whose means lie within an interval."""
        kept = self._kept.get(uuid, ())
        inside = [sample for sample in kept if begin_s <= sample.at_s <= end_s]
        return tuple(inside[1:])  # the first one's means began before


def fingerprint_of(samples: Sequence[DeviceSample]) -> Fingerprint | None:
    """Mean readings of a device for a tenant alone on it; ``None`` = no counters.

    ``kernel_idle`` = 1 - time in which any kernel ran (admission's h, ``derived``).
    """
    ratios = {
        metric: _mean([sample.ratios[metric] for sample in samples if metric in sample.ratios])
        for metric in Metric
    }
    if ratios[Metric.SM] is None:
        return None
    graphics = ratios[Metric.GRAPHICS]
    return Fingerprint(
        sm_permille=permille(ratios[Metric.SM]),
        dram_permille=permille(ratios[Metric.DRAM]),
        tensor_permille=permille(ratios[Metric.TENSOR]),
        fp32_permille=permille(ratios[Metric.FP32]),
        fp16_permille=permille(ratios[Metric.FP16]),
        fp64_permille=permille(ratios[Metric.FP64]),
        occupancy_permille=permille(ratios[Metric.OCCUPANCY]),
        kernel_idle_permille=permille(None if graphics is None else 1 - graphics),
        pcie_tx_kib_per_s=_whole_mean(sample.pcie_tx_kib_per_s for sample in samples),
        pcie_rx_kib_per_s=_whole_mean(sample.pcie_rx_kib_per_s for sample in samples),
        power_milliwatts=_whole_mean(sample.power_milliwatts for sample in samples),
    )


def permille(fraction: float | None) -> int:
    """A fraction for the wire: 0 = not measured, so measured values are at least 1."""
    return 0 if fraction is None else max(1, round(fraction * 1000))


def _whole_mean(values: Iterable[int | None]) -> int:
    mean = _mean([value for value in values if value is not None])
    return 0 if mean is None else max(1, round(mean))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
