# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Clopper-Pearson's bound of a risk, and what it would admit without a certificate."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ullage.engines.admission.calibration import Scored, Threshold, binomial_tail, rows_needed


def uncertified_scan(rows: Sequence[Scored], *, eps: float, confidence: float) -> Threshold:
    """The loosest margin whose Clopper-Pearson bound is within the budget, all margins tried.

    No guarantee follows, because the best of many looks is taken; benchmarks print it beside.

    Args:
        rows: Past co-locations of one group and band; rows without a finite margin are skipped.
        eps: Allowed share of violations among the admitted, 0..1.
        confidence: Confidence of the bound, 0..1.

    Returns:
        A threshold at the margin of a row; ``inf`` where no bound is within the budget.
    """
    ordered = sorted((row for row in rows if math.isfinite(row.z)), key=lambda scored: -scored.z)
    needed = rows_needed(0, eps, confidence)
    best = Threshold(value=math.inf, rows=len(rows), admitted=0, violations=0, needed=needed)
    violations = 0
    for count, one in enumerate(ordered, start=1):
        violations += one.violated
        tied = count < len(ordered) and ordered[count].z == one.z
        # the bound is within the budget where so few violations are unlikely at the budget itself
        if not tied and binomial_tail(violations, count, eps) <= 1 - confidence:
            best = Threshold(value=one.z, rows=len(rows), admitted=count, violations=violations)
    return best


def risk_bound(violations: int, rows: int, confidence: float) -> float:
    """Clopper-Pearson upper bound of the risk: BetaInv(confidence; v + 1, n - v), by bisection.

    Args:
        violations: Violations v among the rows.
        rows: Admitted rows n.
        confidence: Confidence of the bound, 0..1.

    Returns:
        A share of violations, 0..1; 1 where every row is a violation.
    """
    if violations >= rows:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if binomial_tail(violations, rows, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high
