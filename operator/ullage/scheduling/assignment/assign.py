# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""From what the life cycles ask for to who gets what: creations, turns, seats, victims.

Puts the other modules of this package in their order; the rules themselves stand there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from ullage.api.contract import Reason
from ullage.cluster.records.snapshot import DeploymentRecord, WorkloadKind, WorkloadRecord
from ullage.scheduling.assignment.cycle_context import Assignments, CycleContext
from ullage.scheduling.assignment.pods import create_pods, give_up, name_members, release
from ullage.scheduling.elastic.sizing import Sizing, is_modest, sizing_of
from ullage.scheduling.elastic.space import other_models
from ullage.scheduling.inventory.exclusions import excluded_devices
from ullage.scheduling.inventory.held_shares import in_force
from ullage.scheduling.lifecycle import inference as lifecycle_inference
from ullage.scheduling.lifecycle.backoff import after_preemption_s, preemptions_in_a_row
from ullage.scheduling.lifecycle.in_place import JOIN_AGAIN_S, free_ranks
from ullage.scheduling.lifecycle.surge import Leaving, Move, leave
from ullage.scheduling.model.lifecycle_step import LifecycleStep, delete, earliest, evict
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.placement.attempt import Outcome, Refused, SchedulingAttempt
from ullage.scheduling.placement.downsizing import (
    DownsizeCandidate,
    remembered,
    residents,
    starts_again,
)
from ullage.scheduling.placement.feasible import Infeasible
from ullage.scheduling.placement.placement import Placement, slices_of
from ullage.scheduling.placement.preemption import (
    Victim,
    divided,
    pods_of,
    possible_victims,
    present,
    priority_of,
    wave_is_leaving,
)
from ullage.scheduling.placement.queue import MOST_SEATED, SchedulingQueue
from ullage.scheduling.timeslicing.rounds import Rounds
from ullage.scheduling.timeslicing.serve import serve

_NAMED = (Phase.PENDING, Phase.RESERVING, Phase.STARTING, Phase.RUNNING)
"""Phases in which the members of a gang find one another by name."""
_EVICTABLE = (Phase.RUNNING, Phase.STARTING, Phase.RESERVING)


def assign(context: CycleContext, lifecycles: dict[str, LifecycleStep]) -> Assignments:
    """Serve every workload in order; new slices are entered into the ledger."""
    workloads = context.view.snapshot.workloads
    sizing = sizing_of(context.requests, context.placer, lifecycles, context.rounds, context.limits)
    result = Assignments(lifecycles, sizes=sizing.changes)
    sizing.end()
    sizing.count()
    _create_all(context, lifecycles, sizing, result)
    for uid, life in lifecycles.items():
        if (
            life.phase in _NAMED
            and not (life.silent or life.missing)
            and context.view.members_of(workloads[uid])
        ):
            name_members(context, workloads[uid], result)
    turns = [
        _turn(context, workloads[uid], life) for uid, life in lifecycles.items() if life.waiting
    ]
    line = _line(context, lifecycles)
    line.idle = context.spending.idle()
    if context.rounds is None:
        result.outcomes |= line.serve([*turns, *sizing.coming()])
    else:
        _take_turns(context, context.rounds, line, turns, result)
    sizing.settle(line, turns, result.outcomes)
    for turn in turns:
        if turn.workload.ref.uid in result.outcomes:
            _enter(context, turn.workload, sizing, result)
        else:
            result.postponed.add(turn.workload.ref.uid)
    for uid in [uid for uid, life in lifecycles.items() if life.joining]:
        _join(context, line, workloads[uid], sizing, result)
    for uid in lifecycles:
        if lifecycles[uid].needs_deployment:
            _deploy(context, workloads[uid], result)
        elif workloads[uid].kind is WorkloadKind.INFERENCE_SERVICE and not lifecycles[uid].silent:
            _leave(context, workloads[uid], result, None, busy=False)
    if not result.postponed:
        sizing.run(line, turns, result.outcomes)
    for job, count in sizing.leaves:
        leaving = present(context.view, context.view.members_of(job))[-count:]
        pods = {one.pod.uid for one in leaving}
        give_up(context, job, pods, sizing.changes[job.ref.uid].record.message, result)
    for job, count, above in sizing.joins:
        create_pods(context, job, free_ranks(context.view, job, count, above), result)
    return result


