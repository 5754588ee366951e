# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Execution of a plan of turns: placements, evictions and reserved devices.

Services come first, then jobs on the type of their turn, then any job that can use idle devices.
The placer finds every place, so all hard limits hold; no job is stopped before a place for another
was found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.api.reasons import Reason
from ullage.cluster.records.workload import WorkloadKind
from ullage.engines.admission.limits import HEALTHY
from ullage.scheduling.feasibility.occupancy import Occupancy
from ullage.scheduling.placement.attempt import Outcome, Refused, Requeue, SchedulingAttempt
from ullage.scheduling.placement.placement import NoRoom
from ullage.scheduling.placement.preemption import Victim
from ullage.scheduling.placement.queue import SchedulingQueue
from ullage.scheduling.prediction.effort import in_turns
from ullage.scheduling.timeslicing.contenders import WHOLE, Runner
from ullage.scheduling.timeslicing.rounds import Rounds

_ELSEWHERE: Final = (Requeue.CAPACITY, Requeue.QUOTA)
"""Refusals after which another type of device may still have room."""
_SERVICES: Final = (0.25, 0.5)
_TURNS: Final = (0.75, 1.0)
_FILLING: Final = (1.0, 1.25)
"""Parts of a cycle's effort up to which services, turns and idle devices are served strictly in
order, and at which each ends, so that some effort is left for the next."""


@dataclass(slots=True)
class Served:
    """Results of serving the turns.

    Attributes:
        outcomes: By uid of the waiting workloads.
        movers: Jobs that leave for a better type, by uid: the type, and the victims beside them.
    """

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    movers: dict[str, tuple[str, tuple[Victim, ...]]] = field(default_factory=dict)


def serve(
    rounds: Rounds,
    queue: SchedulingQueue,
    attempts: Sequence[SchedulingAttempt],
    movable: Mapping[str, SchedulingAttempt],
) -> Served:
    """Serve all waiting workloads.

    A job without an outcome waits for the next cycle: this one had no room or effort left for it.

    Args:
        rounds: The plan of this cycle.
        queue: Places members and selects victims.
        attempts: Attempts of the waiting workloads.
        movable: By uid, attempts of all members of running jobs that may be stopped.
    """
    served = Served()
    jobs: dict[str, SchedulingAttempt] = {}
    services: list[SchedulingAttempt] = []
    for attempt in attempts:
        if attempt.workload.kind is WorkloadKind.TRAINING_JOB:
            jobs[attempt.workload.ref.uid] = attempt
        else:
            services.append(attempt)
    services.sort(
        key=lambda service: (-service.priority, service.workload.created, service.workload.ref.uid)
    )
    order = {uid: place for place, uid in enumerate(rounds.turnout.stops)}
    unsure: dict[str, Refused] = {}

    def serve_one(attempt: SchedulingAttempt) -> None:
        served.outcomes[attempt.workload.ref.uid] = queue.place(attempt)

    def take_turn(attempt: SchedulingAttempt) -> None:
        uid = attempt.workload.ref.uid
        outcome = queue.place(attempt)
        refused = outcome.refused
        if attempt.only and refused is not None and refused.requeue in _ELSEWHERE:
            unsure[uid] = refused
        else:
            served.outcomes[uid] = _coming(rounds, uid, outcome) if attempt.only else outcome

    def take_turns(attempt: SchedulingAttempt) -> None:
        if attempt.workload.ref.uid in served.outcomes or attempt.workload.ref.uid in unsure:
            return
        if not attempt.percent:
            take_turn(attempt)
            return
        for member, outcome in _pair(rounds, queue, attempt, jobs, order):
            refused = outcome.refused
            if refused is not None and refused.requeue in _ELSEWHERE:
                unsure[member] = refused
            else:
                served.outcomes[member] = _coming(rounds, member, outcome)

    _each(queue, services, serve_one, _SERVICES)
    narrowed: list[SchedulingAttempt] = []
    for uid in _first(rounds, jobs):
        if uid in rounds.arena.nowhere:
            infeasible = rounds.infeasible(uid)
            served.outcomes[uid] = Outcome(
                refused=Refused.for_good(infeasible) if infeasible else None
            )
        else:
            narrowed.append(_narrowed(rounds, jobs[uid], order))
    _each(queue, narrowed, take_turns, _TURNS)
    _move(rounds, queue, movable, served, order)
    _keep(
        rounds,
        queue.placer.occupancy,
        jobs.keys() & (served.outcomes.keys() | unsure.keys()),
        served,
    )
    _fill(rounds, queue, jobs, served, unsure)
    return served


