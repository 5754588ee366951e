# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What TrainingJobs of trials that have ended bring: a value, or why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ullage.api.reasons import Reason
from ullage.cluster.records.snapshot import TrialOf, WorkloadRecord
from ullage.cluster.records.tuning import TrialResult, TuningRecord
from ullage.scheduling.model.phases import OVER, Phase
from ullage.scheduling.tuning.search import Search, Texts, point_of, texts_of
from ullage.scheduling.tuning.times import percent_had


def fresh_results(
    job: TuningRecord, runs: Iterable[WorkloadRecord], search: Search
) -> tuple[TrialResult, ...]:
    """Results of TrainingJobs that have ended and are not counted yet, in the order of their ends.

    Those that end at one time come by number, so that the order follows from the objects alone.

    Args:
        job: The TuningJob.
        runs: TrainingJobs that it controls.
        search: With every result that its status holds.
    """
    ended = [
        (run.status.completion_time, run.trial.trial, run)
        for run in runs
        if run.trial is not None
        and run.status.phase in OVER
        and search.due.get(run.trial.trial) == run.trial.until_epoch
    ]
    ended.sort(key=lambda one: one[:2])
    return (*_refused(search), *(_result(job, run, search) for _, _, run in ended))


def _refused(search: Search) -> Iterator[TrialResult]:
    """Suggested trials that cannot run: they fail at once."""
    for one in search.terms.stated:
        if one.refused and search.due.get(one.trial) == one.epochs[0]:
            yield TrialResult(
                trial=one.trial, epoch=one.epochs[0], reason=Reason.SUGGESTION_REFUSED
            )


def _result(job: TuningRecord, run: WorkloadRecord, search: Search) -> TrialResult:
    """The result of an ended TrainingJob."""
    of = run.trial
    if of is None:
        raise ValueError(f"{run.ref.name} runs no trial")
    resizes = [
        one for one in job.status.resizes if (one.trial, one.epoch) == (of.trial, of.until_epoch)
    ]
    had = percent_had(run.gpu)
    if resizes and resizes[-1].to_percent != had:
        resizes.pop()  # it ended first
    value, reason = _value(run, of.until_epoch)
    known = search.parameters.get(of.trial)
    return TrialResult(
        trial=of.trial,
        epoch=of.until_epoch,
        value=value,
        reason=reason,
        seconds=_seconds(run) + sum(one.seconds for one in resizes),
        percent=0 if resizes or run.status.restarts or job.pool is None else had,
        parameters=() if known or search.is_stated else _parameters(of, search),
    )


def _parameters(of: TrialOf, search: Search) -> Texts:
    """What a trial ran with, as far as its TrainingJob, which others may edit, is to be believed.

    Only points of the search space are: a status has room for those.
    """
    point = point_of(search.terms, of.parameters)
    if point.keys() == search.terms.space.parameters.keys():
        return texts_of(point)
    return search.texts(of.trial) or ()


def _seconds(run: WorkloadRecord) -> int:
    """From its first start to its end; 0 where it never ran."""
    began, ended = run.status.start_time, run.status.completion_time
    return max(0, round(ended - began)) if began > 0 else 0


def _value(run: WorkloadRecord, epoch: int) -> tuple[float | None, Reason | None]:
    if run.status.phase == Phase.FAILED:
        return None, Reason.TRIAL_FAILED
    told = next((one for one in run.status.metrics if one.epoch == epoch), None)
    if told is None:
        return None, Reason.METRIC_MISSING
    if told.value is None:
        return None, Reason.METRIC_NOT_A_NUMBER
    return told.value, None
