# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The published study of dynamic spot pricing, reproduced with its traps.

It ranks some offers by the price of the whole instance and charges all by the GPU, and moving is
free. It exists for comparison only; the product's policy must never call it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

DAY_S: Final = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOffer:
    """One instance type in one zone, or one size in one region.

    Attributes:
        name: Unique.
        gpus: Per instance.
        speed: Iterations per second of one GPU.
        prices: Of the whole instance per hour by day; ``None`` = nothing known yet.
        ranked_whole: It is ranked by the whole instance's price (and charged per GPU all the same).
    """

    name: str
    gpus: int
    speed: float
    prices: Sequence[float | None]
    ranked_whole: bool = False

    def rank(self, day: int) -> float:
        """Iterations per second and dollar on a day; 0 where there is no price."""
        price = self.prices[min(day, len(self.prices) - 1)]
        if price is None:
            return 0.0
        return self.speed / (price if self.ranked_whole else price / self.gpus)

    def charge(self, day: int) -> float:
        """Dollars per hour of one GPU.

        Raises:
            ValueError: there is no price yet.
        """
        price = self.prices[min(day, len(self.prices) - 1)]
        if price is None:
            raise ValueError(f"{self.name} has no price on day {day}")
        return price / self.gpus


def study_cost(
    offers: Sequence[StudyOffer], iterations: float, start: int, *, again: bool
) -> float:
    """Dollars of one job by the study's rules.

    Args:
        offers: What it may run on; at the start one has a price.
        iterations: Iterations of the job.
        start: Index of the first day.
        again: Choose again each day, free of charge; else follow the first choice.
    """
    day, cost = start, 0.0
    best = max(offers, key=lambda one: one.rank(day))
    while iterations > 0:
        if again:
            best = max(offers, key=lambda one: one.rank(day))
        part = min(1.0, iterations / (best.speed * DAY_S))
        cost += 24 * part * best.charge(day)
        iterations -= part * best.speed * DAY_S if part == 1.0 else iterations
        day += 1
    return cost
