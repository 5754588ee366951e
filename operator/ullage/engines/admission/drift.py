# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Detects that a class changed its behaviour, by cumulative sums of residuals.

A new image of the same name may behave differently; its old rows then mislead. Pure; a single
outlier must never count as a change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

ALARM: Final = 5.0
"""Sum of standardised residuals above which a class counts as novel again; a start value."""
SLACK: Final = 0.5
"""Part of every residual that is ignored: half of the shift to detect, in sd."""
CLIP: Final = 3.0
"""Bound of a residual, so that no single row raises an alarm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Two-sided CUSUM of one class: ``slower`` and ``faster`` than predicted, both >= 0."""

    slower: float = 0.0
    faster: float = 0.0
    rows: int = 0

    def drifted(self, *, alarm: float = ALARM) -> bool:
        """True when the class counts as novel again."""
        return max(self.slower, self.faster) > alarm


def follow(before: Drift, residual: float) -> Drift:
    """Add one row's residual.

    Source: Page's CUSUM. After an alarm start again from ``Drift()``.

    Args:
        before: Sums so far.
        residual: (observed - mean) / sd of log slowdown, without unit.

    Raises:
        ValueError: the residual is not a finite number.
    """
    if not math.isfinite(residual):
        raise ValueError(f"a residual must be a finite number, not {residual:g}")
    clipped = max(-CLIP, min(CLIP, residual))
    return Drift(
        slower=max(0.0, before.slower + clipped - SLACK),
        faster=max(0.0, before.faster - clipped - SLACK),
        rows=before.rows + 1,
    )
