# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The cluster and its jobs as the engine reads them, and what tells one such snapshot from another.

Speeds and prices stand on a grid: what is measured wanders, and must not divide the cluster again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import numpy as np

from ullage.cluster.records.snapshot import PolicyRecord, WorkloadRecord
from ullage.engines.allocation.model import (
    Allocation,
    Floats,
    Inner,
    JobView,
    PairRow,
    PairShare,
    Problem,
    TenantView,
    ThroughputTable,
    TypeView,
)
from ullage.engines.allocation.policies import POLICIES, Objective
from ullage.scheduling.timeslicing.contenders import Arena, Runner
from ullage.scheduling.timeslicing.division_cache import DivisionCache
from ullage.scheduling.timeslicing.round_records import isolated_now

_GRID: Final = 0.02
"""Speeds and prices count as equal within this part."""
_JUST: Final = 1.05
"""A deadline that asks for this much more than the best speed still counts as reachable: progress
is told once a minute, and speeds wander."""
_HASH: Final = 16
_WHOLE: Final = 100

Told = Mapping[str, tuple[tuple[str, str], ...]]
"""Fractions by uid, as the status holds them, sorted by type."""
Pairs = Mapping[tuple[str, str, str], str]
"""Fractions of pairs, by both uids in order and the type; those of both jobs contain them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What is aimed at in this cycle, and what stood in the way of what was asked for.

    Attributes:
        asked: The policy's objective.
        objective: The one in force.
        unpriced: Types whose price is missing; the reason where the two differ.
    """

    asked: Objective
    objective: Objective
    unpriced: tuple[str, ...] = ()


def goal_of(policy: PolicyRecord, arena: Arena) -> Goal:
    """The objective in force: one that weighs prices needs them of all types that jobs may use."""
    asked = Objective(policy.objective)
    if not POLICIES[asked].costed:
        return Goal(asked=asked, objective=asked)
    tables = {id(runner.speeds): runner.speeds for runner in arena.runners.values()}
    used = {kind for speeds in tables.values() for kind in speeds if arena.room.get(kind)}
    missing = tuple(kind for kind in sorted(used) if not arena.prices.get(kind, 0.0) > 0)
    in_force = Objective.MAX_MIN_FAIRNESS if missing else asked
    return Goal(asked=asked, objective=in_force, unpriced=missing)


def problem_of(
    policy: PolicyRecord,
    goal: Goal,
    arena: Arena,
    told: tuple[Told, Pairs],
    now: float,
    cache: DivisionCache,
) -> Problem:
    """The problem of this moment.

    Args:
        policy: The policy in force.
        goal: What is aimed at.
        arena: Who takes part, and what there is.
        told: Fractions that the jobs were told last, and of them those of pairs.
        now: The moment, seconds since the epoch.
        cache: Jobs of the last problem.
    """
    priced = POLICIES[goal.objective].costed
    types = tuple(
        TypeView(
            name=kind,
            devices=arena.units(room),
            # one unit is a part of a device, and costs that part
            dollars_per_hour=arena.prices.get(kind, 0.0) * arena.unit / _WHOLE if priced else 0.0,
        )
        for kind, room in arena.room.items()
    )
    iso = isolated_seconds(arena) if goal.objective is Objective.FINISH_TIME_FAIRNESS else {}
    with_deadlines = goal.objective is Objective.MIN_COST_SLO
    clocked = POLICIES[goal.objective].clocked or any(tenant.fifo for tenant in policy.tenants)
    jobs = tuple(
        (
            _job(one, iso.get(uid, {}), arena, (now, policy.round_seconds), with_deadlines)
            for uid, one in arena.runners.items()
        )
        if clocked
        else _timeless(arena, cache)
    )
    return Problem(
        jobs=jobs,
        types=types,
        throughputs=ThroughputTable(rates=_rates(arena), pairs=_pair_rows(arena)),
        previous=_in_force(arena, *told),
        min_service=policy.min_service_percent / _WHOLE if priced else 0.0,
        tenants=tenant_views(policy),
    )


def tenant_views(policy: PolicyRecord) -> tuple[TenantView, ...]:
    """The tenants of a policy, as the engine sees them."""
    return tuple(
        TenantView(
            name=tenant.name,
            weight=float(tenant.weight),
            inner=Inner.FIFO if tenant.fifo else Inner.FAIRNESS,
        )
        for tenant in policy.tenants
    )


