# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Phase 4 of a cycle: grants of devices, and preemptions.

The rules are in ``placement`` and ``timeslicing``; this module applies their outcomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ullage.api.reasons import Reason
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.assignment.ahead import older_agents, planned_members
from ullage.scheduling.assignment.cycle_context import Assignments, CycleContext
from ullage.scheduling.assignment.nominate import EVICTABLE, Nominations, attempt_of, may_leave
from ullage.scheduling.assignment.pods import create_pods, give_up, name_members, release
from ullage.scheduling.elastic.sizing import Sizing
from ullage.scheduling.elastic.space import other_models
from ullage.scheduling.feasibility.slices import injects
from ullage.scheduling.inventory.tenant_bindings import tenant_of
from ullage.scheduling.lifecycle.backoff import after_preemption_s, preemptions_in_a_row
from ullage.scheduling.lifecycle.training import busy
from ullage.scheduling.model.lifecycle_step import LifecycleStep, delete, evict
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.view import Member
from ullage.scheduling.placement.attempt import Outcome
from ullage.scheduling.placement.downsizing import made_room, restart_step
from ullage.scheduling.placement.placement import Placement, slices_of
from ullage.scheduling.placement.preemption import Victim, divided, pods_of, priority_of
from ullage.scheduling.times import JOIN_RETRY_S
from ullage.scheduling.timeslicing.rounds import Rounds
from ullage.scheduling.timeslicing.serve import serve

HIGHER_PRIORITY: Final = "which has a higher priority"
NEEDED_BACK: Final = "whose load needs the devices back"
"""Reason of a preemption, after the name of the preemptor."""
EXTRA_MEMBERS: Final = "which waits for what only members beyond its fewest hold"


def assign(context: CycleContext, nominated: Nominations, result: Assignments) -> None:
    """Serve every nominated workload in order; granted slices enter the ledger."""
    attempts, queue, sizing = nominated.attempts, nominated.queue, nominated.sizing
    outcomes = result.entries.outcomes()
    if context.rounds is None:
        outcomes |= queue.serve(attempts)
    else:
        outcomes |= _take_turns(context, context.rounds, nominated)
    sizing.settle(queue, attempts, outcomes)
    result.entries.enter(outcomes)
    for attempt in attempts:
        tried = outcomes.get(attempt.workload.ref.uid)
        if tried is not None:
            holds = attempt.request is None
            if holds or not tried.is_only_refused:
                _enter(context, attempt.workload, sizing, result, holds=holds)
        elif not attempt.coming:
            result.entries.of(attempt.workload.ref.uid).postponed = True
    workloads = context.view.snapshot.workloads
    for uid in [uid for uid in busy(context.lifecycles) if context.lifecycles[uid].joining]:
        _join(context, nominated, workloads[uid], result)
    if result.ahead:
        _reserve_ahead(context, nominated, result)


def _take_turns(
    context: CycleContext,
    rounds: Rounds,
    nominated: Nominations,
) -> dict[str, Outcome]:
    """Serve all workloads by this cycle's plan of turns; moving workloads are evicted for it."""
    workloads = context.view.snapshot.workloads
    movable = {}
    for uid, kind in rounds.turnout.stops.items():
        life, job = context.lifecycles[uid], workloads[uid]
        if kind and may_leave(life):
            members = tuple(member for member in context.view.members_of(job) if member.live)
            movable[uid] = attempt_of(context, job, replace(life, waiting=members))
    served = serve(rounds, nominated.queue, nominated.attempts, movable)
    for uid, (kind, beside) in served.movers.items():
        name = f"{workloads[uid].ref.namespace}/{workloads[uid].ref.name}"
        _send_away(context, uid, rounds.leaves(uid, kind))
        for victim in beside:
            _send_away(context, victim.uid, rounds.ended(victim.uid, name))
    return served.outcomes


def _enter(
    context: CycleContext,
    workload: WorkloadRecord,
    sizing: Sizing,
    result: Assignments,
    *,
    holds: bool = True,
) -> None:
    """Apply an outcome to the ledger; a gang without a grant returns its slices.

    Args:
        context: The cluster as the cycle sees it.
        workload: The workload of the outcome.
        sizing: Shrinks gangs for it.
        result: Decisions of the cycle.
        holds: True when its members may have slices.
    """
    uid = workload.ref.uid
    outcome = result.entries.outcome(uid)
    assert outcome is not None  # it was served
    epoch, inject = context.view.settings.epoch, injects(context.view.snapshot.policy, workload)
    for placement in outcome.placements:
        for node, wanted in slices_of(context.placer, placement, epoch, inject=inject):
            context.ledger.add(node, wanted)
    if holds and workload.is_gang and not outcome.placements:
        members = context.view.members_of(workload)
        if _holds(members):
            for member in members:
                release(context.ledger, member)
    if outcome.victims:
        _make_leave(context, workload, outcome, sizing)
    if outcome.downsize is not None:
        made, occupancy = outcome.downsize, context.placer.occupancy
        room = made_room(made, workload, context.view.now, occupancy)
        result.entries.of(made.uid).made_room = room
        context.lifecycles[made.uid] = restart_step(made, room)


def _holds(members: Sequence[Member]) -> bool:
    """True if members have slices and none has started."""
    return any(member.held for member in members) and all(member.gated for member in members)


