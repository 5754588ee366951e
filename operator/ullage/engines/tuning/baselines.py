# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Baseline planners: one device per trial, and fixed widths."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ullage.engines.tuning.bounds import least_place
from ullage.engines.tuning.occupancy import TrialOccupancy
from ullage.engines.tuning.records import (
    PlannedTrial,
    PlanRules,
    TrialDevice,
    TrialPlan,
    TrialStart,
)
from ullage.engines.tuning.speed_curves import Widths


def first_come(
    trials: Sequence[PlannedTrial], devices: Sequence[TrialDevice], rules: PlanRules, now_s: float
) -> TrialPlan:
    """One device per trial, in the order of arrival.

    Args:
        trials: Trials that have not ended, in the order of arrival.
        devices: Existing devices.
        rules: Available widths.
        now_s: The current time, in seconds; no choice depends on it.
    """
    del now_s
    return _started(trials, [rules.widths.parts] * len(trials), devices, rules)


def longest_first(
    trials: Sequence[PlannedTrial], devices: Sequence[TrialDevice], rules: PlanRules, now_s: float
) -> TrialPlan:
    """One device per trial, the longest first (LPT; Graham 1969).

    Args:
        trials: Trials that have not ended.
        devices: Existing devices.
        rules: Available widths.
        now_s: The current time, in seconds; no choice depends on it.
    """
    ordered = sorted(trials, key=lambda trial: -trial.work_s)
    return first_come(ordered, devices, rules, now_s)


def static_sizes(works_s: Sequence[float], devices: int, widths: Widths) -> list[int]:
    """Parts by trial: min(max(floor(h n / sum of h), 1/c), d).

    Source: Fluid (Yu et al., MLSys 2021), its static formula as recalled; the public code differs
    from it in three places.

    Args:
        works_s: Seconds at width 1, by trial.
        devices: Number of devices.
        widths: Available widths.
    """
    total = sum(works_s)
    if total <= 0:
        return [widths.sizes[0]] * len(works_s)
    return [
        min(max(int(work * devices / total) * widths.parts, widths.sizes[0]), widths.sizes[-1])
        for work in works_s
    ]


def static(sizes: Sequence[int]) -> Callable[..., TrialPlan]:
    """A planner with one fixed width per trial, by its number, the longest trial first.

    Args:
        sizes: Parts, by number of the trial.
    """

    def planner(
        trials: Sequence[PlannedTrial],
        devices: Sequence[TrialDevice],
        rules: PlanRules,
        now_s: float,
    ) -> TrialPlan:
        del now_s
        ordered = sorted(trials, key=lambda trial: -trial.work_s)
        return _started(ordered, [sizes[trial.number] for trial in ordered], devices, rules)

    return planner


def _started(
    ordered: Sequence[PlannedTrial],
    sizes: Sequence[int],
    devices: Sequence[TrialDevice],
    rules: PlanRules,
) -> TrialPlan:
    """Start trials that fit in this order, no share below the memory need; nothing is resized."""
    occupancy = TrialOccupancy(devices, rules.widths.parts)
    waiting = []
    for trial, size in zip(ordered, sizes, strict=True):
        if trial.holding is not None and occupancy.knows(trial.holding):
            occupancy.take(trial.holding.size, trial.holding.devices)
        else:
            waiting.append((trial, size))
    starts = []
    for trial, size in waiting:
        least = rules.widths.sizes[least_place(trial, rules.widths)]
        place = occupancy.place(max(size, least))
        if place is not None:
            occupancy.take(max(size, least), place)
            starts.append(TrialStart(trial=trial.number, size=max(size, least), devices=place))
        if occupancy.largest_free == 0:
            break
    return TrialPlan(starts=tuple(starts), target_s=float(np.nan))
