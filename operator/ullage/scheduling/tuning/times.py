# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Times of trials, from the results of a search that divides devices.

The unit is work: seconds on one whole device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from ullage.api.devices import GPUMode
from ullage.api.gpurequest import GPURequest
from ullage.cluster.records.tuning import TrialPool, TrialResize, TrialResult
from ullage.cluster.records.workload import WorkloadRecord
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
"""Least part of a trial's time before and after a resize that gives a speed-up."""


def widths_of(pool: TrialPool) -> Widths:
    """The widths that trials of a search may have.

    Args:
        pool: Devices that the search divides.
    """
    most = min(pool.max_devices, pool.devices)
    return Widths(per_device=WHOLE // pool.min_percent, devices=most)


def percent_of(widths: Widths, size: int) -> int:
    """Percent of a device of a size in parts; 100 per whole device.

    Args:
        widths: Widths that trials may have.
        size: Parts of a device.
    """
    return size * WHOLE // widths.parts


@lru_cache(maxsize=1024)
def size_of(widths: Widths, percent: int) -> int:
    """The size in parts that is nearest to a percentage: widths may have changed since.

    Args:
        widths: Widths that trials may have.
        percent: Percent of a device, 100 per whole device.
    """
    return min(widths.sizes, key=lambda size: abs(percent_of(widths, size) - percent))


def percent_had(gpu: GPURequest) -> int:
    """Percent of a device that a TrainingJob requests, 100 per whole device.

    Args:
        gpu: Its request.
    """
    if gpu.mode is GPUMode.FRACTIONAL and gpu.share is not None:
        return gpu.share.min_percent
    return gpu.count * WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTrial:
    """A trial with the epoch to reach, and its TrainingJob if it exists."""

    trial: int
    from_epoch: int
    until_epoch: int
    run: WorkloadRecord | None = None

    @property
    def epochs(self) -> int:
        """Number of epochs to run."""
        return self.until_epoch - self.from_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTimes:
    """Times from the results of a search.

    Attributes:
        widths: Widths that trials may have.
        curve: Speed of a trial by width, relative to a whole device.
        own_s: Work of an epoch, seconds, of each measured trial.
        mean_s: Mean work of an epoch over all results; ``None`` before the first.
        parts: Resizes by trial and epoch.
    """

    widths: Widths
    curve: SpeedCurve
    own_s: Mapping[int, float] = field(default_factory=dict)
    mean_s: float | None = None
    parts: Mapping[tuple[int, int], Sequence[TrialResize]] = field(default_factory=dict)

    def epoch_s(self, trial: int) -> float | None:
        """Work of an epoch of a trial, seconds: from its own results, else the mean of the others.

        Args:
            trial: Number of the trial.
        """
        return self.own_s.get(trial, self.mean_s)

    def speed(self, percent: int) -> float:
        """Work per second on a part of a device.

        Args:
            percent: Percent of a device, 100 per whole device.
        """
        return self.curve.speeds[self.widths.sizes.index(size_of(self.widths, percent))]

    def work_s(self, result: TrialResult) -> float:
        """Work of a result, in seconds.

        Args:
            result: A counted result.
        """
        parts = self.parts.get((result.trial, result.epoch), ())
        last = parts[-1].to_percent if parts else result.percent
        seconds = max(0, result.seconds - sum(part.seconds for part in parts))
        before = self.before_s(result.trial, result.epoch)
        return before + seconds * (self.speed(last) if last else 1.0)

    def before_s(self, trial: int, epoch: int) -> float:
        """Work that a trial did towards an epoch until its last resize, seconds.

        Args:
            trial: Number of the trial.
            epoch: The epoch to reach.
        """
        return sum(
            part.seconds * self.speed(part.from_percent)
            for part in self.parts.get((trial, epoch), ())
        )


@dataclass(frozen=True, slots=True)
class _Measured:
    """A trial at one width: seconds of an epoch."""

    trial: int
    size: int
    epoch_s: float


@dataclass(frozen=True, slots=True)
class _Faster:
    """Speed of a trial at width ``other`` relative to width ``size``."""

    size: int
    other: int
    ratio: float


def trial_times(
    pool: TrialPool,
    results: Sequence[TrialResult],
    resizes: Sequence[TrialResize],
) -> TrialTimes:
    """Compute times from results.

    Args:
        pool: Devices that the search divides.
        results: Results in the order in which they were counted.
        resizes: Resizes in the order in which they were decided.
    """
    widths = widths_of(pool)
    parts: dict[tuple[int, int], list[TrialResize]] = {}
    for resize in resizes:
        parts.setdefault((resize.trial, resize.epoch), []).append(resize)
    measured = list(_measured(widths, results))
    pairs = [*_pairs(measured), *_resized_pairs(widths, results, parts)]
    curve = _curve(widths, measured, pairs)
    work_s = {
        entry.trial: entry.epoch_s * curve.speeds[widths.sizes.index(entry.size)]
        for entry in measured
    }
    return TrialTimes(
        widths=widths,
        curve=curve,
        own_s=work_s,
        mean_s=sum(work_s.values()) / len(work_s) if work_s else None,
        parts=parts,
    )


def _measured(widths: Widths, results: Sequence[TrialResult]) -> Iterator[_Measured]:
    reached: dict[int, int] = {}
    for result in results:
        epochs = result.epoch - reached.get(result.trial, 0)
        reached[result.trial] = result.epoch
        if result.value is not None and epochs > 0 and result.seconds and result.percent:
            yield _Measured(result.trial, size_of(widths, result.percent), result.seconds / epochs)


def _pairs(measured: Sequence[_Measured]) -> Iterator[_Faster]:
    """Trials that ran at different widths in successive rungs."""
    before: dict[int, _Measured] = {}
    for trial in measured:
        earlier = before.get(trial.trial)
        if earlier is not None:
            yield _Faster(earlier.size, trial.size, earlier.epoch_s / trial.epoch_s)
        before[trial.trial] = trial


def _resized_pairs(
    widths: Widths,
    results: Sequence[TrialResult],
    parts: Mapping[tuple[int, int], Sequence[TrialResize]],
) -> Iterator[_Faster]:
    """Trials that were resized once and have an earlier result at the width before."""
    earlier: dict[int, tuple[int, int, float]] = {}
    for result in results:
        epoch, size, epoch_s = earlier.get(result.trial, (0, 0, 0.0))
        trial_parts = parts.get((result.trial, result.epoch), ())
        if (
            len(trial_parts) == 1
            and epoch_s
            and size == size_of(widths, trial_parts[0].from_percent)
        ):
            whole = (result.epoch - epoch) * epoch_s
            remaining_s, took = (
                whole - trial_parts[0].seconds,
                result.seconds - trial_parts[0].seconds,
            )
            if remaining_s > LEAST_PART * whole and took > LEAST_PART * result.seconds:
                yield _Faster(size, size_of(widths, trial_parts[0].to_percent), remaining_s / took)
        if result.value is not None and result.percent and result.seconds and result.epoch > epoch:
            size = size_of(widths, result.percent)
            earlier[result.trial] = result.epoch, size, result.seconds / (result.epoch - epoch)
        else:
            earlier[result.trial] = result.epoch, 0, 0.0


def _curve(widths: Widths, measured: Sequence[_Measured], pairs: Sequence[_Faster]) -> SpeedCurve:
    """Speeds by width, from trials that ran at several.

    Trials differ, so a width counts as measured only when a trial ran at it and at another one. The
    speed at other widths is a power below 1 of the width, so that shares look worthwhile and get
    measured. Source: derived.
    """
    if not measured:
        return speed_curve(widths, {width: width**PRIOR_EXPONENT for width in widths.widths})
    sizes = [entry.size for entry in measured]
    base = max(set(sizes), key=lambda size: (sizes.count(size), -size))
    logs: dict[int, list[float]] = {}
    for pair in pairs:
        if (
            base in (pair.size, pair.other)
            and pair.size != pair.other
            and 0 < pair.ratio < math.inf
        ):
            log = math.log(pair.ratio)
            other, gain = (pair.other, log) if pair.size == base else (pair.size, -log)
            logs.setdefault(other, []).append(gain)
    seen = {base / widths.parts: 1.0}
    seen |= {size / widths.parts: math.exp(sum(gains) / len(gains)) for size, gains in logs.items()}
    narrowest, nearest = min(seen), min(seen, key=lambda width: abs(math.log(width)))
    for width in widths.widths:
        if width < narrowest:
            seen[width] = seen[narrowest] * (width / narrowest) ** PRIOR_EXPONENT
    seen.setdefault(1.0, seen[nearest] * (1 / nearest) ** PRIOR_EXPONENT)
    return MeasuredSpeeds(widths=widths, steps_per_s=seen).curve()
