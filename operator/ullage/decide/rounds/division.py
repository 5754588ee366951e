# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How the cluster's time is divided among those who take turns.

Divided anew only when jobs, speeds or devices changed; until then what the jobs were told stands,
so a leader that starts anew goes on with the same division. A solver that fails never stops a
decision: the last division stands, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import Final

import numpy as np

from ullage.decide.rounds.books import as_text, isolated_now, number
from ullage.decide.rounds.runners import Arena, Runner
from ullage.engines.allocation.model import (
    Allocation,
    Floats,
    Inner,
    JobView,
    Objective,
    Problem,
    ProblemError,
    Result,
    TenantView,
    Throughputs,
    TypeView,
)
from ullage.state.records import PolicyRecord
from ullage.state.status import SolveRecord
from ullage.state.status_wire import whole_second

Allocate = Callable[[Objective, Problem], Allocation]
"""Divides by an objective; the engine's unless somebody wants to look on."""

FIFO: Final = Objective.FIFO.value
_OF_THE_CLOCK: Final = (Objective.FINISH_TIME_FAIRNESS, Objective.MAKESPAN, Objective.SJF)
"""Objectives that look at work left or time gone: divided anew every round."""
_SAME: Final = 0.01
"""Fractions that differ by less are not worth a write (our choice)."""
_GRID: Final = 0.02
"""Speeds count as equal within this part: they are measured and wander."""
_HASH: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """The fractions in force.

    Attributes:
        fractions: By uid, as the status holds them, sorted by type.
        effective: Steps/s that they amount to, by uid.
        normalised: The same against a proportional part of the cluster.
        isolated: By uid, seconds on an equal part that one second on each type is worth; empty
            where the objective does not count them.
        record: What the policy's status should say; the very record of before where it says it.
        allocation: The same fractions for the engine.
    """

    fractions: Mapping[str, tuple[tuple[str, str], ...]]
    effective: Mapping[str, float]
    normalised: Mapping[str, float]
    isolated: Mapping[str, Mapping[str, float]]
    record: SolveRecord | None
    allocation: Allocation


def divide(
    policy: PolicyRecord, arena: Arena, now: float, allocate: Allocate | None = None
) -> Division:
    """The division for this cycle: that of before where nothing it rests on changed."""
    objective = Objective(policy.objective)
    inputs = _inputs_hash(policy, objective, arena, now)
    told = {uid: _told(one) for uid, one in arena.runners.items()}
    last = policy.last_solve
    if (
        last is not None
        and last.inputs_hash == inputs
        and last.fractions_hash == _fractions_hash(told)
    ):
        return _division(arena, objective, told, last)
    problem = _problem(policy, objective, arena, now)
    solved = _solved(objective, problem, allocate)
    said: dict[str, tuple[tuple[str, str], ...]] = {}
    for uid in arena.runners:
        fresh = solved.of(uid)
        before = dict(told[uid])
        same = told[uid] and all(
            abs(float(before.get(kind, "0")) - fresh.get(kind, 0.0)) <= _SAME
            for kind in before.keys() | fresh.keys()
        )
        said[uid] = told[uid] if same else as_text(fresh)
    record = SolveRecord(
        time=whole_second(now),
        result=solved.result.value,
        jobs=len(arena.runners),
        objective_value=number(solved.objective, 6) if math.isfinite(solved.objective) else "",
        inputs_hash=inputs,
        fractions_hash=_fractions_hash(said),
        prices=as_text(solved.capacity_prices),
    )
    return _division(arena, objective, said, record)


def isolated_seconds(arena: Arena) -> dict[str, dict[str, float]]:
    """Seconds alone on an equal part of the cluster that a second on each type is worth.

    Source: X^iso = (W_j / n) / s_m, the row rescaled to a sum of at most 1.
    """
    found: dict[str, dict[str, float]] = {}
    for uid, one in arena.runners.items():
        parts = {kind: room / len(arena.runners) / one.points for kind, room in arena.room.items()}
        scale = max(1.0, sum(parts.values()))
        rate = sum(one.speeds.get(kind, 0.0) * part / scale for kind, part in parts.items())
        if rate > 0:
            found[uid] = {kind: speed / rate for kind, speed in one.speeds.items()}
    return found


def _told(runner: Runner) -> tuple[tuple[str, str], ...]:
    known = runner.workload.status.allocation
    return known.fractions if known is not None else ()


def _division(
    arena: Arena,
    objective: Objective,
    said: Mapping[str, tuple[tuple[str, str], ...]],
    record: SolveRecord | None,
) -> Division:
    total = sum(arena.room.values())
    effective: dict[str, float] = {}
    normalised: dict[str, float] = {}
    for uid, one in arena.runners.items():
        rate = sum(one.speeds.get(kind, 0.0) * float(part) for kind, part in said[uid])
        fair = sum(one.speeds.get(kind, 0.0) * room for kind, room in arena.room.items())
        effective[uid] = rate
        normalised[uid] = rate * total / fair if fair > 0 else 0.0
    return Division(
        fractions=said,
        effective=effective,
        normalised=normalised,
        isolated=(isolated_seconds(arena) if objective is Objective.FINISH_TIME_FAIRNESS else {}),
        record=record,
        allocation=_allocation(arena, said),
    )


