# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Maps the program's columns back to jobs: an allocation, checked against V, or the last good one.

It decides nothing; a point that breaks a constraint by more than the tolerance is rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ullage.engines.allocation.lp import HELD, Solved, SolveError, nearest
from ullage.engines.allocation.model import (
    FEASIBLE,
    Allocation,
    DroppedSLO,
    Floats,
    PairShare,
    Problem,
    SolveResult,
)
from ullage.engines.allocation.pairs import as_before, beside_before, partners
from ullage.engines.allocation.shape import ProblemShape


def settled(
    shape: ProblemShape,
    solved: Solved,
    floors: Floats,
    gain: Floats | None = None,
    value: float = 0.0,
) -> Floats:
    """The optimum that is nearest to the allocation in force; the solver's own without one.

    Args:
        shape: Groups and columns.
        solved: An optimum.
        floors: Minimum steps/s of one member in every optimum to choose from, shape (groups,).
        gain: Goal of each column, shape (columns,), where the goal is a sum.
        value: Value of that sum.

    Returns:
        Time of each column, shape (columns,).
    """
    target = held(shape)
    if target is None:
        return solved.x
    goal = np.zeros(shape.columns) if gain is None else gain
    slack = HELD * abs(value)
    try:
        return nearest(shape, floors * (1 - HELD), target, goal, value - slack)
    except SolveError:
        return solved.x


def held(shape: ProblemShape) -> Floats | None:
    """Time of each column in the allocation in force; ``None`` without a usable one.

    Jobs that it does not name get the average of its jobs of the same group: equal jobs always get
    equal time, so a newcomer that counted as zero would move the existing ones.
    """
    previous = shape.problem.previous
    if previous is None or not previous.jobs:
        return None
    group = dict(zip((job.name for job in shape.problem.jobs), shape.group_of, strict=True))
    column = {kind.name: index for index, kind in enumerate(shape.problem.types)}
    alone = np.zeros((shape.groups, len(column)))
    known = [
        (row, group[name]) for row, name in enumerate(previous.jobs) if group.get(name, -1) >= 0
    ]
    common = [(index, column[name]) for index, name in enumerate(previous.types) if name in column]
    if not known or not common:
        return None
    rows, groups = np.array(known).T
    for old, new in common:
        np.add.at(alone[:, new], groups, previous.fractions[rows, old])
    wider = shape.count / np.maximum(np.bincount(groups, minlength=shape.groups), 1)
    beside: dict[tuple[int, int, int], float] = {}
    for pair in previous.pairs:
        ends = group.get(pair.left, -1), group.get(pair.right, -1)
        if min(ends) < 0 or pair.type not in column:
            continue
        kind = column[pair.type]
        for end in ends:
            alone[end, kind] -= pair.fraction
        key = (min(ends), max(ends), kind)
        beside[key] = beside.get(key, 0.0) + pair.fraction
    target = np.where(shape.right < 0, alone[shape.left, shape.kind], 0.0) * wider[shape.left]
    if beside:
        for index in np.flatnonzero(shape.right >= 0):
            ends = int(shape.left[index]), int(shape.right[index])
            time = beside.get((min(ends), max(ends), int(shape.kind[index])), 0.0)
            target[index] = time * min(wider[ends[0]], wider[ends[1]])
    return np.maximum(target, 0.0)


