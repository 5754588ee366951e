# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Carries a plan of turns out: who is placed, who makes way, what stays kept.

Services come first, then those whose turn it is on the type that it is on, then any that can use
what would stand idle. Every place is found by the placer, so the hard limits hold as ever; no one
leaves before a place for another was found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.api.reasons import Reason
from ullage.cluster.records.snapshot import WorkloadKind
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
"""What another type of device may have for a job whose turn is on this one."""
_SERVICES: Final = (0.25, 0.5)
_TURNS: Final = (0.75, 1.0)
_FILLING: Final = (1.0, 1.25)
"""Parts of a cycle's effort until which services, turns and idle devices go strictly in order, and
where each ends, so that some effort is left for those that follow."""


@dataclass(slots=True)
class Served:
    """What serving the turns brought.

    Attributes:
        outcomes: By uid of those who waited.
        movers: Those who leave for a better type, by uid: the type, and who leaves beside them.
    """

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    movers: dict[str, tuple[str, tuple[Victim, ...]]] = field(default_factory=dict)


def serve(
    rounds: Rounds,
    queue: SchedulingQueue,
    attempts: Sequence[SchedulingAttempt],
    movable: Mapping[str, SchedulingAttempt],
) -> Served:
    """Serve everyone who waits.

    A job without an outcome is next: the cycle had no room or no effort left for it.

    Args:
        rounds: The plan of this cycle.
        queue: Places members and makes way.
        attempts: Of those who wait.
        movable: By uid, those who run and may be stopped; as attempts of all their members.
    """
    served = Served()
    jobs: dict[str, SchedulingAttempt] = {}
    services: list[SchedulingAttempt] = []
    for one in attempts:
        if one.workload.kind is WorkloadKind.TRAINING_JOB:
            jobs[one.workload.ref.uid] = one
        else:
            services.append(one)
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
        for one, outcome in _pair(rounds, queue, attempt, jobs, order):
            refused = outcome.refused
            if refused is not None and refused.requeue in _ELSEWHERE:
                unsure[one] = refused
            else:
                served.outcomes[one] = _coming(rounds, one, outcome)

    _each(queue, services, serve_one, _SERVICES)
    asked: list[SchedulingAttempt] = []
    for uid in _first(rounds, jobs):
        if uid in rounds.arena.nowhere:
            served.outcomes[uid] = _nowhere(rounds, uid)
        else:
            asked.append(_narrowed(rounds, jobs[uid], order))
    _each(queue, asked, take_turns, _TURNS)
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
    """Do it for each, in order; new questions past the first part of a cycle's effort in turns.

    Args:
        queue: Whose budget and effort count.
        attempts: In the order to serve them.
        act: What to do for each.
        parts: Of the effort: until where it goes strictly in order, and where it ends.
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
    """The attempt held to the type that it is on; as it is for those who take none."""
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
    """Place one of a pair, and the other beside it where that one waits as well.

    Who comes first gets its part of an empty device, and the other joins it there, now or as soon
    as it can. Where it cannot, the pair is left out for a while.
    """
    uid = attempt.workload.ref.uid
    other = rounds.turnout.partners[uid]
    partner = rounds.arena.runners[other]
    if partner.holds:
        here = queue.placer.occupancy.occupants[partner.site]
        alone = len(here) == 1 and not here[0].leaving
        if other in order or partner.percent >= WHOLE or not alone:
            # it starts again with its part, or someone else leaves, before anyone joins it
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
    """Place a job beside its partner; where that cannot be, both are told why."""
    outcome = queue.join(attempt, site)
    if outcome.refused is not None:
        rounds.part(attempt.workload.ref.uid, outcome.refused)
    return outcome


def _first(rounds: Rounds, jobs: Mapping[str, SchedulingAttempt]) -> list[str]:
    """Those who are placed before idle devices are given away, in order.

    Members that are missing beside others which run come first, then turns as planned, then
    work that takes no turns.
    """
    runners = rounds.arena.runners
    running = {uid: None for uid in jobs if uid in runners and runners[uid].holds}
    planned = [uid for uid in rounds.turnout.types if uid in jobs and uid not in running]
    others = [uid for uid in jobs if uid not in runners]
    others.sort(key=lambda uid: (-jobs[uid].priority, jobs[uid].workload.created, uid))
    return [*running, *planned, *others]


def _nowhere(rounds: Rounds, uid: str) -> Outcome:
    infeasible = rounds.infeasible(uid)
    return Outcome(refused=Refused.for_good(infeasible)) if infeasible else Outcome()


def _coming(rounds: Rounds, uid: str, outcome: Outcome) -> Outcome:
    """A turn that is about to begin is told as a turn, not as a lack of devices."""
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
    """Those who run go to the type that their turn is on, where a place for them is found."""
    victims = {victim.uid: victim for victim in queue.selection.victims()}
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
    """Keeps devices that are planned for jobs without an answer; no other job gets them meanwhile.

    Their pods are not there, or this cycle had no effort left for them.
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
            continue  # its device is that of the other one
        _block(occupancy, empty[models[kind]], runner.points, runner.name)
    for kept in rounds.turnout.reserved:
        runner = rounds.arena.runners[kept.job]
        points = kept.devices * rounds.arena.unit
        _block(occupancy, empty[models[kept.type]], points, runner.name)


