# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Estimates unmeasured speeds beside partners from jobs whose rows look alike.

Estimates are normalised (beside a partner / alone) and always have a confidence. A cell that no
reference measured stays unknown, which is not 0; a measured value is never overwritten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ullage.engines.allocation.model import Floats, ProblemError

WIDTH: Final = 0.02
"""Mean squared difference at which a reference's weight has fallen to 1/e (swept)."""
SMOOTHING: Final = 0.5
"""Part of a new report in a measured speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A row without unknown cells, as far as references reach.

    Attributes:
        values: Normalised speeds in [0, 1]; NaN where no reference measured the column.
        confidence: 1 for a measured cell; else 1 minus the references' weighted disagreement, at
            least the error of the estimate on the observed cells.
        observed: Cells that were measured.
        references: Effective number of rows behind the estimate (1 / sum of squared weights).
    """

    values: Floats
    confidence: Floats
    observed: int
    references: float


def complete(references: Floats, row: Floats) -> Completed:
    """Fill the unknown cells of a row by kernel-weighted neighbours and a shift.

    pred_k = sum_r w_r R_rk / sum_r w_r over references that measured k, w_r = exp(-d2_r / WIDTH)
    with d2_r the mean squared difference on common columns; the mean miss on the observed cells is
    added; the result is clipped to [0, 1]. Without a common cell every reference weighs the same.
    Derived.

    Args:
        references: Normalised speeds of jobs measured before, shape (references, columns); NaN =
            not measured.
        row: The new job's cells, shape (columns,); NaN = unknown.

    Raises:
        ProblemError: shapes differ, or a value is outside [0, 1.5].
    """
    _checked(references, row)
    seen = ~np.isnan(row)
    known = ~np.isnan(references)
    common = known[:, seen]
    gaps = np.where(common, references[:, seen] - row[seen], 0.0)
    shared = common.sum(axis=1)
    away = (gaps**2).sum(axis=1) / np.maximum(shared, 1)
    if seen.any() and (shared > 0).any():
        # A reference without a common cell gives no similarity: it counts as the farthest.
        away = np.where(shared > 0, away, away[shared > 0].max())
    weight = np.exp(-(away - away.min(initial=np.inf)) / WIDTH) if len(away) else away
    mass = weight @ known
    level = np.where(known, references, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (weight @ level) / mass
        spread = np.sqrt(np.maximum((weight @ level**2) / mass - mean**2, 0.0))
    misses = (row - mean)[seen & ~np.isnan(mean)]
    shift = float(misses.mean()) if len(misses) else 0.0
    off = float(np.abs(misses - shift).mean()) if len(misses) else 0.0
    values = np.where(seen, row, np.clip(mean + shift, 0.0, 1.0))
    sure = np.where(np.isnan(values), 0.0, np.clip(1.0 - np.maximum(spread, off), 0.0, 1.0))
    return Completed(
        values=values,
        confidence=np.where(seen, 1.0, sure),
        observed=int(seen.sum()),
        references=float(weight.sum() ** 2 / (weight**2).sum()) if len(weight) else 0.0,
    )


def renewed(measured: float, reported: float) -> float:
    """A measured speed after one more report, exponentially smoothed (factor ``SMOOTHING``).

    Args:
        measured: Speed so far, steps/s or normalised.
        reported: The new report, in the same unit.
    """
    return (1.0 - SMOOTHING) * measured + SMOOTHING * reported


def _checked(references: Floats, row: Floats) -> None:
    if references.ndim != 2 or row.shape != references.shape[1:]:
        raise ProblemError(
            f"a row of {row.shape} cells does not fit references of {references.shape}"
        )
    for cells in (references, row):
        values = cells[~np.isnan(cells)]
        if not ((values >= 0) & (values <= 1.5)).all():
            raise ProblemError("normalised speeds lie in [0, 1.5]; divide by the speed alone")
