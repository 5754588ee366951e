# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Water filling: the whole vector of levels, lexicographically max-min, over tenants and jobs.

Levels rise together, each up to its job's best; jobs at their best leave the rise to others of
their tenant, so levels follow a path that is known beforehand (``climb``). A phase finds the
highest point of the path that devices allow, by cuts from above; jobs that are short of devices
there are frozen, and the others continue. The number of phases is that of shortages, not of jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ullage.engines.allocation.answer import answer, guarded, settled
from ullage.engines.allocation.lp import Bools, Solved, SolveError, raise_floors, wanted_rows
from ullage.engines.allocation.model import Allocation, Floats, Inner, Problem
from ullage.engines.allocation.policies.climb import Climb, climb
from ullage.engines.allocation.policies.max_min import fair_unit
from ullage.engines.allocation.shape import ProblemShape, shape_of

_PRICE: Final = 1e-6
"""Fraction of the largest price that counts as rounding; the job then waits one more phase."""
_CLOSE: Final = 1e-8
"""Fraction of a level that may be missing by rounding."""
_ZERO: Final = 1e-7
"""Smallest rise as a fraction of its best: less would need a row of huge numbers."""
_KEPT: Final = 3e-8
"""Fraction of a frozen level that a later phase may lose, so that rounding cannot exclude it."""
_CUTS: Final = 200
"""Most programs of one phase; a few are usual."""
_HALVINGS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """Result of the filling.

    Attributes:
        level: gang * speed / e of one member of each group.
        solved: The last program.
        first: The first rise, which is the max-min objective.
        programs: Number of programs solved.
    """

    level: Floats
    solved: Solved
    first: float
    programs: int


def solve(problem: Problem) -> Allocation:
    """Hierarchical max-min fairness; the objective is the first rise (that of plain max-min).

    Source: water filling over normalised effective throughput (Gavel, OSDI 2020), increment form.

    Raises:
        SolveError: no optimum, and no earlier allocation to keep.
    """
    inner = {tenant.name: tenant.inner for tenant in problem.tenants}
    # Jobs of a tenant with FIFO order are distinguished by their place in the queue.
    place = np.array(
        [
            float(index + 1) if inner.get(job.tenant) is Inner.FIFO else 0.0
            for index, job in enumerate(problem.jobs)
        ]
    )
    return guarded(problem, _solve, shape_of(problem, place))


def _solve(shape: ProblemShape) -> Allocation:
    filled = fill(shape)
    # The result of the last program is below its levels by rounding.
    floors = np.minimum(fair_unit(shape) * filled.level, shape.speed @ filled.solved.x)
    x = settled(shape, filled.solved, floors)
    return answer(shape, x, objective=filled.first, solved=filled.solved)


def fill(shape: ProblemShape) -> Levels:
    """Raise the levels until none can rise.

    Raises:
        SolveError: a program had no optimum.
    """
    unit = fair_unit(shape)
    level, rising = np.zeros(shape.groups), np.ones(shape.groups, dtype=bool)
    open_columns = np.ones(shape.columns, dtype=bool)
    best = _best(shape, open_columns) / unit
    first = raise_floors(shape, unit * climb(shape, level, best, rising).rates(), corner=True).z
    programs = 1
    while True:
        highest = _highest(shape, unit, climb(shape, level, best, rising))
        programs += highest.programs
        level = highest.level
        open_columns &= ~highest.closed
        best = np.maximum(_best(shape, open_columns) / unit, level)
        stuck = rising & (highest.short | (level >= best * (1 - _CLOSE)))
        rising &= ~(stuck if stuck.any() else rising)
        if not rising.any():
            return Levels(level=level, solved=highest.solved, first=first, programs=programs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Highest:
    """The highest point of a path.

    Attributes:
        level: Of each group there.
        short: Groups that are tight in every optimum there: they are short of devices.
        short: Groups that are tight in every optimum there: they lack devices.
        solved: The program at that point.
        programs: Number of programs solved.
    """

    level: Floats
    short: Bools
    closed: Bools
    solved: Solved
    programs: int


def _highest(shape: ProblemShape, unit: Floats, path: Climb) -> _Highest:
    """The highest point of a path that devices allow.

    A point is infeasible if its levels cannot all be reached at once. The program that finds the
    feasible fraction of them has prices that exclude the point, and all above the height at which
    the levels cost exactly what there is (a cutting plane; derived): the search continues there.
    Where the last cut is tight, complementary slackness holds for its prices: a group with a price
    cannot rise further, and a column that costs more than it yields is unused.

    Raises:
        SolveError: a program had no optimum, or the search did not end.
    """
    height, short = path.top, np.zeros(shape.groups, dtype=bool)
    closed = np.zeros(shape.columns, dtype=bool)
    least = _ZERO * path.best
    floors = unit * np.where(path.level > least, path.level * (1 - _KEPT), 0.0)
    for programs in range(1, _CUTS + 1):
        level = path.at(height)
        rise = np.where(level - path.level > least, unit * level - floors, 0.0)
        stands = not rise.any()  # nothing rises: solve the same point once more
        solved = raise_floors(shape, *((floors,) if stands else (rise, floors)), corner=True)
        if stands or solved.z >= 1 - _CLOSE:
            return _Highest(
                level=level, short=short, closed=closed, solved=solved, programs=programs
            )
        rows, price = wanted_rows(floors, rise), np.zeros(shape.groups)
        price[rows] = solved.rows / np.maximum(rise, floors)[rows]
        short, closed = _slack(shape, price, solved)
        height = _paid(path, price * unit, float(price @ (floors + rise * solved.z)), height)
    raise SolveError(f"the levels were not found by {_CUTS} programs")


def _slack(shape: ProblemShape, price: Floats, solved: Solved) -> tuple[Bools, Bools]:
    """Groups that are tight, and columns that are idle, wherever a cut is tight.

    Complementary slackness; a price counts relative to the cost of the same time on the most
    expensive devices, because prices of jobs of very different speeds differ as much.

    Args:
        shape: Groups and columns.
        price: Of a step/s of one member of each group, shape (groups,).
        solved: The program of the cut.
    """
    cost = shape.base.T @ np.concatenate([solved.time, solved.devices])
    brings = shape.speed.T @ price
    dear = np.maximum(shape.gang[shape.left] * solved.devices.max(initial=0.0), cost)
    tight = np.zeros(shape.groups, dtype=bool)
    tight[shape.left[brings > _PRICE * dear]] = True
    return tight & (price > 0), cost - brings > _PRICE * dear


def _paid(path: Climb, price: Floats, room: float, above: float) -> float:
    """The largest height below a bound at which the levels fit the room.

    Args:
        path: Levels by height.
        price: Of a unit of level of one member of each group, shape (groups,).
        room: Upper bound of the cost of all levels.
        above: A height at which they cost more.
    """
    low, high = 0.0, above
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if float(price @ path.at(middle)) <= room:
            low = middle
        else:
            high = middle
    return low


def _best(shape: ProblemShape, columns: Bools) -> Floats:
    """Steps/s of one member with all of its time on the best of some columns, (groups,)."""
    speed, time = shape.speed.tocoo(), shape.base[: shape.groups].tocsr()
    each = speed.data / np.asarray(time[speed.row, speed.col]).ravel()
    best = np.zeros(shape.groups)
    np.maximum.at(best, speed.row, np.where(columns[speed.col], each, 0.0))
    return best