def _each(
    queue: SchedulingQueue,
    attempts: Sequence[SchedulingAttempt],
    act: Callable[[SchedulingAttempt], None],
    parts: tuple[float, float],
) -> None:
    """Call ``act`` for each attempt in order.

    Past the first part of a cycle's effort, attempts that are not cached take turns over cycles.

    Args:
        queue: Holds the budget and the effort.
        attempts: In the order to serve them.
        act: Called for each attempt.
        parts: Parts of the effort up to which the order is strict, and at which all ends.
    """
    effort, passed = queue.placer.occupancy.effort, list[SchedulingAttempt]()
    for attempt in attempts:
        if queue.budget <= 0:
            return
        if effort.is_spent(parts[0]) and not queue.is_known(attempt):
            passed.append(attempt)
        else:
            act(attempt)
    for attempt in in_turns(passed, queue.view.now):
        if queue.budget <= 0 or effort.is_spent(parts[1]):
            return
        act(attempt)


def _narrowed(
    rounds: Rounds, attempt: SchedulingAttempt, order: Mapping[str, int]
) -> SchedulingAttempt:
    """The attempt narrowed to the type of its turn; unchanged for jobs outside of rounds."""
    uid = attempt.workload.ref.uid
    runner = rounds.arena.runners.get(uid)
    if runner is None:
        return attempt
    kind = runner.holds or rounds.turnout.types[uid]
    other = rounds.turnout.partners.get(uid, "")
    both = rounds.arena.pairing.together(uid, other, kind) if other else None
    percent = both.percents[0] if both is not None else 0
    return replace(attempt, only=rounds.models((kind,)), may_stop=order, percent=percent)


def _pair(
    rounds: Rounds,
    queue: SchedulingQueue,
    attempt: SchedulingAttempt,
    jobs: Mapping[str, SchedulingAttempt],
    order: Mapping[str, int],
) -> Iterator[tuple[str, Outcome]]:
    """Place a job of a pair, and its partner beside it if that waits as well.

    The first gets its part of an empty device, and the other joins it there, now or as soon as
    possible. Otherwise, the pair is excluded for a while.
    """
    uid = attempt.workload.ref.uid
    other = rounds.turnout.partners[uid]
    partner = rounds.arena.runners[other]
    if partner.holds:
        occupants = queue.placer.occupancy.occupants[partner.site]
        alone = len(occupants) == 1 and not occupants[0].leaving
        if other in order or partner.percent >= WHOLE or not alone:
            # the partner restarts with its part, or another job leaves, before this one joins
            refused = Refused(Reason.WAITS_FOR_ROUND, requeue=Requeue.ROOM_COMING)
            yield uid, Outcome(refused=_waiting_for_round(rounds, uid, refused))
        else:
            rest = replace(attempt, percent=WHOLE - partner.percent)
            yield uid, _beside(rounds, queue, rest, partner.site)
        return
    outcome = queue.place(attempt)
    yield uid, outcome
    if other not in jobs:
        return
    if not outcome.placements:
        yield other, outcome
        return
    site = outcome.placements[0].candidate.sites[0]
    yield other, _beside(rounds, queue, _narrowed(rounds, jobs[other], order), site)


def _beside(
    rounds: Rounds, queue: SchedulingQueue, attempt: SchedulingAttempt, site: int
) -> Outcome:
    """Place a job beside its partner; exclude the pair if that fails."""
    outcome = queue.join(attempt, site)
    if outcome.refused is not None:
        rounds.part(attempt.workload.ref.uid, outcome.refused)
    return outcome


def _first(rounds: Rounds, jobs: Mapping[str, SchedulingAttempt]) -> list[str]:
    """Jobs to place before idle devices are filled, in order.

    Missing members of running jobs come first, then turns as planned, then work outside of rounds.
    """
    runners = rounds.arena.runners
    running = {uid: None for uid in jobs if uid in runners and runners[uid].holds}
    planned = [uid for uid in rounds.turnout.types if uid in jobs and uid not in running]
    others = [uid for uid in jobs if uid not in runners]
    others.sort(key=lambda uid: (-jobs[uid].priority, jobs[uid].workload.created, uid))
    return [*running, *planned, *others]


def _coming(rounds: Rounds, uid: str, outcome: Outcome) -> Outcome:
    """The outcome, where an imminent turn does not count as a lack of devices."""
    refused = outcome.refused
    if refused is None or refused.never is not None:
        return outcome
    return replace(outcome, refused=_waiting_for_round(rounds, uid, refused))


def _waiting_for_round(rounds: Rounds, uid: str, refused: Refused) -> Refused:
    coming = refused.requeue is Requeue.ROOM_COMING
    return replace(
        refused,
        reason=Reason.WAITS_FOR_ROUND,
        requeue=refused.requeue if coming else Requeue.ROUND,
        turn=lambda: rounds.why(uid),
    )


