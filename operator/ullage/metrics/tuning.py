# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of running searches, from their statuses; no search and no trial is a label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ullage.api.reasons import ConditionType
from ullage.cluster.records.tuning import GroupRecord, TuningRecord
from ullage.process.metric_families import gauge


class TrialStage(StrEnum):
    """State of a trial, as counted by ``status.trials``."""

    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    FAILED = "failed"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningFigures:
    """TuningJobs, their trials, and the ratio of their open groups to the bound."""

    jobs: Mapping[str, int] = gauge("ullage_tuning_jobs", "TuningJobs by phase.", "phase")
    stalled: int = gauge(
        "ullage_tuning_jobs_stalled", "TuningJobs in which no trial has run for ten minutes."
    )
    too_small: int = gauge(
        "ullage_tuning_jobs_pool_too_small",
        "TuningJobs with a trial that no device could take even in an empty cluster.",
    )
    trials: Mapping[str, int] = gauge(
        "ullage_tuning_trials", "Trials of all TuningJobs that exist.", "state"
    )
    makespan_ratio: float = gauge(
        "ullage_tuning_makespan_ratio",
        "Expected makespan of open groups of trials to their lower bound, weighted by the bound; 0"
        " = no open group has a measured trial.",
    )
    utilisation: float = gauge(
        "ullage_tuning_utilisation",
        "Part of the places of open groups in which trials run, weighted by expected makespan; 0 ="
        " no open group has a measured trial.",
    )


def tuning_figures(jobs: Iterable[TuningRecord]) -> TuningFigures:
    """The current figures.

    Args:
        jobs: TuningJobs of the cluster.
    """
    statuses = [job.status for job in jobs]
    held = Counter(
        condition.type
        for status in statuses
        for condition in status.conditions
        if condition.status == "True"
    )
    trials: Counter[str] = Counter(dict.fromkeys(TrialStage, 0))
    for status in statuses:
        counts = status.trials
        trials[TrialStage.WAITING] += counts.waiting
        trials[TrialStage.RUNNING] += counts.running
        trials[TrialStage.PAUSED] += counts.paused
        trials[TrialStage.STOPPED] += counts.stopped
        trials[TrialStage.FAILED] += counts.failed
        trials[TrialStage.COMPLETE] += max(0, counts.ended - counts.stopped - counts.failed)
    measured = [group for status in statuses for group in status.groups if _is_open(group)]
    expected = sum(group.makespan_eta for group in measured)
    bound = sum(group.lower_bound for group in measured)
    used = sum(group.makespan_eta * float(group.utilisation or 0) for group in measured)
    return TuningFigures(
        jobs=Counter(status.phase or "Pending" for status in statuses),
        stalled=held[ConditionType.STALLED],
        too_small=held[ConditionType.POOL_TOO_SMALL],
        trials=trials,
        makespan_ratio=expected / bound if bound else 0.0,
        utilisation=used / expected if expected else 0.0,
    )


def _is_open(group: GroupRecord) -> bool:
    """An undecided group with a measured trial."""
    return group.ended < group.trials and group.makespan_eta > 0 and group.lower_bound > 0
