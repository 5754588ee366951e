# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the deadlines that can be met together: drops the fewest, and names each.

It promises rates, not finish times; a job whose deadline is dropped keeps its floor.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from ullage.engines.allocation.lp import SolveError
from ullage.engines.allocation.model import DroppedSLO, Floats, Ints, Problem
from ullage.engines.allocation.shape import ProblemShape

Flags = NDArray[np.bool_]

MILP_SECONDS: Final = 2.0
MILP_NODES: Final = 500
"""Branches of the search: a machine-independent bound, reached long before the time limit."""
MOST_WEIGHED: Final = 400
"""Most deadlines compared exactly; beyond it, those with the largest shortfall are dropped."""
_MISSED: Final = 1e-6


def needed_rates(problem: Problem) -> Floats:
    """Steps/s that each job needs for its deadline; 0 without one, inf where it has passed."""
    return np.array(
        [
            0.0
            if job.deadline_in_s is None
            else job.steps_left / job.deadline_in_s
            if job.deadline_in_s > 0
            else np.inf
            for job in problem.jobs
        ]
    )


def keepable(shape: ProblemShape, needed: Floats) -> tuple[Floats, tuple[DroppedSLO, ...]]:
    """The rates to promise (0 where dropped) and what was dropped.

    Each job with a deadline must be a group of its own. A linear program shows when all can be met;
    else a mixed-integer one drops the fewest within limits, and past these the linear one, which
    minimises the total shortfall instead; the result then says so (derived).

    Args:
        shape: Groups and columns.
        needed: Steps/s that each job needs to meet its deadline, 0 without one, shape (jobs,).

    Returns:
        Steps/s of each job, shape (jobs,), and the dropped deadlines.

    Raises:
        SolveError: neither program was solved.
    """
    group_needs = np.where(shape.count > 0, shape.of_jobs(needed), 0.0)
    alone = shape.rate.max(axis=1)
    hopeless = group_needs > alone * (1 + 1e-12)
    asked = np.flatnonzero((group_needs > 0) & ~hopeless)
    lost, rough = np.zeros(0, bool), False
    if len(asked):
        lost, rough = _fewest(shape, asked, group_needs[asked])
    missed = np.sort(np.concatenate([np.flatnonzero(hopeless), asked[lost]]))
    kept = needed.copy()
    kept[shape.first[missed]] = 0.0
    kept[shape.group_of < 0] = 0.0
    dropped = tuple(
        DroppedSLO(
            job=shape.problem.jobs[shape.first[group]].name,
            needed_steps_per_s=float(group_needs[group]),
            best_steps_per_s=float(alone[group]),
            approximate=rough and not hopeless[group],
        )
        for group in missed
    )
    return kept, dropped


def _fewest(shape: ProblemShape, asked: Ints, needs: Floats) -> tuple[Flags, bool]:
    """The deadlines to drop, and a flag: these need not be the fewest."""
    rows, columns = len(asked), shape.columns
    base, speed = shape.base.tocoo(), shape.speed[asked].tocoo()
    # speed / need + given up >= 1, written as an upper limit.
    matrix = scipy.sparse.coo_array(
        (
            np.concatenate([base.data, -speed.data / needs[speed.row], -np.ones(rows)]),
            (
                np.concatenate(
                    [base.row, speed.row + base.shape[0], np.arange(rows) + base.shape[0]]
                ),
                np.concatenate([base.col, speed.col, np.arange(rows) + columns]),
            ),
        ),
        shape=(base.shape[0] + rows, columns + rows),
    ).tocsr()
    limits = np.concatenate([shape.base_limits, -np.ones(rows)])
    goal = np.concatenate([np.zeros(columns), np.ones(rows)])
    loose = scipy.optimize.linprog(goal, A_ub=matrix, b_ub=limits, method="highs-ipm")
    if loose.status != 0:
        raise SolveError(str(loose.message))
    lost = np.asarray(loose.x[columns:] > _MISSED)
    if not lost.any():
        return lost, False
    if rows > MOST_WEIGHED:
        return lost, True
    whole = scipy.optimize.milp(
        goal,
        integrality=goal,
        bounds=scipy.optimize.Bounds(0, np.where(goal > 0, 1.0, np.inf)),
        constraints=scipy.optimize.LinearConstraint(
            scipy.sparse.csr_array(matrix), -np.inf, limits
        ),
        options={"time_limit": MILP_SECONDS, "node_limit": MILP_NODES},
    )
    if whole.status == 0:
        return np.asarray(whole.x[columns:] > 0.5), False
    return lost, True