def answer(
    shape: ProblemShape,
    x: Floats,
    *,
    objective: float,
    solved: Solved | None = None,
    dropped: tuple[DroppedSLO, ...] = (),
) -> Allocation:
    """Columns as fractions of jobs.

    Args:
        shape: Groups and columns.
        x: Time of each column, a sum over the members of its group, shape (columns,).
        objective: Value reached, in the unit of the objective.
        solved: Duals of the last solve; ``None`` = no prices are reported.
        dropped: Deadlines that are missed.

    Raises:
        SolveError: the point violates V by more than the tolerance.
    """
    problem = shape.problem
    top = shape.count[shape.left] / np.where(shape.left == shape.right, 2.0, 1.0)
    x = np.clip(x, 0.0, top)
    residual = float(max(0.0, (shape.base @ x - shape.base_limits).max(initial=0.0)))
    if residual > FEASIBLE * max(1.0, float(shape.capacity.max(initial=0.0))):
        raise SolveError(f"the solver's point breaks a constraint by {residual:.2e}")
    each = np.zeros((shape.groups, len(problem.types)))
    np.add.at(each, (shape.left, shape.kind), x / shape.count[shape.left])
    paired = np.flatnonzero((shape.right >= 0) & (x > 0))
    ends = shape.right[paired]
    np.add.at(each, (ends, shape.kind[paired]), x[paired] / shape.count[ends])
    able = np.flatnonzero(shape.group_of >= 0)
    fractions = np.zeros((len(problem.jobs), len(problem.types)))
    fractions[able] = np.clip(each, 0.0, 1.0)[shape.group_of[able]]
    speed = shape.speed @ x
    names = [job.name for job in problem.jobs]
    return Allocation(
        jobs=tuple(names),
        types=tuple(kind.name for kind in problem.types),
        fractions=fractions,
        pairs=_pairs(shape, x),
        objective=objective,
        residual=residual,
        unplaceable=tuple(names[index] for index in np.flatnonzero(shape.group_of < 0)),
        dropped=dropped,
        capacity_prices={} if solved is None else _priced(shape.pools, solved.devices),
        time_prices={}
        if solved is None
        else _priced([names[i] for i in able], solved.time[shape.group_of[able]]),
        effective=dict(
            zip([names[i] for i in able], speed[shape.group_of[able]].tolist(), strict=True)
        ),
    )


def guarded(
    problem: Problem, solve: Callable[[ProblemShape], Allocation], shape: ProblemShape
) -> Allocation:
    """A policy's answer; the last good allocation where the solver found no optimum.

    Args:
        problem: The problem, with the allocation in force.
        solve: The policy.
        shape: Groups and columns of the problem.

    Raises:
        SolveError: the solver failed and there is no earlier allocation to keep.
    """
    if not shape.groups:
        return nothing(problem)
    try:
        return solve(shape)
    except (SolveError, ArithmeticError) as wrong:
        if problem.previous is None:
            raise SolveError(f"no allocation yet to fall back on: {wrong}") from wrong
        return replace(problem.previous, result=SolveResult.KEPT_LAST)


def nothing(problem: Problem) -> Allocation:
    """The allocation of a cluster on which no job can run."""
    names = tuple(job.name for job in problem.jobs)
    return Allocation(
        jobs=names,
        types=tuple(kind.name for kind in problem.types),
        fractions=np.zeros((len(names), len(problem.types))),
        result=SolveResult.NOTHING_TO_DIVIDE,
        unplaceable=names,
    )


def _priced(names: list[str] | tuple[str, ...], prices: Floats) -> dict[str, float]:
    return dict(zip(names, np.maximum(prices, 0.0).tolist(), strict=True))


def _pairs(shape: ProblemShape, x: Floats) -> tuple[PairShare, ...]:
    paired = np.flatnonzero((shape.right >= 0) & (x > 0))
    if not len(paired):
        return ()
    members: dict[int, list[str]] = {}
    for job, group in zip(shape.problem.jobs, shape.group_of.tolist(), strict=True):
        members.setdefault(group, []).append(job.name)
    before: dict[str, list[str]] = {}
    previous = shape.problem.previous
    for pair in previous.pairs if previous is not None else ():
        before.setdefault(pair.left, []).append(pair.right)
        before.setdefault(pair.right, []).append(pair.left)
    types = [kind.name for kind in shape.problem.types]
    shares: list[PairShare] = []
    for index in paired:
        left, right = members[int(shape.left[index])], members[int(shape.right[index])]
        if left is right:
            left = right = as_before(left, before)
        else:
            right = beside_before(left, right, before)
        shares.extend(partners(left, right, types[shape.kind[index]], float(x[index])))
    return tuple(shares)
