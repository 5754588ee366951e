# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of cost: what was spent, saved and lost, by tenant.

Families are made at scrape time from figures that are handed in. The label is a tenant, or a
namespace of work without one, never a job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFigures:
    """Figures of cost, by tenant; empty where nothing has a price."""

    dollars: Mapping[str, float] = field(default_factory=dict)
    evictions: Mapping[str, float] = field(default_factory=dict)
    lost_seconds: Mapping[str, float] = field(default_factory=dict)
    per_hour: Mapping[str, float] = field(default_factory=dict)
    savings: Mapping[str, float] = field(default_factory=dict)


def cost_metrics(figures: CostFigures) -> Iterator[Metric]:
    """The families."""
    counters = (
        (
            "ullage_job_cost_dollars",
            "Cost that was entered into the books of workloads since this process looks on.",
            figures.dollars,
        ),
        (
            "ullage_job_evictions",
            "Starts of jobs that ended because devices were taken away.",
            figures.evictions,
        ),
        (
            "ullage_job_lost_work_seconds",
            "Work of jobs that losses took, entered once the next start has told where it resumed;"
            " where it does not say so, at most: since the last checkpoint told of.",
            figures.lost_seconds,
        ),
    )
    for name, text, values in counters:
        counter = CounterMetricFamily(name, text, labels=["tenant"])
        for tenant, value in sorted(values.items()):
            counter.add_metric([tenant], value)
        yield counter
    gauges = (
        (
            "ullage_job_cost_dollars_per_hour",
            "Cost per hour of the devices that workloads hold now.",
            figures.per_hour,
        ),
        (
            "ullage_job_savings_ratio",
            "Part of the on-demand cost that the workloads which exist have saved so far.",
            figures.savings,
        ),
    )
    for name, text, values in gauges:
        gauge = GaugeMetricFamily(name, text, labels=["tenant"])
        for tenant, value in sorted(values.items()):
            gauge.add_metric([tenant], value)
        yield gauge
