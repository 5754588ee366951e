# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of CapacityPools: what they cost, how often they lose instances, what they hold.

Families are made at scrape time from what decisions see. Pools are few and named by admins, so
their names are labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ullage.cluster.records.pool import PoolRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFigures:
    """Figures of pools."""

    pools: Sequence[PoolRecord] = ()
    answers: Mapping[str, int] = field(default_factory=dict)
    """Questions for prices, by result."""
    failures: int = 0
    """Looks at one pool, or writes of it, that raised."""


def pool_metrics(figures: PoolFigures) -> Iterator[Metric]:
    """The families."""
    hazard = GaugeMetricFamily(
        "ullage_pool_hazard_per_hour",
        "Expected loss events per hour in which the pool has an instance.",
        labels=["pool"],
    )
    price = GaugeMetricFamily(
        "ullage_pool_price_per_hour",
        "Price of one instance of the pool for an hour, the last one believed.",
        labels=["pool"],
    )
    nodes = GaugeMetricFamily(
        "ullage_pool_nodes",
        "Ready instances of the pool that no notice stands for.",
        labels=["pool", "capacity_type"],
    )
    for pool in sorted(figures.pools, key=lambda one: one.name):
        status = pool.status
        if status.hazard_per_hour is not None:
            hazard.add_metric([pool.name], status.hazard_per_hour)
        if status.price is not None:
            price.add_metric([pool.name], status.price)
        nodes.add_metric([pool.name, pool.capacity_type.value], status.nodes)
    answers = CounterMetricFamily(
        "ullage_price_answers", "Questions for prices of pools.", labels=["result"]
    )
    for result, count in sorted(figures.answers.items()):
        answers.add_metric([result], count)
    failures = CounterMetricFamily(
        "ullage_pool_failures", "Looks at one pool that failed.", value=figures.failures
    )
    yield from (hazard, price, nodes, answers, failures)
