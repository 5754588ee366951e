# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Max-min fairness (least attained service): the worst-off job is as well off as can be.

Only the smallest level is determined; for the whole vector of levels there is water filling.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ullage.engines.allocation.answer import answer, guarded, settled
from ullage.engines.allocation.lp import raise_floors
from ullage.engines.allocation.model import Allocation, Floats, Problem
from ullage.engines.allocation.shape import ProblemShape, shape_of

_SPARE: Final = 1e-9
"""Minimum spare time of a job, as a fraction, for its time to be no limit."""


def solve(problem: Problem) -> Allocation:
    """Max z with gang / weight * speed / e >= z for each job; the objective is z.

    Source: max-min fairness over normalised effective throughput (Gavel, OSDI 2020).

    Raises:
        SolveError: no optimum, and no earlier allocation to keep.
    """
    return _short_of_one_type(problem) or guarded(problem, _solve, shape_of(problem))


def _short_of_one_type(problem: Problem) -> Allocation | None:
    """Closed-form optimum of jobs that are short of devices of a single type, without a program.

    Jobs get devices by weight: z is devices over weights (derived). ``None`` with several types or
    pairs, or when a job has time to spare and the optimum is therefore not unique.
    """
    if problem.throughputs.pairs or problem.centre is not None:
        return None
    weight = np.array([job.weight for job in problem.jobs], float)
    sizes = np.array([kind.devices for kind in problem.types], float)
    rates = problem.throughputs.rates
    gang = np.array([job.gang for job in problem.jobs], float)
    fractions = by_weight(gang, weight, rates, sizes)
    if fractions is None:
        return None
    names = tuple(job.name for job in problem.jobs)
    (kind,) = problem.types
    return Allocation(
        jobs=names,
        types=(kind.name,),
        fractions=fractions,
        objective=float(sizes[0] / weight.sum()),
        capacity_prices={kind.capacity_row: float(1 / weight.sum())},
        time_prices=dict.fromkeys(names, 0.0),
        effective=dict(zip(names, (rates * fractions)[:, 0].tolist(), strict=True)),
    )


def by_weight(gang: Floats, weight: Floats, rates: Floats, sizes: Floats) -> Floats | None:
    """Fractions of jobs that are short of devices of a single type.

    Args:
        gang: Devices of each job.
        weight: Of each job.
        rates: Steps/s of each job on each type.
        sizes: Devices of each type.

    Returns:
        Time of each job on the type; ``None`` with several types or when a job has time to spare.
    """
    if len(sizes) != 1 or not len(gang):
        return None
    if not ((rates[:, 0] > 0) & (gang <= sizes[0])).all():
        return None
    time = weight * float(sizes[0] / weight.sum()) / gang
    return None if time.max() > 1 - _SPARE else time[:, None]


def _solve(shape: ProblemShape) -> Allocation:
    unit = fair_unit(shape) * shape.of_jobs(np.array([j.weight for j in shape.problem.jobs]))
    solved = raise_floors(shape, unit)
    x = settled(shape, solved, unit * solved.z)
    return answer(shape, x, objective=solved.z, solved=solved)


def fair_unit(shape: ProblemShape) -> Floats:
    """Steps/s of one member that count as level 1: e / gang (Gavel, OSDI 2020)."""
    return shape.proportional / shape.gang