def _move(
    rounds: Rounds,
    queue: SchedulingQueue,
    movable: Mapping[str, SchedulingAttempt],
    served: Served,
    order: Mapping[str, int],
) -> None:
    """Move running jobs to the type of their turn where a place is found."""
    victims = {victim.uid: victim for victim in queue.room.selection.victims()}
    for uid, kind in rounds.turnout.stops.items():
        if queue.placer.occupancy.effort.is_spent(_FILLING[1]):
            return
        if not kind or uid not in movable or uid not in victims:
            continue
        attempt = replace(movable[uid], only=rounds.models((kind,)), may_stop=order)
        beside = queue.move(attempt, victims[uid])
        if beside is not None:
            served.movers[uid] = (kind, beside)


def _keep(rounds: Rounds, occupancy: Occupancy, answered: Set[str], served: Served) -> None:
    """Reserve devices that are planned for jobs without an outcome.

    Their pods do not exist yet, or this cycle had no effort left for them.
    """
    stopped = {
        victim.uid
        for outcome in served.outcomes.values()
        for victim in outcome.victims
        if not victim.part
    }
    empty = _empty(occupancy)
    models = occupancy.inventory.models
    for uid, kind in rounds.turnout.types.items():
        runner = rounds.arena.runners[uid]
        if uid in answered or (runner.holds and uid not in stopped):
            continue
        other = rounds.turnout.partners.get(uid, "")
        if other and (uid > other or rounds.arena.runners[other].holds or other in answered):
            continue  # it shares the device of its partner
        _block(occupancy, empty[models[kind]], runner.points, runner.name)
    for reservation in rounds.turnout.reserved:
        runner = rounds.arena.runners[reservation.job]
        points = reservation.devices * rounds.arena.unit
        _block(occupancy, empty[models[reservation.type]], points, runner.name)


def _empty(occupancy: Occupancy) -> dict[int, deque[int]]:
    """Devices that may be reserved, by model: healthy, empty and not reserved yet."""
    inventory = occupancy.inventory
    empty: dict[int, deque[int]] = {model: deque() for model in inventory.models.values()}
    for site, occupants in enumerate(occupancy.occupants):
        if (
            not occupants
            and not occupancy.blocked.item(site)
            and inventory.health.item(site) == HEALTHY
        ):
            empty[inventory.model.item(site)].append(site)
    return empty


def _block(occupancy: Occupancy, empty: deque[int], points: int, name: str) -> None:
    """Block as many of the empty devices as the points need."""
    while points > 0 and empty:
        occupancy.block((empty.popleft(),), name)
        points -= WHOLE


def _fill(
    rounds: Rounds,
    queue: SchedulingQueue,
    jobs: Mapping[str, SchedulingAttempt],
    served: Served,
    unsure: Mapping[str, Refused],
) -> None:
    """Fill idle devices with waiting jobs that can use them."""
    waiting = [uid for uid in rounds.turnout.waiting if uid in jobs]
    attempts: dict[str, SchedulingAttempt] = {}
    for uid in (*unsure, *waiting):
        if uid not in served.outcomes:
            first = _choices(rounds.arena.runners[uid])[0]
            attempts[uid] = replace(jobs[uid], only=rounds.models(first))

    def fill(attempt: SchedulingAttempt) -> None:
        uid = attempt.workload.ref.uid
        served.outcomes[uid] = _filled(rounds, queue, attempt, unsure.get(uid))

    _each(queue, tuple(attempts.values()), fill, _FILLING)


def _filled(
    rounds: Rounds, queue: SchedulingQueue, attempt: SchedulingAttempt, unsure: Refused | None
) -> Outcome:
    uid = attempt.workload.ref.uid
    no_room = NoRoom(0, ())
    for kinds in _choices(rounds.arena.runners[uid]):
        filled = queue.fill(replace(attempt, only=rounds.models(kinds)))
        if isinstance(filled, Outcome):
            return filled
        no_room = filled
    if unsure is not None:
        return Outcome(refused=unsure)
    refused = Refused(Reason.WAITS_FOR_ROUND, no_room.lines, no_room.placed)
    if no_room.lines and no_room.lines[0].reason == Reason.QUOTA_EXCEEDED:
        over = replace(refused, reason=Reason.QUOTA_EXCEEDED, requeue=Requeue.QUOTA)
        return Outcome(refused=over)
    return Outcome(refused=_waiting_for_round(rounds, uid, refused))


def _choices(runner: Runner) -> list[tuple[str, ...]]:
    """Sets of types to try: a gang never mixes types, a single member takes the best place."""
    kinds = sorted(runner.worth, key=lambda kind: (-runner.worth[kind], kind))
    if runner.workload.replicas == 1:
        return [tuple(kinds)]
    return [(kind,) for kind in kinds]
