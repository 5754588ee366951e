# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Status of a search: groups of trials, conditions and Events.

Figures of a group are as of the last start or end of a trial in it by its TrainingJob, so that they
follow from objects alone. Messages have only reasons and stable texts. So a status is written only
when there is an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.reasons import ConditionType, Reason, Standing
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.tuning import (
    GroupRecord,
    TrialResize,
    TrialResult,
    TuningRecord,
    TuningStatus,
)
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.names import trial_name
from ullage.engines.tuning.makespan import GroupRuns, makespan
from ullage.engines.tuning.rungs import HalvingRung
from ullage.scheduling.model.conditions import DesiredCondition, newly_true
from ullage.scheduling.model.phases import OVER, Phase
from ullage.scheduling.model.plan import Emit
from ullage.scheduling.times import SEARCH_STALLED_S
from ullage.scheduling.tuning.search import Search
from ullage.scheduling.tuning.times import TrialTimes, percent_had

_MOST_NAMED: Final = 4
_MOST_OF_A_TEXT: Final = 512
_MOST_RESIZES: Final = 8
"""Maximum of resizes named in an Event."""
_ANNOUNCED: Final = (
    ConditionType.PLANNED,
    ConditionType.STALLED,
    ConditionType.POOL_TOO_SMALL,
)
"""Conditions with an Event when they become true."""


def groups_of(
    search: Search,
    before: Sequence[GroupRecord],
    runs: Sequence[WorkloadRecord],
    *,
    places: int,
    times: TrialTimes | None = None,
) -> tuple[GroupRecord, ...]:
    """Groups with trials, undecided ones first.

    Args:
        search: The search with every counted result.
        before: Groups of the last status.
        runs: TrainingJobs of its trials.
        places: Trials that may run at one time; with ``times``, devices.
        times: Times of trials that divide devices.
    """
    ran = {
        (run.trial.trial, run.trial.until_epoch): run
        for run in runs
        if run.trial is not None and run.status.start_time > 0
    }
    lasted = {
        (result.trial, result.epoch): times.work_s(result) if times else float(result.seconds)
        for result in search.results
    }
    figures = _SearchFigures(ran=ran, lasted=lasted, places=places, times=times)
    shown = {group.name: group for group in before}
    return tuple(_group(rung, shown.get(rung.group), figures) for rung in search.rungs())


@dataclass(frozen=True, slots=True, kw_only=True)
class _SearchFigures:
    """Inputs of a group's figures."""

    ran: Mapping[tuple[int, int], WorkloadRecord]
    """TrainingJobs that have started, by trial and epoch."""
    lasted: Mapping[tuple[int, int], float]
    """Duration of each result, seconds; with ``times`` on one whole device."""
    places: int
    times: TrialTimes | None

    def elapsed_s(self, run: WorkloadRecord, now: float) -> float:
        """Run time of a TrainingJob until now, in the same unit as ``lasted``."""
        seconds, of = now - run.status.start_time, run.trial
        if self.times is None or of is None:
            return seconds
        before = self.times.before_s(of.trial, of.until_epoch)
        return before + seconds * self.times.speed(percent_had(run.gpu))


def _group(rung: HalvingRung, before: GroupRecord | None, figures: _SearchFigures) -> GroupRecord:
    counts = len(rung.members), len(rung.values) + len(rung.problems)
    if before is not None and before.start_time and (before.trials, before.ended) == counts:
        return before
    ran = figures.ran
    members = [ran[key] for trial in rung.members if (key := (trial, rung.until_epoch)) in ran]
    starts = [run.status.start_time for run in members]
    if before is not None and before.start_time:
        starts.append(before.start_time)
    group = GroupRecord(
        name=rung.group,
        epoch=rung.until_epoch,
        trials=counts[0],
        ended=counts[1],
        start_time=whole_second(min(starts)) if starts else 0.0,
    )
    return _with_figures(group, rung, members, figures)


def _with_figures(
    group: GroupRecord,
    rung: HalvingRung,
    members: Sequence[WorkloadRecord],
    figures: _SearchFigures,
) -> GroupRecord:
    """The group with its expected end, if any duration was measured."""
    if not members or not group.start_time:
        return group
    pending = set(rung.pending)
    latest = max(max(run.status.start_time, run.status.completion_time) for run in members)
    running = [
        figures.elapsed_s(run, latest)
        for run in members
        if run.trial is not None and run.trial.trial in pending and not run.status.completion_time
    ]
    group_runs = GroupRuns(
        ended_s=tuple(
            figures.lasted.get((trial, rung.until_epoch), 0.0)
            for trial in rung.members
            if trial not in pending
        ),
        running_s=tuple(running),
        waiting=len(pending) - len(running),
        elapsed_s=max(0.0, latest - group.start_time),
        places=figures.places,
    )
    if figures.times is not None:
        group_runs = replace(group_runs, widths=figures.times.widths, curve=figures.times.curve)
    estimate = makespan(group_runs)
    if estimate is None:
        return group
    return replace(
        group,
        makespan_eta=round(estimate.eta_s),
        lower_bound=round(estimate.lower_bound_s),
        utilisation=f"{estimate.utilisation:.2f}",
    )


