# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Makespan: the last of the present jobs finishes as early as possible."""

from __future__ import annotations

import numpy as np

from ullage.engines.allocation.answer import answer, guarded, settled
from ullage.engines.allocation.lp import raise_floors
from ullage.engines.allocation.model import Allocation, Floats, Problem
from ullage.engines.allocation.shape import ProblemShape, shape_of


def solve(problem: Problem) -> Allocation:
    """Max y with speed >= y * steps left, one program; the objective is 1 / y in seconds.

    Derived: the last job finishes after 1 / y if each finishes by then.

    Raises:
        SolveError: no optimum, and no earlier allocation to keep.
    """
    return guarded(problem, _solve, shape_of(problem, _steps(problem)))


def _steps(problem: Problem) -> Floats:
    return np.array([job.steps_left for job in problem.jobs])


def _solve(shape: ProblemShape) -> Allocation:
    left = shape.of_jobs(_steps(shape.problem))
    # In units of the shortest time alone, so that y is near 1.
    alone = float((left / shape.rate.max(axis=1)).max())
    solved = raise_floors(shape, left / alone)
    x = settled(shape, solved, left / alone * solved.z)
    return answer(shape, x, objective=alone / solved.z, solved=solved)
