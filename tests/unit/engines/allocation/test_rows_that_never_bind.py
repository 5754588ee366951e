# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows that cannot bind are left out of large programs, and the answer is that of the whole one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.engines.allocation import lp
from ullage.engines.allocation.lp import Solved, raise_floors
from ullage.engines.allocation.model import (
    FEASIBLE,
    Floats,
    JobView,
    Problem,
    ThroughputTable,
    TypeView,
)
from ullage.engines.allocation.policies import Objective, allocate
from ullage.engines.allocation.policies.max_min import fair_unit
from ullage.engines.allocation.shape import ProblemShape, shape_of
from unit.engines.allocation.instances import pair_rows


def problem_of(seed: int, jobs: int, part: float) -> Problem:
    """Jobs that all differ, some of which cannot run everywhere, on three types."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.5, 10, (jobs, 1)) * rng.uniform(0.1, 1, (jobs, 3))
    rates[rng.random((jobs, 3)) < 0.2] = 0.0
    gangs = rng.choice([1, 2, 4], jobs).tolist()
    return Problem(
        jobs=tuple(
            JobView(name=f"{at:03d}", gang=gang, weight=float(rng.integers(1, 4)))
            for at, gang in enumerate(gangs)
        ),
        types=tuple(TypeView(name=f"t{at}", devices=max(4, int(part * jobs))) for at in range(3)),
        throughputs=ThroughputTable(rates=rates),
    )


def both(shape: ProblemShape, rise: Floats, floors: Floats) -> tuple[Solved, Solved, int]:
    """The answer without rows that cannot bind, that of the whole program, how many were left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lp, "_MANY", 1)
        ample = lp._ample(shape, floors, rise)
        short = raise_floors(shape, rise, floors)
        patch.setattr(lp, "_MANY", 10**9)
        return short, raise_floors(shape, rise, floors), int(0 if ample is None else ample.sum())


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    jobs=st.integers(1, 40),
    part=st.sampled_from([0.05, 0.2, 0.5, 2.0]),
    held=st.sampled_from([0.0, 0.3, 0.9]),
    still=st.booleans(),
)
def test_the_answer_is_that_of_the_whole_program(
    seed: int, jobs: int, part: float, held: float, still: bool
) -> None:
    shape = shape_of(problem_of(seed, jobs, part))
    if not shape.groups:
        return
    unit = fair_unit(shape)
    low = unit * held * raise_floors(shape, unit).z
    rise = np.where((np.arange(shape.groups) % 2 == 1) & still, 0.0, unit)
    short, whole, _ = both(shape, rise, low)
    assert short.z == pytest.approx(whole.z, rel=1e-7, abs=1e-9)
    assert (shape.base @ short.x <= shape.base_limits * (1 + 1e-7) + FEASIBLE).all()
    assert (shape.speed @ short.x >= (low + rise * short.z) * (1 - 1e-6)).all()
    # its prices are prices of the whole program: they prove that no z is larger
    floors = lp.at_least(shape, low, rise).limits
    bound = short.time.sum() + short.devices @ shape.capacity + short.rows @ floors
    assert bound == pytest.approx(whole.z, rel=1e-6, abs=1e-8)


def test_most_rows_of_time_are_left_out_where_devices_are_scarce() -> None:
    shape = shape_of(problem_of(3, 300, 0.05))
    unit = fair_unit(shape)
    _, whole, left_out = both(shape, unit, np.zeros(shape.groups))
    assert left_out > shape.groups / 2
    assert lp._by_devices(shape, np.zeros(shape.groups), unit) >= whole.z * (1 - 1e-9)


@pytest.mark.parametrize("held", [0.0, 0.5])
def test_of_one_type_the_bound_by_devices_is_the_answer(held: float) -> None:
    rates = np.random.default_rng(1).uniform(1, 10, (30, 1))
    one_type = Problem(
        jobs=tuple(JobView(name=f"{at:02d}", gang=1 + at % 2) for at in range(30)),
        types=(TypeView(name="t", devices=4),),
        throughputs=ThroughputTable(rates=rates),
    )
    shape = shape_of(one_type)
    unit = fair_unit(shape)
    floors = held * unit * raise_floors(shape, unit).z
    answer = raise_floors(shape, unit, floors).z
    assert answer > 0
    assert lp._by_devices(shape, floors, unit) == pytest.approx(answer, rel=1e-6)


def test_the_job_that_limits_all_others_keeps_its_row() -> None:
    """One job at its best speed all the time is what holds z down; without its row z would run."""
    problem = problem_of(5, 250, 3.0)
    found = allocate(Objective.MAX_MIN_FAIRNESS, problem)
    assert found.residual <= FEASIBLE
    assert max(found.time_prices.values()) > 0
    few = replace(problem, types=tuple(replace(one, devices=10**6) for one in problem.types))
    alone = allocate(Objective.MAX_MIN_FAIRNESS, few)
    shape = shape_of(few)
    weight = shape.of_jobs(np.array([one.weight for one in few.jobs]))
    best = float((shape.rate.max(axis=1) / (fair_unit(shape) * weight)).min())
    assert alone.objective == pytest.approx(best, rel=1e-7)


def test_where_jobs_share_devices_no_row_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lp, "_MANY", 1)
    kinds, rates = ["a", "b"], np.array([[4.0, 1.0], [2.0, 2.0]])
    alone = Problem(
        jobs=tuple(JobView(name=kind, kind=kind) for kind in kinds),
        types=(TypeView(name="t", devices=40), TypeView(name="u", devices=40)),
        throughputs=ThroughputTable(rates=rates),
    )
    pairs = ThroughputTable(rates=rates, pairs=tuple(pair_rows(kinds, rates, 0)))
    shape, packed = shape_of(alone), shape_of(replace(alone, throughputs=pairs))
    assert lp._ample(shape, np.zeros(2), np.ones(2)) is not None
    assert (packed.right >= 0).any()
    assert lp._ample(packed, np.zeros(2), np.ones(2)) is None
