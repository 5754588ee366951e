# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Finish-time fairness (Themis): bounds the finish time relative to an equal part of the cluster.

rho = (age + left / speed) / (isolated so far + left / isolated speed); weights have no effect.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ullage.engines.allocation.answer import answer, guarded, settled
from ullage.engines.allocation.lp import Solved, raise_floors
from ullage.engines.allocation.model import Allocation, Floats, Problem
from ullage.engines.allocation.shape import ProblemShape, shape_of

_STEPS: Final = 60
_CLOSE: Final = 1e-8
"""Relative width of the bracket at which the search ends."""


def solve(problem: Problem) -> Allocation:
    """Min max rho; the objective is rho (Themis), by bisection over programs (derived).

    Raises:
        SolveError: no optimum, and no earlier allocation to keep.
    """
    left = np.array([job.steps_left for job in problem.jobs])
    age = np.array([job.age_s for job in problem.jobs])
    done = np.array([job.isolated_s for job in problem.jobs])
    return guarded(problem, _solve, shape_of(problem, left, age, done))


def _solve(shape: ProblemShape) -> Allocation:
    jobs = shape.problem.jobs
    left = shape.of_jobs(np.array([job.steps_left for job in jobs]))
    age = shape.of_jobs(np.array([job.age_s for job in jobs]))
    base = shape.of_jobs(np.array([job.isolated_s for job in jobs])) + left / shape.isolated
    low = float(((age + left / shape.rate.max(axis=1)) / base).max())
    high = float(((age + left / shape.isolated) / base).max())
    best, solution = high, None
    rho = low
    for _ in range(_STEPS):
        needed = left / (rho * base - age)
        solved = raise_floors(shape, needed, corner=True)
        reached = float(((age + left / (shape.speed @ solved.x)) / base).max())
        if solution is None or reached < best:
            best, solution = min(best, reached), solved
        low = _root(shape, solved, (left, age, base), rho, low)
        if best - low <= _CLOSE * best:
            break
        # The dual's bound converges from below at Newton's rate; bisection guards against slow
        # progress.
        rho = low if low > rho * (1 + _CLOSE) else 0.5 * (low + best)
    assert solution is not None
    floors = left / (best * base - age)
    if shape.problem.centre is not None:
        solution = raise_floors(shape, floors)
    x = settled(shape, solution, floors)
    return answer(shape, x, objective=best, solved=solution)


def _root(
    shape: ProblemShape,
    solved: Solved,
    terms: tuple[Floats, Floats, Floats],
    rho: float,
    low: float,
) -> float:
    """Smallest rho from ``low`` on that the row prices of a solve at ``rho`` do not exclude.

    With prices y of the rows speed >= z * needed(rho), every allocation has sum y * speed <= bound;
    so sum y * needed(r) <= bound for every reachable r. Derived (duality). Newton on a convex
    decreasing function always ends left of the root: the result is a lower bound.
    """
    left, age, base = terms
    prices = np.maximum(solved.rows, 0.0) / (left / (rho * base - age))
    bound = float(
        np.maximum(solved.time, 0.0) @ np.ones(shape.groups)
        + np.maximum(solved.devices, 0.0) @ shape.capacity
    )
    for _ in range(_STEPS):
        gap = rho * base - age
        over = float(prices @ (left / gap)) - bound
        slope = float(prices @ (left * base / gap**2))
        if slope <= 0 or (over < 0 and rho <= low):
            return low
        if abs(over) <= 1e-13 * bound:
            break
        rho = max(low, rho + over / slope)
    return max(low, rho)
