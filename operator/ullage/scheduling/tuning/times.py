# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How long trials take, from the results of their search, for one that divides devices.

Everything is told in work: seconds that it would take on one whole device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from ullage.api.devices import GPUMode
from ullage.api.gpurequest import GPURequest
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.tuning import TrialPool, TrialResize, TrialResult
from ullage.engines.tuning.speed_curves import (
    PRIOR_EXPONENT,
    MeasuredSpeeds,
    SpeedCurve,
    Widths,
    speed_curve,
)

WHOLE: Final = 100
"""Percent of one device."""
LEAST_PART: Final = 0.1
"""Of a trial's time, before and after a resize, that says how much faster it became."""


def widths_of(pool: TrialPool) -> Widths:
    """The widths that trials of a search may have.

    Args:
        pool: Devices that the search divides.
    """
    most = min(pool.max_devices, pool.devices)
    return Widths(per_device=WHOLE // pool.min_percent, devices=most)


def percent_of(widths: Widths, size: int) -> int:
    """Percent of a device of a size in parts; 100 for each whole one.

    Args:
        widths: That trials may have.
        size: Parts of a device.
    """
    return size * WHOLE // widths.parts


@lru_cache(maxsize=1024)
def size_of(widths: Widths, percent: int) -> int:
    """The size in parts that is nearest to a percentage: widths may have changed since.

    Args:
        widths: That trials may have.
        percent: Of a device, 100 for each whole one.
    """
    return min(widths.sizes, key=lambda size: abs(percent_of(widths, size) - percent))


def percent_had(gpu: GPURequest) -> int:
    """Percent of a device that a TrainingJob asks for, 100 for each whole one.

    Args:
        gpu: Its request.
    """
    if gpu.mode is GPUMode.FRACTIONAL and gpu.share is not None:
        return gpu.share.min_percent
    return gpu.count * WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTrial:
    """A trial that is to reach an epoch, and its TrainingJob where there is one."""

    trial: int
    from_epoch: int
    until_epoch: int
    run: WorkloadRecord | None = None

    @property
    def epochs(self) -> int:
        """Epochs that it is to do."""
        return self.until_epoch - self.from_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTimes:
    """What the results say of times.

    Attributes:
        widths: That trials may have.
        curve: Speed of a trial by width, in that on a whole device.
        own_s: Work of an epoch, in seconds, of each trial that was measured.
        mean_s: Mean work of an epoch over all results; ``None`` before the first.
        parts: Widths of trials that were resized, by trial and epoch.
    """

    widths: Widths
    curve: SpeedCurve
    own_s: Mapping[int, float] = field(default_factory=dict)
    mean_s: float | None = None
    parts: Mapping[tuple[int, int], Sequence[TrialResize]] = field(default_factory=dict)

    def epoch_s(self, trial: int) -> float | None:
        """Work of an epoch of a trial, in seconds: by its own results, else the mean of the others.

        Args:
            trial: Number of the trial.
        """
        return self.own_s.get(trial, self.mean_s)

    def speed(self, percent: int) -> float:
        """Work per second with so much of a device.

        Args:
            percent: Of a device, 100 for each whole one.
        """
        return self.curve.speeds[self.widths.sizes.index(size_of(self.widths, percent))]

    def work_s(self, result: TrialResult) -> float:
        """Work of a result, in seconds.

        Args:
            result: That was counted.
        """
        parts = self.parts.get((result.trial, result.epoch), ())
        last = parts[-1].to_percent if parts else result.percent
        seconds = max(0, result.seconds - sum(one.seconds for one in parts))
        before = self.before_s(result.trial, result.epoch)
        return before + seconds * (self.speed(last) if last else 1.0)

    def before_s(self, trial: int, epoch: int) -> float:
        """Work that a trial did on its way to an epoch until it was resized last, in seconds.

        Args:
            trial: Number of the trial.
            epoch: That it runs to.
        """
        return sum(
            one.seconds * self.speed(one.from_percent) for one in self.parts.get((trial, epoch), ())
        )


@dataclass(frozen=True, slots=True)
class _Measured:
    """A trial at one width: seconds of an epoch."""

    trial: int
    size: int
    epoch_s: float


@dataclass(frozen=True, slots=True)
class _Faster:
    """How many times as fast a trial ran at another width."""

    size: int
    other: int
    ratio: float


def trial_times(
    pool: TrialPool,
    results: Sequence[TrialResult],
    resizes: Sequence[TrialResize],
) -> TrialTimes:
    """What results say of times.

    Args:
        pool: Devices that the search divides.
        results: In the order in which they were counted.
        resizes: In the order in which they were decided.
    """
    widths = widths_of(pool)
    parts: dict[tuple[int, int], list[TrialResize]] = {}
    for resize in resizes:
        parts.setdefault((resize.trial, resize.epoch), []).append(resize)
    measured = list(_measured(widths, results))
    pairs = [*_pairs(measured), *_resized_pairs(widths, results, parts)]
    curve = _curve(widths, measured, pairs)
    own = {one.trial: one.epoch_s * curve.speeds[widths.sizes.index(one.size)] for one in measured}
    return TrialTimes(
        widths=widths,
        curve=curve,
        own_s=own,
        mean_s=sum(own.values()) / len(own) if own else None,
        parts=parts,
    )


def _measured(widths: Widths, results: Sequence[TrialResult]) -> Iterator[_Measured]:
    reached: dict[int, int] = {}
    for one in results:
        epochs = one.epoch - reached.get(one.trial, 0)
        reached[one.trial] = one.epoch
        if one.value is not None and epochs > 0 and one.seconds and one.percent:
            yield _Measured(one.trial, size_of(widths, one.percent), one.seconds / epochs)


def _pairs(measured: Sequence[_Measured]) -> Iterator[_Faster]:
    """Trials that ran at one width after another, from one rung to the next."""
    before: dict[int, _Measured] = {}
    for one in measured:
        earlier = before.get(one.trial)
        if earlier is not None:
            yield _Faster(earlier.size, one.size, earlier.epoch_s / one.epoch_s)
        before[one.trial] = one


def _resized_pairs(
    widths: Widths,
    results: Sequence[TrialResult],
    parts: Mapping[tuple[int, int], Sequence[TrialResize]],
) -> Iterator[_Faster]:
    """Trials that were resized once, whose earlier result has the width that they had before."""
    earlier: dict[int, tuple[int, int, float]] = {}
    for one in results:
        epoch, size, epoch_s = earlier.get(one.trial, (0, 0, 0.0))
        own = parts.get((one.trial, one.epoch), ())
        if len(own) == 1 and epoch_s and size == size_of(widths, own[0].from_percent):
            whole = (one.epoch - epoch) * epoch_s
            left, took = whole - own[0].seconds, one.seconds - own[0].seconds
            if left > LEAST_PART * whole and took > LEAST_PART * one.seconds:
                yield _Faster(size, size_of(widths, own[0].to_percent), left / took)
        if one.value is not None and one.percent and one.seconds and one.epoch > epoch:
            size = size_of(widths, one.percent)
            earlier[one.trial] = one.epoch, size, one.seconds / (one.epoch - epoch)
        else:
            earlier[one.trial] = one.epoch, 0, 0.0


def _curve(widths: Widths, measured: Sequence[_Measured], pairs: Sequence[_Faster]) -> SpeedCurve:
    """Speeds by width, from trials that ran at several.

    Trials differ, so a width counts as measured only where a trial had it and another one. Others
    follow by a power of the width below 1, so that shares count as worth it until they are
    measured: only what ran shows its speed. Source: derived.
    """
    if not measured:
        return speed_curve(widths, {width: width**PRIOR_EXPONENT for width in widths.widths})
    sizes = [one.size for one in measured]
    base = max(set(sizes), key=lambda size: (sizes.count(size), -size))
    logs: dict[int, list[float]] = {}
    for one in pairs:
        if base in (one.size, one.other) and one.size != one.other and 0 < one.ratio < math.inf:
            log = math.log(one.ratio)
            other, gain = (one.other, log) if one.size == base else (one.size, -log)
            logs.setdefault(other, []).append(gain)
    seen = {base / widths.parts: 1.0}
    seen |= {size / widths.parts: math.exp(sum(own) / len(own)) for size, own in logs.items()}
    narrowest, nearest = min(seen), min(seen, key=lambda width: abs(math.log(width)))
    for width in widths.widths:
        if width < narrowest:
            seen[width] = seen[narrowest] * (width / narrowest) ** PRIOR_EXPONENT
    seen.setdefault(1.0, seen[nearest] * (1 / nearest) ** PRIOR_EXPONENT)
    return MeasuredSpeeds(widths=widths, steps_per_s=seen).curve()
