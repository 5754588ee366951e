# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rounds: choose jobs and types, so that received time follows the promised fractions.

Order is by time owed. A lease is extended until another job is owed enough to pay for a restart; a
job that cannot save its work is never stopped; no device idles while a job that may use it waits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import numpy as np

from ullage.engines.allocation.model import Allocation
from ullage.engines.allocation.round_records import (
    MEMORY_ROUNDS,
    Cell,
    Members,
    Reserved,
    RoundJob,
    RoundPlan,
    RoundRun,
    RoundSettings,
    RoundState,
    Stop,
)

NOTHING: Final = 1e-6
"""Fraction of time below which a promise is rounding."""
_STAY_S: Final = 1e-3
"""Seconds in favour of the current holder of devices: equals do not swap."""


DIGITS: Final = 4
"""Resolution of urgencies in seconds: equals stay equal despite rounding of their sums."""
TICK_S: Final = 1e-3
"""Times closer than this are equal: sums of times are rounded."""


class RoundClaim(NamedTuple):
    """One way of using devices in the next round, with its priority."""

    members: Members
    type: str
    gang: int
    promised: float
    running: bool


class RoundQuota(Protocol):
    """Quota as a round's planning sees it; it changes as the round fills up."""

    def has_room(self, members: Members, kind: str, *, nominal: bool = False) -> bool:
        """True if jobs may get devices of a type; ``nominal`` = without borrowing."""

    def take(self, members: Members, kind: str) -> None:
        """Charge these devices to the jobs."""


@dataclass(slots=True)
class _Filling:
    """The round as it fills up."""

    free: dict[str, int]
    settings: RoundSettings
    quota: RoundQuota | None = None
    runs: list[RoundRun] = field(default_factory=list)
    placed: set[str] = field(default_factory=set)
    blocked: dict[str, set[str]] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)

    @property
    def is_full(self) -> bool:
        """True if no device is left."""
        return not any(devices > 0 for devices in self.free.values())

    def has_quota(self, claim: RoundClaim, *, nominal: bool = False) -> bool:
        """True if quota has room for a claim; ``nominal`` = without borrowing."""
        if self.quota is None:
            return True
        return self.quota.has_room(claim.members, claim.type, nominal=nominal)

    def take(self, claim: RoundClaim, *, nominal: bool = False, stays: bool = False) -> bool:
        """Grant the claim its devices; records it as passed over if it is too large for the rest.

        Args:
            claim: The jobs, and their type.
            nominal: Only if no quota is borrowed for it.
            stays: It already holds the devices, and quota preempts nothing for it.
        """
        if not self.placed.isdisjoint(claim.members):
            return False
        if self.quota is not None and not stays and not self.has_quota(claim, nominal=nominal):
            return False
        pool = self.settings.pool(claim.type)
        if claim.gang > self.free.get(pool, 0):
            self.blocked.setdefault(pool, set()).update(claim.members)
            return False
        self.free[pool] -= claim.gang
        self.placed.update(claim.members)
        if self.quota is not None:
            self.quota.take(claim.members, claim.type)
        if pool in self.blocked:
            self.passed |= self.blocked.pop(pool)
        self.runs.append(
            RoundRun(
                members=claim.members,
                type=claim.type,
                kept=claim.running,
                spare=claim.promised <= 0.0,
            )
        )
        return True


def next_round(
    state: RoundState,
    allocation: Allocation,
    free: Mapping[str, int],
    now: float,
    *,
    jobs: Sequence[RoundJob],
    settings: RoundSettings,
    quota: RoundQuota | None = None,
) -> RoundPlan:
    """Plan the round that begins now.

    Args:
        state: As the last round left it.
        allocation: The fractions in force from now on.
        free: Devices of each pool that rounds may use, those held by running jobs included.
        now: Seconds on any clock; a clock that went back counts as standing still.
        jobs: Active jobs; others in the state are forgotten.
        settings: Length of rounds and the limit of skips.
        quota: Jobs within their nominal quota come first; grants of the round are charged to it.
            ``None`` = there is no quota.

    Returns:
        The same plan for the same arguments.
    """
    known = {job.name: job for job in jobs}
    promised = promises(allocation, known)
    current = settle(state, now, known, promised, settings)
    filled = fill_round(current, free, known=known, settings=settings, quota=quota)
    return _plan(current, known, filled)


