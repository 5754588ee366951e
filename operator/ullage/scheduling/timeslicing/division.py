# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Division of the cluster's time among the jobs that take turns.

It is solved again only when jobs, speeds, prices or devices changed. Until then the fractions in
the statuses are in force, so that a new leader continues with the same division. When the solver
fails, the last division stays in force, and its record has the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

import numpy as np

from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.policy import PolicyRecord
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

FIFO: Final = Objective.FIFO.value
FELL_BACK: Final = "FellBack"
"""Result of a division by another objective than that of the policy."""
SAME: Final = 0.01
"""Minimum change of a fraction that is written (not measured)."""
_HASH: Final = 16
_NOT_WORTH: Final = 0.005
"""Minimum time of a pair; a turn lasts at least a round (not measured)."""
_Parts = tuple[tuple[str, str], ...]
"""Fractions of one job as its status holds them."""
Allocate = Callable[[Objective, Problem], Allocation]
"""Function that divides by an objective; the engine's unless a caller observes it."""


def solved(
    objective: Objective, problem: Problem, allocate: Allocate | None, cache: DivisionCache
) -> Allocation:
    """The engine's answer; if it has none, the previous division or equal parts."""
    if not problem.jobs:
        return Allocation(
            jobs=(),
            types=tuple(kind.name for kind in problem.types),
            fractions=np.zeros((0, len(problem.types))),
            result=SolveResult.NOTHING_TO_DIVIDE,
        )
    key = (objective, _Key(problem), allocate)
    allocation = cache.answer(key)
    if allocation is None:  # a problem recurs until its answer was written and read back
        allocation = _answer(objective, problem, allocate)
        cache.keep(key, allocation)
    return allocation


class _Key:
    """A problem as a key: equal content, equal key."""

    __slots__ = ("_content", "_hash")

    def __init__(self, problem: Problem) -> None:
        previous = problem.previous
        content: tuple[object, ...] = (
            problem.jobs,
            problem.types,
            problem.tenants,
            problem.min_service,
            problem.throughputs.rates.tobytes(),
            problem.throughputs.pairs,
        )
        if previous is not None:
            content += (previous.jobs, previous.types, previous.fractions.tobytes(), previous.pairs)
        self._content = content
        # the hash covers names instead of whole jobs, which is enough to distinguish problems
        self._hash = hash((tuple(job.name for job in problem.jobs), *content[1:]))

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """The fractions in force.

    Attributes:
        goal: Their objective.
        fractions: By uid, as the status holds them, sorted by type.
        effective: Steps/s that they amount to, by uid.
        normalised: ``effective`` relative to a proportional part of the cluster.
        isolated: By uid, seconds on an equal part that one second on each type is worth; empty
            unless the objective counts them.
        pairs: The part of the fractions that is spent beside another job.
        partners: ``pairs`` by uid: the other job, type and fraction.
        dropped: Deadlines that they do not keep, by uid.
        record: The record for the policy's status; the previous object if nothing changed.
        allocation: The fractions in the engine's terms.
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
    """Contents of the jobs' statuses: fractions, those of pairs, and dropped deadlines."""

    fractions: Mapping[str, tuple[tuple[str, str], ...]]
    pairs: Pairs
    dropped: Mapping[str, DroppedDeadline]

    def digest(self) -> str:
        """Hash that detects lost or edited statuses."""
        lines = [f"{uid} {self.fractions[uid]!r}\n" for uid in sorted(self.fractions)]
        lines += [f"{uid} {self.dropped[uid].cause}\n" for uid in sorted(self.dropped)]
        lines += [f"{pair} {self.pairs[pair]}\n" for pair in sorted(self.pairs)]
        return sha256("".join(lines).encode()).hexdigest()[:_HASH]


