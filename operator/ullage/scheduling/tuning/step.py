# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The next step of a TuningJob: results to count, TrainingJobs to create and to delete.

It depends only on the TuningJob and the existing TrainingJobs. A result counts once it was written
into the status and read back; only then a trial continues or its TrainingJob is deleted. So no
crash makes a result count twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.snapshot import RefusedWrite
from ullage.cluster.records.tuning import TrialCounts, TuningRecord, TuningStatus
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.names import trial_name, trial_run_name
from ullage.engines.tuning.algorithms import trials_of
from ullage.engines.tuning.search_space import Point
from ullage.engines.tuning.suggestions import SuggestionRequest
from ullage.scheduling.model.conditions import DesiredCondition, merged
from ullage.scheduling.model.phases import OVER
from ullage.scheduling.model.plan import CreateTrial, DeleteWorkload, Emit
from ullage.scheduling.times import SEARCH_STALLED_S
from ullage.scheduling.tuning.results import fresh_results
from ullage.scheduling.tuning.search import Search, texts_of
from ullage.scheduling.tuning.search_status import conditions_of, events_of, groups_of, waits_since
from ullage.scheduling.tuning.times import DueTrial, TrialTimes, trial_times
from ullage.scheduling.tuning.widths import (
    WidthPlan,
    kept_resizes,
    plan_widths,
    resized_runs,
    target_percent,
)

MOST_KEPT: Final = 64
"""Number of TrainingJobs of ended trials that are kept for their pods' logs, the newest ones."""
_ENDED: Final = ("Succeeded", "Failed")
"""Final phases of a TuningJob."""
Missing = Sequence[tuple[int, int]]
"""Trials that could start, with the epoch to reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningStep:
    """The next status of a TuningJob, and its actions."""

    status: TuningStatus
    creates: tuple[CreateTrial, ...] = ()
    asks: SuggestionRequest | None = None
    """Request for the parameters of trials that could run."""
    deletes: tuple[DeleteWorkload, ...] = ()
    events: tuple[Emit, ...] = ()
    """Events about changes of the status."""
    again_at: float = 0.0
    """Time at which the step changes without an event, seconds since the epoch; 0 = never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """Inputs of a step beside the TuningJob.

    Attributes:
        runs: TrainingJobs that the TuningJob controls, by name.
        refused: TrainingJobs of its namespace that the API refused to create, by name.
        suggested: Parameters from a sampler, by trial.
        now: Seconds since the epoch.
        epoch: Epoch of this leader.
    """

    runs: Mapping[str, WorkloadRecord]
    suggested: Mapping[int, Point] = field(default_factory=dict)
    refused: Mapping[str, RefusedWrite] = field(default_factory=dict)
    now: float
    epoch: int


def next_step(job: TuningRecord, around: Around) -> TuningStep:
    """Decide the next step of a TuningJob.

    Args:
        job: The TuningJob as it was read.
        around: TrainingJobs, time and leader epoch.
    """
    if job.orphans:
        return TuningStep(status=job.status)
    if job.status.phase in _ENDED:
        deletes = () if job.deleting else _deletes(job, around, _counted(job), over=True)
        return TuningStep(status=job.status, deletes=deletes)
    return _stopping(job, around) if job.deleting else _running(job, around)


def _stopping(job: TuningRecord, around: Around) -> TuningStep:
    """Count results of a search that is being deleted, and stop all other trials."""
    search = _counted(job)
    deletes = _deletes(job, around, search, over=True)
    fresh = fresh_results(job, around.runs.values(), search)
    brought = {trial_run_name(job.ref.name, result.trial, result.epoch) for result in fresh}
    search.take_all(fresh)
    status = replace(
        job.status,
        trials=_counts(job, around, search, over=True),
        best_trial=search.best(job.ref.name),
        results=tuple(search.results),
    )
    return TuningStep(
        status=status if fresh else job.status,
        deletes=tuple(step for step in deletes if step.owner.name not in brought),
    )


def _running(job: TuningRecord, around: Around) -> TuningStep:
    search = _counted(job)
    pool = job.pool
    times = None if pool is None else trial_times(pool, search.results, job.status.resizes)
    missing = _missing(job, around, search)
    widths = _widths(job, around, search, times, missing)
    creates, asks = _creates(job, around, search, widths, missing)
    deletes = _deletes(job, around, search, over=False)
    fresh = fresh_results(job, around.runs.values(), search)
    search.take_all(fresh)  # the new status counts these, too
    status, reason = _status(job, around, search, times, widths)
    over = status.phase in _ENDED
    if over:
        creates, asks = (), None
    return TuningStep(
        status=status,
        creates=creates,
        asks=asks,
        deletes=deletes,
        events=events_of(job, status, fresh, over=reason if over else None, epoch=around.epoch),
        again_at=0.0 if over else _again_at(job, around, search, widths),
    )


