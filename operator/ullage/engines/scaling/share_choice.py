# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Comparison with replicas of another share or accelerator that meet a latency target cheaper.

The number of replicas follows the load within a minute; a change of share or accelerator restarts
every replica. So a change must be worth it, and on the same accelerator a larger share is chosen
only where no number of replicas of the present one meets the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ullage.engines.scaling.configurations import Configuration, Demand, ReplicaOption, ranked

STEP: Final = 5
"""Step between considered shares, percent."""
SAVES: Final = 0.2
"""Minimum saving of a change, as a fraction of the cost (not measured)."""
SPARE: Final = 0.2
"""Fraction of the latency that a cheaper configuration must leave as reserve, because its service
time is a prediction (not measured)."""


def shares(least: int, most: int) -> tuple[int, ...]:
    """Considered shares within bounds: both bounds, and multiples of :data:`STEP`.

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
        now: The replica with the observed service time.
        accelerator: Of the other one.
        percent: Of the other one.
        seconds: Time of a request by accelerator and share, in any unit; above 0.
        price: Price of one percent of a device, in any common unit.
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
    """A better configuration of replicas; ``None`` = no change.

    Where the present share meets the target: the cheapest that meets it with :data:`SPARE` left and
    saves :data:`SAVES`, of smaller shares and other accelerators. Where it does not: the cheapest
    that meets it, of larger shares and other accelerators. Ties go to fewer replicas, then by name,
    then to the smaller share.

    Args:
        now: Present configuration.
        others: Alternatives.
        demand: Target and bounds, under the largest expected load.
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
    """The cheapest that meets the target and costs no more; the queue is computed for few."""
    costs = [
        (_least_cost(configuration, demand), configuration) for configuration in configurations
    ]
    hopeful = [
        configuration for cost, configuration in costs if math.isfinite(cost) and cost <= most
    ]
    cheapest = next(iter(ranked(hopeful, demand)), None)
    return cheapest if cheapest is not None and cheapest.keeps and cheapest.cost <= most else None


def _least_cost(configuration: Configuration, demand: Demand) -> float:
    """Cost of replicas that are always busy; infinite where one is too slow even alone."""
    if configuration.service.quantile_s(demand.target.quantile) > demand.target.limit_s:
        return math.inf
    busy = demand.load.requests_per_s * configuration.service.mean_s
    return max(busy, demand.least) * configuration.cost if busy <= demand.most else math.inf
