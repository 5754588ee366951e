# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The load when a new replica begins to serve, from measured loads.

The larger of level and trend of the last minutes, and the load of a season ago; both multiplied by
a quantile of earlier forecast errors. Late requests determine the quantile: Holt's linear trend,
and adaptive conformal inference (Gibbs and Candes, NeurIPS 2021, update of alpha) on relative
errors.
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
"""Initial fraction of the earlier loads that a forecast covers, before any requests ended."""
MOST_CAUTION: Final = 0.98
PACE: Final = 0.1
"""Change of the caution by a bin in which every request was late."""
AIM: Final = 0.5
"""Target for late requests, as a fraction of those that an objective allows."""
MOST_WEIGHT: Final = 3.0
"""Maximum weight of a bin with many requests, in bins of the usual number."""
LEAST_MARGIN: Final = 0.5
MOST_MARGIN: Final = 3.0
DAMPING: Final = 0.8
"""Fraction of a trend that remains after each bin (Gardner and McKenzie 1985)."""
SMALL: Final = 0.25
"""Fraction of the mean load added to both sides of a relative error, against noise at night."""
FEWEST_ERRORS: Final = 8
BINS: Final = 240
"""Bins that are used."""
MEANT: Final = 2
"""Last bins ahead over which a forecast is averaged."""
ERRORS: Final = 60
"""Past forecasts whose errors are used."""
SEASONAL_FACTOR: Final = 4.0
"""Maximum multiple of the present level by a season."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadForecast:
    """Requests per second: the present level, and the planned load ahead."""

    level: float
    ahead: float
    margin: float = 1.0
    """The factor from errors of earlier forecasts."""
    seasonal: bool = False
    """True when the season gave more than the trend."""


def adapted(caution: float, late: float, weight: float, quantile: float) -> float:
    """The caution after a bin: higher after more late requests than allowed, else lower.

    Args:
        caution: Caution before, 0..1.
        late: Fraction of the bin's requests that were late.
        weight: Requests of the bin, relative to a usual bin.
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
    """The load to plan for when a replica requested now begins to serve.

    Args:
        rates: Requests per second in bins of equal length, the oldest first; at least one.
        ahead: Bins until a replica requested now serves, at least 1.
        expected: Requests per second of a season in the same bins and those ahead; 0 = unknown.
            ``None`` = there is no season.
        caution: Quantile of earlier errors that is the margin, 0..1.

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
    """Level and slope per bin, after each bin."""
    levels, trends = np.empty_like(values), np.empty_like(values)
    level, trend = float(values[0]), 0.0
    for at, value in enumerate(values):
        before = level
        level = LEVEL * value + (1 - LEVEL) * (level + trend)
        trend = TREND * (level - before) + (1 - TREND) * trend
        levels[at], trends[at] = max(level, 0.0), trend
    return levels, trends


def _repeated(level: Floats, ahead: int, expected: Floats) -> Floats:
    """The season's rates of the bins ahead, at the level of each bin; 0 where unknown."""
    peaks = sliding_window_view(expected[1:], ahead).max(axis=1)
    now = expected[: level.size]
    most = np.minimum(peaks, SEASONAL_FACTOR * now)
    factors: Floats = np.divide(most, now, out=np.zeros_like(level), where=now > 0)
    return factors * level


def _margin(values: Floats, base: Floats, ahead: int, caution: float) -> float:
    """The factor that would have covered this fraction of the actual loads."""
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
