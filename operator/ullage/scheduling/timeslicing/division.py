# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How the cluster's time is divided among those who take turns.

Divided again only when jobs, speeds, prices or devices changed; until then what the jobs were told
stands, so a leader that starts again goes on with the same division. A solver that fails never
stops a decision: the last division stands, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

import numpy as np

from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.snapshot import PolicyRecord
from ullage.cluster.records.status import (
    MOST_PAIRS,
    AllocationRecord,
    DroppedDeadline,
    PairRecord,
    SolveRecord,
)
from ullage.engines.allocation.lp import SolveError
from ullage.engines.allocation.model import (
    Allocation,
    DroppedSLO,
    Problem,
    ProblemError,
    SolveResult,
)
from ullage.engines.allocation.policies import Objective
from ullage.engines.allocation.policies import allocate as divide_by
from ullage.scheduling.timeslicing.contenders import Arena, Runner
from ullage.scheduling.timeslicing.division_cache import DivisionCache
from ullage.scheduling.timeslicing.problem import (
    Goal,
    Pairs,
    allocation_of,
    goal_of,
    has_unknown_work,
    inputs_hash,
    isolated_seconds,
    problem_of,
)
from ullage.scheduling.timeslicing.round_records import as_text, number

Allocate = Callable[[Objective, Problem], Allocation]
"""Divides by an objective; the engine's unless someone wants to look on."""


def solved(
    objective: Objective, problem: Problem, allocate: Allocate | None, cache: DivisionCache
) -> Allocation:
    """The engine's answer; what was told before, or equal parts, where it has none."""
    if not problem.jobs:
        return Allocation(
            jobs=(),
            types=tuple(kind.name for kind in problem.types),
            fractions=np.zeros((0, len(problem.types))),
            result=SolveResult.NOTHING_TO_DIVIDE,
        )
    key = (objective, _Key(problem), allocate)
    allocation = cache.answer(key)
    if allocation is None:  # a problem stands until its answer was written and read back
        allocation = _answer(objective, problem, allocate)
        cache.keep(key, allocation)
    return allocation


