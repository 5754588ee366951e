# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How long trials take, from the results of their search, for one that divides devices.

Everything is told in work: seconds that it would take on one whole device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from ullage.api.contract import GPUMode
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.spec_fields import GPURequest
from ullage.cluster.records.tuning import TrialPool, TrialResize, TrialResult
from ullage.engines.tuning.speed_curves import (
    PRIOR_EXPONENT,
    MeasuredSpeeds,
    SpeedCurve,
    Widths,
    speed_curve,
)
from ullage.scheduling.model.phases import Phase

WHOLE: Final = 100
"""Percent of one device."""
ALIKE: Final = 1.2
"""Steps of an epoch that differ by more among trials say nothing of another trial."""


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


def rate_of(run: WorkloadRecord | None) -> float:
    """Steps per second that a TrainingJob reported last; 0 = none.

    Args:
        run: The TrainingJob.
    """
    told = run.status.progress if run is not None else None
    return max(0.0, float(told.steps_per_second or 0)) if told is not None else 0.0


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
        steps_per_epoch: As ended trials report their speed; ``None`` = none does, or they differ.
    """

    widths: Widths
    curve: SpeedCurve
    own_s: Mapping[int, float] = field(default_factory=dict)
    mean_s: float | None = None
    parts: Mapping[tuple[int, int], Sequence[TrialResize]] = field(default_factory=dict)
    steps_per_epoch: float | None = None

    def epoch_s(self, one: DueTrial) -> float | None:
        """Work of an epoch of a trial, in seconds; ``None`` before any was measured.

        By its own results, else by the speed that it reports, else as the others in the mean.

        Args:
            one: The trial.
        """
        own = self.own_s.get(one.trial)
        if own is not None:
            return own
        rate = rate_of(one.run)
        if one.run is not None and rate and self.steps_per_epoch is not None:
            return self.steps_per_epoch / rate * self.speed(percent_had(one.run.gpu))
        return self.mean_s

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


def trial_times(
    pool: TrialPool,
    results: Sequence[TrialResult],
    resizes: Sequence[TrialResize],
    runs: Iterable[WorkloadRecord] = (),
) -> TrialTimes:
    """What results say of times.

    Args:
        pool: Devices that the search divides.
        results: In the order in which they were counted.
        resizes: In the order in which they were decided.
        runs: TrainingJobs of its trials.
    """
    widths = widths_of(pool)
    parts: dict[tuple[int, int], list[TrialResize]] = {}
    for resize in resizes:
        parts.setdefault((resize.trial, resize.epoch), []).append(resize)
    measured = list(_measured(widths, results))
    curve = _curve(widths, measured, resizes)
    own = {one.trial: one.epoch_s * curve.speeds[widths.sizes.index(one.size)] for one in measured}
    return TrialTimes(
        widths=widths,
        curve=curve,
        own_s=own,
        mean_s=sum(own.values()) / len(own) if own else None,
        parts=parts,
        steps_per_epoch=_steps_per_epoch(runs, results, parts),
    )


def _measured(widths: Widths, results: Sequence[TrialResult]) -> Iterator[_Measured]:
    reached: dict[int, int] = {}
    for one in results:
        epochs = one.epoch - reached.get(one.trial, 0)
        reached[one.trial] = one.epoch
        if one.value is not None and epochs > 0 and one.seconds and one.percent:
            yield _Measured(one.trial, size_of(widths, one.percent), one.seconds / epochs)


def _curve(
    widths: Widths, measured: Sequence[_Measured], resizes: Sequence[TrialResize]
) -> SpeedCurve:
    """Speeds by width, from trials that ran at several.

    Trials differ, so a width counts as measured only where a trial had it and another one. Others
    follow by a power of the width below 1, so that shares count as worth it until they are
    measured: only what ran shows its speed. Source: derived.
    """
    if not measured and not any(one.speedup for one in resizes):
        return speed_curve(widths, {width: width**PRIOR_EXPONENT for width in widths.widths})
    ratios = _ratios(widths, measured, resizes)
    sizes = [one.size for one in measured] or [size_of(widths, resizes[0].from_percent)]
    base = max(set(sizes), key=lambda size: (sizes.count(size), -size))
    seen = {base / widths.parts: 1.0}
    for (low, high), logs in sorted(ratios.items()):
        ratio = math.exp(sum(logs) / len(logs))
        if low == base:
            seen[high / widths.parts] = ratio
        elif high == base:
            seen[low / widths.parts] = 1 / ratio
    narrowest, nearest = min(seen), min(seen, key=lambda width: abs(math.log(width)))
    for width in widths.widths:
        if width < narrowest:
            seen[width] = seen[narrowest] * (width / narrowest) ** PRIOR_EXPONENT
    seen.setdefault(1.0, seen[nearest] * (1 / nearest) ** PRIOR_EXPONENT)
    return MeasuredSpeeds(widths=widths, steps_per_s=seen).curve()


def _ratios(
    widths: Widths, measured: Sequence[_Measured], resizes: Sequence[TrialResize]
) -> Mapping[tuple[int, int], Sequence[float]]:
    """Logarithms of how much faster trials ran at the wider of two sizes, by both sizes."""
    found: dict[tuple[int, int], list[float]] = {}

    def take(size: int, other: int, faster: float) -> None:
        if size != other and 0 < faster < math.inf:
            low, high = sorted((size, other))
            log = math.log(faster)
            found.setdefault((low, high), []).append(log if other == high else -log)

    before: dict[int, _Measured] = {}
    for one in measured:
        earlier = before.get(one.trial)
        if earlier is not None:
            take(earlier.size, one.size, earlier.epoch_s / one.epoch_s)
        before[one.trial] = one
    for resize in resizes:
        sizes = size_of(widths, resize.from_percent), size_of(widths, resize.to_percent)
        take(*sizes, float(resize.speedup or 0))
    return found


def _steps_per_epoch(
    runs: Iterable[WorkloadRecord],
    results: Sequence[TrialResult],
    parts: Mapping[tuple[int, int], Sequence[TrialResize]],
) -> float | None:
    """Of trials that ended and report their speed, where they agree.

    The count of steps is written seldom, so it is older than the end; speed times duration is not.
    """
    reached: dict[int, int] = {}
    ended: dict[tuple[int, int], tuple[int, int]] = {}
    for one in results:
        at, epochs = (one.trial, one.epoch), one.epoch - reached.get(one.trial, 0)
        reached[one.trial] = one.epoch
        if one.percent and epochs > 0 and at not in parts:
            ended[at] = one.seconds, epochs
    found = []
    for run in runs:
        of, rate = run.trial, rate_of(run)
        if of is None or not rate or run.status.phase != Phase.SUCCEEDED:
            continue
        seconds, epochs = ended.get((of.trial, of.until_epoch), (0, 1))
        if seconds:
            found.append(rate * seconds / epochs)
    if not found or max(found) > ALIKE * ALIKE * min(found):
        return None
    return sum(found) / len(found)
