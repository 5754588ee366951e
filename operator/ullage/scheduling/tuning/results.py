# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Results of ended TrainingJobs of trials: a value, or the reason for which there is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ullage.api.reasons import Reason
from ullage.cluster.records.tuning import TrialResult, TuningRecord
from ullage.cluster.records.workload import TrialOf, WorkloadRecord
from ullage.scheduling.model.phases import OVER, Phase
from ullage.scheduling.tuning.search import Search, Texts, point_of, texts_of
from ullage.scheduling.tuning.times import percent_had


def fresh_results(
    job: TuningRecord, runs: Iterable[WorkloadRecord], search: Search
) -> tuple[TrialResult, ...]:
    """Results of ended TrainingJobs that are not counted yet, in the order of their ends.

    Simultaneous ones are ordered by number, so that the order follows from the objects alone.

    Args:
        job: The TuningJob.
        runs: TrainingJobs that it controls.
        search: The search with every result of the status.
    """
    ended = [
        (run.status.completion_time, run.trial.trial, run)
        for run in runs
        if run.trial is not None
        and run.status.phase in OVER
        and search.due.get(run.trial.trial) == run.trial.until_epoch
    ]
    ended.sort(key=lambda ended_run: ended_run[:2])
    return (*_refused(search), *(_result(job, run, search) for _, _, run in ended))


def _refused(search: Search) -> Iterator[TrialResult]:
    """Results of suggested trials that cannot run: they fail at once."""
    for trial in search.terms.stated:
        if trial.refused and search.due.get(trial.trial) == trial.epochs[0]:
            yield TrialResult(
                trial=trial.trial, epoch=trial.epochs[0], reason=Reason.SUGGESTION_REFUSED
            )


def _result(job: TuningRecord, run: WorkloadRecord, search: Search) -> TrialResult:
    """The result of an ended TrainingJob."""
    of = run.trial
    if of is None:
        raise ValueError(f"{run.ref.name} runs no trial")
    resizes = [
        resize
        for resize in job.status.resizes
        if (resize.trial, resize.epoch) == (of.trial, of.until_epoch)
    ]
    had = percent_had(run.gpu)
    if resizes and resizes[-1].to_percent != had:
        resizes.pop()  # it ended before the resize
    value, reason = _value(run, of.until_epoch)
    began = run.status.start_time
    seconds = max(0, round(run.status.completion_time - began)) if began > 0 else 0
    parameters = search.parameters.get(of.trial)
    return TrialResult(
        trial=of.trial,
        epoch=of.until_epoch,
        value=value,
        reason=reason,
        seconds=seconds + sum(resize.seconds for resize in resizes),
        percent=0 if resizes or run.status.restarts or job.pool is None else had,
        parameters=() if parameters or search.is_stated else _parameters(of, search),
    )


def _parameters(of: TrialOf, search: Search) -> Texts:
    """Parameters of a trial from its TrainingJob, which users may have edited.

    Only a point of the search space is accepted, because the size of a status is limited.
    """
    point = point_of(search.terms, of.parameters)
    if point.keys() == search.terms.space.parameters.keys():
        return texts_of(point)
    return search.texts(of.trial) or ()


def _value(run: WorkloadRecord, epoch: int) -> tuple[float | None, Reason | None]:
    if run.status.phase == Phase.FAILED:
        return None, Reason.TRIAL_FAILED
    metric = next((metric for metric in run.status.metrics if metric.epoch == epoch), None)
    if metric is None:
        return None, Reason.METRIC_MISSING
    if metric.value is None:
        return None, Reason.METRIC_NOT_A_NUMBER
    return metric.value, None
