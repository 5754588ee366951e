# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Stages are counted, the worst lag is told, steps that were lost add up and count once."""

from __future__ import annotations

from dataclasses import replace

from ullage.cluster.records.tier import CoordinatorReport
from ullage.metrics.tiers import TierFigures, TierSums
from ullage.process.metric_families import families

REPORT = CoordinatorReport(stage=2, epoch=4, step=102, committed=101, reliable=1, transient=2)


def test_stages_and_the_worst_lag() -> None:
    others = {
        "b": replace(REPORT, stage=3, committed=95),
        "c": replace(REPORT, stage=1, copied=False, committed=3),
        "d": replace(REPORT, committed=None),
    }
    found = TierSums().figures({"a": REPORT} | others)
    assert found.stages == {1: 1, 2: 2, 3: 1}
    assert found.most_lag == 7


def test_lost_steps_count_once() -> None:
    sums = TierSums()
    sums.figures({"a": replace(REPORT, lost_steps=5)})
    assert sums.figures({"a": replace(REPORT, lost_steps=7)}).lost_steps == 2
    assert sums.figures({"a": replace(REPORT, lost_steps=7)}).lost_steps == 2
    sums.figures({})
    new_coordinator = {"a": replace(REPORT, lost_steps=1)}
    assert sums.figures(new_coordinator).lost_steps == 2
    assert sums.figures({"a": replace(REPORT, lost_steps=2)}).lost_steps == 3


def test_without_jobs_in_tiers_there_is_little_to_tell() -> None:
    assert TierSums().figures({}) == TierFigures(stages={}, most_lag=0, lost_steps=0)
    names = {family.name for family in families(TierFigures(stages={2: 3}))}
    assert names == {"ullage_job_stage", "ullage_job_backup_lag_steps", "ullage_job_lost_steps"}
