# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Water filling: the whole vector of levels, lexicographically max-min, over tenants and jobs.

Levels rise together until some job cannot rise; those are frozen and the others go on. A job is
frozen when its row has a positive price, for then it is tight in every optimum (complementarity).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ullage.engines.allocation.answer import answer, guarded, settled
from ullage.engines.allocation.lp import Solved, raise_floors, wanted_rows
from ullage.engines.allocation.model import Allocation, Floats, Inner, Problem, TenantView
from ullage.engines.allocation.policies.max_min import fair_unit
from ullage.engines.allocation.shape import Shape, shape_of

_PRICE: Final = 1e-6
"""Part of the largest price below which a price is rounding; the job then waits one round more."""
_KEPT: Final = 2e-7
"""Part of a level that a later program may give up, so that rounding cannot exclude it."""

_ZERO: Final = 1e-9
"""Level that is none: a queue's next job may find nothing left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """Result of the filling.

    Attributes:
        level: gang * speed / e of one member of each group.
        solved: The last program.
        first: The first rise, which is the max-min objective.
        programs: How many were solved.
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
    # Jobs of a tenant that serves by arrival are told apart by their place in the queue.
    place = np.array(
        [
            float(index + 1) if inner.get(job.tenant) is Inner.FIFO else 0.0
            for index, job in enumerate(problem.jobs)
        ]
    )
    return guarded(problem, _solve, shape_of(problem, place))


def _solve(shape: Shape) -> Allocation:
    filled = fill(shape)
    x = settled(shape, filled.solved, fair_unit(shape) * filled.level)
    return answer(shape, x, objective=filled.first, solved=filled.solved)


def fill(shape: Shape) -> Levels:
    """Raise the levels until no one can rise.

    Raises:
        SolveError: a program had no optimum.
    """
    unit = fair_unit(shape)
    level = np.zeros(shape.groups)
    rising = np.ones(shape.groups, dtype=bool)
    first, programs = 0.0, 0
    while True:
        weight = _weights(shape, rising)
        # The levels leave no freedom to be in the middle of: a corner is as good.
        floor = np.where(level > _ZERO, level * (1 - _KEPT), 0.0)
        solved = raise_floors(shape, unit * weight, unit * floor, corner=True)
        programs += 1
        first = first if programs > 1 else solved.z
        price = np.zeros(shape.groups)
        price[wanted_rows(unit * floor, unit * weight)] = solved.rows
        level = np.where(weight > 0, floor + weight * solved.z, level)
        stuck = (weight > 0) & (price > _PRICE * price[weight > 0].max(initial=0.0))
        if not stuck.any():
            # The prices of the rows sum to 1 by z's own column; without one the solver failed.
            stuck = weight > 0
        rising &= ~stuck
        if not rising.any():
            return Levels(level=level, solved=solved, first=first, programs=programs)


def _weights(shape: Shape, rising: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Floats:
    """How fast each group's level rises: its tenant's weight, divided among those that still do."""
    problem = shape.problem
    tenants = {tenant.name: tenant for tenant in problem.tenants}
    weight = np.zeros(shape.groups)
    names = [problem.jobs[index].tenant for index in shape.first]
    own = shape.of_jobs(np.array([job.weight for job in problem.jobs]))
    for name in sorted(set(names)):
        tenant = tenants.get(name, TenantView(name=name))
        member = np.array([other == name for other in names]) & rising
        if not member.any():
            continue
        if tenant.inner is Inner.FIFO:
            oldest = min(
                np.flatnonzero(member),
                key=lambda group: (
                    -problem.jobs[shape.first[group]].age_s,
                    int(shape.first[group]),
                ),
            )
            weight[oldest] = tenant.weight
        elif problem.tenants:
            weight[member] = tenant.weight * own[member] / (own * shape.count)[member].sum()
        else:
            weight[member] = own[member]
    return weight