def divide(
    policy: PolicyRecord, arena: Arena, now: float, allocate: Allocate | None, cache: DivisionCache
) -> Division:
    """The division of this cycle; the previous one if none of its inputs changed."""
    goal = goal_of(policy, arena)
    inputs = inputs_hash(policy, goal, arena, now)
    before = _read_statuses(arena)
    last = policy.last_solve
    if last is not None and last.inputs_hash == inputs and last.fractions_hash == before.digest():
        return _division(arena, goal, before, last)
    problem = problem_of(policy, goal, arena, (before.fractions, before.pairs), now, cache)
    allocation = solved(goal.objective, problem, allocate, cache)
    fractions, pairs = _rewritten(before, allocation)
    after = _StatusFractions(
        fractions=fractions, pairs=pairs, dropped=_dropped(goal, arena, allocation, before)
    )
    result = allocation.result.value
    if goal.unpriced and allocation.result is SolveResult.OPTIMAL:
        result = FELL_BACK
    record = SolveRecord(
        time=whole_second(now),
        result=result,
        jobs=len(arena.runners),
        objective_value=number(allocation.objective, 6)
        if math.isfinite(allocation.objective)
        else "",
        inputs_hash=inputs,
        fractions_hash=after.digest(),
        prices=as_text(allocation.capacity_prices),
        dropped=len(after.dropped),
    )
    return _division(arena, goal, after, record)


def _read_statuses(arena: Arena) -> _StatusFractions:
    """Fractions, pairs and dropped deadlines from the statuses of the jobs."""
    records = {uid: runner.workload.status.allocation for uid, runner in arena.runners.items()}
    return _StatusFractions(
        fractions={
            uid: record.fractions if record is not None else () for uid, record in records.items()
        },
        pairs={
            (uid, pair.partner_uid, pair.accelerator): pair.fraction
            for uid, record in records.items()
            for pair in (record.pairs if record is not None else ())
            if pair.fraction
            and uid < pair.partner_uid
            and _agrees(records, pair.partner_uid, uid, pair)
        },
        dropped={
            uid: record.dropped
            for uid, record in records.items()
            if record is not None and record.dropped is not None
        },
    )


def _agrees(
    records: Mapping[str, AllocationRecord | None], partner: str, uid: str, pair: PairRecord
) -> bool:
    """True when the partner's status has the same fraction for the pair."""
    books = records.get(partner)
    other = (uid, pair.accelerator)
    return books is not None and any(
        theirs.cell == other and theirs.fraction == pair.fraction for theirs in books.pairs
    )


def _rewritten(
    statuses: _StatusFractions, allocation: Allocation
) -> tuple[dict[str, _Parts], Pairs]:
    """New fractions, and those of pairs; values that hardly changed keep their text.

    A job that the answer does not name keeps its fractions: a kept answer has no new jobs.
    """
    fractions = dict(statuses.fractions)
    times, lost = _pairs(allocation)
    pairs = {
        pair: text
        if (text := statuses.pairs.get(pair)) and abs(float(text) - time) <= SAME
        else number(time)
        for pair, time in times.items()
    }
    rows: Sequence[list[float]] = allocation.fractions.tolist()
    cache: dict[tuple[_Parts, tuple[float, ...]], _Parts] = {}
    for uid, row in zip(allocation.jobs, rows, strict=True):
        for kind, time in lost.get(uid, {}).items():
            at = allocation.types.index(kind)
            row[at] = max(0.0, row[at] - time)
        # equal jobs get the same fractions, and mostly had the same
        key = statuses.fractions[uid], tuple(row)
        parts = cache.get(key)
        if parts is None:
            fresh = dict(zip(allocation.types, row, strict=True))
            parts = cache[key] = fraction_texts(key[0], fresh)
        fractions[uid] = parts
    return fractions, pairs