def _make_leave(
    context: CycleContext,
    workload: WorkloadRecord,
    outcome: Outcome,
    sizing: Sizing,
) -> None:
    """Preempt or shrink the victims of an outcome."""
    whole, smaller = divided(outcome.victims)
    for victim in whole:
        _preempt(context, victim, workload)
    for lost, count in smaller.items():
        name = f"{workload.ref.namespace}/{workload.ref.name}"
        job, headcount = sizing.jobs[lost], context.lifecycles[lost].headcount
        if headcount is not None:
            job = replace(job, replicas=headcount.members)
        parts = [victim for victim in outcome.victims if victim.uid == lost]
        cause = EXTRA_MEMBERS if any(part.extra for part in parts) else HIGHER_PRIORITY
        if any(part.given_back for part in parts):
            cause = NEEDED_BACK
        message, sizing.changes[lost] = sizing.resizer.made_smaller(job, count, name, cause)
        if job.in_place:
            give_up(context, job, pods_of(outcome.victims, lost), message)
        else:
            _send_away(context, lost, message, Reason.RESIZING)


def _preempt(context: CycleContext, victim: Victim, winner: WorkloadRecord) -> None:
    """Preempt the victim for a workload."""
    name = f"{winner.ref.namespace}/{winner.ref.name}"
    view, uid = context.view, victim.uid
    taken_back = victim.reclaimed or victim.given_back
    ended = victim.priority >= _priority(context, winner) and not taken_back
    if context.rounds is not None and ended:
        _send_away(context, uid, context.rounds.ended(uid, name))
        return
    job = view.snapshot.workloads[uid]
    wait_s = after_preemption_s(view, job)
    cause = NEEDED_BACK if victim.given_back else HIGHER_PRIORITY
    if victim.reclaimed:
        policy = view.snapshot.policy
        owner, borrower = tenant_of(policy, winner), tenant_of(policy, job)
        cause = f"which takes back quota of tenant {owner} that tenant {borrower} had borrowed"
    message = f"preempted by {name}, {cause}; " + (
        "its controller creates it again"
        if job.adopted
        else f"starts again when room is free, in {wait_s:g} s at the earliest"
    )
    reason = Reason.QUOTA_RECLAIMED if victim.reclaimed else Reason.PREEMPTED
    _send_away(context, uid, message, reason)
    context.lifecycles[uid] = replace(
        context.lifecycles[uid],
        retry_at=view.now + wait_s,
        preemptions=preemptions_in_a_row(view, job),
    )


def _priority(context: CycleContext, workload: WorkloadRecord) -> int:
    return priority_of(workload, context.view.members_of(workload))


def _send_away(
    context: CycleContext,
    uid: str,
    message: str,
    reason: Reason = Reason.PREEMPTED,
) -> None:
    """Suspend it until a later start; its pods are evicted, reservations simply end."""
    job = context.view.snapshot.workloads[uid]
    members = context.view.members_of(job)
    epoch = context.view.settings.epoch
    for member in members:
        if member.gated:
            release(context.ledger, member)
    context.lifecycles[uid] = LifecycleStep(
        phase=Phase.RESTARTING,
        reason=reason,
        message=message,
        restarts=job.status.restarts,
        steps=tuple(
            evict(job, member, epoch, reason, message)
            for member in members
            if member.live and not member.gated and not member.pod.deleting
        ),
    )


def _join(
    context: CycleContext,
    nominated: Nominations,
    job: WorkloadRecord,
    result: Assignments,
) -> None:
    """Let members join a running gang where there is room now, and delete the pods of the others.

    They come last: they preempt nothing, and take nothing that other workloads wait for.
    """
    life, members = context.lifecycles[job.ref.uid], context.view.members_of(job)
    if life.phase not in EVICTABLE:
        return  # it was preempted in this cycle
    attempt = attempt_of(context, job, replace(life, waiting=life.joining))
    attempt = replace(attempt, avoid=attempt.avoid | other_models(context.inventory, members))
    placements: list[Placement] = []
    queue = nominated.queue
    for member in life.joining:
        if queue.budget <= 0:
            break
        outcome = queue.fill(replace(attempt, members=(member,)))
        if isinstance(outcome, Outcome):
            placements.extend(outcome.placements)
            continue
        text = "the room that it was to join in is gone"
        epoch = context.view.settings.epoch
        result.steps.append(delete(job, member, epoch, Reason.NO_CAPACITY, text))
        again = max(life.retry_at, context.view.now + JOIN_RETRY_S)
        context.lifecycles[job.ref.uid] = replace(life, retry_at=again)
    if placements:
        result.entries.of(job.ref.uid).outcome = Outcome(placements=tuple(placements))
        _enter(context, job, nominated.sizing, result)


def _reserve_ahead(context: CycleContext, nominated: Nominations, result: Assignments) -> None:
    """Reserve slices for jobs without pods where there is room now; create the others' pods gated.

    They come last: they preempt nothing, and take nothing that other workloads wait for.
    """
    queue, avoid = nominated.queue, older_agents(context)
    effort = context.placer.occupancy.effort
    for uid in result.ahead:
        job, life = context.view.snapshot.workloads[uid], context.lifecycles[uid]
        members = planned_members(context, job)
        waits = LifecycleStep(
            phase=Phase.PENDING, restarts=life.restarts, retry_at=life.retry_at, waiting=members
        )
        attempt = attempt_of(context, job, waits)
        attempt = replace(attempt, avoid=attempt.avoid | avoid)
        in_time = queue.is_known(attempt) or not effort.is_spent()
        outcome = queue.fill(attempt) if in_time and not queue.is_choosy(attempt) else None
        if isinstance(outcome, Outcome):
            entry = result.entries.of(uid)
            entry.outcome, entry.planned = outcome, members
            name_members(context, job, result)
            context.lifecycles[uid] = waits
            _enter(context, job, nominated.sizing, result)
        else:
            create_pods(context, job, life.missing, result)
