# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Clopper-Pearson's bound of a risk."""

from __future__ import annotations

from ullage.engines.admission.calibration import binomial_tail


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
