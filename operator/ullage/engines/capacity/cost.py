# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Expected cost per work of an allocation (after BidBrain, with today's inputs).

One hazard per pool, not per instance: losses are bulk. It must never count an hour of machines that
are expected to be lost, nor work without the losses from scaling, evictions and changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ullage.engines.capacity.records import Expected, Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingCurve:
    """phi(n): work of n instances / (n x work of one).

    Attributes:
        per_doubling: Factor of each doubling; holds beyond the table.
        table: Measured (instances, phi), ascending; between them log2(n) is interpolated.
    """

    per_doubling: float = 1.0
    table: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        """Reject invalid curves.

        Raises:
            ValueError: a factor outside 0 to 1, or a table out of order.
        """
        counts = [count for count, _ in self.table]
        if not 0 < self.per_doubling <= 1 or any(left >= right for left, right in pairwise(counts)):
            raise ValueError(f"scaling has factors in (0, 1] and ascending counts, not {self}")
        if any(count < 1 or not value > 0 for count, value in self.table):
            raise ValueError(f"scaling is above 0 from 1 instance on, not {self.table}")

    def at(self, instances: int) -> float:
        """Phi at a number of working instances; 1 for none."""
        if instances < 1:
            return 1.0
        here = math.log2(instances)
        if not self.table:
            return float(self.per_doubling**here)
        if instances <= self.table[0][0]:
            return self.table[0][1]
        for (low, left), (high, right) in pairwise(self.table):
            if instances <= high:
                part = (here - math.log2(low)) / (math.log2(high) - math.log2(low))
                return left + part * (right - left)
        last, value = self.table[-1]
        return float(value * self.per_doubling ** (here - math.log2(last)))


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTerms:
    """A job's own terms beside prices and hazards; measured per job.

    Attributes:
        scaling: phi.
        eviction_h: Hours of work lost per loss event (lambda).
        change_h: Hours lost by adding or removing instances (sigma).
        meet_h: The same for a gang in place whose members join or leave while none moves; those
            that move lose ``change_h`` (derived). ``None`` = every change costs ``change_h``.
        reliable_per_hour: Dollars per hour of machines that are held anyway and do no work.
        delay_per_hour: Cost to the owner of one more hour of run time, dollars, outside any budget;
            ``None`` = not declared, and no instance is released to save it.
    """

    scaling: ScalingCurve = ScalingCurve()
    eviction_h: float = 0.0
    change_h: float = 0.0
    meet_h: float | None = None
    reliable_per_hour: float = 0.0
    delay_per_hour: float | None = None


def life_h(hazard_per_hour: float, horizon_h: float) -> float:
    """Expected hours within the horizon until a pool is lost: (1 - e^(-rh)) / r; h for r = 0.

    The mean of an exponential lifetime cut off at the horizon (derived).

    Args:
        hazard_per_hour: Loss events r per pool-hour, at least 0.
        horizon_h: Hours h.

    Returns:
        Hours, at most the horizon.
    """
    rate = hazard_per_hour * horizon_h
    return horizon_h if rate < 1e-12 else -math.expm1(-rate) / hazard_per_hour


def expected(
    pools: Sequence[Pool],
    counts: Sequence[int],
    terms: CostTerms,
    *,
    changed: float,
    horizon_h: float = 1.0,
) -> Expected:
    """Cost and work of an allocation over the horizon.

    Args:
        pools: Every one with instances has a price.
        counts: Instances of each pool.
        terms: Of the job.
        changed: Fraction of ``change_h`` that is paid, 0 to 1; 0 = the allocation is held.
        horizon_h: Hours ahead.

    Raises:
        ValueError: instances of a pool without a price.
    """
    cost = (terms.reliable_per_hour + (terms.delay_per_hour or 0.0)) * horizon_h
    per_hour = terms.reliable_per_hour
    hazard, working = 0.0, 0
    held = [(pool, count) for pool, count in zip(pools, counts, strict=True) if count]
    for pool, count in held:
        if pool.price_per_hour is None:
            raise ValueError(f"pool {pool.name} has no price")
        cost += pool.price_per_hour * count * life_h(pool.hazard_per_hour, horizon_h)
        per_hour += pool.price_per_hour * count
        hazard += pool.hazard_per_hour
        working += count
    over = -math.expm1(-horizon_h * hazard) * terms.eviction_h
    over += terms.change_h * changed
    work = terms.scaling.at(working) * sum(
        count * pool.speed * max(0.0, life_h(pool.hazard_per_hour, horizon_h) - over)
        for pool, count in held
    )
    return Expected(cost=cost, work=work, per_hour=per_hour)
