# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A step on another type from one measured type and similar jobs: a Gaussian process.

It learns log(step there / step here) over log step, log batch and log devices, with a separate term
per family. It must never see the job's own time on the other type.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from ullage.engines.devicechoice.features import Floats
from ullage.engines.devicechoice.intervals import LEVEL, Interval

CONSTANT: Final = 0.3
FAMILY: Final = 0.3
SMOOTH: Final = 0.3
ACROSS: Final = 0.3
"""Prior variances of log ratios (common, per family, smooth) and the share of the last between
families; set by hand, as log ratios of public tables spread by about 1."""
LENGTHS: Final = (0.7, 1.5, 3.0)
NOISES: Final = (0.005, 0.02, 0.08)
FEWEST_ROWS: Final = 3
LEAST_SPREAD: Final = 1.0
"""Identical rows have no residuals, and give no information about other jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The features of a job's speed, measured on one type.

    Attributes:
        family: Family of models.
        batch: Samples of a step on each device.
        gpus: Devices.
        step_s: Measured seconds of a step on the known type.
    """

    family: str
    batch: float
    gpus: int
    step_s: float

    def __post_init__(self) -> None:
        if min(self.batch, self.gpus, self.step_s) <= 0 or not math.isfinite(self.step_s):
            raise ValueError(f"batch, gpus and step_s must be above 0: {self}")


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """A learned transfer from one type to another.

    Attributes:
        known: Jobs measured on both types.
        families: Their families.
        points: Their features.
        weights: Weight of each in a prediction.
        inverse: Of the covariance.
        mean: Of the log ratios.
        length: Length scale in e-folds.
        noise: Variance of a row.
        spread: Factor on the standard deviation that covers ``LEVEL`` of left-out rows.
    """

    known: int
    families: Sequence[str]
    points: Floats
    weights: Floats
    inverse: Floats
    mean: float
    length: float
    noise: float
    spread: float

    def step(self, config: Config) -> Interval:
        """Seconds of a step on the other type."""
        point = _points([config])
        across = _kernel(point, [config.family], self.points, self.families, self.length)[0]
        log_ratio = self.mean + float(across @ self.weights)
        prior = CONSTANT + FAMILY + SMOOTH + self.noise
        variance = max(prior - float(across @ self.inverse @ across), self.noise)
        off = self.spread * math.sqrt(variance)
        value = config.step_s * math.exp(log_ratio)
        return Interval(value_s=value, low_s=value * math.exp(-off), high_s=value * math.exp(off))


def learn_transfer(rows: Sequence[tuple[Config, float]]) -> Transfer:
    """Learn from jobs measured on both types.

    Length and noise are those of highest marginal likelihood on these rows; the spread is the
    corrected quantile of their leave-one-out residuals.

    Args:
        rows: A job as measured on the known type, and its seconds per step on the other; the same
            batch and devices.

    Raises:
        ValueError: too few rows, or a step that is not above 0.
    """
    if len(rows) < FEWEST_ROWS:
        raise ValueError(f"{len(rows)} jobs measured on both types; at least {FEWEST_ROWS} needed")
    if not all(there > 0 and math.isfinite(there) for _, there in rows):
        raise ValueError("a step that ran takes more than 0 s; leave out what did not fit")
    configs = [config for config, _ in rows]
    families = [config.family for config in configs]
    points = _points(configs)
    target = np.array([math.log(there / config.step_s) for config, there in rows])
    mean = float(target.mean())
    fits = [
        _Fit.of(points, families, target - mean, length, noise)
        for length in LENGTHS
        for noise in NOISES
    ]
    best = max(fits, key=lambda fit: fit.likelihood)
    return Transfer(
        known=len(rows),
        families=families,
        points=points,
        weights=best.weights,
        inverse=best.inverse,
        mean=mean,
        length=best.length,
        noise=best.noise,
        spread=_spread(best.weights, np.diag(best.inverse)),
    )


@dataclass(frozen=True, kw_only=True)
class _Fit:
    """One setting, and its likelihood on the rows."""

    length: float
    noise: float
    inverse: Floats
    weights: Floats
    likelihood: float

    @classmethod
    def of(
        cls, points: Floats, families: Sequence[str], target: Floats, length: float, noise: float
    ) -> _Fit:
        covariance = _kernel(points, families, points, families, length)
        noisy = covariance + noise * np.eye(len(target))
        inverse = np.asarray(np.linalg.inv(noisy), np.float64)
        weights = inverse @ target
        likelihood = 0.5 * (float(np.linalg.slogdet(inverse)[1]) - float(target @ weights))
        return cls(
            length=length, noise=noise, inverse=inverse, weights=weights, likelihood=likelihood
        )


def _spread(weights: Floats, precision: Floats) -> float:
    """Quantile of standardised leave-one-out residuals, which the inverse gives in closed form."""
    off = np.sort(np.abs(weights / np.sqrt(precision)))
    rank = math.ceil((len(off) + 1) * LEVEL)
    spread = float(off[rank - 1]) if rank <= len(off) else 2.0 * float(off[-1])
    return max(spread, LEAST_SPREAD)


def _points(configs: Sequence[Config]) -> Floats:
    return np.log([[config.step_s, config.batch, config.gpus] for config in configs])


def _kernel(
    left: Floats,
    left_family: Sequence[str],
    right: Floats,
    right_family: Sequence[str],
    length: float,
) -> Floats:
    apart = (left[:, None] - right[None]) / length
    smooth = np.exp(-0.5 * (apart**2).sum(-1))
    pairs = [family == other for family, other in product(left_family, right_family)]
    same = np.array(pairs, np.float64).reshape(len(left_family), len(right_family))
    return np.asarray(
        CONSTANT + FAMILY * same + SMOOTH * smooth * (ACROSS + (1 - ACROSS) * same), np.float64
    )