def _in_force(arena: Arena, told: Told, pairs: Pairs) -> Allocation | None:
    """What the jobs were told; who was never told anything is not in it."""
    if not any(told.values()):
        return None
    said = [uid for uid, one in arena.runners.items() if one.workload.status.allocation is not None]
    return allocation_of(arena, told, pairs, said)


def allocation_of(
    arena: Arena, told: Told, pairs: Pairs, uids: Iterable[str] | None = None
) -> Allocation:
    """Told fractions of some jobs, or of all, as the engine reads them."""
    uids, types = tuple(arena.runners if uids is None else uids), tuple(arena.room)
    column = {kind: at for at, kind in enumerate(types)}
    # equals were mostly told the same
    numbers: dict[tuple[tuple[str, str], ...], int] = {}
    which = [numbers.setdefault(told[uid], len(numbers)) for uid in uids]
    rows = np.zeros((len(numbers), len(types)))
    for parts, row in numbers.items():
        for kind, part in parts:
            if kind in column:
                rows[row, column[kind]] = float(part)
    shares = tuple(
        PairShare(left=left, right=right, type=kind, fraction=float(part))
        for (left, right, kind), part in pairs.items()
        if kind in column
    )
    return Allocation(jobs=uids, types=types, fractions=rows[np.array(which, int)], pairs=shares)


def isolated_seconds(arena: Arena) -> dict[str, dict[str, float]]:
    """Seconds alone on an equal part of the cluster that a second on each type is worth.

    Source: X^iso = (W_j / n) / s_m, the row rescaled to a sum of at most 1.
    """
    found: dict[str, dict[str, float]] = {}
    for uid, one in arena.runners.items():
        parts = {kind: room / len(arena.runners) / one.points for kind, room in arena.room.items()}
        scale = max(1.0, sum(parts.values()))
        rate = sum(one.worth.get(kind, 0.0) * part / scale for kind, part in parts.items())
        if rate > 0:
            found[uid] = {kind: speed / rate for kind, speed in one.worth.items()}
    return found


def inputs_hash(policy: PolicyRecord, goal: Goal, arena: Arena, now: float) -> str:
    """What the division rests on, except the one before it."""
    lines = [f"{goal.objective} {policy.tenants!r}"]
    if POLICIES[goal.objective].clocked:
        lines.append(f"round {math.floor(now / policy.round_seconds)}")
    if goal.unpriced:
        lines.append(f"unpriced {goal.unpriced!r}")
    if POLICIES[goal.objective].costed:
        lines.append(f"at least {policy.min_service_percent}")
        prices = {kind: arena.prices.get(kind, 0.0) for kind in arena.room}
        lines += [f"{kind} costs {_step(price)}" for kind, price in prices.items() if price > 0]
    lines += [f"{kind} {arena.units(room)}" for kind, room in arena.room.items()]
    if goal.objective is Objective.MIN_COST_SLO:
        lines += [f"{uid} by {_deadline(one)}" for uid, one in arena.runners.items()]
    lines += _lines(arena)
    for (left, right), by_type in arena.pairing.forecasts.items():
        lines += [f"{left} + {right} on {kind}: {both}" for kind, both in by_type.items()]
    return sha256("\n".join(lines).encode()).hexdigest()[:_HASH]


def has_unknown_work(one: Runner) -> bool:
    """Whether a job has a deadline and nothing says how much it has to do."""
    cost = one.workload.cost
    if cost is None or cost.deadline_s is None:
        return False
    return not (one.workload.work_steps or cost.estimated_work_s)


def _deadline(runner: Runner) -> float | None:
    """When a job has to be done, seconds since the epoch."""
    cost = runner.workload.cost
    if cost is None or cost.deadline_s is None or has_unknown_work(runner):
        return None
    return runner.workload.created + cost.deadline_s


def _pair_rows(arena: Arena) -> tuple[PairRow, ...]:
    """Worth of types to two kinds side by side, on the grid of their worth alone."""
    worth: dict[str, Mapping[str, float]] = {}
    for uid, kind in arena.pairing.kinds.items():
        worth.setdefault(kind, arena.runners[uid].worth)
    rows: list[PairRow] = []
    for (left, right), by_type in arena.pairing.forecasts.items():
        rates = np.zeros((2, len(arena.room)))
        for at, kind in enumerate(arena.room):
            both = by_type.get(kind)
            if both is not None:
                rates[0, at] = on_grid(worth[left].get(kind, 0.0)) / both.slowdowns[0]
                rates[1, at] = on_grid(worth[right].get(kind, 0.0)) / both.slowdowns[1]
        rows.append(
            PairRow(
                left=left,
                right=right,
                gang=arena.units(_WHOLE),
                left_rates=tuple(rates[0].tolist()),
                right_rates=tuple(rates[1].tolist()),
            )
        )
    return tuple(rows)