def _empty(occupancy: Occupancy) -> dict[int, deque[int]]:
    """Devices that may be kept for someone, by model: healthy, empty, not kept yet."""
    inventory = occupancy.inventory
    found: dict[int, deque[int]] = {model: deque() for model in inventory.models.values()}
    for site, here in enumerate(occupancy.occupants):
        if not here and not occupancy.blocked.item(site) and inventory.health.item(site) == HEALTHY:
            found[inventory.model.item(site)].append(site)
    return found


def _block(occupancy: Occupancy, empty: deque[int], points: int, name: str) -> None:
    """Block as many of these devices as the points need, if there are any."""
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
    """No device idles while someone who waits could use it."""
    waiting = [uid for uid in rounds.turnout.waiting if uid in jobs]
    asked: dict[str, SchedulingAttempt] = {}
    for uid in (*unsure, *waiting):
        if uid not in served.outcomes:
            first = _choices(rounds.arena.runners[uid])[0]
            asked[uid] = replace(jobs[uid], only=rounds.models(first))

    def fill(attempt: SchedulingAttempt) -> None:
        uid = attempt.workload.ref.uid
        served.outcomes[uid] = _filled(rounds, queue, attempt, unsure.get(uid))

    _each(queue, tuple(asked.values()), fill, _FILLING)


def _filled(
    rounds: Rounds, queue: SchedulingQueue, attempt: SchedulingAttempt, unsure: Refused | None
) -> Outcome:
    uid = attempt.workload.ref.uid
    no_room = NoRoom(0, ())
    for kinds in _choices(rounds.arena.runners[uid]):
        found = queue.fill(replace(attempt, only=rounds.models(kinds)))
        if isinstance(found, Outcome):
            return found
        no_room = found
    if unsure is not None:
        return Outcome(refused=unsure)
    refused = Refused(Reason.WAITS_FOR_ROUND, no_room.lines, no_room.placed)
    if no_room.lines and no_room.lines[0].reason == Reason.QUOTA_EXCEEDED:
        over = replace(refused, reason=Reason.QUOTA_EXCEEDED, requeue=Requeue.QUOTA)
        return Outcome(refused=over)
    return Outcome(refused=_waiting_for_round(rounds, uid, refused))


def _choices(runner: Runner) -> list[tuple[str, ...]]:
    """Sets of types to try: a gang never mixes types, one member takes the best place of all."""
    kinds = sorted(runner.worth, key=lambda kind: (-runner.worth[kind], kind))
    if runner.workload.replicas == 1:
        return [tuple(kinds)]
    return [(kind,) for kind in kinds]
