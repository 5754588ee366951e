# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Who should have devices of which type now, and who should give theirs up.

Asked every cycle and answered alike within it: a turn lasts a round at least, and longer as long as
no one is owed enough more to pay for the restart. What is planned here is only wished for; places
are found afterwards, under all the hard limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.cluster.records.snapshot import PolicyRecord
from ullage.cluster.records.status import PartedRecord
from ullage.engines.allocation.round_records import (
    MEMORY_ROUNDS,
    Reserved,
    RoundJob,
    RoundPlan,
    RoundSettings,
    RoundState,
)
from ullage.engines.allocation.rounds import (
    are_patient,
    keeps_turn,
    next_end,
    next_round,
    order,
    rounds_passed,
)
from ullage.scheduling.timeslicing.contenders import WHOLE, Arena, Runner
from ullage.scheduling.timeslicing.division import Division
from ullage.scheduling.timeslicing.round_records import owed_s, pairs_owed_s
from ullage.scheduling.timeslicing.turn_quota import TurnQuota

_MOST_NAMED: Final = 3


_Tier = tuple[RoundState, Mapping[str, RoundJob], RoundSettings]
"""What the claims of one priority follow from."""


@dataclass(slots=True)
class Turnout:
    """The plan of a cycle; filled by :func:`plan`.

    Attributes:
        types: Type that each job should have now, in the order to serve them.
        waiting: The others, those who are owed most first.
        stops: Jobs that should leave their devices, cheapest first; the type they go to or ``""``.
        reserved: Devices kept for jobs that were passed over too often.
        skipped: Jobs that smaller ones pass by.
        owed: Promised less received seconds by (uid, type).
        partners: Of those who should have a device together, the other one, by uid.
        parted: Pairs that found no common device in this cycle, by uid.
        wake_at: When the next turn may end; 0 = no one waits.
    """

    types: dict[str, str] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    stops: dict[str, str] = field(default_factory=dict)
    reserved: list[Reserved] = field(default_factory=list)
    skipped: set[str] = field(default_factory=set)
    owed: dict[tuple[str, str], float] = field(default_factory=dict)
    partners: dict[str, str] = field(default_factory=dict)
    parted: dict[str, PartedRecord] = field(default_factory=dict)
    wake_at: float = 0.0
    _tiers: list[_Tier] = field(default_factory=list)
    _ahead: dict[str, list[str]] = field(default_factory=dict)
    _at: dict[tuple[str, str], int] = field(default_factory=dict)

    def ahead(self, uid: str, kind: str) -> tuple[int, tuple[str, ...]]:
        """How many claims on a type come before a job's own, and the first few of them."""
        if not self._ahead:
            # ranked only when someone who waits is told where it stands
            for _, _, members, at in (one for tier in self._tiers for one in order(*tier)):
                line = self._ahead.setdefault(at, [])
                for member in members:
                    if (member, at) not in self._at:
                        self._at[member, at] = len(line)
                line.extend(members)
        place = self._at.get((uid, kind))
        if place is None:
            return 0, ()
        return place, tuple(self._ahead[kind][: min(place, _MOST_NAMED)])


def plan(
    policy: PolicyRecord,
    arena: Arena,
    division: Division,
    now: float,
    quota: TurnQuota | None = None,
) -> Turnout:
    """The turns of this moment, higher priorities first: they take what they may have of all.

    Args:
        policy: Length of rounds and the limit of skips.
        arena: Who takes turns, and what there is.
        division: What each is promised.
        now: Seconds since the epoch.
        quota: Before any turn is given; ``None`` = no tenant has quota.
    """
    settings = RoundSettings(
        round_s=float(policy.round_seconds),
        gang_skip_limit=max(1, policy.gang_skip_limit),
    )
    turnout = Turnout()
    runners = arena.runners
    late = {
        uid: count
        for uid, one in runners.items()
        if not one.holds
        and (quota is None or quota.could_have(uid))
        and (count := _skips(one, now, settings)) >= 1
    }
    patient = are_patient(late.values(), settings)
    fixed = {
        uid for uid, one in runners.items() if one.holds and _is_fixed(one, now, settings, patient)
    }
    free = {kind: arena.units(room) for kind, room in arena.room.items()}
    held = {uid for uid in fixed if not _is_counted(runners, uid, fixed)}
    for uid in held:
        free[runners[uid].holds] -= arena.units(runners[uid].points)
    if quota is not None:
        for uid in fixed:
            quota.keep(uid)
    stops: list[tuple[float, str, str]] = []
    tiers: dict[int, dict[str, Runner]] = {}
    for uid, one in runners.items():
        tiers.setdefault(one.priority, {})[uid] = one
    row = {uid: at for at, uid in enumerate(division.allocation.jobs)}
    for priority in sorted(tiers, reverse=True):
        tier = tiers[priority]
        for uid in tier.keys() & held:
            free[tier[uid].holds] += arena.units(tier[uid].points)
        if quota is not None:
            for uid in tier.keys() & fixed:
                quota.plan_again(uid)
        jobs = [_round_job(one, arena, uid in fixed) for uid, one in tier.items()]
        state = _state(tier, late, now, settings)
        promised = replace(
            division.allocation,
            jobs=tuple(tier),
            fractions=division.allocation.fractions[[row[uid] for uid in tier]],
            pairs=tuple(
                pair
                for pair in division.allocation.pairs
                if pair.left in tier and pair.right in tier
            ),
        )
        made = next_round(state, promised, free, now, jobs=jobs, settings=settings, quota=quota)
        _take(turnout, made, jobs, settings)
        for run in made.runs:
            free[run.type] -= arena.units(runners[run.members[0]].points)
        joined = _joined(arena, turnout, made)
        stops += [
            (stop.costs_s, stop.job, stop.moves_to or "")
            for stop in made.stops
            if stop.job not in joined
        ]
        stops += [
            (runners[uid].restart_s + runners[uid].unsaved_s, uid, runners[uid].holds)
            for run in made.runs
            if run.kept and len(run.members) == 1 and _is_left(runners[uid := run.members[0]])
            if uid not in fixed
        ]
    turnout.stops = {uid: kind for _, uid, kind in sorted(stops)}
    turnout.skipped |= {uid for uid in late if uid not in turnout.types}
    if turnout.waiting or turnout.stops or any(_is_left(one) for one in runners.values()):
        holders = (runner.began for runner in runners.values() if runner.holds)
        turnout.wake_at = next_end(holders, now, settings)
    return turnout


