# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Goals that are sums over jobs: most normalised throughput, oldest first, shortest first.

Raw steps/s of different models are never added; each job counts in units of its own best speed.
"""

from __future__ import annotations

import numpy as np

from ullage.engines.allocation.answer import answer, guarded, settled
from ullage.engines.allocation.lp import Extra, maximise
from ullage.engines.allocation.model import Allocation, Floats, Problem
from ullage.engines.allocation.shape import ProblemShape, shape_of


def max_throughput(problem: Problem) -> Allocation:
    """Max sum of speed / best speed; the objective is that sum (derived).

    Raises:
        SolveError: no optimum, and no earlier allocation to keep.
    """
    shape = shape_of(problem)
    return guarded(problem, lambda shape: _solve(shape, np.ones(shape.groups)), shape)


def fifo(problem: Problem) -> Allocation:
    """Oldest first: max sum of (M - rank) / M * speed / best speed, rank 0 = the oldest.

    Derived; an earlier arrival gives a larger weight.

    Raises:
        SolveError: no optimum, and no earlier allocation to keep.
    """
    keys = [(-job.age_s, job.name) for job in problem.jobs]
    return _by_rank(problem, sorted(range(len(keys)), key=keys.__getitem__))


def sjf(problem: Problem) -> Allocation:
    """Shortest first, by the time of a job on its best type; ranks as in ``fifo``.

    Raises:
        SolveError: no optimum, and no earlier allocation to keep.
    """
    best = problem.throughputs.rates.max(axis=1, initial=0.0)
    keys = [
        (job.steps_left / speed if speed > 0 else np.inf, job.name)
        for job, speed in zip(problem.jobs, best.tolist(), strict=True)
    ]
    return _by_rank(problem, sorted(range(len(keys)), key=keys.__getitem__))


def _by_rank(problem: Problem, order: list[int]) -> Allocation:
    worth = np.zeros(len(order))
    worth[order] = 1.0 - np.arange(len(order)) / max(len(order), 1)
    shape = shape_of(problem, worth)
    return guarded(problem, lambda shape: _solve(shape, shape.of_jobs(worth)), shape)


def normalised_gain(shape: ProblemShape, worth: Floats) -> Floats:
    """Goal of each column: speeds in units of each job's best.

    Args:
        shape: Groups and columns.
        worth: Weight of each group at its best speed, shape (groups,).

    Returns:
        Goal per unit of time of each column, shape (columns,).
    """
    unit = worth / shape.rate.max(axis=1)
    right = np.where(shape.right >= 0, unit[shape.right], 0.0)
    return np.asarray(unit[shape.left] * shape.left_rate + right * shape.right_rate)


def _solve(shape: ProblemShape, worth: Floats) -> Allocation:
    gain = normalised_gain(shape, worth)
    none = Extra(speeds=shape.speed[:0], tail=np.zeros(0), limits=np.zeros(0))
    solved = maximise(shape, gain, 0.0, none)
    x = settled(shape, solved, np.zeros(shape.groups), gain, solved.value)
    return answer(shape, x, objective=solved.value, solved=solved)