def _again_at(job: TuningRecord, around: Around, search: Search, widths: WidthPlan | None) -> float:
    """Time at which the search counts as stalled or may resize a trial; 0 = never."""
    since = waits_since(_due_runs(job, around, search), around.runs.values())
    times = [since + SEARCH_STALLED_S if since else 0.0, widths.again_at if widths else 0.0]
    return min((at for at in times if at > around.now), default=0.0)


def _counted(job: TuningRecord) -> Search:
    return Search(terms=job.terms).take_all(job.status.results)


# -- TrainingJobs --------------------------------------------------------------------------------


def _missing(job: TuningRecord, around: Around, search: Search) -> Missing:
    """Trials that could start within ``parallelism``, with the epoch to reach.

    Resized ones come first, then the furthest.
    """
    resized = {(resize.trial, resize.epoch) for resize in job.status.resizes}
    wanted = sorted(
        search.due.items(), key=lambda entry: (entry not in resized, -entry[1], entry[0])
    )
    names = {run: trial_run_name(job.ref.name, *run) for run in wanted}
    active = sum(_is_active(around.runs.get(run)) for run in names.values())
    room = max(0, job.parallelism - active)
    refused = search.refused
    return [
        run
        for run in wanted
        if names[run] not in around.runs
        and names[run] not in around.refused
        and run[0] not in refused
    ][:room]


def _widths(
    job: TuningRecord,
    around: Around,
    search: Search,
    times: TrialTimes | None,
    missing: Missing,
) -> WidthPlan | None:
    """The widths of trials; ``None`` = as in the template."""
    if job.pool is None or times is None:
        return None
    reached = {result.trial: result.epoch for result in search.results}
    due = [
        DueTrial(trial=trial, from_epoch=reached.get(trial, 0), until_epoch=until, run=run)
        for trial, until in search.due.items()
        if _is_active(run := around.runs.get(trial_run_name(job.ref.name, trial, until)))
    ]
    due += [
        DueTrial(trial=trial, from_epoch=reached.get(trial, 0), until_epoch=until)
        for trial, until in missing
    ]
    return plan_widths(job.pool, times, due, around.now)


def _percent(job: TuningRecord, widths: WidthPlan | None, trial: int, until: int) -> int | None:
    """Percent of a device that a trial starts with; 0 = as in the template; ``None`` = it waits."""
    if widths is None:
        return 0
    resized = target_percent(job.status.resizes, trial, until)
    return resized or widths.starts.get(trial)


def _creates(
    job: TuningRecord,
    around: Around,
    search: Search,
    widths: WidthPlan | None,
    missing: Missing,
) -> tuple[tuple[CreateTrial, ...], SuggestionRequest | None]:
    """TrainingJobs of trials that start, and a request for the parameters of the others."""
    name = job.ref.name
    running = {
        run.trial.trial: run.trial.parameters
        for run in around.runs.values()
        if run.trial is not None and _is_active(run)
    }
    creates: list[CreateTrial] = []
    unknown: list[int] = []
    for trial, until in missing:
        percent = _percent(job, widths, trial, until)
        if percent is None:
            continue
        texts, suggested = search.texts(trial), around.suggested.get(trial)
        if texts is None and suggested is not None:
            texts = texts_of(suggested)
        if texts is None:
            unknown.append(trial)
            continue
        running[trial] = texts
        creates.append(
            CreateTrial(
                owner=job.ref,
                name=trial_run_name(name, trial, until),
                trial=trial,
                until_epoch=until,
                parameters=texts,
                percent=percent,
                epoch=around.epoch,
                reason=Reason.TRIAL_STARTED,
                text=f"{trial_name(name, trial)} runs to epoch {until}"
                + (f" with {percent} % of a device" if percent else ""),
            )
        )
    return tuple(creates), search.request(tuple(unknown), running) if unknown else None


def _is_active(run: WorkloadRecord | None) -> bool:
    return run is not None and run.status.phase not in OVER


def _deletes(
    job: TuningRecord, around: Around, search: Search, *, over: bool
) -> tuple[DeleteWorkload, ...]:
    """Deletions of TrainingJobs: strays, old ones of ended trials, and those to resize."""
    strays: list[WorkloadRecord] = []
    ended: list[WorkloadRecord] = []
    due = _due_runs(job, around, search)
    alive = [run for run in due if _is_active(run) and not over and job.pool is not None]
    resized = resized_runs(job.status.resizes, alive)
    for run in around.runs.values():
        of = run.trial
        if of is None or run.deleting:
            continue
        if (of.trial, of.until_epoch) in search.counted:
            ended.append(run)
        elif over or search.due.get(of.trial) != of.until_epoch:
            strays.append(run)
    ended.sort(key=lambda run: (run.status.completion_time, run.ref.name))
    gone = [*strays, *ended[: max(0, len(ended) - MOST_KEPT)]]
    return tuple(
        DeleteWorkload(
            owner=run.ref,
            epoch=around.epoch,
            reason=Reason.TRIAL_STOPPED,
            text=f"the status of TuningJob {job.ref.name} has its result"
            if run in ended
            else f"TuningJob {job.ref.name} no longer needs it",
        )
        for run in sorted(gone, key=lambda run: run.ref.name)
    ) + tuple(
        DeleteWorkload(
            owner=run.ref,
            epoch=around.epoch,
            reason=Reason.TRIAL_RESIZED,
            text=f"resumes from its checkpoint with {percent} % of a device",
        )
        for run, percent in resized
    )


