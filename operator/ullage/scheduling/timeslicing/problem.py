# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The problem that the engine solves, and the hash of its inputs.

Speeds and prices are rounded to a grid, so that drifting measurements do not trigger a new
division.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import numpy as np

from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.workload import WorkloadRecord
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
from ullage.scheduling.timeslicing.contenders import WHOLE, Arena, Runner
from ullage.scheduling.timeslicing.division_cache import DivisionCache
from ullage.scheduling.timeslicing.round_records import isolated_now

_GRID: Final = 0.02
"""Relative step of the grid of speeds and prices."""
_JUST: Final = 1.05
"""Factor by which a deadline may exceed the best speed and still count as reachable: progress is
reported once a minute, and speeds drift."""
_HASH: Final = 16

Fractions = Mapping[str, tuple[tuple[str, str], ...]]
"""Fractions by uid, as the status holds them, sorted by type."""
Pairs = Mapping[tuple[str, str, str], str]
"""Fractions of pairs, by both uids in order and the type; those of both jobs include them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The objective of this cycle.

    Attributes:
        asked: The policy's objective.
        objective: The objective in force.
        unpriced: Types without a price, for which the two differ.
    """

    asked: Objective
    objective: Objective
    unpriced: tuple[str, ...] = ()


def goal_of(policy: PolicyRecord, arena: Arena) -> Goal:
    """The objective in force: one that counts prices needs those of all types that jobs may use."""
    asked_for = Objective(policy.objective)
    if not POLICIES[asked_for].costed:
        return Goal(asked=asked_for, objective=asked_for)
    tables = {id(runner.speeds): runner.speeds for runner in arena.runners.values()}
    used = {kind for speeds in tables.values() for kind in speeds if arena.room.get(kind)}
    missing = tuple(kind for kind in sorted(used) if not arena.prices.get(kind, 0.0) > 0)
    in_force = Objective.MAX_MIN_FAIRNESS if missing else asked_for
    return Goal(asked=asked_for, objective=in_force, unpriced=missing)


def problem_of(
    policy: PolicyRecord,
    goal: Goal,
    arena: Arena,
    previous: tuple[Fractions, Pairs],
    now: float,
    cache: DivisionCache,
) -> Problem:
    """Build the problem of this moment.

    Args:
        policy: The policy in force.
        goal: The objective.
        arena: The jobs that take turns, and the devices.
        previous: Fractions in the statuses of the jobs, and those of pairs.
        now: Seconds since the epoch.
        cache: Jobs of the last problem.
    """
    priced = POLICIES[goal.objective].costed
    types = tuple(
        TypeView(
            name=kind,
            devices=arena.units(room),
            # a unit is a part of a device and costs that part of its price
            dollars_per_hour=arena.prices.get(kind, 0.0) * arena.unit / WHOLE if priced else 0.0,
        )
        for kind, room in arena.room.items()
    )
    iso = isolated_seconds(arena) if goal.objective is Objective.FINISH_TIME_FAIRNESS else {}
    with_deadlines = goal.objective is Objective.MIN_COST_SLO
    clocked = POLICIES[goal.objective].clocked or any(tenant.fifo for tenant in policy.tenants)
    jobs = tuple(
        (
            _job(runner, iso.get(uid, {}), arena, (now, policy.round_seconds), with_deadlines)
            for uid, runner in arena.runners.items()
        )
        if clocked
        else _timeless(arena, cache)
    )
    return Problem(
        jobs=jobs,
        types=types,
        throughputs=ThroughputTable(rates=_rates(arena), pairs=_pair_rows(arena)),
        previous=_in_force(arena, *previous),
        min_service=policy.min_service_percent / WHOLE if priced else 0.0,
        tenants=tenant_views(policy),
    )


def tenant_views(policy: PolicyRecord) -> tuple[TenantView, ...]:
    """The tenants of a policy in the engine's terms."""
    return tuple(
        TenantView(
            name=tenant.name,
            weight=float(tenant.weight),
            inner=Inner.FIFO if tenant.fifo else Inner.FAIRNESS,
        )
        for tenant in policy.tenants
    )


def _in_force(arena: Arena, fractions: Fractions, pairs: Pairs) -> Allocation | None:
    """The previous allocation, without jobs that never had one."""
    if not any(fractions.values()):
        return None
    known_uids = [
        uid
        for uid, runner in arena.runners.items()
        if runner.workload.status.allocation is not None
    ]
    return allocation_of(arena, fractions, pairs, known_uids)


def allocation_of(
    arena: Arena, fractions: Fractions, pairs: Pairs, uids: Iterable[str] | None = None
) -> Allocation:
    """Fractions of some jobs, or of all, in the engine's terms."""
    uids, types = tuple(arena.runners if uids is None else uids), tuple(arena.room)
    column = {kind: at for at, kind in enumerate(types)}
    # equal jobs mostly have the same fractions
    numbers: dict[tuple[tuple[str, str], ...], int] = {}
    which = [numbers.setdefault(fractions[uid], len(numbers)) for uid in uids]
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
    """By uid and type: seconds on an equal part of the cluster that a second on it is worth.

    Source: X^iso = (W_j / n) / s_m, the row rescaled to a sum of at most 1.
    """
    seconds: dict[str, dict[str, float]] = {}
    for uid, runner in arena.runners.items():
        parts = {
            kind: room / len(arena.runners) / runner.points for kind, room in arena.room.items()
        }
        scale = max(1.0, sum(parts.values()))
        rate = sum(runner.worth.get(kind, 0.0) * part / scale for kind, part in parts.items())
        if rate > 0:
            seconds[uid] = {kind: speed / rate for kind, speed in runner.worth.items()}
    return seconds


