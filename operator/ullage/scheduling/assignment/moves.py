# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Moves of running jobs to devices that have become a much better choice.

One at a time, to free devices that no waiting workload could use, and not before it has run for a
while in place. Under rounds or pools chosen by cost, those decide. Level-triggered: it follows from
statuses, so a new leader continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ullage.api.reasons import ConditionType, Reason, Standing, standing_of
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.assignment.cycle_context import CycleContext
from ullage.scheduling.assignment.reevaluation import Finding
from ullage.scheduling.learning.reconsider import BetterChoice, better_choice
from ullage.scheduling.model.lifecycle_step import LifecycleStep, earliest
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.view import Member
from ullage.scheduling.placement.attempt import Outcome
from ullage.scheduling.placement.preemption import unsaved_s
from ullage.scheduling.placement.room import elsewhere
from ullage.scheduling.times import BETTER_CHOICE_SETTLES_S

_BETTER: Final = Reason.BETTER_CHOICE


@dataclass(frozen=True, slots=True, kw_only=True)
class NextMove:
    """The job that moves in this cycle, if any, and the time of the next check."""

    uid: str = ""
    finding: Finding | None = None
    wake_at: float = 0.0


def better_for(
    context: CycleContext,
    job: WorkloadRecord,
    members: Sequence[Member],
    held: Sequence[str],
    devices: int,
) -> BetterChoice | None:
    """A much better choice than a job's current types; ``None`` = there is none."""
    if context.rounds is not None or job.ref.uid in context.capacity_choices.choices:
        return None
    return better_choice(
        job,
        held,
        devices,
        context.view.snapshot.policy.reconsider,
        now=context.view.now,
        unsaved_s=unsaved_s(context.view, members),
    )


def next_move(context: CycleContext, outcomes: Mapping[str, Outcome]) -> NextMove:
    """The job that moves in this cycle.

    Args:
        context: The cluster as the cycle sees it; all waiting workloads were served.
        outcomes: Outcomes of the waiting workloads, by uid.
    """
    if context.rounds is not None:
        return NextMove()
    moments: list[float] = []
    queued: list[tuple[float, WorkloadRecord, BetterChoice]] = []
    for uid, job in context.view.index.those(context.view.index.misplaced):
        life = context.lifecycles.get(uid)
        if life is None or not _may_move(context, job, life):
            continue
        members = context.view.members_of(job)
        held = _types(context, members)
        devices = sum(len(member.held) for member in members)
        better = better_for(context, job, members, held, devices)
        if better is None:
            continue
        ready_at = _ready_at(context, job, members)
        if ready_at > context.view.now:
            moments.append(ready_at)
        else:
            queued.append((-better.saved, job, better))
    for _, job, better in sorted(queued, key=lambda entry: (entry[0], entry[1].ref.uid)):
        if _is_asked_for(context, job, better.accelerator, outcomes):
            continue
        members, target = context.view.members_of(job), better.accelerator
        if elsewhere(context.placer, context.requests, job, members, here_too=False, only=target):
            finding = Finding(reason=_BETTER, text=better.text, because=_BETTER)
            return NextMove(uid=job.ref.uid, finding=finding, wake_at=earliest(*moments))
    return NextMove(wake_at=earliest(*moments))


def _may_move(context: CycleContext, job: WorkloadRecord, life: LifecycleStep) -> bool:
    """True if a job runs as a whole, saves its work, and has no other pending decision."""
    return (
        job.checkpoint
        and not job.in_place
        and life.phase is Phase.RUNNING
        and not (life.waiting or life.joining or life.silent)
        and job.ref.uid not in context.findings
        and job.ref.uid not in context.capacity_choices.choices
    )


def _types(context: CycleContext, members: Sequence[Member]) -> list[str]:
    """Types of the devices that members hold."""
    inventory = context.inventory
    sites = (
        inventory.site_index.get((held.node, held.slice.gpu))
        for member in members
        for held in member.held
    )
    return sorted(
        {inventory.model_names[inventory.model.item(site)] for site in sites if site is not None}
    )


def _ready_at(context: CycleContext, job: WorkloadRecord, members: Sequence[Member]) -> float:
    """Time at which a job has run, and has been movable, for long enough."""
    shown, now = job.status.condition(ConditionType.AS_RECOMMENDED), context.view.now
    if shown is None or any(member.pod.stage is not PodStage.RUNNING for member in members):
        return now + BETTER_CHOICE_SETTLES_S
    runs_since = max((member.pod.stage_since for member in members), default=now)
    hold_s = context.view.snapshot.policy.reconsider.hold_s
    return max(shown.since + BETTER_CHOICE_SETTLES_S, runs_since + hold_s)


def _is_asked_for(
    context: CycleContext, mover: WorkloadRecord, target: str, outcomes: Mapping[str, Outcome]
) -> bool:
    """True if a waiting or new workload could use devices of a type."""
    workloads = context.view.snapshot.workloads
    for uid, life in context.lifecycles.items():
        if uid == mover.ref.uid or not _is_coming(life):
            continue
        outcome = outcomes.get(uid)
        refused = outcome.refused if outcome is not None else None
        if refused is not None and refused.never is not None:
            continue
        kinds = workloads[uid].accelerators
        if not kinds or target in kinds:
            return True
    return False


def _is_coming(life: LifecycleStep) -> bool:
    """True if a workload waits for devices or soon will; not while it depends on other actions."""
    if life.phase is Phase.PENDING:
        return Standing.FOREIGN not in standing_of(life.reason)
    return bool(life.waiting) or life.phase is Phase.RESTARTING
