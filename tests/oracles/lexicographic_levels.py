# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Levels of jobs by the definition of water filling, one dense program after the other.

In each round the levels of those that rise go up together; then each of them is asked, by a program
of its own, whether it could rise alone while all others keep theirs. Slow, for a few jobs.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from ullage.engines.allocation.model import Floats, Inner, Problem, TenantView

ALONE = 1e-7
"""What a job must be able to rise by on its own to go on."""


def levels(problem: Problem) -> Floats:
    """gang * speed / e of each job; jobs that no type can run stay at 0."""
    sizes = np.array([kind.devices for kind in problem.types], float)
    gang = np.array([job.gang for job in problem.jobs], float)
    rates = np.where(gang[:, None] > sizes, 0.0, problem.throughputs.rates)
    alone = rates @ (sizes / sizes.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = np.where(alone[:, None] > 0, gang[:, None] * rates / alone[:, None], 0.0)
    level = np.zeros(len(gang))
    rising = set(np.flatnonzero(alone > 0).tolist())
    while rising:
        rise = _rise(problem, rising)
        level = level + rise * _highest(unit, gang, sizes, level, rise)
        raised = [job for job in rising if rise[job] > 0]
        rising -= {job for job in raised if _alone(unit, gang, sizes, level, job) < ALONE}
    return level


def _rise(problem: Problem, rising: set[int]) -> Floats:
    tenants = {tenant.name: tenant for tenant in problem.tenants}
    rise = np.zeros(len(problem.jobs))
    for name in {problem.jobs[job].tenant for job in rising}:
        here = [job for job in rising if problem.jobs[job].tenant == name]
        tenant = tenants.get(name, TenantView(name=name))
        total = sum(problem.jobs[job].weight for job in here)
        for job in here:
            own = problem.jobs[job].weight
            rise[job] = tenant.weight * own / total if problem.tenants else own
        if tenant.inner is Inner.FIFO:
            oldest = min(here, key=lambda job: (-problem.jobs[job].age_s, job))
            rise[here] = 0.0
            rise[oldest] = tenant.weight
    return rise


def _highest(unit: Floats, gang: Floats, sizes: Floats, level: Floats, rise: Floats) -> float:
    """Max z with unit @ x >= level + rise * z."""
    jobs, types = unit.shape
    rows = np.zeros((jobs, jobs * types + 1))
    for job in range(jobs):
        rows[job, job * types : (job + 1) * types] = -unit[job]
        rows[job, -1] = rise[job]
    time = np.kron(np.eye(jobs), np.ones(types))
    devices = np.hstack([gang[job] * np.eye(types) for job in range(jobs)])
    base = np.hstack([np.vstack([time, devices]), np.zeros((jobs + types, 1))])
    goal = np.zeros(jobs * types + 1)
    goal[-1] = -1.0
    # rounding of the levels before must not make their rows impossible
    found = linprog(
        goal,
        A_ub=np.vstack([rows, base]),
        b_ub=np.concatenate([-level * (1 - 1e-9), np.ones(jobs), sizes]),
        method="highs",
    )
    assert found.status == 0, found.message
    return float(found.x[-1])


def _alone(unit: Floats, gang: Floats, sizes: Floats, level: Floats, job: int) -> float:
    """What one job can rise by while all others keep their levels."""
    rise = np.zeros(len(gang))
    rise[job] = 1.0
    return _highest(unit, gang, sizes, level, rise)
