# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Comparison with replicas of another share or accelerator that keep a latency for less, or at all.

The number of replicas follows the load within a minute; a share and an accelerator change by a new
start of every replica. So a change must be worth it, and on the same accelerator a larger share is
chosen only where no number of replicas of the present one keeps the latency.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ullage.engines.scaling.configurations import Configuration, Demand, ReplicaOption, ranked

STEP: Final = 5
"""Percent between two shares that are considered."""
SAVES: Final = 0.2
"""Part of the cost that a change must save (not measured)."""
SPARE: Final = 0.2
"""Part of the latency that a change to save must leave, because its service time is a prediction
(not measured)."""


def shares(least: int, most: int) -> tuple[int, ...]:
    """Shares within bounds that are considered: both bounds, and multiples of :data:`STEP`.

    Args:
        least: Percent.
        most: Percent.
    """
    return tuple(sorted({least, most, *range(least + -least % STEP, most, STEP)}))


def configured(
    now: Configuration,
    accelerator: str,
    percent: int,
    seconds: Callable[[str, int], float],
    price: float = 1.0,
) -> Configuration:
    """The replica with a share of an accelerator.

    Args:
        now: Whose service time was seen.
        accelerator: Of the other one.
        percent: Of the other one.
        seconds: Time of a request by accelerator and share, in any unit; above 0.
        price: Of one percent of a device, in any unit that all have in common.
    """
    ratio = seconds(accelerator, percent) / seconds(now.accelerator, now.share_percent)
    return Configuration(
        accelerator=accelerator,
        share_percent=percent,
        service=replace(now.service, mean_s=now.service.mean_s * ratio),
        cost=percent * price,
    )


def better_share(
    now: Configuration, others: Sequence[Configuration], demand: Demand
) -> ReplicaOption | None:
    """The better configuration of replicas; ``None`` = they stay what they are.

    Where the present share keeps the target: the cheapest that keeps it with :data:`SPARE` left
    and saves :data:`SAVES`, of smaller shares and other accelerators. Where it does not: the
    cheapest that keeps it, of larger shares and other accelerators. Ties go to fewer replicas,
    then by name, then to the smaller share.

    Args:
        now: What the replicas are.
        others: What they might be.
        demand: What must be kept, under the largest load that is reckoned with.
    """
    (here,) = ranked([now], demand)
    alike = [other for other in others if other.accelerator == now.accelerator]
    elsewhere = [other for other in others if other.accelerator != now.accelerator]
    if not here.keeps:
        larger = [other for other in alike if other.share_percent > now.share_percent]
        return _cheapest([*larger, *elsewhere], demand, math.inf)
    limit_s = demand.target.limit_s * (1 - SPARE)
    strict = replace(demand, target=replace(demand.target, limit_s=limit_s))
    smaller = [other for other in alike if other.share_percent < now.share_percent]
    return _cheapest([*smaller, *elsewhere], strict, (1 - SAVES) * here.cost)


def _cheapest(
    configurations: Sequence[Configuration], demand: Demand, most: float
) -> ReplicaOption | None:
    """The cheapest that keeps the target and costs no more; the queue is computed for few."""
    costs = [
        (_least_cost(configuration, demand), configuration) for configuration in configurations
    ]
    hopeful = [
        configuration for cost, configuration in costs if math.isfinite(cost) and cost <= most
    ]
    cheapest = next(iter(ranked(hopeful, demand)), None)
    return cheapest if cheapest is not None and cheapest.keeps and cheapest.cost <= most else None


def _least_cost(configuration: Configuration, demand: Demand) -> float:
    """Cost of replicas that are busy all the time; infinite where one is too slow even alone."""
    if configuration.service.quantile_s(demand.target.quantile) > demand.target.limit_s:
        return math.inf
    busy = demand.load.requests_per_s * configuration.service.mean_s
    return max(busy, demand.least) * configuration.cost if busy <= demand.most else math.inf
