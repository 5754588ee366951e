# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Counts what replays of the live learning path admitted, and what of it broke an objective."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import betaincinv

from bench.live_learning import Chosen


@dataclass(slots=True)
class Tally:
    """Pairs that were asked about, by what became of them."""

    asked: int = 0
    safe: int = 0
    admitted: Counter[int] = field(default_factory=Counter)
    """By pair: splits that admitted it."""
    violations: Counter[int] = field(default_factory=Counter)
    """By pair: those of them in which it broke an objective."""

    def add(self, pairs: Sequence[int], chosen: Chosen) -> None:
        """Count one split: admitted and violated, for each pair asked about."""
        self.asked += len(chosen)
        self.safe += sum(not violated for _, violated in chosen)
        for pair, (admitted, violated) in zip(pairs, chosen, strict=True):
            self.admitted[pair] += admitted
            self.violations[pair] += admitted and violated

    @property
    def violation(self) -> float:
        """Part of the admitted that broke an objective; 0 where nothing was admitted."""
        admitted = self.admitted.total()
        return self.violations.total() / admitted if admitted else 0.0

    @property
    def recall(self) -> float:
        """Part of the safe pairs that were admitted."""
        kept = self.admitted.total() - self.violations.total()
        return kept / self.safe if self.safe else 0.0

    def upper95(self, draws: int = 2000) -> float:
        """Upper end of the 95 % interval of the violations, pairs drawn with replacement.

        A pair counts once, in however many splits it is admitted: more splits of the same pairs
        say no more about the population. Where no violation was seen, the exact bound of as many
        pairs as were ever admitted.
        """
        told = np.array([[n, self.violations[pair]] for pair, n in self.admitted.items() if n])
        if not len(told):
            return 0.0
        if not self.violations.total():
            return float(betaincinv(1, len(told), 0.95))
        random = np.random.default_rng(0)
        drawn = told[random.integers(0, len(told), (draws, len(told)))].sum(axis=1)
        return float(np.quantile(drawn[:, 1] / drawn[:, 0], 0.95))
