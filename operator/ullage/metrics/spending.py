# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of pools that are chosen for jobs: what work costs there, moves, deadlines.

Families are made at scrape time from figures that are handed in. Labels are tenants and kinds of
capacity, never a job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendFigures:
    """Figures of chosen pools; empty where none are chosen.

    Attributes:
        cost_per_work: Mean over the jobs of a tenant, by tenant.
        switches: Changes of pools so far, by the kind of capacity gone to.
        deadlines: Jobs with a deadline, by whether it is kept.
    """

    cost_per_work: Mapping[str, float] = field(default_factory=dict)
    switches: Mapping[str, int] = field(default_factory=dict)
    deadlines: Mapping[str, int] = field(default_factory=dict)


def spend_metrics(figures: SpendFigures) -> Iterator[Metric]:
    """The families."""
    cost = GaugeMetricFamily(
        "ullage_job_cost_per_work",
        "Expected dollars for an hour of work of one member, losses included; mean over the jobs.",
        labels=["tenant"],
    )
    for tenant, value in sorted(figures.cost_per_work.items()):
        cost.add_metric([tenant], value)
    yield cost
    switches = CounterMetricFamily(
        "ullage_switches",
        "Jobs for which other pools were chosen than before, by the kind of capacity gone to.",
        labels=["capacity"],
    )
    for kind, count in sorted(figures.switches.items()):
        switches.add_metric([kind], count)
    yield switches
    deadlines = GaugeMetricFamily(
        "ullage_job_deadlines",
        "Jobs with a deadline that have not ended, by whether it is kept at the present progress.",
        labels=["kept"],
    )
    for kept, count in sorted(figures.deadlines.items()):
        deadlines.add_metric([kept], count)
    yield deadlines