def _timeless(arena: Arena, cache: DivisionCache) -> Iterator[JobView]:
    """Jobs for objectives that ask nothing of the clock: most are the very ones of before."""
    before, kinds = cache.jobs, arena.pairing.kinds
    after: dict[str, tuple[WorkloadRecord, JobView]] = {}
    for runner in arena.runners.values():
        job, gang = runner.workload, runner.points // arena.unit
        known, kind = before.get(job.ref.uid), kinds.get(job.ref.uid, "")
        said = (gang, kind, runner.tenant)
        if known is None or known[0] is not job or _said(known[1]) != said:
            view = JobView(
                name=job.ref.uid,
                gang=gang,
                weight=float(job.weight),
                tenant=runner.tenant,
                kind=kind,
            )
            known = job, view
        after[job.ref.uid] = known
        yield known[1]
    cache.jobs = after


def _said(view: JobView) -> tuple[float, str, str]:
    return view.gang, view.kind, view.tenant


def _job(
    one: Runner,
    iso: Mapping[str, float],
    arena: Arena,
    clock: tuple[float, int],
    with_deadlines: bool,
) -> JobView:
    now, round_s = clock
    job = one.workload
    left = _steps_left(one, now, round_s)
    return JobView(
        name=one.uid,
        gang=arena.units(one.points),
        weight=float(job.weight),
        steps_left=left,
        age_s=max(0.0, now - job.created),
        isolated_s=isolated_now(job.status.allocation, iso, now),
        deadline_in_s=_time_left(one, left, now) if with_deadlines else None,
        tenant=one.tenant,
        kind=arena.pairing.kinds.get(one.uid, ""),
    )


def _time_left(one: Runner, steps: float, now: float) -> float | None:
    """Seconds until the deadline; no less than it takes at best where that is nearly enough."""
    at = _deadline(one)
    if at is None:
        return None
    least_s = steps / (max(one.speeds.values()) * (1 - _GRID))
    return max(at - now, least_s) if (at - now) * _JUST >= least_s else at - now


def _steps_left(one: Runner, now: float, round_s: float) -> float:
    """Steps still to do; of what nothing is said as many as were done, one round's at least.

    ``spec.cost.estimatedWork`` counts at the job's best speed.
    """
    job = one.workload
    done = job.status.progress.steps if job.status.progress is not None else 0
    best = max(one.speeds.values())
    if job.work_steps:
        return float(max(1, job.work_steps - done))
    if job.cost is not None and job.cost.estimated_work_s:
        return max(1.0, job.cost.estimated_work_s * best - done)
    books = job.status.allocation
    had = sum(received.at(now) for _, received in books.received) if books is not None else 0.0
    return max(float(done), best * max(had, round_s))


def _rates(arena: Arena) -> Floats:
    """Worth of types on a grid: equal classes stay equal while their measurements wander."""
    # alike jobs share one table
    tables = {id(runner.worth): runner.worth for runner in arena.runners.values()}
    number = {table: at for at, table in enumerate(tables)}
    rows = np.zeros((len(tables), len(arena.room)))
    for row, table in enumerate(tables.values()):
        speeds = [table.get(kind, 0.0) for kind in arena.room]
        rows[row] = [on_grid(speed) for speed in speeds]
    which = [number[id(runner.worth)] for runner in arena.runners.values()]
    return np.asarray(rows[np.array(which, int)])


def on_grid(speed: float) -> float:
    """A speed on the grid, steps/s; 0 stays 0."""
    return math.exp(_step(speed) * _GRID) if speed > 0 else 0.0


def _step(value: float) -> int:
    return round(math.log(value) / _GRID)


def _lines(arena: Arena) -> Iterator[str]:
    """What of each job the division rests on."""
    said: dict[int, str] = {}
    for uid, one in arena.runners.items():
        # alike jobs share one table
        speeds = said.get(id(one.worth))
        if speeds is None:
            speeds = " ".join(f"{kind}={_step(one.worth[kind])}" for kind in sorted(one.worth))
            said[id(one.worth)] = speeds
        job = one.workload
        kind = arena.pairing.kinds.get(uid, "")
        pairs = f" as {kind}" if kind else ""
        yield f"{uid} {arena.units(one.points)} {job.weight} {one.tenant} {speeds}{pairs}"
