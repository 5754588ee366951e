# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How long trials take, from the results of their search, for one that divides devices.

Everything is told in work: seconds that it would take on one whole device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
        steps_per_epoch: As ended trials report their steps; ``None`` = none does.
    """

    widths: Widths
    curve: SpeedCurve
    own_s: Mapping[int, float] = field(default_factory=dict)
    mean_s: float | None = None
    parts: Mapping[tuple[int, int], Sequence[TrialResize]] = field(default_factory=dict)
    steps_per_epoch: float | None = None

    def seen_epoch_s(self, one: DueTrial) -> float | None:
        """Work of an epoch by the speed that a running trial reports, seconds.

        Args:
            one: The trial.
        """
        told = one.run.status.progress if one.run is not None else None
        if one.run is None or told is None or self.steps_per_epoch is None:
            return None
        rate = float(told.steps_per_second or 0)
        return self.steps_per_epoch / rate * self.speed(percent_had(one.run.gpu)) if rate else None

    def seen_left(self, one: DueTrial) -> float | None:
        """Epochs that a running trial has left, by the steps that it reports.

        Args:
            one: The trial.
        """
        told = one.run.status.progress if one.run is not None else None
        if told is None or self.steps_per_epoch is None:
            return None
        done = told.steps / self.steps_per_epoch
        return one.epochs - done if not told.resumed_at else one.until_epoch - done

    def epoch_s(self, trial: int) -> float | None:
        """Work of an epoch of a trial, in seconds: its own, or the mean of the others.

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
        """Work of a result, in seconds; of a trial that was resized, about as much as it ran.

        Args:
            result: That was counted.
        """
        return result.seconds * (self.speed(result.percent) if result.percent else 1.0)

    def before_s(self, trial: int, epoch: int) -> float:
        """Work that a trial did on its way to an epoch until it was resized last, in seconds.

        Args:
            trial: Number of the trial.
            epoch: That it runs to.
        """
        return sum(
            one.seconds * self.speed(one.from_percent) for one in self.parts.get((trial, epoch), ())
        )


@dataclass(slots=True)
class _Sums:
    amount: float = 0.0
    epochs: int = 0

    def add(self, amount: float, epochs: int) -> None:
        self.amount += amount
        self.epochs += epochs


def trial_times(
    pool: TrialPool,
    results: Sequence[TrialResult],
    resizes: Sequence[TrialResize],
    runs: Iterable[WorkloadRecord] = (),
) -> TrialTimes:
    """What results say of times.

    The speed at a width is the epochs of all trials that had it, over their time, in that on a
    whole device; widths without a result follow from the others. Source: derived.

    Args:
        pool: Devices that the search divides.
        results: In the order in which they were counted.
        resizes: In the order in which they were decided.
        runs: TrainingJobs of its trials.
    """
    widths = widths_of(pool)
    by_size: dict[int, _Sums] = {}
    measured: list[tuple[int, int, float]] = []
    reached: dict[int, int] = {}
    done: dict[tuple[int, int], int] = {}
    for one in results:
        epochs = one.epoch - reached.get(one.trial, 0)
        reached[one.trial] = one.epoch
        done[one.trial, one.epoch] = epochs
        if one.value is None or epochs < 1 or not one.seconds or not one.percent:
            continue
        size = size_of(widths, one.percent)
        by_size.setdefault(size, _Sums()).add(one.seconds, epochs)
        measured.append((one.trial, size, one.seconds / epochs))
    curve = _curve(widths, by_size)
    own: dict[int, float] = {}
    mean = _Sums()
    for trial, size, seconds in measured:
        own[trial] = seconds * curve.speeds[widths.sizes.index(size)]
        mean.add(own[trial], 1)
    parts: dict[tuple[int, int], list[TrialResize]] = {}
    for resize in resizes:
        parts.setdefault((resize.trial, resize.epoch), []).append(resize)
    return TrialTimes(
        widths=widths,
        curve=curve,
        own_s=own,
        mean_s=mean.amount / mean.epochs if mean.epochs else None,
        parts=parts,
        steps_per_epoch=_steps_per_epoch(runs, {at: done[at] for at in done.keys() - parts.keys()}),
    )


def _steps_per_epoch(
    runs: Iterable[WorkloadRecord], done: Mapping[tuple[int, int], int]
) -> float | None:
    """Of TrainingJobs that ended and report steps; epochs that each did, by trial and epoch."""
    sums = _Sums()
    for run in runs:
        of, told = run.trial, run.status.progress
        if of is None or told is None or run.status.phase != Phase.SUCCEEDED:
            continue
        epochs = done.get((of.trial, of.until_epoch), 0)
        steps = told.steps - told.resumed_at
        if epochs > 0 and steps > 0:
            sums.add(steps, epochs)
    return sums.amount / sums.epochs if sums.epochs else None


def _curve(widths: Widths, by_size: Mapping[int, _Sums]) -> SpeedCurve:
    """Before anything is measured, shares count as worth it: only what ran shows its speed."""
    if not by_size:
        return speed_curve(widths, {width: width**PRIOR_EXPONENT for width in widths.widths})
    seen = {size / widths.parts: sums.epochs / sums.amount for size, sums in by_size.items()}
    return MeasuredSpeeds(widths=widths, steps_per_s=seen).curve()
