# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Groups of trials in a status: their progress and expected end.

Figures are as of the last begin or end of a trial in the group by its TrainingJob, so that they
follow from objects alone. They change only when a trial joins the group or ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.tuning import GroupRecord
from ullage.engines.tuning.makespan import GroupRuns, makespan
from ullage.engines.tuning.rungs import HalvingRung
from ullage.scheduling.tuning.search import Search
from ullage.scheduling.tuning.times import TrialTimes, percent_had

Ran = Mapping[tuple[int, int], WorkloadRecord]
"""TrainingJobs that have begun, by trial and epoch."""


def groups_of(
    search: Search,
    before: Sequence[GroupRecord],
    runs: Sequence[WorkloadRecord],
    *,
    places: int,
    times: TrialTimes | None = None,
) -> tuple[GroupRecord, ...]:
    """Groups that have trials, undecided ones first.

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
    figures = _Figures(ran=ran, lasted=lasted, places=places, times=times)
    shown = {group.name: group for group in before}
    return tuple(_group(rung, shown.get(rung.group), figures) for rung in search.rungs())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figures:
    """Inputs of a group's figures."""

    ran: Ran
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


def _group(rung: HalvingRung, before: GroupRecord | None, figures: _Figures) -> GroupRecord:
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
    group: GroupRecord, rung: HalvingRung, members: Sequence[WorkloadRecord], figures: _Figures
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
