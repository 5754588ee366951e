# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Who should have devices of which type now, and who should give theirs up.

Asked every cycle and answered alike within it: a turn lasts a round at least, and longer as long as
no one is owed enough more to pay for the restart. What is planned here is only wished for; places
are found afterwards, under all the hard limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.cluster.records.snapshot import PolicyRecord
from ullage.engines.allocation.round_records import (
    MEMORY_ROUNDS,
    Reserved,
    RoundJob,
    RoundPlan,
    RoundSettings,
    RoundState,
)
from ullage.engines.allocation.rounds import next_round, order
from ullage.scheduling.timeslicing.contenders import Arena, Runner
from ullage.scheduling.timeslicing.division import Division
from ullage.scheduling.timeslicing.round_records import owed_s

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
        wake_at: When the next turn may end; 0 = no one waits.
    """

    types: dict[str, str] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    stops: dict[str, str] = field(default_factory=dict)
    reserved: list[Reserved] = field(default_factory=list)
    skipped: set[str] = field(default_factory=set)
    owed: dict[tuple[str, str], float] = field(default_factory=dict)
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
                self._at[members[0], at] = len(line)
                line.append(members[0])
        place = self._at.get((uid, kind))
        if place is None:
            return 0, ()
        return place, tuple(self._ahead[kind][: min(place, _MOST_NAMED)])


def plan(policy: PolicyRecord, arena: Arena, division: Division, now: float) -> Turnout:
    """The turns of this moment, higher priorities first: they take what they may have of all."""
    settings = RoundSettings(
        round_s=float(policy.round_seconds),
        gang_skip_limit=max(1, policy.gang_skip_limit),
    )
    turnout = Turnout()
    runners = arena.runners
    late = {
        uid: skips
        for uid, one in runners.items()
        if not one.holds and (skips := _skips(one, now, settings)) >= 1
    }
    patient = not any(skips >= settings.gang_skip_limit for skips in late.values())
    fixed = {
        uid for uid, one in runners.items() if one.holds and _is_fixed(one, now, settings, patient)
    }
    free = {kind: arena.units(room) for kind, room in arena.room.items()}
    for uid in fixed:
        free[runners[uid].holds] -= arena.units(runners[uid].points)
    stops: list[tuple[float, str, str]] = []
    tiers: dict[int, dict[str, Runner]] = {}
    for uid, one in runners.items():
        tiers.setdefault(one.priority, {})[uid] = one
    row = {uid: at for at, uid in enumerate(division.allocation.jobs)}
    for priority in sorted(tiers, reverse=True):
        tier = tiers[priority]
        for uid in tier.keys() & fixed:
            free[tier[uid].holds] += arena.units(tier[uid].points)
        jobs = [_round_job(one, arena, uid in fixed) for uid, one in tier.items()]
        state = _state(tier, late, now, settings)
        promised = replace(
            division.allocation,
            jobs=tuple(tier),
            fractions=division.allocation.fractions[[row[uid] for uid in tier]],
        )
        made = next_round(state, promised, free, now, jobs=jobs, settings=settings)
        _take(turnout, made, jobs, settings)
        for run in made.runs:
            free[run.type] -= arena.units(runners[run.members[0]].points)
        stops += [(stop.costs_s, stop.job, stop.moves_to or "") for stop in made.stops]
    turnout.stops = {uid: kind for _, uid, kind in sorted(stops)}
    turnout.skipped |= {uid for uid in late if uid not in turnout.types}
    if turnout.waiting or turnout.stops:
        turnout.wake_at = _wake_at(runners.values(), now, settings)
    return turnout


def _take(
    turnout: Turnout, made: RoundPlan, jobs: Iterable[RoundJob], settings: RoundSettings
) -> None:
    turnout.types |= {run.members[0]: run.type for run in made.runs}
    turnout.waiting += made.waiting
    turnout.reserved += made.reserved
    turnout.skipped |= made.state.skipped.keys()
    turnout.owed |= {
        (members[0], kind): seconds for (members, kind), seconds in made.state.owed_s.items()
    }
    turnout._tiers.append((made.state, {job.name: job for job in jobs}, settings))


def _skips(runner: Runner, now: float, settings: RoundSettings) -> int:
    """Rounds that smaller jobs have passed by one that waits; it counts from the first one on."""
    known = runner.workload.status.allocation
    if known is None or not known.skipped_since:
        return 0
    return max(1, math.floor((now - known.skipped_since) / settings.round_s))


def _is_fixed(one: Runner, now: float, settings: RoundSettings, patient: bool) -> bool:
    """Whether one that holds devices keeps them, come what may.

    A turn is at least a round long, but not while a gang waits that was passed over too often: a
    string of short turns could else keep it from ever finding all its devices free at once.
    """
    if not one.workload.checkpoint or one.ready:
        return True
    return patient and now < one.began + settings.round_s


def _round_job(one: Runner, arena: Arena, fixed: bool) -> RoundJob:
    stoppable = one.workload.checkpoint and not fixed
    gang = one.points // arena.unit
    return RoundJob(one.uid, gang, one.speeds, stoppable, one.restart_s, one.unsaved_s)


def _state(
    runners: Mapping[str, Runner], late: Mapping[str, int], now: float, settings: RoundSettings
) -> RoundState:
    """The books of everyone as of now."""
    owed: dict[tuple[tuple[str, ...], str], float] = {}
    running: dict[tuple[str, ...], str] = {}
    for uid, one in runners.items():
        books = one.workload.status.allocation
        if books is not None:
            for kind, seconds in owed_s(books, now, MEMORY_ROUNDS * settings.round_s).items():
                owed[(uid,), kind] = seconds
        if one.holds:
            running[uid,] = one.holds
    skipped = {uid: skips for uid, skips in late.items() if uid in runners}
    return RoundState(at_s=now, owed_s=owed, running=running, skipped=skipped)


def _wake_at(runners: Iterable[Runner], now: float, settings: RoundSettings) -> float:
    """The next end of a turn, at the latest the end of a round by the clock."""
    grid = (math.floor(now / settings.round_s) + 1) * settings.round_s
    ends = [runner.began + settings.round_s for runner in runners if runner.holds]
    return min([grid, *(end for end in ends if end > now)])