class Filled(NamedTuple):
    """The devices granted in a round.

    Attributes:
        runs: Jobs that run, largest gang first.
        passed: Jobs known to have been passed over by a smaller one.
        reserved: Devices kept for gangs.
    """

    runs: tuple[RoundRun, ...]
    passed: Set[str]
    reserved: tuple[Reserved, ...]


def fill_round(
    current: RoundState,
    free: Mapping[str, int],
    *,
    known: Mapping[str, RoundJob],
    settings: RoundSettings,
    quota: RoundQuota | None = None,
) -> Filled:
    """Grant the devices of a round whose time is already booked.

    Args:
        current: Settled at the beginning of the round.
        free: As for ``next_round``.
        known: Active jobs by name.
        settings: Of the rounds.
        quota: As for ``next_round``.

    Returns:
        The same for the same arguments.
    """
    filling = _Filling(free=dict(free), settings=settings, quota=quota)
    claims = rank(current, known, settings)
    for claim in claims:
        if claim.running and not all(known[name].checkpointable for name in claim.members):
            filling.take(claim, stays=True)
    _hold_unpromised(current, known, filling)
    reserved = _serve_skipped(claims, current, known, filling)
    if quota is not None:
        for claim in claims:
            filling.take(claim, nominal=True)
    for claim in claims:
        if filling.take(claim) and filling.is_full:
            break  # break  # no other job is placed or passed over
    for kept in reserved:
        filling.free[settings.pool(kept.type)] += kept.devices
    passed = filling.passed - filling.placed
    _fill(current, known, filling, {kept.job for kept in reserved})
    runs = sorted(filling.runs, key=lambda run: (-known[run.members[0]].gang, run.members))
    return Filled(runs=tuple(runs), passed=passed, reserved=reserved)


def rounds_passed(since: float, now: float, settings: RoundSettings) -> int:
    """Rounds during which smaller jobs have passed over a waiting one, counting the first.

    Args:
        since: Time when it was first passed over, seconds on the clock of ``now``.
        now: The moment.
        settings: Of the rounds.
    """
    return max(1, math.floor((now - since + TICK_S) / settings.round_s))


def are_patient(skips: Iterable[int], settings: RoundSettings) -> bool:
    """True if turns last a full round: no waiting gang was passed over too often.

    Otherwise, short turns could keep it from ever finding all its devices free at once.

    Args:
        skips: Rounds for which each waiting job was passed over.
        settings: Of the rounds.
    """
    return not any(count >= settings.gang_skip_limit for count in skips)


def keeps_turn(began: float, now: float, settings: RoundSettings, *, patient: bool) -> bool:
    """True if a running job keeps its devices because its turn is shorter than a round.

    Args:
        began: Start of its turn.
        now: The current time.
        settings: Of the rounds.
        patient: Turns last a full round.
    """
    return patient and now + TICK_S < began + settings.round_s


def next_end(began: Iterable[float], now: float, settings: RoundSettings) -> float:
    """The end of the next turn: a round after it began, at the latest at the clock's next round.

    Args:
        began: Starts of the current turns.
        now: The current time.
        settings: Of the rounds.
    """
    grid = (math.floor((now + TICK_S) / settings.round_s) + 1) * settings.round_s
    ends = [start_s + settings.round_s for start_s in began]
    return min([grid, *(end for end in ends if end > now + TICK_S)])


def promises(allocation: Allocation, known: Mapping[str, RoundJob]) -> dict[Cell, float]:
    """Fraction of time of each cell: alone, and for each pair; rounding omitted.

    Args:
        allocation: The allocation in force.
        known: All jobs by name; others are promised nothing.

    Returns:
        Fraction of time, 0..1, by members and type.
    """
    rows, columns = np.nonzero(allocation.fractions > NOTHING)
    jobs, types = allocation.jobs, allocation.types
    values = allocation.fractions[rows, columns].tolist()
    cells = zip(rows.tolist(), columns.tolist(), values, strict=True)
    alone = {
        (name, types[column]): value for row, column, value in cells if (name := jobs[row]) in known
    }
    if not allocation.pairs:
        return {
            ((name,), kind): value
            for (name, kind), value in alone.items()
            if known[name].speeds.get(kind, 0.0) > 0
        }
    promised: dict[Cell, float] = {}
    for pair in allocation.pairs:
        if pair.left in known and pair.right in known:
            cell = ((pair.left, pair.right), pair.type)
            promised[cell] = promised.get(cell, 0.0) + pair.fraction
        for name in (pair.left, pair.right):
            if (name, pair.type) in alone:
                alone[name, pair.type] -= pair.fraction
    promised |= {((name,), kind): value for (name, kind), value in alone.items()}
    return {
        cell: value
        for cell, value in promised.items()
        if value > NOTHING and all(known[name].speeds.get(cell[1], 0.0) > 0 for name in cell[0])
    }


