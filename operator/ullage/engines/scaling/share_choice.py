# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whether replicas of another share would keep a latency for less, or keep it at all.

The number of replicas follows the load within a minute; a share changes by a new start of every
replica. So a smaller one must be worth it, and a larger one is chosen only where no number of
replicas of the present share keeps the latency.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ullage.engines.scaling.configurations import Configuration, Demand, Option, ranked

STEP: Final = 5
"""Percent between two shares that are considered."""
SAVES: Final = 0.2
"""Part of the cost that a smaller share must save (not measured)."""
SPARE: Final = 0.2
"""Part of the latency that a smaller share must leave, because its service time is a prediction
(not measured)."""


def shares(least: int, most: int) -> tuple[int, ...]:
    """Shares within bounds that are considered: both bounds, and multiples of :data:`STEP`.

    Args:
        least: Percent.
        most: Percent.
    """
    return tuple(sorted({least, most, *range(least + -least % STEP, most, STEP)}))


def at_share(now: Configuration, percent: int, seconds: Callable[[int], float]) -> Configuration:
    """The configuration with another share, at the price of its percent.

    Args:
        now: Whose service time was seen.
        percent: Of the other one.
        seconds: Time of a request by share, in any unit; above 0.
    """
    ratio = seconds(percent) / seconds(now.share_percent)
    service = replace(now.service, mean_s=now.service.mean_s * ratio)
    return replace(now, share_percent=percent, service=service, cost=float(percent))


def better_share(
    now: Configuration, others: Sequence[Configuration], demand: Demand
) -> Option | None:
    """What replicas should become; ``None`` = the present share stays.

    Where the present share keeps the target: the cheapest smaller one that keeps it with
    :data:`SPARE` left and saves :data:`SAVES`. Where it does not: the cheapest larger one that
    keeps it. Ties go to fewer replicas, then to the smaller share.

    Args:
        now: What the replicas are.
        others: What they might be.
        demand: What must be kept, under the largest load that is reckoned with.
    """
    (here,) = ranked([now], demand)
    if not here.keeps:
        larger = [one for one in others if one.share_percent > now.share_percent]
        return _cheapest(larger, demand, math.inf)
    limit_s = demand.target.limit_s * (1 - SPARE)
    strict = replace(demand, target=replace(demand.target, limit_s=limit_s))
    smaller = [one for one in others if one.share_percent < now.share_percent]
    return _cheapest(smaller, strict, (1 - SAVES) * here.cost)


def _cheapest(
    configurations: Sequence[Configuration], demand: Demand, most: float
) -> Option | None:
    """The cheapest that keeps the target and costs no more; the queue is computed for few."""
    costs = [(_least_cost(one, demand), one) for one in configurations]
    hopeful = [one for cost, one in costs if math.isfinite(cost) and cost <= most]
    found = next(iter(ranked(hopeful, demand)), None)
    return found if found is not None and found.keeps and found.cost <= most else None


def _least_cost(one: Configuration, demand: Demand) -> float:
    """What replicas cost that are busy all the time; infinite where one is too slow even alone."""
    if one.service.quantile_s(demand.target.quantile) > demand.target.limit_s:
        return math.inf
    busy = demand.load.requests_per_s * one.service.mean_s
    return max(busy, demand.least) * one.cost if busy <= demand.most else math.inf
