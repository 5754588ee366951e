# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of jobs in tiers: stages, how far copies lag, steps that losses cost.

Families are made at scrape time from figures that are handed in. No label names a job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class TierFigures:
    """Figures of jobs in tiers; empty where there are none.

    Attributes:
        stages: Jobs whose lead was heard, by stage.
        most_lag: Steps that the job furthest ahead of its copy is ahead.
        lost_steps: Steps that were done again after losses, so far.
    """

    stages: Mapping[int, int] = field(default_factory=dict)
    most_lag: int = 0
    lost_steps: int = 0


def tier_metrics(figures: TierFigures) -> Iterator[Metric]:
    """The families."""
    stages = GaugeMetricFamily(
        "ullage_job_stage",
        "Jobs in tiers whose lead tells where they stand, by stage.",
        labels=["stage"],
    )
    for stage, count in sorted(figures.stages.items()):
        stages.add_metric([str(stage)], count)
    yield stages
    yield GaugeMetricFamily(
        "ullage_job_backup_lag_steps",
        "Steps that the job in tiers furthest ahead of the copy of its state is ahead.",
        value=figures.most_lag,
    )
    yield CounterMetricFamily(
        "ullage_job_lost_steps",
        "Steps that jobs in tiers did again after losses without notice, since the operator began.",
        value=figures.lost_steps,
    )