def settle(
    state: RoundState,
    now: float,
    known: Mapping[str, RoundJob],
    promised: Mapping[Cell, float],
    settings: RoundSettings,
) -> RoundState:
    """Book the time since the last round by the fractions that were in force, then take new ones.

    A debt is bounded, and expires where nothing is promised any more.

    Args:
        state: After the last round.
        now: Seconds on the clock of ``state.at_s``.
        known: All jobs by name; the time of others is forgotten.
        promised: Fraction of time of each cell from now on.
        settings: Of the rounds.
    """
    elapsed = max(0.0, now - state.at_s) if state.promised or state.running else 0.0
    most = most_owed_s(settings)
    received = {cell: s for cell, s in state.received_s.items() if known.keys() >= set(cell[0])}
    owed: dict[Cell, float] = {}
    # A job whose partner left continues alone, on the same devices.
    left = {tuple(n for n in who if n in known): kind for who, kind in state.running.items()}
    running = {who: kind for who, kind in left.items() if who}
    for members, kind in running.items():
        cell = (members, kind)
        received[cell] = received.get(cell, 0.0) + elapsed
    for cell in promised:
        had = elapsed if running.get(cell[0]) == cell[1] else 0.0
        due = state.owed_s.get(cell, 0.0) + state.promised.get(cell, 0.0) * elapsed - had
        owed[cell] = min(most, max(-most, due))
    return RoundState(
        at_s=max(now, state.at_s),
        promised=dict(promised),
        owed_s=owed,
        received_s=received,
        running=running,
        skipped={name: count for name, count in state.skipped.items() if name in known},
    )


def rank(
    state: RoundState, known: Mapping[str, RoundJob], settings: RoundSettings
) -> tuple[RoundClaim, ...]:
    """Every promised cell, the most urgent first.

    Args:
        state: Settled at the beginning of the round.
        known: All jobs by name.
        settings: Of the rounds.
    """
    running = state.running
    return tuple(
        [
            RoundClaim(who, kind, known[who[0]].gang, -less, running.get(who) == kind)
            for _, less, who, kind in order(state, known, settings)
        ]
    )


def order(
    state: RoundState, known: Mapping[str, RoundJob], settings: RoundSettings
) -> list[tuple[float, float, Members, str]]:
    """Urgency and promise, both below 0, of every promised cell, the most urgent first.

    Urgency is the time owed at the end of the round without a grant; a current holder of devices is
    ahead in proportion to its cost of stopping. Ties: larger promise, then name. Derived.

    Args:
        state: Settled at the beginning of the round.
        known: All jobs by name.
        settings: Of the rounds.

    Returns:
        For each cell: minus the urgency in seconds, minus the fraction of time, members, type.
    """
    entries: list[tuple[float, float, Members, str]] = []
    for (members, kind), fraction in state.promised.items():
        urgency_s = state.owed_s[members, kind] + fraction * settings.round_s
        if state.running.get(members) == kind:
            urgency_s += worth_of_staying(members, known, settings)
        entries.append((-round(urgency_s, DIGITS), -round(fraction, 9), members, kind))
    entries.sort()
    return entries


def most_owed_s(settings: RoundSettings) -> float:
    """Largest debt or lead that is kept, in seconds.

    Args:
        settings: Of the rounds.
    """
    return MEMORY_ROUNDS * settings.round_s


def worth_of_staying(
    members: Iterable[str], known: Mapping[str, RoundJob], settings: RoundSettings
) -> float:
    """Extra seconds that another job must be owed before these jobs are stopped for it.

    Args:
        members: Jobs that share devices.
        known: All jobs by name.
        settings: Of the rounds.
    """
    cost = max([known[name].restart_s + known[name].unsaved_s for name in members])
    return _STAY_S + min(cost / settings.most_lost, 0.5 * MEMORY_ROUNDS * settings.round_s)


