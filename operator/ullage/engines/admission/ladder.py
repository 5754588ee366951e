# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses the rung of the model ladder: the plainest, until a richer one has proven better.

Evaluated per group on rows that each model predicted without seeing them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ullage.engines.admission.records import Rung

Floats = NDArray[np.float64]

LEAST_ROWS: Final = 30
"""Rows before a richer model may take over."""
NOMINAL: Final = 0.9
NOMINAL_Z: Final = 1.2816
"""Normal 90 % quantile: the bound that a trim calibrates."""
RECALL_SLACK: Final = 0.1
"""Recall that a richer model may lose among known classes and still take over: at a few percent of
violations, recall depends on few rows (our default)."""
_SPREADS: Final = (0.5, 5.0)
_FEW: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim:
    """Correction of a model from left-out rows.

    mean = centre + slope * (mean - centre); sd = spread * sd.
    """

    centre: float = 0.0
    slope: float = 1.0
    spread: float = 1.0

    def mean(self, raw: Floats) -> Floats:
        """Means after the slope."""
        return self.summed(raw, 1)

    def summed(self, raw: Floats, count: int) -> Floats:
        """Sums of ``count`` means each, after the slope.

        Args:
            raw: Sums of log residuals, any shape.
            count: Means in each sum.

        Returns:
            Trimmed sums of log residuals, in the shape of ``raw``.
        """
        out: Floats = count * self.centre + self.slope * (raw - count * self.centre)
        return out


def fit_trim(mean: Floats, sd: Floats, observed: Floats, centre: float) -> Trim:
    """Slope by least squares within 0..1, spread so that the 90 % bound covers 90 % of new rows.

    With fewer than ten rows nothing is trimmed. With few rows the spread is wider than the plain
    quantile, as a new row needs (derived).

    Args:
        mean: Left-out means of the log residual, shape (n,).
        sd: Their standard deviations, above 0, shape (n,).
        observed: Observed log residuals, shape (n,).
        centre: Log residual that the slope pulls towards.
    """
    if len(mean) < _FEW:
        return Trim(centre=centre)
    lean, seen = mean - centre, observed - centre
    power = float(lean @ lean)
    slope = min(1.0, max(0.0, float(lean @ seen) / power)) if power > 0 else 1.0
    residual = (observed - centre - slope * lean) / sd
    spread = finite_quantile(residual, NOMINAL) / NOMINAL_Z
    return Trim(centre=centre, slope=slope, spread=min(_SPREADS[1], max(_SPREADS[0], spread)))


def finite_quantile(values: Floats, coverage: float) -> float:
    """The value that bounds a new value with at least this probability.

    Of n values the ceil((n + 1) coverage)-th smallest, or the largest where n is too small. Source:
    the finite-sample quantile of split conformal prediction (Vovk et al.); the plain 90 % quantile
    of ten values covers only about 84 % of new ones.

    Args:
        values: At least one value, any unit, shape (n,).
        coverage: Probability, 0..1.

    Returns:
        One of the values, in their unit.
    """
    rank = min(len(values), math.ceil((len(values) + 1) * coverage - 1e-9))
    return float(np.sort(values)[rank - 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class RungOutcomes:
    """Predictions of one model for unseen rows, and the observations; log slowdowns."""

    mean: Floats
    sd: Floats
    observed: Floats
    objective: Floats

    @property
    def crps(self) -> float:
        """Mean continuous ranked probability score of the normal forecasts (lower is better).

        Proper, in log slowdown. It grows linearly with a miss: the noise has heavy tails, and with
        a log density one outlier would outweigh hundreds of close forecasts. Source: Gneiting and
        Raftery, closed form for a normal distribution.
        """
        z = (self.observed - self.mean) / self.sd
        inside = np.array([math.erf(value / math.sqrt(2)) for value in z])
        density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
        return float(np.mean(self.sd * (z * inside + 2 * density - 1 / math.sqrt(math.pi))))

    def recall(self, eps: float) -> float:
        """Part of the rows within their objective that pass at a share ``eps`` of violations."""
        z = (self.objective - self.mean) / self.sd
        broken = (self.observed > self.objective)[np.argsort(-z, kind="stable")]
        if broken.all():
            return 0.0
        counts = np.arange(1, len(broken) + 1)
        good = np.flatnonzero(np.cumsum(broken) <= eps * counts)
        return float((~broken[: good[-1] + 1]).sum() / (~broken).sum()) if len(good) else 0.0


def choose(
    seen: Mapping[Rung, RungOutcomes], *, eps: float, start: Rung, slack: float = 0.0
) -> Rung:
    """The rung in force: up from ``start`` only while a richer one is better.

    Better = lower CRPS, and no less recall at equal violations, on at least 30 rows.

    Args:
        seen: Outcomes by rung, on the same rows; rungs without outcomes are skipped.
        eps: Share of violations at which recall is compared, 0..1.
        start: The plainest rung.
        slack: Part of recall, 0..1, that a richer rung may lose; 0 for new work.
    """
    order = list(Rung)
    best = start
    for rung in order[order.index(start) + 1 :]:
        if rung not in seen or best not in seen or len(seen[rung].mean) < LEAST_ROWS:
            continue
        new, old = seen[rung], seen[best]
        kept = new.recall(eps) >= old.recall(eps) - slack
        if new.crps < old.crps and kept:
            best = rung
    return best