def _create_all(
    context: CycleContext,
    lifecycles: Mapping[str, LifecycleStep],
    sizing: Sizing,
    result: Assignments,
) -> None:
    """Create what is missing, first those who are first in line; the rest in the next cycle."""
    workloads = context.view.snapshot.workloads
    lacking = [workloads[uid] for uid, life in lifecycles.items() if life.missing]
    lacking.sort(key=lambda one: (-one.priority, one.created, one.ref.uid))
    budget = MOST_SEATED
    for job in lacking:
        if budget <= 0:
            result.postponed.add(job.ref.uid)
            continue
        budget -= _create(context, job, sizing, result)


def _create(context: CycleContext, job: WorkloadRecord, sizing: Sizing, result: Assignments) -> int:
    """Create the pods that are missing, if the job could ever run.

    Returns:
        How many; a gang of thousands that can never run takes no other job's turn.
    """
    refused = context.spending.never(job.ref.uid)
    found = context.feasibility.judge(job, context.requests.of(job, job.shape))
    if refused is not None:
        found = Infeasible(*refused)
    if found is None and context.rounds is not None:
        found = context.rounds.infeasible(job.ref.uid)
    if found is not None:
        result.outcomes[job.ref.uid] = Outcome(refused=Refused(found.reason, never=found))
        return 0
    job, life = sizing.create(job, result.lifecycles[job.ref.uid])
    create_pods(context, job, life.missing, result)
    return len(life.missing)


def _turn(
    context: CycleContext, workload: WorkloadRecord, life: LifecycleStep
) -> SchedulingAttempt:
    members = context.view.members_of(workload)
    index = context.inventory.node_index
    near: frozenset[int] = frozenset()
    if len(members) > len(life.waiting):
        waiting = {one.pod.uid for one in life.waiting}
        near = frozenset(
            index[held.node]
            for one in members
            if one.pod.uid not in waiting
            for held in one.held
            if held.node in index
        )
    avoid = excluded_devices(context.view, context.inventory, workload, members)
    if life.passed_over is not None and life.passed_over.reason is Reason.RESERVATION_REFUSED:
        device = life.passed_over.device
        if device is not None and device in context.inventory.site_index:
            avoid |= {context.inventory.site_index[device]}
    return SchedulingAttempt(
        workload=workload,
        members=life.waiting,
        priority=priority_of(workload, members),
        waiting_since=max(one.pod.created for one in life.waiting),
        near=near,
        avoid=avoid,
        modest=is_modest(workload),
        returns=workload.status.size is not None and bool(workload.status.size.resumes),
        promised=in_force(workload, context.view.now, context.view.snapshot.workloads) is not None,
    )


def _take_turns(
    context: CycleContext,
    rounds: Rounds,
    line: SchedulingQueue,
    turns: Sequence[SchedulingAttempt],
    result: Assignments,
) -> None:
    """Serve everyone by the plan of this cycle's turns; who is to move leaves for it."""
    workloads = context.view.snapshot.workloads
    movable = {}
    for uid, kind in rounds.turnout.stops.items():
        life, job = result.lifecycles[uid], workloads[uid]
        if kind and _may_leave(life):
            members = tuple(one for one in context.view.members_of(job) if one.live)
            movable[uid] = _turn(context, job, replace(life, waiting=members))
    served = serve(rounds, line, turns, movable)
    result.outcomes |= served.outcomes
    for uid, (kind, beside) in served.movers.items():
        name = f"{workloads[uid].ref.namespace}/{workloads[uid].ref.name}"
        message = f"leaves for {kind}, where its time is worth more; goes on from its checkpoint"
        _send_away(context, uid, message, result)
        for victim in beside:
            _send_away(context, victim.uid, rounds.ended(victim.uid, name), result)


def _may_leave(life: LifecycleStep) -> bool:
    return life.phase in _EVICTABLE and not life.waiting and not life.silent


