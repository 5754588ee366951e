# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Max-min fairness (least attained service): the worst-off job is as well off as can be.

Only the smallest level is determined; for the whole vector of levels there is water filling.
"""

from __future__ import annotations

import numpy as np

from ullage.engines.allocation.answer import answer, guarded, settled
from ullage.engines.allocation.lp import raise_floors
from ullage.engines.allocation.model import Allocation, Floats, Problem
from ullage.engines.allocation.shape import Shape, shape_of


def solve(problem: Problem) -> Allocation:
    """Max z with gang / weight * speed / e >= z for each job; the objective is z.

    Source: max-min fairness over normalised effective throughput (Gavel, OSDI 2020).

    Raises:
        SolveError: no optimum, and no earlier allocation to keep.
    """
    return guarded(problem, _solve, shape_of(problem))


def _solve(shape: Shape) -> Allocation:
    unit = fair_unit(shape) * shape.of_jobs(np.array([j.weight for j in shape.problem.jobs]))
    solved = raise_floors(shape, unit)
    x = settled(shape, solved, unit * solved.z)
    return answer(shape, x, objective=solved.z, solved=solved)


def fair_unit(shape: Shape) -> Floats:
    """Steps/s of one member that count as level 1: e / gang (Gavel, OSDI 2020)."""
    return shape.proportional / shape.gang
