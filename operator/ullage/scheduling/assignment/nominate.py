# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Phase 3 of a cycle: plan turns, create missing pods, nominate workloads that need devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter

from ullage.api.reasons import Reason
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.records import Refusal
from ullage.scheduling.assignment.ahead import may_reserve
from ullage.scheduling.assignment.cycle_context import Assignments, CycleContext
from ullage.scheduling.assignment.pods import create_pods, has_names, name_members
from ullage.scheduling.elastic.sizing import Sizing, is_modest, sizing_of
from ullage.scheduling.elastic.space import other_models
from ullage.scheduling.feasibility.resource_requests import ResourceRequest, keeps_to_one_type
from ullage.scheduling.inventory.exclusions import excluded_devices
from ullage.scheduling.inventory.held_shares import active_share_limit
from ullage.scheduling.inventory.reliable_machines import terms_of
from ullage.scheduling.inventory.tenant_bindings import is_bound
from ullage.scheduling.inventory.trust_domains import is_granted
from ullage.scheduling.learning.device_choice import NOT_COMPARED
from ullage.scheduling.lifecycle.training import busy
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.placement.attempt import AttemptCache, Outcome, Refused, SchedulingAttempt
from ullage.scheduling.placement.downsizing import DownsizeCandidate, residents
from ullage.scheduling.placement.preemption import (
    Victim,
    follows_load,
    lender,
    possible_victims,
    priority_of,
    wave_is_leaving,
)
from ullage.scheduling.placement.queue import MOST_SEATED, SchedulingQueue
from ullage.scheduling.placement.room_maker import RoomMaker
from ullage.scheduling.placement.victim_selection import LaterDevices, VictimSelection
from ullage.scheduling.timeslicing.contenders import Tools, Typed
from ullage.scheduling.timeslicing.division import Allocate
from ullage.scheduling.timeslicing.division_cache import DivisionCache
from ullage.scheduling.timeslicing.rounds import take_turns