def _line(context: CycleContext, lifecycles: Mapping[str, LifecycleStep]) -> SchedulingQueue:
    ended = context.rounds.turnout.stops if context.rounds is not None else {}

    def victims() -> Sequence[Victim]:
        leaving = wave_is_leaving(context.view)
        workloads = context.view.snapshot.workloads
        candidates = [
            workloads[uid]
            for uid, life in lifecycles.items()
            if _may_leave(life) and (not leaving or uid in ended)
        ]
        return possible_victims(context.view, context.placer.occupancy, candidates)

    def asked() -> Sequence[DownsizeCandidate]:
        return residents(context.view, context.requests, context.placer.occupancy, lifecycles)

    narrow = context.rounds.tools.typed.of if context.rounds is not None else None
    return SchedulingQueue(
        context.view,
        context.requests,
        context.placer,
        context.feasibility,
        cache(victims),
        # where jobs take turns, the turns make room
        residents=cache(asked) if context.rounds is None else None,
        narrow=narrow,
    )


def _enter(
    context: CycleContext, workload: WorkloadRecord, sizing: Sizing, result: Assignments
) -> None:
    """Write an outcome into the ledger; a gang that got nothing gives back what it had."""
    uid = workload.ref.uid
    outcome = result.outcomes[uid]
    for placement in outcome.placements:
        for node, wanted in slices_of(context.placer, placement, context.view.settings.epoch):
            context.ledger.add(node, wanted)
    members = context.view.members_of(workload)
    gang = workload.kind is WorkloadKind.TRAINING_JOB
    if gang and not outcome.placements and all(one.gated for one in members):
        for one in members:
            release(context.ledger, one)
    if outcome.victims:
        _make_leave(context, workload, sizing, result)
    if outcome.conceded is not None:
        made, occupancy = outcome.conceded, context.placer.occupancy
        result.made_room[made.uid] = room = remembered(made, workload, context.view.now, occupancy)
        result.lifecycles[made.uid] = starts_again(made, room)


def _make_leave(
    context: CycleContext, workload: WorkloadRecord, sizing: Sizing, result: Assignments
) -> None:
    """Those go, or become smaller, that an outcome names for a workload."""
    outcome = result.outcomes[workload.ref.uid]
    whole, smaller = divided(outcome.victims)
    for victim in whole:
        _preempt(context, victim, workload, result)
    for lost, count in smaller.items():
        name = f"{workload.ref.namespace}/{workload.ref.name}"
        job, headcount = sizing.jobs[lost], result.lifecycles[lost].headcount
        if headcount is not None:
            job = replace(job, replicas=headcount.members)
        message, result.sizes[lost] = sizing.resizer.made_smaller(job, count, name)
        if job.in_place:
            give_up(context, job, pods_of(outcome.victims, lost), message, result)
        else:
            _send_away(context, lost, message, result, Reason.RESIZING)


def _preempt(
    context: CycleContext, victim: Victim, winner: WorkloadRecord, result: Assignments
) -> None:
    """The victim goes for the sake of a winner."""
    name = f"{winner.ref.namespace}/{winner.ref.name}"
    view, uid = context.view, victim.uid
    if context.rounds is not None and victim.priority >= _priority(context, winner):
        _send_away(context, uid, context.rounds.ended(uid, name), result)
        return
    job = view.snapshot.workloads[uid]
    wait_s = after_preemption_s(view, job)
    message = (
        f"preempted by {name}, which has a higher priority; starts again when room is free,"
        f" in {wait_s:g} s at the earliest"
    )
    _send_away(context, uid, message, result)
    result.lifecycles[uid] = replace(
        result.lifecycles[uid],
        retry_at=view.now + wait_s,
        preemptions=preemptions_in_a_row(view, job),
    )


def _priority(context: CycleContext, workload: WorkloadRecord) -> int:
    return priority_of(workload, context.view.members_of(workload))