def _hold_unpromised(state: RoundState, known: Mapping[str, RoundJob], filling: _Filling) -> None:
    """Jobs that cannot be stopped stay in place, whatever the fractions are now."""
    for members, kind in sorted(state.running.items()):
        if not all(known[name].checkpointable for name in members):
            filling.take(_spare(members, kind, known, running=True), stays=True)


def _serve_skipped(
    claims: Sequence[RoundClaim],
    state: RoundState,
    known: Mapping[str, RoundJob],
    filling: _Filling,
) -> tuple[Reserved, ...]:
    """Gangs passed over too often go first; devices that they still lack are kept for them."""
    limit = filling.settings.gang_skip_limit
    late = sorted(
        (name for name, count in state.skipped.items() if count >= limit),
        key=lambda name: (-state.skipped[name], -known[name].gang, name),
    )
    alone: dict[str, list[RoundClaim]] = {name: [] for name in late}
    for claim in claims:
        if len(claim.members) == 1 and claim.members[0] in alone:
            alone[claim.members[0]].append(claim)
    reserved = []
    for name in late:
        own = alone[name]
        own.sort(key=lambda claim: (-known[name].speeds[claim.type], claim.type))
        if not own or name in filling.placed or any(filling.take(claim) for claim in own):
            continue
        best = next((claim for claim in own if filling.has_quota(claim)), None)
        if best is None:
            continue  # devices would not help it
        pool = filling.settings.pool(best.type)
        kept = max(0, min(filling.free.get(pool, 0), best.gang))
        filling.free[pool] = filling.free.get(pool, 0) - kept
        reserved.append(Reserved(job=name, type=best.type, devices=kept, missing=best.gang - kept))
    return tuple(reserved)


def _fill(
    state: RoundState, known: Mapping[str, RoundJob], filling: _Filling, waiting: set[str]
) -> None:
    """Grant idle devices to waiting jobs; reserved ones only to jobs that can be stopped again.

    A job that cannot be stopped is not placed without a promise: it would stay to its end.
    """
    if filling.is_full:
        return
    owed: dict[str, float] = {}
    for (members, _), seconds in state.owed_s.items():
        for name in members:
            owed[name] = owed.get(name, 0.0) + seconds
    where = {members[0]: kind for members, kind in state.running.items() if len(members) == 1}
    idle = sorted(
        (name for name in known if name not in filling.placed and name not in waiting),
        key=lambda name: (name not in where, -owed.get(name, 0.0), name),
    )
    for name in idle:
        job = known[name]
        if not job.checkpointable:
            continue
        fitting = [
            (kind != where.get(name), -speed, at, kind)
            for at, (kind, speed) in enumerate(job.speeds.items())
            if speed > 0 and job.gang <= filling.free.get(filling.settings.pool(kind), 0)
            if filling.has_quota(_spare((name,), kind, known, running=False))
        ]
        if fitting:
            kind = min(fitting)[-1]
            filling.take(_spare((name,), kind, known, running=where.get(name) == kind))


def _spare(
    members: Members, kind: str, known: Mapping[str, RoundJob], *, running: bool
) -> RoundClaim:
    return RoundClaim(
        members=members,
        type=kind,
        gang=known[members[0]].gang,
        promised=0.0,
        running=running,
    )


def _plan(state: RoundState, known: Mapping[str, RoundJob], filled: Filled) -> RoundPlan:
    runs, passed, reserved = filled
    goes = {name: run.type for run in runs for name in run.members}
    kept = {run.members for run in runs if run.kept}
    stops = tuple(
        Stop(
            job=name,
            type=kind,
            moves_to=goes.get(name),
            costs_s=known[name].restart_s + known[name].unsaved_s,
        )
        for members, kind in sorted(state.running.items())
        if members not in kept
        for name in members
    )
    due: dict[str, float] = dict.fromkeys(known, 0.0)
    for (members, _), seconds in state.owed_s.items():
        for name in members:
            due[name] += seconds
    return RoundPlan(
        runs=runs,
        stops=stops,
        waiting=tuple(sorted((n for n in known if n not in goes), key=lambda n: (-due[n], n))),
        reserved=reserved,
        state=RoundState(
            at_s=state.at_s,
            promised=state.promised,
            owed_s=state.owed_s,
            received_s=state.received_s,
            running={run.members: run.type for run in runs},
            skipped={
                name: count
                for name in known
                if name not in goes and (count := state.skipped.get(name, 0) + (name in passed))
            },
        ),
    )
