# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Counts what replays of the live learning path admitted, and what of it broke an objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import beta

Chosen = Sequence[tuple[bool, bool]]
"""Admitted, and violated, for each pair that was asked about."""


@dataclass(slots=True)
class Tally:
    """Pairs that were asked about, by what became of them."""

    asked: int = 0
    safe: int = 0
    admitted: int = 0
    violations: int = 0
    by_split: list[tuple[int, int]] = field(default_factory=list)
    """Admitted and violations of each split."""

    def add(self, chosen: Chosen) -> None:
        """Count one split: admitted and violated, for each pair asked about."""
        admitted = sum(one for one, _ in chosen)
        wrong = sum(one and violated for one, violated in chosen)
        self.asked += len(chosen)
        self.safe += sum(not violated for _, violated in chosen)
        self.admitted += admitted
        self.violations += wrong
        self.by_split.append((admitted, wrong))

    @property
    def violation(self) -> float:
        """Part of the admitted that broke an objective; 0 where nothing was admitted."""
        return self.violations / self.admitted if self.admitted else 0.0

    @property
    def recall(self) -> float:
        """Part of the safe pairs that were admitted."""
        return (self.admitted - self.violations) / self.safe if self.safe else 0.0

    def upper95(self, draws: int = 2000) -> float:
        """Upper end of the 95 % interval of the violations, splits drawn with replacement.

        Where none was seen, the exact bound of as many splits as admitted anything: the pairs of
        one split share their model, so they count once.
        """
        if not self.admitted:
            return 0.0
        told = np.array(self.by_split, float)
        if not self.violations:
            return float(beta.ppf(0.95, 1, max(1, int((told[:, 0] > 0).sum()))))
        random = np.random.default_rng(0)
        drawn = told[random.integers(0, len(told), (draws, len(told)))].sum(axis=1)
        kept = drawn[:, 0] > 0
        return float(np.quantile(drawn[kept, 1] / drawn[kept, 0], 0.95))