def _is_counted(runners: Mapping[str, Runner], uid: str, fixed: Set[str]) -> bool:
    """Whether the device that it holds is counted with the other one on it."""
    other = runners[uid].beside
    return other < uid and other in fixed and runners[other].holds == runners[uid].holds


def _is_left(runner: Runner) -> bool:
    """Whether it has a part of a device whose other part no one is to have."""
    return bool(runner.holds) and runner.percent < WHOLE and not runner.beside


def _joined(arena: Arena, turnout: Turnout, made: RoundPlan) -> set[str]:
    """Those who were left with their part of a device, and stay there for a new partner."""
    found: set[str] = set()
    for run in made.runs:
        if len(run.members) < 2:
            continue
        for uid, other in (run.members, run.members[::-1]):
            one, both = arena.runners[uid], arena.pairing.together(uid, other, run.type)
            stays = one.holds == run.type and _is_left(one) and both is not None
            if stays and both is not None and both.percents[0] == one.percent:
                found.add(uid)
                break
    return found


def _take(
    turnout: Turnout, made: RoundPlan, jobs: Iterable[RoundJob], settings: RoundSettings
) -> None:
    turnout.types |= {name: run.type for run in made.runs for name in run.members}
    for run in made.runs:
        if len(run.members) == 2:
            left, right = run.members
            turnout.partners |= {left: right, right: left}
    turnout.waiting += made.waiting
    turnout.reserved += made.reserved
    turnout.skipped |= made.state.skipped.keys()
    for (members, kind), seconds in made.state.owed_s.items():
        for name in members:
            turnout.owed[name, kind] = turnout.owed.get((name, kind), 0.0) + seconds
    turnout._tiers.append((made.state, {job.name: job for job in jobs}, settings))


def _skips(runner: Runner, now: float, settings: RoundSettings) -> int:
    """Rounds that smaller jobs have passed by one that waits; 0 = none did."""
    known = runner.workload.status.allocation
    if known is None or not known.skipped_since:
        return 0
    return rounds_passed(known.skipped_since, now, settings)


def _is_fixed(one: Runner, now: float, settings: RoundSettings, patient: bool) -> bool:
    """Whether one that holds devices keeps them, come what may."""
    if not one.workload.checkpoint or one.ready:
        return True
    return keeps_turn(one.began, now, settings, patient=patient)


def _round_job(one: Runner, arena: Arena, fixed: bool) -> RoundJob:
    stoppable = one.workload.checkpoint and not fixed
    gang = one.points // arena.unit
    return RoundJob(one.uid, gang, one.worth, stoppable, one.restart_s, one.unsaved_s)


def _state(
    runners: Mapping[str, Runner], late: Mapping[str, int], now: float, settings: RoundSettings
) -> RoundState:
    """The books of everyone as of now."""
    owed: dict[tuple[tuple[str, ...], str], float] = {}
    running: dict[tuple[str, ...], str] = {}
    most_s = MEMORY_ROUNDS * settings.round_s
    for uid, one in runners.items():
        books = one.workload.status.allocation
        if books is not None:
            alone = owed_s(books, now, most_s)
            for (other, kind), seconds in pairs_owed_s(books, now, most_s).items():
                alone[kind] = alone.get(kind, 0.0) - seconds
                if other in runners:
                    # both keep books of the pair; where they differ, the mean counts
                    cell = (min(uid, other), max(uid, other)), kind
                    owed[cell] = owed.get(cell, 0.0) + seconds / 2
            for kind, seconds in alone.items():
                owed[(uid,), kind] = seconds
        if one.holds:
            beside = (one.beside,) if one.beside in runners else ()
            running[tuple(sorted((uid, *beside)))] = one.holds
    skipped = {uid: skips for uid, skips in late.items() if uid in runners}
    return RoundState(at_s=now, owed_s=owed, running=running, skipped=skipped)
