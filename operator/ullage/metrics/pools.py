# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of CapacityPools: prices, losses of instances, current instances.

Pools are few and named by admins, so their names are labels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ullage.cluster.records.pool import PoolRecord
from ullage.metrics.currency import CURRENCY, in_currency
from ullage.process.metric_families import counter, gauge


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFigures:
    """Figures of pools."""

    hazard: Mapping[str, float] = gauge(
        "ullage_pool_hazard_per_hour",
        "Expected loss events per hour in which the pool has an instance.",
        "pool",
    )
    price: Mapping[tuple[str, str], float] = gauge(
        "ullage_pool_price_per_hour",
        "Price of one instance of the pool for an hour, the last one believed.",
        "pool",
        CURRENCY,
    )
    nodes: Mapping[tuple[str, str], int] = gauge(
        "ullage_pool_nodes",
        "Ready instances of the pool that no notice stands for.",
        "pool",
        "capacity_type",
    )
    answers: Mapping[str, int] = counter(
        "ullage_price_answers", "Questions for prices of pools.", "result"
    )
    failures: int = counter("ullage_pool_failures", "Looks at one pool that failed.")


def pool_figures(
    pools: Collection[PoolRecord], answers: Mapping[str, int], failures: int, currency: str
) -> PoolFigures:
    """The current figures.

    Args:
        pools: Pools as seen by decisions.
        answers: Price queries, by result.
        failures: Failed observations or writes of one pool.
        currency: Currency of the prices.
    """
    hazards = {pool.name: pool.status.hazard_per_hour for pool in pools}
    prices = {pool.name: pool.status.price for pool in pools}
    return PoolFigures(
        hazard={name: hazard for name, hazard in hazards.items() if hazard is not None},
        price=in_currency(
            {name: price for name, price in prices.items() if price is not None}, currency
        ),
        nodes={(pool.name, pool.capacity_type.value): pool.status.nodes for pool in pools},
        answers=answers,
        failures=failures,
    )