def conditions_of(
    due: Sequence[WorkloadRecord],
    runs: Iterable[WorkloadRecord],
    groups: Sequence[GroupRecord],
    now: float,
) -> tuple[DesiredCondition, ...]:
    """Conditions of a running search, in order: Planned, Stalled and PoolTooSmall.

    Args:
        due: Existing TrainingJobs of due trials.
        runs: All TrainingJobs of its trials.
        groups: Groups of the new status.
        now: Seconds since the epoch.
    """
    conditions = [_planned(groups)]
    since = waits_since(due, runs)
    if since and now >= since + SEARCH_STALLED_S:
        conditions.append(
            DesiredCondition(
                ConditionType.STALLED,
                True,
                Reason.NO_TRIAL_RUNS,
                f"no trial has run for {SEARCH_STALLED_S / 60:.0f} minutes; waiting for: "
                f"{_waits_for(due)}",
                follows=True,
            )
        )
    unfit = next((run for run in _by_name(due) if _never_fits(run)), None)
    if unfit is not None and unfit.status.decision is not None:
        why = unfit.status.decision
        text = f"{unfit.ref.name}: {why.reason.value}: {why.message}"
        conditions.append(
            DesiredCondition(
                ConditionType.POOL_TOO_SMALL, True, Reason.NO_DEVICE_FITS, text[:_MOST_OF_A_TEXT]
            )
        )
    return tuple(conditions)


def waits_since(due: Sequence[WorkloadRecord], runs: Iterable[WorkloadRecord]) -> float:
    """Time since which every trial waits, seconds since the epoch; 0 = one runs, or none is due.

    Args:
        due: TrainingJobs of due trials.
        runs: All TrainingJobs of its trials; the last that began or ended counts.
    """
    waiting = [run for run in due if run.status.phase not in OVER]
    if not waiting or any(run.status.phase == Phase.RUNNING for run in waiting):
        return 0.0
    return max(
        max(run.created, run.status.start_time, run.status.completion_time) for run in (*due, *runs)
    )


def _planned(groups: Sequence[GroupRecord]) -> DesiredCondition:
    if any(group.makespan_eta for group in groups):
        text = "status.groups shows when each group with a measured trial will have ended"
        return DesiredCondition(ConditionType.PLANNED, True, Reason.MAKESPAN_ESTIMATED, text)
    text = "no trial has ended yet, so nothing is known of how long trials take"
    return DesiredCondition(ConditionType.PLANNED, False, Reason.NOTHING_MEASURED, text)


def _waits_for(due: Sequence[WorkloadRecord]) -> str:
    """Reasons of waiting TrainingJobs, each with the first job that has it."""
    named: dict[str, str] = {}
    for run in _by_name(due):
        if run.status.phase in OVER:
            continue
        decision = run.status.decision
        waits = decision is not None and run.status.phase in ("", Phase.PENDING)
        word = decision.reason.value if decision and waits else run.status.phase or "a decision"
        named.setdefault(word, run.ref.name)
    shown = [f"{word} ({name})" for word, name in sorted(named.items())]
    return ", ".join(shown[:_MOST_NAMED]) + (", ..." if len(shown) > _MOST_NAMED else "")


def _never_fits(run: WorkloadRecord) -> bool:
    decision = run.status.decision
    return (
        run.status.phase in ("", Phase.PENDING)
        and decision is not None
        and not decision.refusals
        and Standing.NEVER_FITS in decision.reason.standing
    )


def _by_name(due: Sequence[WorkloadRecord]) -> list[WorkloadRecord]:
    return sorted(due, key=lambda run: run.ref.name)


def events_of(
    job: TuningRecord,
    status: TuningStatus,
    fresh: Sequence[TrialResult],
    *,
    over: Reason | None,
    epoch: int,
) -> tuple[Emit, ...]:
    """Events for failed trials, decided groups, resizes, new conditions and the end of the search.

    Args:
        job: The TuningJob as it was read.
        status: Its new status.
        fresh: Results that are counted now.
        over: Reason of the end of the search; ``None`` = it continues.
        epoch: Epoch of this leader.
    """
    news: list[tuple[bool, Reason, str]] = [
        (
            True,
            result.reason,
            f"{trial_name(job.ref.name, result.trial)} has no value: {result.reason}",
        )
        for result in fresh
        if result.reason is not None
    ]
    open_before = {group.name for group in job.status.groups if group.ended < group.trials}
    news += [
        (
            False,
            Reason.GROUP_FINISHED,
            f"{group.name}: {group.trials} trials reached epoch {group.epoch}",
        )
        for group in status.groups
        if group.name in open_before and group.ended == group.trials
    ]
    before = {(resize.trial, resize.epoch, resize.time) for resize in job.status.resizes}
    texts = [
        _resize_text(job, resize)
        for resize in status.resizes
        if (resize.trial, resize.epoch, resize.time) not in before
    ]
    if texts:  # one text, because Events of one reason replace each other
        more = f"; and {len(texts) - _MOST_RESIZES} more" if len(texts) > _MOST_RESIZES else ""
        news.append((False, Reason.TRIAL_RESIZED, "; ".join(texts[:_MOST_RESIZES]) + more))
    news += [
        (condition.type != ConditionType.PLANNED, Reason(condition.reason), condition.message)
        for condition in newly_true(job.status.conditions, status.conditions)
        if condition.type in _ANNOUNCED
    ]
    if over is not None:
        news.append((status.phase == "Failed", over, status.message))
    return tuple(
        Emit(target=job.ref, warning=warning, epoch=epoch, reason=why, text=text)
        for warning, why, text in news
    )


def _resize_text(job: TuningRecord, resize: TrialResize) -> str:
    why = f"expected to end {resize.gain_seconds} s sooner" if resize.gain_seconds else "makes room"
    if resize.not_started:
        why = "no device had room for it"
    name = trial_name(job.ref.name, resize.trial)
    return f"{name}: from {resize.from_percent} to {resize.to_percent} % of a device, {why}"
