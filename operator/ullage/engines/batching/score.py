# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The priority of a request in a batch: what running it now gains over running it later.

The score is (P(in time if run now) - P(in time after a wait tau)) / E[batch time] with tau ~
Exp(b): small for requests that are hopeless or can wait. The closed form over bins is derived by
integrating each bin's density against e^{-b(u - x)}.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from ullage.engines.batching.batch_time import BatchCosts
from ullage.engines.batching.histogram import Floats, TimeHistogram

GRID: Final = 512
"""Slacks at which a row of the table is computed."""


def score(batch: TimeHistogram, slack_s: Floats, rate_per_s: float) -> Floats:
    """Avoided lateness per second of the batch, for each slack.

    Args:
        batch: Distribution of the batch's time.
        slack_s: Time to the deadlines.
        rate_per_s: b, one over the expected wait.

    Returns:
        Per second; 0 where the slack is at most the shortest time of the batch.
    """
    low, width = batch.edges[:-1], np.diff(batch.edges)
    slack = np.asarray(slack_s, dtype=np.float64)[..., None]
    inside = np.clip(slack - low, 0.0, width)
    wait = np.maximum(slack - low - inside, 0.0)
    density = np.diff(batch.cdf) / width
    gained = density / rate_per_s * np.exp(-rate_per_s * wait) * -np.expm1(-rate_per_s * inside)
    return np.asarray(gained.sum(axis=-1) / batch.mean_s, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoreRow:
    """Scores and finish probabilities of one batch size."""

    size: int
    batch: TimeHistogram
    rate_per_s: float
    mean_s: float
    grid_s: Floats
    scores: Floats

    @classmethod
    def of(cls, size: int, batch: TimeHistogram, rate_per_s: float | None = None) -> ScoreRow:
        """The row of a batch-time distribution; b defaults to one over its mean."""
        mean = batch.mean_s
        rate = 1.0 / mean if rate_per_s is None else rate_per_s
        between = np.geomspace(batch.edges[0], batch.edges[-1], GRID)
        grid = np.union1d(between, batch.edges)
        return cls(
            size=size,
            batch=batch,
            rate_per_s=rate,
            mean_s=mean,
            grid_s=grid,
            scores=score(batch, grid, rate),
        )

    def score(self, slack_s: Floats) -> Floats:
        """Interpolate on the grid; above the longest time it decays by e^{-bu} exactly."""
        beyond = np.maximum(slack_s - self.grid_s[-1], 0.0)
        inside = np.interp(slack_s, self.grid_s, self.scores, left=0.0)
        return np.asarray(inside * np.exp(-self.rate_per_s * beyond), dtype=np.float64)

    def in_time(self, slack_s: Floats) -> Floats:
        """Probability that the batch ends within each slack."""
        return self.batch.below(slack_s)


def score_table(
    single: TimeHistogram, costs: BatchCosts, sizes: Iterable[int], rate_per_s: float | None = None
) -> tuple[ScoreRow, ...]:
    """One row for each batch size, from the distribution of single requests."""
    return tuple(ScoreRow.of(size, costs.batch(size, single), rate_per_s) for size in sizes)