# -- status --------------------------------------------------------------------------------------


def _status(
    job: TuningRecord,
    around: Around,
    search: Search,
    times: TrialTimes | None,
    widths: WidthPlan | None,
) -> tuple[TuningStatus, Reason]:
    before, now = job.status, whole_second(around.now)
    phase, reason, message = _verdict(job, around, search)
    over = phase in _ENDED
    fresh_resizes = widths.resizes if widths is not None else ()
    runs = tuple(around.runs.values())
    groups = groups_of(
        search,
        before.groups,
        runs,
        places=job.pool.devices if job.pool else job.parallelism,
        times=times,
    )
    conditions = [
        DesiredCondition(
            ConditionType.COMPLETE, phase == "Succeeded", reason, message, follows=not over
        ),
        *(
            [DesiredCondition(ConditionType.FAILED, True, reason, message)]
            if phase == "Failed"
            else []
        ),
        *(() if over else conditions_of(_due_runs(job, around, search), runs, groups, around.now)),
    ]
    begun = bool(around.runs or search.results)
    status = replace(
        before,
        observed_generation=job.generation,
        phase=phase,
        start_time=before.start_time or (now if begun else 0.0),
        completion_time=(before.completion_time or now) if over else 0.0,
        message=message,
        trials=_counts(job, around, search, over=over),
        best_trial=search.best(job.ref.name),
        groups=groups,
        results=tuple(search.results),
        resizes=kept_resizes((*before.resizes, *fresh_resizes), search.due, search.counted),
        conditions=merged(before.conditions, conditions, now, job.generation),
    )
    return (before if status == before else status), reason


def _due_runs(job: TuningRecord, around: Around, search: Search) -> tuple[WorkloadRecord, ...]:
    """Existing TrainingJobs of due trials."""
    if not around.runs:
        return ()
    names = (trial_run_name(job.ref.name, *run) for run in search.due.items())
    return tuple(run for name in names if (run := around.runs.get(name)) is not None)


def _verdict(job: TuningRecord, around: Around, search: Search) -> tuple[str, Reason, str]:
    """Phase, reason and message of a search."""
    failed = search.failed
    if failed > job.max_failed_trials:
        text = f"{failed} trials failed, spec.maxFailedTrials is {job.max_failed_trials}"
        return "Failed", Reason.TOO_MANY_TRIALS_FAILED, text
    if not search.due and job.terms.more_to_come:
        text = f"{len(job.terms.stated)} trials were suggested; more may come"
        return "Running" if job.terms.stated else "Pending", Reason.WAITS_FOR_SUGGESTIONS, text
    if not search.due:
        best = search.best(job.ref.name)
        if best is None:
            return "Failed", Reason.NO_RESULT, f"none of {trials_of(job.terms)} trials has a value"
        text = f"{best.name} is the best: {job.metric} {best.value!r} at epoch {best.epoch}"
        return "Succeeded", Reason.SEARCH_ENDED, text
    for trial, until in sorted(search.due.items()):
        refused = around.refused.get(trial_run_name(job.ref.name, trial, until))
        if refused is not None:
            text = f"{trial_name(job.ref.name, trial)}: {refused.message}"
            return "Running" if around.runs else "Pending", refused.reason, text
    epochs = sorted(set(search.due.values()))
    listed = " and ".join(str(epoch) for epoch in epochs[:3]) + (" ..." if len(epochs) > 3 else "")
    trials = "1 trial is" if len(search.due) == 1 else f"{len(search.due)} trials are"
    text = f"{trials} to reach epoch {listed}"
    return "Running" if around.runs else "Pending", Reason.TRIALS_RUN, text


def _counts(job: TuningRecord, around: Around, search: Search, *, over: bool) -> TrialCounts:
    due = {
        trial: around.runs.get(trial_run_name(job.ref.name, trial, until))
        for trial, until in search.due.items()
    }
    running = 0 if over else sum(run is not None for run in due.values())
    paused = frozenset() if over else search.paused()
    ended = len(search.parameters) - len(paused) - sum(trial in search.parameters for trial in due)
    failed = search.failed
    complete = sum(
        result.value is not None and result.epoch == job.terms.max_epochs
        for result in search.results
    )
    return TrialCounts(
        waiting=len(due) - running,
        running=running,
        paused=len(paused),
        ended=ended,
        stopped=max(0, ended - failed - complete),
        failed=failed,
    )
