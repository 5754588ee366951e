# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whether predicted probabilities of a loss within an hour come true, over all shared traces.

A prediction each quarter hour that a pool is up; what is seen is seen by the engine's own
posterior, from the trace's past alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.capacity_traces import Trace
from bench.report import Figure, Row
from ullage.engines.capacity.hazard import Hazard, Prior
from ullage.engines.capacity.times import HAZARD_HALF_LIFE_H

PRIOR: Final = Prior(events=0.1, hours=10.0)
EVERY_S: Final = 900
AHEAD_S: Final = 3600
DECILES: Final = 10
LIMIT: Final = 0.05
LIVES_H: Final[tuple[float | None, ...]] = (24.0, HAZARD_HALF_LIFE_H, 72.0, None)

Floats = NDArray[np.float64]


def probability(hazard: Hazard, hours: float) -> float:
    """Predictive P(event within some hours) = 1 - (B / (B + h))^A (derived)."""
    a, b = hazard.prior.events + hazard.events, hazard.prior.hours + hazard.hours
    return -math.expm1(-a * math.log1p(hours / b))


def predictions(trace: Trace, half_life_h: float | None) -> tuple[list[float], list[bool]]:
    """Predicted probabilities, and whether instances were lost within the hour."""
    hazard = Hazard(prior=PRIOR)
    up = trace.up
    lost: list[int] = []
    asked: list[int] = []
    predicted: list[float] = []
    hours, ahead = trace.gap_s / 3600, AHEAD_S // trace.gap_s
    for tick in range(1, len(up)):
        before, now = int(up[tick - 1]), int(up[tick])
        hazard = hazard.after(hours, held=before > 0, half_life_h=half_life_h)
        if now > before:
            hazard = hazard.gained()
        if now < before:
            events = hazard.events
            hazard = hazard.lost((before - now) / before)
            if hazard.events > events:
                lost.append(tick)
        first = tick * trace.gap_s % EVERY_S < trace.gap_s
        if first and now > 0 and tick + ahead < len(up):
            predicted.append(probability(hazard, ahead * hours))
            asked.append(tick)
    after = np.searchsorted(lost, asked, side="right")
    ends = np.append(lost, len(up) + ahead + 1)
    return predicted, [
        bool(ends[at] <= tick + ahead) for at, tick in zip(after, asked, strict=True)
    ]


def deciles(predicted: Floats, happened: Floats) -> list[tuple[float, float, int]]:
    """Mean prediction, part that happened and count, of ten groups of equal size."""
    order = np.argsort(predicted, kind="stable")
    return [
        (float(predicted[group].mean()), float(happened[group].mean()), len(group))
        for group in np.array_split(order, DECILES)
    ]


def measure(
    traces: Sequence[Trace], tick: Callable[[str], None]
) -> tuple[dict[str, Figure], list[Row]]:
    """The largest error of any decile, at several half-lives."""
    figures: dict[str, Figure] = {}
    rows: list[Row] = []
    for life in LIVES_H:
        pairs = [predictions(trace, life) for trace in traces]
        predicted = np.array([value for one, _ in pairs for value in one])
        happened = np.array([value for _, one in pairs for value in one], dtype=float)
        groups = deciles(predicted, happened)
        error = max(abs(said - seen) for said, seen, _ in groups)
        name = "no_forgetting" if life is None else f"{life:.0f}h"
        figures[f"calibration_error_{name}"] = round(error, 4)
        tick(f"hazard: half-life {name}, error {error:.3f}")
        if life != HAZARD_HALF_LIFE_H:
            continue
        figures["calibration_max_error"] = round(error, 5)
        figures["calibration_predictions"] = len(predicted)
        mean = float(happened.mean())
        rows.append(
            Row(
                what=f"P(loss within 1 h), largest error of a decile ({len(traces)} traces)",
                ours=f"{error:.3f}",
                baseline=f"{max(abs(mean - seen) for _, seen, _ in groups):.3f} one mean for all",
                limit=f"<= {LIMIT}",
            )
        )
        rows += [
            Row(
                what=f"  decile {number}, {count} predictions",
                ours=f"said {said:.3f}",
                baseline=f"seen {seen:.3f}",
            )
            for number, (said, seen, count) in enumerate(groups, start=1)
        ]
    return figures, rows