def _allocation(arena: Arena, said: Mapping[str, tuple[tuple[str, str], ...]]) -> Allocation:
    """Told fractions as the engine reads them."""
    uids, types = tuple(arena.runners), tuple(arena.room)
    column = {kind: at for at, kind in enumerate(types)}
    table = np.zeros((len(uids), len(types)))
    for row, uid in enumerate(uids):
        for kind, part in said[uid]:
            if kind in column:
                table[row, column[kind]] = float(part)
    return Allocation(jobs=uids, types=types, fractions=table)


def _problem(policy: PolicyRecord, objective: Objective, arena: Arena, now: float) -> Problem:
    types = tuple(
        TypeView(name=kind, devices=arena.units(room)) for kind, room in arena.room.items()
    )
    iso = isolated_seconds(arena) if objective is Objective.FINISH_TIME_FAIRNESS else {}
    jobs = tuple(
        _job(one, iso.get(uid, {}), arena, policy, now) for uid, one in arena.runners.items()
    )
    before = {uid: _told(one) for uid, one in arena.runners.items()}
    return Problem(
        jobs=jobs,
        types=types,
        throughputs=Throughputs(rates=_rates(arena)),
        previous=_allocation(arena, before) if any(before.values()) else None,
        tenants=tuple(
            TenantView(
                name=one.name,
                weight=float(one.weight),
                inner=Inner.FIFO if one.fifo else Inner.FAIRNESS,
            )
            for one in policy.tenants
        ),
    )


def _job(
    one: Runner, iso: Mapping[str, float], arena: Arena, policy: PolicyRecord, now: float
) -> JobView:
    job = one.workload
    books = job.status.allocation
    return JobView(
        name=one.uid,
        gang=arena.units(one.points),
        weight=float(job.weight),
        steps_left=_steps_left(one, now, policy.round_seconds),
        age_s=max(0.0, now - job.created),
        isolated_s=isolated_now(books, iso.get(one.holds, 0.0), now),
        tenant=job.tenant,
    )


def _steps_left(one: Runner, now: float, round_s: float) -> float:
    """Steps still to do; without spec.work as many as were done, one round's at least."""
    job = one.workload
    done = job.status.progress.steps if job.status.progress is not None else 0
    if job.work_steps:
        return float(max(1, job.work_steps - done))
    books = job.status.allocation
    best = max(one.speeds.values())
    had = sum(received.at(now) for _, received in books.received) if books is not None else 0.0
    return max(float(done), best * max(had, round_s))


def _rates(arena: Arena) -> Floats:
    """Speeds on a grid, so that equal classes stay equal while their measurements wander."""
    table = np.zeros((len(arena.runners), len(arena.room)))
    for row, one in enumerate(arena.runners.values()):
        for at, kind in enumerate(arena.room):
            speed = one.speeds.get(kind, 0.0)
            if speed > 0:
                table[row, at] = math.exp(_step(speed) * _GRID)
    return table


def _step(speed: float) -> int:
    return round(math.log(speed) / _GRID)


def _solved(objective: Objective, problem: Problem, allocate: Allocate | None) -> Allocation:
    """The engine's answer; what was told before, or equal parts, where it has none."""
    if not problem.jobs:
        return Allocation(
            jobs=(),
            types=tuple(kind.name for kind in problem.types),
            fractions=np.zeros((0, len(problem.types))),
            result=Result.NOTHING_TO_DIVIDE,
        )
    return _answer(objective, _Key(problem), allocate)


class _Key:
    """A problem as a key: equal content, equal key."""

    __slots__ = ("_digest", "problem")

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        previous = problem.previous
        found = sha256(repr((problem.jobs, problem.types, problem.tenants)).encode())
        found.update(problem.throughputs.rates.tobytes())
        if previous is not None:
            found.update(repr((previous.jobs, previous.types)).encode())
            found.update(previous.fractions.tobytes())
        self._digest = found.digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other._digest == self._digest

    def __hash__(self) -> int:
        return hash(self._digest)


@lru_cache(maxsize=4)
def _answer(objective: Objective, key: _Key, allocate: Allocate | None) -> Allocation:
    """The same problem is solved once, however many cycles pass until its answer was written."""
    # scipy takes a moment and much memory to import: clusters that queue by FIFO never do
    from ullage.engines.allocation.lp import SolveError
    from ullage.engines.allocation.policies import allocate as divide_by

    problem = key.problem
    try:
        return (allocate or divide_by)(objective, problem)
    except (SolveError, ProblemError):
        if problem.previous is not None:
            return replace(problem.previous, result=Result.KEPT_LAST)
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
        result=Result.KEPT_LAST,
    )


def _inputs_hash(policy: PolicyRecord, objective: Objective, arena: Arena, now: float) -> str:
    """What the division rests on, except the one before it."""
    lines = [f"{objective} {policy.tenants!r}"]
    if objective in _OF_THE_CLOCK:
        lines.append(f"round {math.floor(now / policy.round_seconds)}")
    lines += [f"{kind} {arena.units(room)}" for kind, room in arena.room.items()]
    lines += [_line(one, arena) for one in arena.runners.values()]
    return sha256("\n".join(lines).encode()).hexdigest()[:_HASH]


def _line(one: Runner, arena: Arena) -> str:
    speeds = " ".join(f"{kind}={_step(one.speeds[kind])}" for kind in sorted(one.speeds))
    job = one.workload
    return f"{one.uid} {arena.units(one.points)} {job.weight} {job.tenant} {speeds}"


def _fractions_hash(said: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    found = sha256()
    for uid in sorted(said):
        found.update(f"{uid} {said[uid]!r}\n".encode())
    return found.hexdigest()[:_HASH]
