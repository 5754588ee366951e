# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Fair shares of tenants and of jobs in a queue: equal to the definition, in a few programs."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest

from fakes.examples import seeds
from oracles.lexicographic_levels import levels
from ullage.engines.allocation.model import (
    Inner,
    JobView,
    Problem,
    SolveResult,
    TenantView,
    ThroughputTable,
    TypeView,
)
from ullage.engines.allocation.policies import waterfill
from ullage.engines.allocation.policies.max_min import fair_unit
from ullage.engines.allocation.shape import shape_of

INNER = {
    "fair": (Inner.FAIRNESS,),
    "fifo": (Inner.FIFO,),
    "mixed": (Inner.FIFO, Inner.FAIRNESS),
}


def tree(seed: int, jobs: int, tenants: int, inner: str, part: float) -> Problem:
    """Jobs that differ, of weighted tenants, on three types of devices."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.5, 10, (jobs, 1)) * rng.uniform(0.1, 1, (jobs, 3))
    rates *= rng.random((jobs, 3)) < 0.85
    devices = max(4, int(part * jobs))
    return Problem(
        jobs=tuple(
            JobView(
                name=f"{number:05d}",
                gang=int(rng.choice([1, 1, 2, 4])),
                weight=float(rng.choice([1, 2, 4])),
                age_s=float(rng.integers(0, 50)),
                tenant=f"t{rng.integers(0, tenants)}",
            )
            for number in range(jobs)
        ),
        types=tuple(TypeView(name=f"k{kind}", devices=devices) for kind in range(3)),
        throughputs=ThroughputTable(rates=rates),
        tenants=tuple(
            TenantView(name=f"t{one}", weight=float(rng.choice([1, 2, 3])), inner=kind)
            for one, kind in zip(range(tenants), cycle(INNER[inner]), strict=False)
        ),
    )


@pytest.mark.parametrize("inner", list(INNER))
@pytest.mark.parametrize("seed", seeds(12, many=36))
def test_levels_are_those_of_the_definition(seed: int, inner: str) -> None:
    part = (0.2, 0.4, 0.8)[seed % 3]
    problem = tree(seed, 3 + seed % 9, 1 + seed % 4, inner, part)
    shape = shape_of(problem, np.arange(len(problem.jobs), dtype=float))
    able = shape.group_of >= 0
    wanted = levels(problem)[able]
    found = waterfill.fill(shape)
    assert found.level == pytest.approx(wanted, rel=1e-6, abs=1e-6 * max(1.0, wanted.max()))
    reached = np.array(list(waterfill.solve(problem).effective.values())) / fair_unit(shape)
    assert (reached >= found.level - 1e-6 * max(1.0, wanted.max())).all()


@pytest.mark.parametrize("seed", range(6))
def test_equal_jobs_of_a_tenant_divide_its_weight(seed: int) -> None:
    """They are solved as one group, and count as many as they are."""
    one = tree(seed, 4, 2, "fair", 0.5)
    copies = tuple(
        replace(job, name=f"{job.name}-{number}")
        for at, job in enumerate(one.jobs)
        for number in range(1 + at)
    )
    rates = np.repeat(one.throughputs.rates, [1, 2, 3, 4], axis=0)
    problem = replace(one, jobs=copies, throughputs=ThroughputTable(rates=rates))
    shape = shape_of(problem)
    assert shape.groups < len(copies)
    able = shape.group_of >= 0
    wanted = levels(problem)[able]
    found = waterfill.fill(shape).level[shape.group_of[able]]
    assert found == pytest.approx(wanted, rel=1e-6, abs=1e-6 * max(1.0, wanted.max()))


@pytest.mark.parametrize("inner", list(INNER))
@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 1.0])
def test_programs_are_as_many_as_shortages_not_as_jobs(inner: str, part: float) -> None:
    few, many = (tree(1, jobs, 10, inner, part) for jobs in (40, 160))
    for problem in (few, many):
        place = np.arange(len(problem.jobs), dtype=float)
        assert waterfill.fill(shape_of(problem, place)).programs <= 40


def test_equal_jobs_in_a_queue_and_without_room_are_left_where_they_are() -> None:
    problem = tree(3, 30, 2, "fifo", 0.0)
    found = waterfill.solve(problem)
    assert found.result is SolveResult.OPTIMAL
    idle = [job.name for job in problem.jobs if found.effective.get(job.name, 0.0) < 1e-9]
    assert idle
    again = waterfill.solve(replace(problem, previous=found))
    assert again.fractions == pytest.approx(found.fractions, abs=1e-4)
