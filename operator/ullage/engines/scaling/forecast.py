# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The load when a new replica begins to serve, from loads that were measured.

Level and trend of the last minutes, or what the load did a season ago from here on, whichever is
more; both times a quantile of what earlier forecasts were wrong by. Which quantile follows from the
requests that were late: Holt's linear trend, and adaptive conformal inference (Gibbs and Candes,
NeurIPS 2021, update of alpha) on relative errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL: Final = 0.5
"""Weight of the newest bin in the level."""
TREND: Final = 0.3
"""Weight of the newest change in the trend."""
FIRST_CAUTION: Final = 0.9
"""Part of the earlier loads that a forecast would have covered, before any request was judged."""
MOST_CAUTION: Final = 0.98
PACE: Final = 0.1
"""How far the caution moves with a bin in which every request was late."""
AIM: Final = 0.5
"""Part of the late requests that an objective allows which is aimed at."""
MOST_WEIGHT: Final = 3.0
"""Most that a bin with many requests counts, in bins of the usual number."""
LEAST_MARGIN: Final = 0.5
MOST_MARGIN: Final = 3.0
DAMPING: Final = 0.8
"""What is left of a trend after each bin (Gardner and McKenzie 1985)."""
SMALL: Final = 0.25
"""Part of the mean load that is added to both sides of a relative error: none is wild at night."""
FEWEST_ERRORS: Final = 8
BINS: Final = 240
"""Bins that count."""
MEANT: Final = 2
"""Last bins ahead whose load a forecast means."""
ERRORS: Final = 60
"""Past forecasts whose errors count."""
SEASONAL_FACTOR: Final = 4.0
"""Most that a season may multiply the present level by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadForecast:
    """Requests per second: the level now, and what is planned for ahead."""

    level: float
    ahead: float
    margin: float = 1.0
    """What the errors of earlier forecasts multiplied it by."""
    seasonal: bool = False
    """Whether the season said more than the trend."""


def adapted(caution: float, late: float, weight: float, quantile: float) -> float:
    """The caution after a bin: more after more late requests than the objective allows, else less.

    Args:
        caution: Before, 0..1.
        late: Part of the bin's requests that were late.
        weight: Requests of the bin, in those of a usual bin.
        quantile: The objective's.
    """
    step = PACE * min(weight, MOST_WEIGHT) * (late - AIM * (1 - quantile))
    return min(MOST_CAUTION, max(0.0, caution + step))


def forecast(
    rates: Sequence[float],
    ahead: int,
    *,
    expected: Floats | None = None,
    caution: float = FIRST_CAUTION,
) -> LoadForecast:
    """The load to plan for when a replica that is asked for now begins to serve.

    Args:
        rates: Requests per second in bins of equal length, the oldest first; at least one.
        ahead: Bins until a replica that is asked for now serves, at least 1.
        expected: Requests per second that a season says of the same bins and of those ahead; 0 =
            it says nothing. ``None`` = there is no season.
        caution: Which quantile of earlier errors is the margin, 0..1.

    Raises:
        ValueError: there is no rate, or one is negative or not finite, or ``ahead`` is below 1.
    """
    values = np.asarray(rates[-BINS:], dtype=np.float64)
    if not values.size or not np.isfinite(values).all() or (values < 0).any() or ahead < 1:
        raise ValueError("a forecast needs rates of at least 0, and one bin ahead at least")
    level, trend = _holt(values)
    steps = DAMPING * (1 - DAMPING**ahead) / (1 - DAMPING)
    plain = level + np.maximum(trend, 0.0) * steps
    repeated = np.zeros_like(level)
    if expected is not None:
        repeated = _repeated(level, ahead, expected[-values.size - ahead :])
    base = np.maximum(plain, repeated)
    margin = _margin(values, base, ahead, caution)
    return LoadForecast(
        level=float(level[-1]),
        ahead=float(base[-1] * margin),
        margin=margin,
        seasonal=bool(repeated[-1] > plain[-1]),
    )


def _holt(values: Floats) -> tuple[Floats, Floats]:
    """Level and slope a bin, after each bin."""
    levels, trends = np.empty_like(values), np.empty_like(values)
    level, trend = float(values[0]), 0.0
    for at, value in enumerate(values):
        before = level
        level = LEVEL * value + (1 - LEVEL) * (level + trend)
        trend = TREND * (level - before) + (1 - TREND) * trend
        levels[at], trends[at] = max(level, 0.0), trend
    return levels, trends


def _repeated(level: Floats, ahead: int, expected: Floats) -> Floats:
    """The season's rates of the bins ahead, at the level of each bin; 0 where it says nothing."""
    peaks = sliding_window_view(expected[1:], ahead).max(axis=1)
    now = expected[: level.size]
    most = np.minimum(peaks, SEASONAL_FACTOR * now)
    factors: Floats = np.divide(most, now, out=np.zeros_like(level), where=now > 0)
    return factors * level


def _margin(values: Floats, base: Floats, ahead: int, caution: float) -> float:
    """The factor that would have covered such a part of the loads that came."""
    first = max(0, values.size - ahead - ERRORS)
    small = SMALL * float(values.mean())
    ratios = [
        (values[at + 1 : at + 1 + ahead][-MEANT:].mean() + small) / (base[at] + small)
        for at in range(first, values.size - ahead)
        if base[at] + small > 0
    ]
    if len(ratios) < FEWEST_ERRORS:
        return 1.0
    return float(np.clip(np.quantile(ratios, caution), LEAST_MARGIN, MOST_MARGIN))
