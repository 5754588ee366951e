# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Carries a plan of turns out: who is placed, who makes way, what stays kept.

Services come first, then those whose turn it is on the type that it is on, then whoever can use
what would stand idle. Every place is found by the placer, so the hard limits hold as ever; nobody
leaves before a place for another was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ullage.api.contract import Reason
from ullage.decide.placement.board import Board
from ullage.decide.placement.ground import HEALTHY
from ullage.decide.placement.placement import NoRoom
from ullage.decide.placement.preemption import Victim
from ullage.decide.placement.waiting import Line, Outcome, Refused, Turn
from ullage.decide.rounds.runners import WHOLE, Runner
from ullage.decide.rounds.turns import Rounds
from ullage.state.records import WorkloadKind


@dataclass(slots=True)
class Served:
    """What serving the turns brought.

    Attributes:
        outcomes: By uid of those who waited.
        movers: Those who leave for a better type, by uid: the type, and who leaves beside them.
    """

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    movers: dict[str, tuple[str, tuple[Victim, ...]]] = field(default_factory=dict)


def serve(rounds: Rounds, line: Line, turns: Sequence[Turn], movable: Mapping[str, Turn]) -> Served:
    """Serve everybody who waits.

    Args:
        rounds: The plan of this cycle.
        line: Places members and makes way.
        turns: Those who wait.
        movable: By uid, those who run and may be stopped; as turns of all their members.
    """
    served = Served()
    services = [one for one in turns if one.workload.kind is not WorkloadKind.TRAINING_JOB]
    served.outcomes |= line.serve(services)
    jobs = {one.workload.ref.uid: one for one in turns if one not in services}
    order = {uid: place for place, uid in enumerate(rounds.turnout.stops)}
    unsure: dict[str, Refused] = {}
    for uid in _first(rounds, jobs):
        if line.budget <= 0:
            break
        runner = rounds.arena.runners.get(uid)
        if uid in rounds.arena.nowhere:
            served.outcomes[uid] = _nowhere(rounds, uid)
            continue
        if runner is None:
            served.outcomes[uid] = line.turn(jobs[uid])
            continue
        kind = runner.holds or rounds.turnout.types[uid]
        outcome = line.turn(replace(jobs[uid], only=rounds.models((kind,)), may_stop=order))
        refused = outcome.refused
        if refused is not None and refused.never is None and not refused.prospect:
            unsure[uid] = refused
            continue
        served.outcomes[uid] = _coming(rounds, uid, outcome)
    _move(rounds, line, movable, served, order)
    _keep(rounds, line.placer.board, jobs, served)
    _fill(rounds, line, jobs, served, unsure)
    return served


def _first(rounds: Rounds, jobs: Mapping[str, Turn]) -> list[str]:
    """Those who are placed before idle devices are given away, in order.

    Members that are missing beside others which run come first, then turns as planned, then
    whoever takes none.
    """
    runners = rounds.arena.runners
    running = [uid for uid in jobs if uid in runners and runners[uid].holds]
    planned = [uid for uid in rounds.turnout.types if uid in jobs and uid not in running]
    others = [uid for uid in jobs if uid not in runners]
    others.sort(key=lambda uid: (-jobs[uid].priority, jobs[uid].workload.created, uid))
    return [*running, *planned, *others]


def _nowhere(rounds: Rounds, uid: str) -> Outcome:
    found = rounds.infeasible(uid)
    return Outcome(refused=Refused(found.reason, never=found)) if found else Outcome()


def _coming(rounds: Rounds, uid: str, outcome: Outcome) -> Outcome:
    """A turn that is about to begin is told as a turn, not as a lack of devices."""
    refused = outcome.refused
    if refused is None or refused.never is not None:
        return outcome
    return replace(outcome, refused=_told(rounds, uid, refused))


def _told(rounds: Rounds, uid: str, refused: Refused) -> Refused:
    return replace(refused, reason=Reason.WAITS_FOR_ROUND, turn=lambda: rounds.why(uid))


def _move(
    rounds: Rounds,
    line: Line,
    movable: Mapping[str, Turn],
    served: Served,
    order: Mapping[str, int],
) -> None:
    """Those who run go to the type that their turn is on, where a place for them is found."""
    victims = {one.uid: one for one in line.victims()}
    for uid, kind in rounds.turnout.stops.items():
        if not kind or uid not in movable or uid not in victims:
            continue
        turn = replace(movable[uid], only=rounds.models((kind,)), may_stop=order)
        beside = line.move(turn, victims[uid])
        if beside is not None:
            served.movers[uid] = (kind, beside)


def _keep(rounds: Rounds, board: Board, jobs: Mapping[str, Turn], served: Served) -> None:
    """What is planned for those whose pods are not there yet is not given to others meanwhile."""
    stopped = {victim.uid for outcome in served.outcomes.values() for victim in outcome.victims}
    for uid, kind in rounds.turnout.types.items():
        runner = rounds.arena.runners[uid]
        if uid in jobs or (runner.holds and uid not in stopped):
            continue
        _block(board, kind, runner.points, runner.name)
    for kept in rounds.turnout.reserved:
        runner = rounds.arena.runners[kept.job]
        _block(board, kept.type, kept.devices * rounds.arena.unit, runner.name)


def _block(board: Board, kind: str, points: int, name: str) -> None:
    """Block as many empty devices of a type as these points need, if there are any."""
    ground = board.ground
    model = ground.models[kind]
    for site, here in enumerate(board.occupants):
        if points <= 0:
            return
        free = not here and not board.blocked.item(site)
        if free and ground.model.item(site) == model and ground.health.item(site) == HEALTHY:
            board.block((site,), name)
            points -= WHOLE


def _fill(
    rounds: Rounds,
    line: Line,
    jobs: Mapping[str, Turn],
    served: Served,
    unsure: Mapping[str, Refused],
) -> None:
    """No device idles while somebody who waits could use it."""
    waiting = [uid for uid in rounds.turnout.waiting if uid in jobs]
    for uid in [*unsure, *waiting]:
        if uid in served.outcomes:
            continue
        if line.budget <= 0:
            return
        runner = rounds.arena.runners[uid]
        found: Outcome | NoRoom = NoRoom(0, ())
        for kinds in _choices(runner):
            found = line.fill(replace(jobs[uid], only=rounds.models(kinds)))
            if isinstance(found, Outcome):
                break
        if isinstance(found, Outcome):
            served.outcomes[uid] = found
        elif uid in unsure:
            served.outcomes[uid] = Outcome(refused=unsure[uid])
        else:
            refused = Refused(Reason.WAITS_FOR_ROUND, found.lines, found.placed)
            served.outcomes[uid] = Outcome(refused=_told(rounds, uid, refused))


def _choices(runner: Runner) -> list[tuple[str, ...]]:
    """Sets of types to try: a gang never mixes types, one member takes the best place of all."""
    kinds = sorted(runner.speeds, key=lambda kind: (-runner.speeds[kind], kind))
    if runner.workload.replicas == 1:
        return [tuple(kinds)]
    return [(kind,) for kind in kinds]