def _send_away(
    context: CycleContext,
    uid: str,
    message: str,
    result: Assignments,
    reason: Reason = Reason.PREEMPTED,
) -> None:
    """It starts again later; its pods are evicted, reservations simply end."""
    job = context.view.snapshot.workloads[uid]
    members = context.view.members_of(job)
    epoch = context.view.settings.epoch
    for one in members:
        if one.gated:
            release(context.ledger, one)
    result.lifecycles[uid] = LifecycleStep(
        phase=Phase.RESTARTING,
        reason=reason,
        message=message,
        restarts=job.status.restarts,
        steps=tuple(
            evict(job, one, epoch, reason, message)
            for one in members
            if one.live and not one.gated and not one.pod.deleting
        ),
    )


def _join(
    context: CycleContext,
    line: SchedulingQueue,
    job: WorkloadRecord,
    sizing: Sizing,
    result: Assignments,
) -> None:
    """Members come to a gang that runs, each where there is room as it is, or its pod goes again.

    They come last: no one makes way for them, and nothing that others wait for is taken.
    """
    life, members = result.lifecycles[job.ref.uid], context.view.members_of(job)
    if life.phase not in _EVICTABLE:
        return  # it was sent away in this cycle
    turn = _turn(context, job, replace(life, waiting=life.joining))
    turn = replace(turn, avoid=turn.avoid | other_models(context.inventory, members))
    placements: list[Placement] = []
    for one in life.joining:
        if line.budget <= 0:
            break
        found = line.fill(replace(turn, members=(one,)))
        if isinstance(found, Outcome):
            placements.extend(found.placements)
            continue
        text = "the room that it was to join in is gone"
        epoch = context.view.settings.epoch
        result.steps.append(delete(job, one, epoch, Reason.NO_CAPACITY, text))
        again = max(life.retry_at, context.view.now + JOIN_AGAIN_S)
        result.lifecycles[job.ref.uid] = replace(life, retry_at=again)
    if placements:
        result.outcomes[job.ref.uid] = Outcome(placements=tuple(placements))
        _enter(context, job, sizing, result)


def _deploy(context: CycleContext, service: WorkloadRecord, result: Assignments) -> None:
    """Keep the Deployment and the Service of an InferenceService as wanted."""
    uid = service.ref.uid
    key = (service.ref.namespace, service.ref.name)
    deployment = context.view.snapshot.deployments.get(key)
    request = context.requests.of(service, service.shape)
    if deployment is None:
        found = context.feasibility.judge(service, request)
        if found is not None:
            result.outcomes[uid] = Outcome(refused=Refused(found.reason, never=found))
            return
    members = context.view.members_of(service)
    changing = deployment is not None and (
        deployment.template_hash != service.template_hash
        or lifecycle_inference.is_rolling(service, members)
    )
    outcome = result.outcomes.get(uid)
    room = True
    if changing:
        newcomers = any(one.gated and not one.pod.deleting for one in members)
        refused_now = outcome is not None and outcome.refused is not None
        room = not refused_now if newcomers else context.placer.has_room(request)
    wanted = lifecycle_inference.rollout(service, deployment, members, room_for_one=room)
    result.rollouts[uid] = wanted
    leaving = _leave(context, service, result, deployment, busy=changing)
    result.steps.extend(
        lifecycle_inference.children(context.view, service, wanted, extra=leaving.extra)
    )


def _leave(
    context: CycleContext,
    service: WorkloadRecord,
    result: Assignments,
    deployment: DeploymentRecord | None,
    *,
    busy: bool,
) -> Leaving:
    """Replicas that have to leave their device do so, beside their replacements if possible."""
    uid = service.ref.uid
    outcome = result.outcomes.get(uid)
    leaving = leave(
        Move(
            view=context.view,
            placer=context.placer,
            requests=context.requests,
            service=service,
            deployment=deployment,
            busy=busy,
            refused=outcome is not None and outcome.refused is not None,
        )
    )
    result.leaving[uid] = leaving
    result.steps.extend(leaving.steps)
    life = result.lifecycles[uid]
    if leaving.wake_at:
        result.lifecycles[uid] = replace(life, wake_at=earliest(life.wake_at, leaving.wake_at))
    return leaving