_NAMED = (Phase.PENDING, Phase.RESERVING, Phase.STARTING, Phase.RUNNING)
"""Phases in which the members of a gang find each other by name."""
_priority = attrgetter("priority")
EVICTABLE = (Phase.RUNNING, Phase.STARTING, Phase.RESERVING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nominations:
    """Workloads that need devices, and the queue that serves them.

    Attributes:
        attempts: An attempt for each workload whose pods wait for devices.
        queue: Queue that serves them.
        sizing: Decides the sizes of elastic gangs during the cycle.
    """

    attempts: Sequence[SchedulingAttempt]
    queue: SchedulingQueue
    sizing: Sizing


def with_turns(
    context: CycleContext, allocate: Allocate | None, divisions: DivisionCache
) -> CycleContext:
    """The turns of this cycle, where the policy divides the cluster's time; else unchanged."""
    typed = Typed(context.requests, context.feasibility)
    tools = Tools(context.view, context.inventory, context.placer.occupancy, context.ledger, typed)
    rounds = take_turns(tools, context.lifecycles, context.placer.rule, allocate, divisions)
    return replace(context, rounds=rounds)


def nominate(context: CycleContext, result: Assignments, kept: AttemptCache) -> Nominations:
    """Create missing pods, and nominate every workload with waiting pods.

    Args:
        context: The cluster as the cycle sees it.
        result: Decisions of the cycle.
        kept: Attempts of the last cycle; they are replaced.
    """
    lifecycles = context.lifecycles
    sizing = sizing_of(context.requests, context.placer, lifecycles, context.rounds, context.limits)
    sizing.end()
    sizing.count()
    _create_all(context, sizing, result)
    for uid, job in context.view.index.those(context.view.index.named):
        life = lifecycles[uid]
        if (
            has_names(job)
            and life.phase in _NAMED
            and not (life.silent or life.missing)
            and context.view.members_of(job)
        ):
            name_members(context, job, result)
    attempts = [*_attempts(context, kept), *sizing.coming()]
    return Nominations(attempts=attempts, queue=_queue(context, attempts), sizing=sizing)


def _attempts(context: CycleContext, kept: AttemptCache) -> Iterator[SchedulingAttempt]:
    """An attempt for each waiting workload; an unchanged one is reused from the last cycle."""
    snapshot, rests_on = context.view.snapshot, context.requests.rests_on
    stands = kept.rests_on is rests_on and not snapshot.node_refusals
    before = kept.attempts if stands else {}
    kept.rests_on, kept.attempts = rests_on, {}
    places = cache(lambda: _places_lent(context))
    attempts, undisturbed = kept.attempts, context.undisturbed
    for uid in busy(context.lifecycles):
        life = context.lifecycles[uid]
        if not life.waiting:
            continue
        last = before.get(uid)
        if last is not None and last.members is life.waiting and undisturbed.get(uid) is life:
            attempts[uid] = last
            yield last
            continue
        attempt = attempt_of(context, snapshot.workloads[uid], life)
        if attempt.lent_by:
            created = attempt.workload.created
            lent = places().get((attempt.lent_by, attempt.priority), created)
            attempt = replace(attempt, since=min(created, lent))
        request = _lasting(context, attempt, life)
        if request is not None:
            attempt = attempts[uid] = replace(attempt, request=request)
        yield attempt


def _places_lent(context: CycleContext) -> dict[tuple[str, int], float]:
    """Start of the wait of the oldest best-effort training without devices.

    By namespace and priority. A replica that preempts it takes that place in the queue: its devices
    must not go to another tenant that arrived in between.
    """
    places: dict[tuple[str, int], float] = {}
    for uid in busy(context.lifecycles):
        life = context.lifecycles[uid]
        if not life.waiting and life.phase not in (Phase.RESTARTING, Phase.PENDING):
            continue
        job = context.view.snapshot.workloads[uid]
        lent_by = lender(job)
        if lent_by:
            key = lent_by, priority_of(job, context.view.members_of(job))
            places[key] = min(places.get(key, job.created), job.created)
    return places


def _lasting(
    context: CycleContext, attempt: SchedulingAttempt, life: LifecycleStep
) -> ResourceRequest | None:
    """The common request of all members, if the attempt holds while nothing near changes.

    ``None`` if requests of members differ, or the attempt depends on time.
    """
    workload, view = attempt.workload, context.view
    if (
        context.rounds is not None
        or not workload.is_gang
        or workload.status.made_room is not None
        or workload.status.scheduling.exclusions
        or view.snapshot.node_refusals
        or view.snapshot.pools
        or terms_of(workload) is not None
        or life.passed_over is not None
        or not is_granted(view.snapshot.policy, workload)
        or not is_bound(view.snapshot.policy, workload)
        or len(view.members_of(workload)) != len(attempt.members)
        or any(member.held or view.lingering_nodes(member) for member in attempt.members)
    ):
        return None
    rules = context.placer.occupancy.rules
    if rules is not None and any(rules.ruled(member.pod) for member in attempt.members):
        return None
    first, *others = [context.requests.of(workload, member.pod.shape) for member in attempt.members]
    return first if all(other is first for other in others) else None


def _create_all(context: CycleContext, sizing: Sizing, result: Assignments) -> None:
    """Create missing pods, for the first in the queue first; the rest in the next cycle."""
    workloads = context.view.snapshot.workloads
    lifecycles = context.lifecycles
    lacking = [workloads[uid] for uid in busy(lifecycles) if lifecycles[uid].missing]
    lacking.sort(key=lambda workload: (-workload.priority, workload.created, workload.ref.uid))
    budget = MOST_SEATED
    for job in lacking:
        if budget <= 0 or not sizing.may_count(job):
            result.entries.of(job.ref.uid).postponed = True
            continue
        budget -= _create(context, job, sizing, result)


def _create(context: CycleContext, job: WorkloadRecord, sizing: Sizing, result: Assignments) -> int:
    """Create the missing pods, if the job could ever run.

    Returns:
        Number of created pods; a large gang that can never run takes no other job's turn.
    """
    refused = context.capacity_choices.never(job.ref.uid)
    infeasible = context.feasibility.judge(job, context.requests.of(job, job.shape))
    if refused is not None:
        infeasible = Refusal(*refused)
    if infeasible is None and context.requests.choose(job).undecided:
        infeasible = NOT_COMPARED
    if infeasible is None and context.rounds is not None:
        infeasible = context.rounds.infeasible(job.ref.uid)
    if infeasible is not None:
        result.entries.of(job.ref.uid).outcome = Outcome(refused=Refused.for_good(infeasible))
        return 0
    job, life = sizing.create(job, context.lifecycles[job.ref.uid])
    if may_reserve(context, job, life):
        result.ahead.append(job.ref.uid)
        return len(life.missing)
    ranks = life.missing[:MOST_SEATED]  # the rest of a gang of thousands follows in the next cycle
    create_pods(context, job, ranks, result)
    return len(ranks)


def attempt_of(
    context: CycleContext, workload: WorkloadRecord, life: LifecycleStep
) -> SchedulingAttempt:
    """An attempt to place the waiting members of a workload."""
    members = context.view.members_of(workload)
    index = context.inventory.node_index
    near: frozenset[int] = frozenset()
    if len(members) > len(life.waiting):
        waiting = {member.pod.uid for member in life.waiting}
        near = frozenset(
            index[held.node]
            for member in members
            if member.pod.uid not in waiting
            for held in member.held
            if held.node in index
        )
    avoid = excluded_devices(context.view, context.inventory, workload, members)
    if near and keeps_to_one_type(workload):
        avoid |= other_models(context.inventory, members)
    if life.passed_over is not None and life.passed_over.reason is Reason.RESERVATION_REFUSED:
        device = life.passed_over.device
        if device is not None and device in context.inventory.site_index:
            avoid |= {context.inventory.site_index[device]}
    bound = {member.pod.node for member in life.waiting if member.settled}
    settled = {index[node] for node in bound if node in index}
    if settled:
        sites = enumerate(context.inventory.sites)
        avoid |= {at for at, site in sites if site.node not in settled}
    return SchedulingAttempt(
        workload=workload,
        members=life.waiting,
        priority=priority_of(workload, members),
        waiting_since=max(member.pod.created for member in life.waiting),
        near=near,
        avoid=avoid,
        modest=is_modest(workload),
        returns=workload.status.size is not None and bool(workload.status.size.resumes),
        promised=active_share_limit(workload, context.view.now, context.view.snapshot.workloads)
        is not None,
        lent_by=workload.ref.namespace if follows_load(workload) else "",
    )


def may_leave(life: LifecycleStep) -> bool:
    """True if a workload in this state may be preempted."""
    return life.phase in EVICTABLE and not life.waiting and not life.silent


def _queue(context: CycleContext, attempts: Sequence[SchedulingAttempt]) -> SchedulingQueue:
    lifecycles = context.lifecycles
    by_priority = context.rounds is None and context.placer.occupancy.quota is None
    most = max(map(_priority, attempts), default=0)

    def may_yield(job: WorkloadRecord) -> bool:
        """True if any attempt may take it: below all others only what is lent or spare."""
        if not by_priority or job.elasticity is not None or lender(job):
            return True
        return priority_of(job, context.view.members_of(job)) < most

    ended = context.rounds.turnout.stops if context.rounds is not None else {}

    def victims() -> Sequence[Victim]:
        leaving = wave_is_leaving(context.view)
        index = context.view.index
        candidates = [
            job
            for uid, job in index.those(index.evictable)
            if uid in lifecycles
            and may_leave(lifecycles[uid])
            and (not leaving or uid in ended)
            and may_yield(job)
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
        RoomMaker(
            context.view,
            context.requests,
            context.placer,
            VictimSelection(LaterDevices(context.placer), cache(victims)),
            # where jobs take turns, the turns make room
            residents=cache(asked) if context.rounds is None else None,
        ),
        narrow=narrow,
        idle=context.capacity_choices.idle(),
    )