class _Key:
    """A problem as a key: equal content, equal key."""

    __slots__ = ("_content", "_hash")

    def __init__(self, problem: Problem) -> None:
        previous = problem.previous
        said: tuple[object, ...] = (
            problem.jobs,
            problem.types,
            problem.tenants,
            problem.min_service,
            problem.throughputs.rates.tobytes(),
            problem.throughputs.pairs,
        )
        if previous is not None:
            said += (previous.jobs, previous.types, previous.fractions.tobytes(), previous.pairs)
        self._content = said
        # a hash may be of less than what is compared: names and numbers tell problems apart
        self._hash = hash((tuple(job.name for job in problem.jobs), *said[1:]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other._content == self._content

    def __hash__(self) -> int:
        return self._hash


def _answer(objective: Objective, problem: Problem, allocate: Allocate | None) -> Allocation:
    try:
        return (allocate or divide_by)(objective, problem)
    except (SolveError, ProblemError):
        if problem.previous is not None:
            return replace(problem.previous, result=SolveResult.KEPT_LAST)
    gangs = np.array([float(job.gang) for job in problem.jobs])
    room = np.array([float(kind.devices) for kind in problem.types])
    able = (problem.throughputs.rates > 0) & (gangs[:, None] <= room[None, :])
    wanted = np.maximum((able * gangs[:, None]).sum(axis=0), 1.0)
    table = able * np.minimum(1.0, room / wanted)[None, :]
    table /= np.maximum(table.sum(axis=1, keepdims=True), 1.0)
    return Allocation(
        jobs=tuple(job.name for job in problem.jobs),
        types=tuple(kind.name for kind in problem.types),
        fractions=table,
        result=SolveResult.KEPT_LAST,
    )


FIFO: Final = Objective.FIFO.value
FELL_BACK: Final = "FellBack"
"""Result of a division by another objective than the one asked for."""
SAME: Final = 0.01
"""Fractions that differ by less are not worth a write (not measured)."""
_HASH: Final = 16

_NOT_WORTH: Final = 0.005
"""Pairs of less time are left out: a turn lasts a round at least (not measured)."""

_Parts = tuple[tuple[str, str], ...]
"""Fractions of one job as its status holds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """The fractions in force.

    Attributes:
        goal: What they aim at.
        fractions: By uid, as the status holds them, sorted by type.
        effective: Steps/s that they amount to, by uid.
        normalised: The same against a proportional part of the cluster.
        isolated: By uid, seconds on an equal part that one second on each type is worth; empty
            where the objective does not count them.
        pairs: Of the fractions, those that are spent beside another job.
        partners: The same by uid: the other job, type and fraction.
        dropped: Deadlines that they do not keep, by uid.
        record: What the policy's status should say; the very record of before where it says it.
        allocation: The same fractions for the engine.
    """

    goal: Goal
    fractions: Mapping[str, tuple[tuple[str, str], ...]]
    effective: Mapping[str, float]
    normalised: Mapping[str, float]
    isolated: Mapping[str, Mapping[str, float]]
    pairs: Pairs
    partners: Mapping[str, Sequence[tuple[str, str, str]]]
    dropped: Mapping[str, DroppedDeadline]
    record: SolveRecord | None
    allocation: Allocation


@dataclass(frozen=True, slots=True, kw_only=True)
class _StatusFractions:
    """What jobs are told: fractions by uid, those of pairs, and deadlines that are not kept."""

    fractions: Mapping[str, tuple[tuple[str, str], ...]]
    pairs: Pairs
    dropped: Mapping[str, DroppedDeadline]

    def digest(self) -> str:
        """Hash by which it is seen that some was lost."""
        lines = [f"{uid} {self.fractions[uid]!r}\n" for uid in sorted(self.fractions)]
        lines += [f"{uid} {self.dropped[uid].cause}\n" for uid in sorted(self.dropped)]
        lines += [f"{pair} {self.pairs[pair]}\n" for pair in sorted(self.pairs)]
        return sha256("".join(lines).encode()).hexdigest()[:_HASH]


def divide(
    policy: PolicyRecord, arena: Arena, now: float, allocate: Allocate | None, cache: DivisionCache
) -> Division:
    """The division for this cycle: that of before where nothing it rests on changed."""
    goal = goal_of(policy, arena)
    inputs = inputs_hash(policy, goal, arena, now)
    told = _read_statuses(arena)
    last = policy.last_solve
    if last is not None and last.inputs_hash == inputs and last.fractions_hash == told.digest():
        return _division(arena, goal, told, last)
    problem = problem_of(policy, goal, arena, (told.fractions, told.pairs), now, cache)
    found = solved(goal.objective, problem, allocate, cache)
    fractions, pairs = _rewritten(told, found)
    said = _StatusFractions(
        fractions=fractions, pairs=pairs, dropped=_dropped(goal, arena, found, told)
    )
    result = found.result.value
    if goal.unpriced and found.result is SolveResult.OPTIMAL:
        result = FELL_BACK
    record = SolveRecord(
        time=whole_second(now),
        result=result,
        jobs=len(arena.runners),
        objective_value=number(found.objective, 6) if math.isfinite(found.objective) else "",
        inputs_hash=inputs,
        fractions_hash=said.digest(),
        prices=as_text(found.capacity_prices),
        dropped=len(said.dropped),
    )
    return _division(arena, goal, said, record)


def _read_statuses(arena: Arena) -> _StatusFractions:
    """What the statuses of the jobs say."""
    known = {uid: one.workload.status.allocation for uid, one in arena.runners.items()}
    return _StatusFractions(
        fractions={uid: one.fractions if one is not None else () for uid, one in known.items()},
        pairs={
            (uid, pair.partner_uid, pair.accelerator): pair.fraction
            for uid, one in known.items()
            for pair in (one.pairs if one is not None else ())
            if pair.fraction
            and uid < pair.partner_uid
            and _says(known, pair.partner_uid, uid, pair)
        },
        dropped={
            uid: one.dropped
            for uid, one in known.items()
            if one is not None and one.dropped is not None
        },
    )


def _says(
    known: Mapping[str, AllocationRecord | None], partner: str, uid: str, pair: PairRecord
) -> bool:
    """Whether the other one was told the same of the pair."""
    books = known.get(partner)
    other = (uid, pair.accelerator)
    return books is not None and any(
        one.cell == other and one.fraction == pair.fraction for one in books.pairs
    )


def _rewritten(told: _StatusFractions, found: Allocation) -> tuple[dict[str, _Parts], Pairs]:
    """New fractions, and those of pairs; what stayed about the same stays the words of before.

    A job that the answer does not name (a kept answer names no newcomers) is told nothing new.
    """
    said = dict(told.fractions)
    kept, lost = _pairs(found)
    pairs = {
        pair: before if (before := told.pairs.get(pair)) and _alike(before, time) else number(time)
        for pair, time in kept.items()
    }
    rows: Sequence[list[float]] = found.fractions.tolist()
    known: dict[tuple[_Parts, tuple[float, ...]], _Parts] = {}
    for uid, row in zip(found.jobs, rows, strict=True):
        for kind, time in lost.get(uid, {}).items():
            at = found.types.index(kind)
            row[at] = max(0.0, row[at] - time)
        # equals are given the same, and mostly were told the same
        key = told.fractions[uid], tuple(row)
        parts = known.get(key)
        if parts is None:
            fresh = dict(zip(found.types, row, strict=True))
            parts = known[key] = retold(key[0], fresh)
        said[uid] = parts
    return said, pairs


def _pairs(
    found: Allocation,
) -> tuple[dict[tuple[str, str, str], float], dict[str, dict[str, float]]]:
    """Time of each pair that is worth a turn, and by job and type the time of those that are not.

    A job has as many pairs as its status holds.
    """
    times: dict[tuple[str, str, str], float] = {}
    for pair in found.pairs:
        left, right = sorted((pair.left, pair.right))
        times[left, right, pair.type] = times.get((left, right, pair.type), 0.0) + pair.fraction
    kept: dict[tuple[str, str, str], float] = {}
    lost: dict[str, dict[str, float]] = {}
    count: dict[str, int] = {}
    for key, time in sorted(times.items(), key=lambda item: (-item[1], item[0])):
        both, kind = key[:2], key[2]
        if time >= _NOT_WORTH and all(count.get(uid, 0) < MOST_PAIRS for uid in both):
            kept[key] = time
            for uid in both:
                count[uid] = count.get(uid, 0) + 1
            continue
        for uid in both:
            less = lost.setdefault(uid, {})
            less[kind] = less.get(kind, 0.0) + time
    return kept, lost


def _alike(told: str, fresh: float) -> bool:
    return abs(float(told) - fresh) <= SAME


def retold(before: tuple[tuple[str, str], ...], fresh: Mapping[str, float]) -> _Parts:
    """Fractions of a job as it is told them: the words of before where they are about the same.

    Args:
        before: What it was told last; empty = nothing.
        fresh: Fractions by type.
    """
    return before if _close(before, fresh) else as_text(fresh)


def _close(told: _Parts, fresh: Mapping[str, float]) -> bool:
    """Whether new fractions are about what was told."""
    before = dict(told)
    return bool(before) and all(
        abs(float(before.get(kind, "0")) - fresh.get(kind, 0.0)) <= SAME
        for kind in before.keys() | fresh.keys()
    )


def _dropped(
    goal: Goal, arena: Arena, found: Allocation, told: _StatusFractions
) -> dict[str, DroppedDeadline]:
    """Deadlines that are not kept; what the solver could not look at stays as it was told."""
    if goal.objective is not Objective.MIN_COST_SLO:
        return {}
    if found.result is SolveResult.KEPT_LAST:
        return dict(told.dropped)
    now = {dropped.job: _words(dropped) for dropped in found.dropped}
    unknown = DroppedDeadline(cause="WorkUnknown")
    now |= {uid: unknown for uid, one in arena.runners.items() if has_unknown_work(one)}
    before = told.dropped
    # the speeds are as of when it was found; new ones alone are not worth a write
    return {
        uid: before[uid] if uid in before and before[uid].cause == one.cause else one
        for uid, one in now.items()
    }


def _words(dropped: DroppedSLO) -> DroppedDeadline:
    needed, best = dropped.needed_steps_per_s, dropped.best_steps_per_s
    cause = "TooSlow" if needed > best else "Contended"
    return DroppedDeadline(
        cause=cause if math.isfinite(needed) else "Passed",
        needed=number(needed) if math.isfinite(needed) else "",
        best=number(best),
        approximate=dropped.approximate,
    )


def _division(
    arena: Arena, goal: Goal, said: _StatusFractions, record: SolveRecord | None
) -> Division:
    total = sum(arena.room.values())
    effective: dict[str, float] = {}
    normalised: dict[str, float] = {}
    known: dict[tuple[int, _Parts], tuple[float, float]] = {}
    for uid, one in arena.runners.items():
        # alike jobs share one table of speeds, and mostly one promise
        key = id(one.speeds), said.fractions[uid]
        both = known.get(key)
        if both is None:
            rate = sum(one.speeds.get(kind, 0.0) * float(part) for kind, part in key[1])
            fair = _fair(one, arena)
            both = known[key] = rate, rate * total / fair if fair > 0 else 0.0
        effective[uid], normalised[uid] = both
    for (left, right, kind), part in said.pairs.items():
        side = arena.pairing.together(left, right, kind)
        if side is None:
            continue
        for uid, slowdown in zip((left, right), side.slowdowns, strict=True):
            lost = arena.runners[uid].speeds.get(kind, 0.0) * (1 - 1 / slowdown) * float(part)
            fair = _fair(arena.runners[uid], arena)
            effective[uid] -= lost
            normalised[uid] -= lost * total / fair if fair > 0 else 0.0
    counts_alone = goal.objective is Objective.FINISH_TIME_FAIRNESS
    return Division(
        goal=goal,
        fractions=said.fractions,
        effective=effective,
        normalised=normalised,
        isolated=isolated_seconds(arena) if counts_alone else {},
        pairs=said.pairs,
        partners=_partners(said.pairs),
        dropped=said.dropped,
        record=record,
        allocation=allocation_of(arena, said.fractions, said.pairs),
    )


def _partners(pairs: Pairs) -> dict[str, list[tuple[str, str, str]]]:
    found: dict[str, list[tuple[str, str, str]]] = {}
    for (left, right, kind), part in pairs.items():
        found.setdefault(left, []).append((right, kind, part))
        found.setdefault(right, []).append((left, kind, part))
    return found


def _fair(runner: Runner, arena: Arena) -> float:
    """Speed on every device of the cluster in turn, summed."""
    return sum(runner.speeds.get(kind, 0.0) * room for kind, room in arena.room.items())
