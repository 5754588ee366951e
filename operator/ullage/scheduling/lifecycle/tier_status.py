# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Status of a job in tiers: ``status.tier``, its conditions and Events.

The previous object is kept while nothing changes; progress of steps is written once a minute.
Nothing is decided here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.status import Condition, WorkloadStatus
from ullage.cluster.records.tier import MOST_LAG, CoordinatorReport, TierRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.inventory.reliable_machines import terms_of
from ullage.scheduling.lifecycle.notice_periods import verdict
from ullage.scheduling.model.conditions import DesiredCondition, merged
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import Emit
from ullage.scheduling.model.view import View

_OURS: Final = (ConditionType.RECOVERABLE, ConditionType.NOTICE_FEASIBLE)
_RANK: Final = {type_.value: rank for rank, type_ in enumerate(ConditionType)}


def with_tier(view: View, job: WorkloadRecord, status: WorkloadStatus) -> WorkloadStatus:
    """The status with the report of the coordinator; unchanged for work without tiers."""
    if terms_of(job) is None:
        return status
    tier = job.status.tier
    report = view.snapshot.leads.get(job.ref.uid)
    if report is not None:
        tier = _tier(tier, report, view.now, view.settings.progress_period_s)
    conditions = _with_ours(view, job, status, report)
    updated = replace(status, tier=tier, conditions=conditions)
    return job.status if updated == job.status else updated


def tier_news(job: WorkloadRecord, status: WorkloadStatus, epoch: int) -> tuple[Emit, ...]:
    """Events for a change of stage and for steps that are repeated."""
    before, now = job.status.tier, status.tier
    if now is None or now is before:
        return ()
    changes: list[tuple[Reason, str]] = []
    if before is not None and now.stage != before.stage:
        text = f"stage {before.stage} to {now.stage}: {now.ratio} transient to reliable members run"
        changes.append((Reason.STAGE_CHANGED, text))
    again = now.lost_steps - (before.lost_steps if before is not None else 0)
    if again > 0:
        text = f"members were lost without notice: {again} steps are done again, no one restarts"
        changes.append((Reason.ROLLED_BACK, text))
    return tuple(
        Emit(
            target=job.ref,
            warning=reason is Reason.ROLLED_BACK,
            epoch=epoch,
            reason=reason,
            text=text,
        )
        for reason, text in changes
    )


def _tier(
    before: TierRecord | None, report: CoordinatorReport, now: float, period_s: float
) -> TierRecord:
    """The previous record while only steps changed and ``period_s`` is not over."""
    fresh = TierRecord(
        stage=report.stage,
        ratio=f"{report.transient}:{report.reliable}",
        epoch=report.epoch,
        observed_at=whole_second(now),
        last_consistent_step=report.committed,
        backup_lag_steps=(
            0 if report.committed is None else min(max(0, report.step - report.committed), MOST_LAG)
        ),
        lost_steps=report.lost_steps,
    )
    if before is None or _news(before) != _news(fresh):
        return fresh
    choices = before.last_consistent_step == fresh.last_consistent_step
    return before if choices or now < before.observed_at + period_s else fresh


def _news(tier: TierRecord) -> tuple[object, ...]:
    return (tier.stage, tier.ratio, tier.epoch, tier.lost_steps, tier.last_consistent_step is None)


def _with_ours(
    view: View, job: WorkloadRecord, status: WorkloadStatus, report: CoordinatorReport | None
) -> tuple[Condition, ...]:
    """The conditions with those of a job in tiers."""
    others = tuple(condition for condition in status.conditions if condition.type not in _OURS)
    ours_before = tuple(condition for condition in job.status.conditions if condition.type in _OURS)
    conditions: tuple[DesiredCondition, ...] = ()
    unchanged: tuple[Condition, ...] = ()
    if not Phase(status.phase).terminal:
        before = job.status.condition(ConditionType.RECOVERABLE)
        survives = _recoverable(view, job, before, report)
        conditions = (*(survives or ()), *_notice_feasible(view, job))
        if survives is None and before is not None:
            unchanged = (before,)
    shown = (*unchanged, *merged(ours_before, conditions, whole_second(view.now), job.generation))
    return tuple(sorted((*others, *shown), key=lambda condition: _RANK[condition.type]))


def _notice_feasible(view: View, job: WorkloadRecord) -> tuple[DesiredCondition, ...]:
    """The condition that a notice leaves time for the handover; none without a declared notice."""
    handover = verdict(view.snapshot.pools, job)
    if handover is None:
        return ()
    reason = Reason.NOTICE_LONG_ENOUGH if handover.feasible else Reason.NOTICE_TOO_SHORT
    type_ = ConditionType.NOTICE_FEASIBLE
    return (DesiredCondition(type_, handover.feasible, reason, handover.text, follows=True),)


def _recoverable(
    view: View, job: WorkloadRecord, before: Condition | None, report: CoordinatorReport | None
) -> tuple[DesiredCondition, ...] | None:
    """The condition that the state survives the loss of members; ``None`` = unchanged."""
    type_ = ConditionType.RECOVERABLE
    if report is not None:
        if report.committed is not None:
            return (
                DesiredCondition(
                    type_, True, Reason.COPY_HELD, "the lead holds a copy of the state"
                ),
            )
        if not report.copied:
            return (
                DesiredCondition(
                    type_, True, Reason.RELIABLE_OWN, "members that stay own the state"
                ),
            )
        return (
            DesiredCondition(type_, False, Reason.NO_COPY, "no copy of the state is whole yet"),
        )
    coordinator = view.coordinators.get(job.ref.uid)
    if before is None or (coordinator is not None and coordinator.stage is PodStage.RUNNING):
        return None
    return (DesiredCondition(type_, False, Reason.NO_COPY, "no lead runs that would hold a copy"),)
