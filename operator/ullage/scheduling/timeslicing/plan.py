# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Plan of the turns of a cycle: the type for each job, and the jobs that leave their devices.

A turn lasts at least a round, and longer until another job is owed enough to pay for the restart.
The plan is only a target: placement follows under all the hard limits. Quota is counted while a
round is planned: services and adopted pods first; jobs under rounds start without devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.status import PartedRecord
from ullage.engines.allocation.round_records import (
    MEMORY_ROUNDS,
    Members,
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
from ullage.engines.quota.records import NO_TENANT
from ullage.engines.quota.usage import QuotaUsage
from ullage.scheduling.feasibility.occupancy import Occupancy
from ullage.scheduling.timeslicing.contenders import WHOLE, Arena, Runner
from ullage.scheduling.timeslicing.division import Division
from ullage.scheduling.timeslicing.round_records import owed_s, pairs_owed_s

_MOST_NAMED: Final = 3
_Tier = tuple[RoundState, Mapping[str, RoundJob], RoundSettings]
"""Inputs of the claims of one priority."""


@dataclass(slots=True)
class Turnout:
    """The plan of a cycle; filled by :func:`plan`.

    Attributes:
        types: Type that each job should have now, in the order to serve them.
        waiting: The other jobs, the most owed first.
        stops: Jobs that should leave their devices, cheapest first; their next type or ``""``.
        reserved: Devices reserved for jobs that were passed over too often.
        skipped: Jobs passed over by smaller ones.
        owed: Promised minus received seconds by (uid, type).
        partners: The partner by uid, of jobs that should share a device.
        parted: Pairs that found no common device in this cycle, by uid.
        wake_at: Time at which the next turn may end; 0 = no job waits.
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
        """Number of claims on a type before a job's own, and the first few of them."""
        if not self._ahead:  # ranked only when a message needs it
            for _, _, members, at in (claim for tier in self._tiers for claim in order(*tier)):
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
    """Plan the current turns; jobs of higher priority choose first.

    Args:
        policy: Length of rounds and limit of skips.
        arena: The jobs that take turns, and the devices.
        division: The promised fractions.
        now: Seconds since the epoch.
        quota: Quota before any grant; ``None`` = no tenant has quota.
    """
    settings = RoundSettings(
        round_s=float(policy.round_seconds),
        gang_skip_limit=max(1, policy.gang_skip_limit),
    )
    turnout = Turnout()
    runners = arena.runners
    late = {
        uid: count
        for uid, runner in runners.items()
        if not runner.holds
        and (quota is None or quota.could_have(uid))
        and (count := _skips(runner, now, settings)) >= 1
    }
    patient = are_patient(late.values(), settings)
    fixed = {
        uid
        for uid, runner in runners.items()
        if runner.holds and _is_fixed(runner, now, settings, patient)
    }
    free = {kind: arena.units(room) for kind, room in arena.room.items()}
    fixed_devices = {uid for uid in fixed if not _is_counted(runners, uid, fixed)}
    for uid in fixed_devices:
        free[runners[uid].holds] -= arena.units(runners[uid].points)
    if quota is not None:
        for uid in fixed:
            quota.keep(uid)
    stops: list[tuple[float, str, str]] = []
    tiers: dict[int, dict[str, Runner]] = {}
    for uid, runner in runners.items():
        tiers.setdefault(runner.priority, {})[uid] = runner
    row = {uid: at for at, uid in enumerate(division.allocation.jobs)}
    for priority in sorted(tiers, reverse=True):
        tier = tiers[priority]
        for uid in tier.keys() & fixed_devices:
            free[tier[uid].holds] += arena.units(tier[uid].points)
        if quota is not None:
            for uid in tier.keys() & fixed:
                quota.plan_again(uid)
        jobs = [_round_job(runner, arena, uid in fixed) for uid, runner in tier.items()]
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
    if turnout.waiting or turnout.stops or any(_is_left(runner) for runner in runners.values()):
        holders = (runner.began for runner in runners.values() if runner.holds)
        turnout.wake_at = next_end(holders, now, settings)
    return turnout


def _is_counted(runners: Mapping[str, Runner], uid: str, fixed: Set[str]) -> bool:
    """True when its device is counted with its partner."""
    other = runners[uid].beside
    return other < uid and other in fixed and runners[other].holds == runners[uid].holds


def _is_left(runner: Runner) -> bool:
    """True when it has a part of a device and no partner for the other part."""
    return bool(runner.holds) and runner.percent < WHOLE and not runner.beside


def _joined(arena: Arena, turnout: Turnout, made: RoundPlan) -> set[str]:
    """Jobs that were left with a part of a device and stay there for a new partner."""
    joined: set[str] = set()
    for run in made.runs:
        if len(run.members) < 2:
            continue
        for uid, other in (run.members, run.members[::-1]):
            runner, both = arena.runners[uid], arena.pairing.together(uid, other, run.type)
            stays = runner.holds == run.type and _is_left(runner) and both is not None
            if stays and both is not None and both.percents[0] == runner.percent:
                joined.add(uid)
                break
    return joined


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
    """Rounds in which smaller jobs have passed over a waiting job."""
    books = runner.workload.status.allocation
    if books is None or not books.skipped_since:
        return 0
    return rounds_passed(books.skipped_since, now, settings)


def _is_fixed(runner: Runner, now: float, settings: RoundSettings, patient: bool) -> bool:
    """True when a job with devices keeps them in any case."""
    if not runner.workload.checkpoint or runner.ready:
        return True
    return keeps_turn(runner.began, now, settings, patient=patient)


def _round_job(runner: Runner, arena: Arena, fixed: bool) -> RoundJob:
    stoppable = runner.workload.checkpoint and not fixed
    gang = runner.points // arena.unit
    return RoundJob(runner.uid, gang, runner.worth, stoppable, runner.restart_s, runner.unsaved_s)


def _state(
    runners: Mapping[str, Runner], late: Mapping[str, int], now: float, settings: RoundSettings
) -> RoundState:
    """The current state of rounds, from the accounts of the jobs."""
    owed: dict[tuple[tuple[str, ...], str], float] = {}
    running: dict[tuple[str, ...], str] = {}
    most_s = MEMORY_ROUNDS * settings.round_s
    for uid, runner in runners.items():
        books = runner.workload.status.allocation
        if books is not None:
            alone = owed_s(books, now, most_s)
            for (other, kind), seconds in pairs_owed_s(books, now, most_s).items():
                alone[kind] = alone.get(kind, 0.0) - seconds
                if other in runners:
                    # both jobs have an account of the pair; if they differ, the mean counts
                    cell = (min(uid, other), max(uid, other)), kind
                    owed[cell] = owed.get(cell, 0.0) + seconds / 2
            for kind, seconds in alone.items():
                owed[(uid,), kind] = seconds
        if runner.holds:
            beside = (runner.beside,) if runner.beside in runners else ()
            running[tuple(sorted((uid, *beside)))] = runner.holds
    skipped = {uid: skips for uid, skips in late.items() if uid in runners}
    return RoundState(at_s=now, owed_s=owed, running=running, skipped=skipped)


@dataclass(slots=True)
class TurnQuota:
    """Quota that is left; it changes while a round fills up."""

    arena: Arena
    usage: QuotaUsage
    tenants: Mapping[str, int]
    """Number of the tenant of each job that takes turns, by uid."""

    def has_room(self, members: Members, kind: str, *, nominal: bool = False) -> bool:
        """True when quota allows jobs devices of a type; ``nominal`` = without borrowing."""
        demand: dict[int, int] = {}
        for uid in members:
            number = self.tenants[uid]
            demand[number] = demand.get(number, 0) + self._percent(uid, members, kind)
        available = self.usage.nominal_left if nominal else self.usage.available
        if len(demand) == 1:
            ((number, percent),) = demand.items()
            return number == NO_TENANT or percent <= available(number, kind)
        return self._have_room_together(demand, kind, nominal=nominal)

    def take(self, members: Members, kind: str) -> None:
        """Charge these devices to the jobs."""
        for uid in members:
            self.usage.add(self.tenants[uid], kind, self._percent(uid, members, kind))

    def keep(self, uid: str) -> None:
        """Charge the devices that a job has and keeps."""
        self._count_held(uid, 1)

    def plan_again(self, uid: str) -> None:
        """Stop charging a job: the planned round charges it itself."""
        self._count_held(uid, -1)

    def could_have(self, uid: str) -> bool:
        """True when a job, if it were alone, would have quota for a type that it can run on."""
        return any(self.has_room((uid,), kind) for kind in self.arena.runners[uid].speeds)

    def _count_held(self, uid: str, sign: int) -> None:
        runner = self.arena.runners[uid]
        percent = runner.percent if runner.percent < WHOLE else runner.points
        self.usage.add(self.tenants[uid], runner.holds, sign * percent)

    def _have_room_together(self, demand: Mapping[int, int], kind: str, *, nominal: bool) -> bool:
        """True when two tenants have room together, even when both borrow from one cohort."""
        usage = self.usage.copy()
        for number, percent in demand.items():
            available = usage.nominal_left if nominal else usage.available
            if number != NO_TENANT and percent > available(number, kind):
                return False
            usage.add(number, kind, percent)
        return True

    def _percent(self, uid: str, members: Members, kind: str) -> int:
        """Percent of devices that a member has."""
        if len(members) == 1:
            return self.arena.runners[uid].points
        (other,) = (member for member in members if member != uid)
        both = self.arena.pairing.together(uid, other, kind)
        return both.percents[0] if both is not None else self.arena.runners[uid].points


def turn_quota(arena: Arena, occupancy: Occupancy) -> TurnQuota | None:
    """Quota before any grant; ``None`` = no tenant has quota."""
    quota = occupancy.quota
    if quota is None:
        return None
    usage = QuotaUsage(quota.tenants.quotas)
    for site, occupants in enumerate(occupancy.occupants):
        for occupant in occupants:
            if occupant.owner_uid not in arena.runners and not occupant.leaving:
                number = quota.number_of(occupant.owner_uid)
                usage.add(number, quota.kinds[site], occupant.tenant.percent)
    return TurnQuota(arena, usage, {uid: quota.number_of(uid) for uid in arena.runners})