def _pairs(
    allocation: Allocation,
) -> tuple[dict[tuple[str, str, str], float], dict[str, dict[str, float]]]:
    """Time of each pair worth a turn, and the time of the other pairs by job and type.

    A job has at most the ``MOST_PAIRS`` that its status holds.
    """
    times: dict[tuple[str, str, str], float] = {}
    for pair in allocation.pairs:
        left, right = sorted((pair.left, pair.right))
        times[left, right, pair.type] = times.get((left, right, pair.type), 0.0) + pair.fraction
    kept_times: dict[tuple[str, str, str], float] = {}
    lost: dict[str, dict[str, float]] = {}
    count: dict[str, int] = {}
    for key, time in sorted(times.items(), key=lambda item: (-item[1], item[0])):
        both, kind = key[:2], key[2]
        if time >= _NOT_WORTH and all(count.get(uid, 0) < MOST_PAIRS for uid in both):
            kept_times[key] = time
            for uid in both:
                count[uid] = count.get(uid, 0) + 1
            continue
        for uid in both:
            less = lost.setdefault(uid, {})
            less[kind] = less.get(kind, 0.0) + time
    return kept_times, lost


def fraction_texts(before: tuple[tuple[str, str], ...], fresh: Mapping[str, float]) -> _Parts:
    """Fractions of a job for its status; the previous ones if they hardly changed.

    Args:
        before: Its previous fractions; empty = none.
        fresh: New fractions by type.
    """
    written = dict(before)
    close = all(
        abs(float(written.get(kind, "0")) - fresh.get(kind, 0.0)) <= SAME
        for kind in written.keys() | fresh.keys()
    )
    return before if before and close else as_text(fresh)


def _dropped(
    goal: Goal, arena: Arena, allocation: Allocation, statuses: _StatusFractions
) -> dict[str, DroppedDeadline]:
    """Deadlines that are missed; the previous ones when the solver failed."""
    if goal.objective is not Objective.MIN_COST_SLO:
        return {}
    if allocation.result is SolveResult.KEPT_LAST:
        return dict(statuses.dropped)
    now = {dropped.job: _words(dropped) for dropped in allocation.dropped}
    unknown = DroppedDeadline(cause="WorkUnknown")
    now |= {uid: unknown for uid, runner in arena.runners.items() if has_unknown_work(runner)}
    before = statuses.dropped
    # new speeds alone are not worth a write
    return {
        uid: before[uid] if uid in before and before[uid].cause == deadline.cause else deadline
        for uid, deadline in now.items()
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
    arena: Arena, goal: Goal, statuses: _StatusFractions, record: SolveRecord | None
) -> Division:
    total = sum(arena.room.values())
    effective: dict[str, float] = {}
    normalised: dict[str, float] = {}
    cache: dict[tuple[int, _Parts], tuple[float, float]] = {}
    for uid, runner in arena.runners.items():
        # equal jobs share a table of speeds, and mostly have the same fractions
        key = id(runner.speeds), statuses.fractions[uid]
        both = cache.get(key)
        if both is None:
            rate = sum(runner.speeds.get(kind, 0.0) * float(part) for kind, part in key[1])
            fair = _fair(runner, arena)
            both = cache[key] = rate, rate * total / fair if fair > 0 else 0.0
        effective[uid], normalised[uid] = both
    partners: dict[str, list[tuple[str, str, str]]] = {}
    for (left, right, kind), part in statuses.pairs.items():
        partners.setdefault(left, []).append((right, kind, part))
        partners.setdefault(right, []).append((left, kind, part))
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
        fractions=statuses.fractions,
        effective=effective,
        normalised=normalised,
        isolated=isolated_seconds(arena) if counts_alone else {},
        pairs=statuses.pairs,
        partners=partners,
        dropped=statuses.dropped,
        record=record,
        allocation=allocation_of(arena, statuses.fractions, statuses.pairs),
    )


def _fair(runner: Runner, arena: Arena) -> float:
    """Sum of the speeds on every device of the cluster."""
    return sum(runner.speeds.get(kind, 0.0) * room for kind, room in arena.room.items())
