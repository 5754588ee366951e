# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Bounds of the end of trials: a lower bound, and the target of a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ullage.engines.tuning.records import PlannedTrial
from ullage.engines.tuning.speed_curves import Widths, concave

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
PRECISION: Final = 1e-6
"""Relative precision of the target."""
LEAST_S: Final = 1e-9
"""Shortest plan."""


def lower_bound_s(trials: Sequence[PlannedTrial], devices: int, widths: Widths) -> float:
    """Lower bound of the end of any schedule of these trials.

    max(sum of h min(w / s(w)) / n, max of h / s(d)): devices can't do more than all their time at
    the most efficient width, and a trial can't run faster than at its widest. Source: derived.

    Args:
        trials: With their whole work left, in seconds at width 1.
        devices: Number of devices.
        widths: Allowed widths.
    """
    if not trials:
        return 0.0
    if devices < 1:
        return math.inf
    work, speeds = matrix(trials)
    sizes = np.asarray(widths.widths)
    widest = speeds[:, _fitting(widths, devices)]
    area = float((work * (sizes / speeds).min(axis=1)).sum())
    return max(area / devices, float((work / widest).max()))


def fluid_bound_s(trials: Sequence[PlannedTrial], devices: int, widths: Widths) -> float:
    """A bound that is never below :func:`lower_bound_s` and often tight.

    The smallest T for which the mean widths suffice: by Jensen's inequality a trial that does h in
    T has a mean width of at least the inverse of its concave hull at h / T, and the mean widths of
    all are n at most. Source: derived.

    Args:
        trials: With their whole work left, in seconds at width 1.
        devices: Number of devices.
        widths: Allowed widths.
    """
    low = lower_bound_s(trials, devices, widths)
    if not trials or not math.isfinite(low) or low == 0:
        return low
    last = _fitting(widths, devices)
    xs = np.asarray((0.0, *widths.widths[: last + 1]))
    curves = [
        np.asarray((0.0, *concave(widths, trial.curve).speeds[: last + 1])) for trial in trials
    ]

    def suffices(limit_s: float) -> bool:
        means = (
            np.interp(trial.work_s / limit_s, ys, xs)
            for trial, ys in zip(trials, curves, strict=True)
        )
        return float(sum(means)) <= devices

    return _soonest(suffices, low)


def matrix(trials: Sequence[PlannedTrial]) -> tuple[Floats, Floats]:
    """Work left, seconds at width 1, by trial; speeds by trial and width."""
    work = np.asarray([trial.work_s for trial in trials], dtype=np.float64)
    return work, np.asarray([trial.curve.speeds for trial in trials], dtype=np.float64)


def _fitting(widths: Widths, devices: int) -> int:
    """The index of the widest width that this many devices allow."""
    return min(len(widths.sizes), widths.whole + devices) - 1


def least_place(trial: PlannedTrial, widths: Widths) -> int:
    """The index of the narrowest width with enough memory."""
    return next(
        at for at, w in enumerate(widths.widths) if w >= min(1.0, trial.memory_part) - 1e-12
    )


def widths_for(
    target_s: float, work: Floats, speeds: Floats, least: Places, most: Places
) -> Places:
    """The narrowest width index by trial at which it ends in time, within its limits.

    Args:
        target_s: Seconds from now.
        work: Seconds at width 1, by trial.
        speeds: By trial and width index.
        least: The narrowest index allowed for a trial.
        most: The widest one.
    """
    fast = speeds * target_s >= work[:, None] * (1 - 1e-12)
    places = np.where(fast.any(axis=1), fast.argmax(axis=1), speeds.shape[1] - 1)
    limited: Places = np.clip(places, least, most)
    return limited


def target_s(
    work: Floats, speeds: Floats, least: Places, most: Places, widths: Widths, devices: int
) -> float:
    """The earliest end for which devices suffice, each trial as narrow as possible.

    By bisection: the smallest T with sum of w h / s(w) at most n T and h / s(w) at most T for all,
    where w is the narrowest width that ends in T. Source: derived.

    Args:
        work: Seconds at width 1, by trial.
        speeds: By trial and width index.
        least: The narrowest index allowed for a trial.
        most: The widest one.
        widths: Allowed widths.
        devices: Number of devices.
    """
    if work.size == 0 or devices < 1:
        return 0.0
    rows = np.arange(work.size)
    sizes = np.asarray(widths.widths)

    def suffices(limit_s: float) -> bool:
        places = widths_for(limit_s, work, speeds, least, most)
        area = float((sizes[places] * work / speeds[rows, places]).sum())
        return area <= devices * limit_s

    return _soonest(suffices, float((work / speeds[rows, most]).max()))


def _soonest(suffices: Callable[[float], bool], low: float) -> float:
    """The smallest sufficient time from ``low`` on, or slightly above it."""
    high = max(low, LEAST_S)
    while not suffices(high):
        low, high = high, 2 * high
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        if suffices(middle):
            high = middle
        else:
            low = middle
    return high
