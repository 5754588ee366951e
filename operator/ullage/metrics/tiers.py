# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of jobs in tiers, from the reports of their coordinators; no label names a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ullage.cluster.records.tier import CoordinatorReport
from ullage.process.metric_families import counter, gauge


@dataclass(frozen=True, slots=True, kw_only=True)
class TierFigures:
    """Figures of jobs in tiers; empty where there are none."""

    stages: Mapping[int, int] = gauge(
        "ullage_job_stage",
        "Jobs in tiers whose coordinator tells where they stand, by stage.",
        "stage",
    )
    most_lag: int = gauge(
        "ullage_job_backup_lag_steps",
        "Steps that the job in tiers furthest ahead of the copy of its state is ahead.",
    )
    lost_steps: int = counter(
        "ullage_job_lost_steps",
        "Steps that jobs in tiers did again after losses without notice, since the operator began.",
    )


@dataclass(slots=True)
class TierSums:
    """Lost steps since the start of this process; bounded by the running coordinators."""

    lost_steps: int = 0
    _seen: dict[str, int] = field(default_factory=dict)

    def figures(self, reports: Mapping[str, CoordinatorReport]) -> TierFigures:
        """Add new losses, and export the current figures.

        Args:
            reports: Reports of coordinators, by uid of the job.
        """
        for uid, report in reports.items():
            # the time of losses of a newly observed coordinator is unknown
            self.lost_steps += max(0, report.lost_steps - self._seen.get(uid, report.lost_steps))
        self._seen = {uid: report.lost_steps for uid, report in reports.items()}
        return TierFigures(
            stages=Counter(report.stage for report in reports.values()),
            most_lag=max(
                (
                    report.step - report.committed
                    for report in reports.values()
                    if report.copied and report.committed is not None
                ),
                default=0,
            ),
            lost_steps=self.lost_steps,
        )
