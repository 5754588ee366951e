# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of taking turns: what is promised, what was received, what is owed, what it costs.

Families are made at scrape time from figures that are handed in. Labels are types of devices and
tenants, never a job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ullage.metrics.histograms import told

ByTypeAndTenant = Mapping[tuple[str, str], float]
"""Sums over jobs by (accelerator type, tenant)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFigures:
    """Figures of time slicing; empty under FIFO."""

    allocation: ByTypeAndTenant = field(default_factory=dict)
    received: ByTypeAndTenant = field(default_factory=dict)
    deficit: ByTypeAndTenant = field(default_factory=dict)
    preemptions: Mapping[str, int] = field(default_factory=dict)
    """By cause."""
    divisions: Histogram | None = None
    """Times of dividing the cluster."""


def turn_metrics(figures: TurnFigures) -> Iterator[Metric]:
    """The families."""
    gauges = (
        (
            "ullage_allocation_fraction",
            "Parts of time promised on a type, summed over the jobs of a tenant.",
            figures.allocation,
        ),
        (
            "ullage_received_fraction",
            "Parts of the time since their creation that jobs had on a type, summed by tenant.",
            figures.received,
        ),
        (
            "ullage_deficit_seconds",
            "Time owed on a type, summed over the jobs of a tenant that had less than promised.",
            figures.deficit,
        ),
    )
    for name, text, values in gauges:
        family = GaugeMetricFamily(name, text, labels=["accelerator", "tenant"])
        for labels, value in sorted(values.items()):
            family.add_metric(list(labels), value)
        yield family
    preemptions = CounterMetricFamily(
        "ullage_preemptions",
        "Jobs asked to save their work and leave: for a higher priority, or their turn was over.",
        labels=["cause"],
    )
    for cause, count in sorted(figures.preemptions.items()):
        preemptions.add_metric([cause], count)
    yield preemptions
    if figures.divisions is not None:
        yield from told(figures.divisions)