def inputs_hash(policy: PolicyRecord, goal: Goal, arena: Arena, now: float) -> str:
    """Hash of the inputs of a division, without the previous one."""
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
        lines += [f"{uid} by {_deadline(runner)}" for uid, runner in arena.runners.items()]
    lines += _lines(arena)
    for (left, right), by_type in arena.pairing.forecasts.items():
        lines += [f"{left} + {right} on {kind}: {both}" for kind, both in by_type.items()]
    return sha256("\n".join(lines).encode()).hexdigest()[:_HASH]


def has_unknown_work(runner: Runner) -> bool:
    """True when a job has a deadline and an unknown amount of work."""
    cost = runner.workload.cost
    if cost is None or cost.deadline_s is None:
        return False
    return not (runner.workload.work_steps or cost.estimated_work_s)


def _deadline(runner: Runner) -> float | None:
    """Deadline of a job, seconds since the epoch; ``None`` = none, or its work is unknown."""
    cost = runner.workload.cost
    if cost is None or cost.deadline_s is None or has_unknown_work(runner):
        return None
    return runner.workload.created + cost.deadline_s


def _pair_rows(arena: Arena) -> tuple[PairRow, ...]:
    """Preference of types of two kinds side by side; their preference alone is on the grid."""
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
                gang=arena.units(WHOLE),
                left_rates=tuple(rates[0].tolist()),
                right_rates=tuple(rates[1].tolist()),
            )
        )
    return tuple(rows)


def _timeless(arena: Arena, cache: DivisionCache) -> Iterator[JobView]:
    """Jobs for objectives that do not depend on time; most are reused from the last problem."""
    before, kinds = cache.jobs, arena.pairing.kinds
    after: dict[str, tuple[WorkloadRecord, JobView]] = {}
    for runner in arena.runners.values():
        job, gang = runner.workload, runner.points // arena.unit
        cached, kind = before.get(job.ref.uid), kinds.get(job.ref.uid, "")
        traits = (gang, kind, runner.tenant)
        view = cached[1] if cached is not None else None
        before_traits = (view.gang, view.kind, view.tenant) if view is not None else None
        if cached is None or cached[0] is not job or before_traits != traits:
            view = JobView(
                name=job.ref.uid,
                gang=gang,
                weight=float(job.weight),
                tenant=runner.tenant,
                kind=kind,
            )
            cached = job, view
        after[job.ref.uid] = cached
        yield cached[1]
    cache.jobs = after


def _job(
    runner: Runner,
    iso: Mapping[str, float],
    arena: Arena,
    clock: tuple[float, int],
    with_deadlines: bool,
) -> JobView:
    now, round_s = clock
    job = runner.workload
    steps_left = _steps_left(runner, now, round_s)
    return JobView(
        name=runner.uid,
        gang=arena.units(runner.points),
        weight=float(job.weight),
        steps_left=steps_left,
        age_s=max(0.0, now - job.created),
        isolated_s=isolated_now(job.status.allocation, iso, now),
        deadline_in_s=_time_left(runner, steps_left, now) if with_deadlines else None,
        tenant=runner.tenant,
        kind=arena.pairing.kinds.get(runner.uid, ""),
    )


def _time_left(runner: Runner, steps: float, now: float) -> float | None:
    """Seconds until the deadline, raised to the least time needed when that is nearly reached."""
    at = _deadline(runner)
    if at is None:
        return None
    least_s = steps / (max(runner.speeds.values()) * (1 - _GRID))
    return max(at - now, least_s) if (at - now) * _JUST >= least_s else at - now


def _steps_left(runner: Runner, now: float, round_s: float) -> float:
    """Steps left; for unknown work as many as were done, at least those of a round.

    ``spec.cost.estimatedWork`` counts at the job's best speed.
    """
    job = runner.workload
    done = job.status.progress.steps if job.status.progress is not None else 0
    best = max(runner.speeds.values())
    if job.work_steps:
        return float(max(1, job.work_steps - done))
    if job.cost is not None and job.cost.estimated_work_s:
        return max(1.0, job.cost.estimated_work_s * best - done)
    books = job.status.allocation
    had = sum(received.at(now) for _, received in books.received) if books is not None else 0.0
    return max(float(done), best * max(had, round_s))


def _rates(arena: Arena) -> Floats:
    """Preference of types on the grid, so that equal classes stay equal as measurements drift."""
    # equal jobs share one table
    tables = {id(runner.worth): runner.worth for runner in arena.runners.values()}
    number = {table: at for at, table in enumerate(tables)}
    rows = np.zeros((len(tables), len(arena.room)))
    for row, table in enumerate(tables.values()):
        speeds = [table.get(kind, 0.0) for kind in arena.room]
        rows[row] = [on_grid(speed) for speed in speeds]
    which = [number[id(runner.worth)] for runner in arena.runners.values()]
    return np.asarray(rows[np.array(which, int)])


def on_grid(speed: float) -> float:
    """A speed, price or slowdown on the grid; 0 stays 0."""
    return math.exp(_step(speed) * _GRID) if speed > 0 else 0.0


def _step(value: float) -> int:
    return round(math.log(value) / _GRID)


def _lines(arena: Arena) -> Iterator[str]:
    """Inputs of the division for each job, as lines to hash."""
    by_table: dict[int, str] = {}
    for uid, runner in arena.runners.items():
        # equal jobs share one table
        speeds = by_table.get(id(runner.worth))
        if speeds is None:
            speeds = " ".join(
                f"{kind}={_step(runner.worth[kind])}" for kind in sorted(runner.worth)
            )
            by_table[id(runner.worth)] = speeds
        job = runner.workload
        kind = arena.pairing.kinds.get(uid, "")
        pairs = f" as {kind}" if kind else ""
        yield f"{uid} {arena.units(runner.points)} {job.weight} {runner.tenant} {speeds}{pairs}"
