# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Cost ratios beside every vertex of the polytope, and deadlines beside every subset of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import linprog

from ullage.engines.allocation import deadlines
from ullage.engines.allocation.model import (
    FEASIBLE,
    Allocation,
    Floats,
    JobView,
    PriceMissingError,
    Problem,
    ThroughputTable,
    TypeView,
)
from ullage.engines.allocation.policies import Objective, allocate
from unit.engines.allocation.instances import random_problem, violation


def _rows(problem: Problem, floors: Floats) -> tuple[Floats, Floats]:
    """Every row of V, the floors and x >= 0, as upper limits over the cells."""
    rates = problem.throughputs.rates
    jobs, kinds = rates.shape
    gang = np.array([float(job.gang) for job in problem.jobs])
    size = np.array([float(kind.devices) for kind in problem.types])
    allowed = (rates > 0) & (gang[:, None] <= size)
    each, cells = np.eye(jobs), np.eye(jobs * kinds)
    rows = [np.ravel(each[m][:, None] * np.ones(kinds)) for m in range(jobs)]
    rows += [np.ravel(gang[:, None] * np.eye(kinds)[j][None, :]) for j in range(kinds)]
    rows += [-np.ravel(each[m][:, None] * rates) for m in range(jobs)]
    rows += [*(-cells), *cells[~allowed.ravel()]]
    blocked = int((~allowed).sum())
    limits = [*np.ones(jobs), *size, *(-floors), *np.zeros(jobs * kinds + blocked)]
    return np.array(rows), np.array(limits)


def _best_vertex_ratio(problem: Problem, floors: Floats) -> float:
    """A ratio of linear functions has its optimum at a vertex: try all of them."""
    rows, limits = _rows(problem, floors)
    rates = problem.throughputs.rates
    size = np.array([float(kind.devices) for kind in problem.types])
    gang = np.array([float(job.gang) for job in problem.jobs])
    able = np.where(gang[:, None] <= size, rates, 0.0)
    gain = np.ravel(rates / able.max(axis=1, keepdims=True))
    price = np.array([kind.dollars_per_hour for kind in problem.types])
    cost = np.ravel(gang[:, None] * price[None, :])
    picks = np.array(list(combinations(range(len(rows)), rows.shape[1])))
    square = rows[picks]
    fit = np.abs(np.linalg.det(square)) > 1e-9
    points = np.linalg.solve(square[fit], limits[picks[fit]][..., None])[..., 0]
    inside = (points @ rows.T <= limits + 1e-9).all(axis=1)
    points = points[inside & (points @ cost > 1e-9)]
    assert len(points)
    return float(((points @ gain) / (points @ cost)).max())


@pytest.mark.parametrize("seed", range(12))
def test_min_cost_is_the_best_vertex(seed: int) -> None:
    jobs = 2 + seed % 2
    problem = replace(random_problem(seed, jobs, (2, 4)), min_service=(0.0, 0.3)[seed % 4 // 2])
    gang = np.array([job.gang for job in problem.jobs])
    rates = np.where(gang[:, None] > [2, 4], 0.0, problem.throughputs.rates)
    problem = replace(problem, throughputs=ThroughputTable(rates=rates))
    crowd = min(1.0, 6 / gang.sum())
    floors = problem.min_service * (rates @ [2 / 6, 4 / 6]) * crowd
    found = allocate(Objective.MIN_COST, problem)
    assert found.objective == pytest.approx(_best_vertex_ratio(problem, floors), rel=1e-6)
    assert violation(problem, found) <= FEASIBLE


def test_four_jobs_on_one_type_are_the_best_vertex_too() -> None:
    problem = replace(random_problem(40, 4, (4,)), min_service=0.2)
    rates = problem.throughputs.rates
    crowd = min(1.0, 4 / sum(job.gang for job in problem.jobs))
    found = allocate(Objective.MIN_COST, problem)
    best = _best_vertex_ratio(problem, 0.2 * rates[:, 0] * crowd)
    assert found.objective == pytest.approx(best, rel=1e-6)


def _fewest_lost(problem: Problem, needs: dict[int, float]) -> int:
    rates = problem.throughputs.rates
    for lost in range(len(needs) + 1):
        for given_up in combinations(needs, lost):
            floors = np.zeros(len(rates))
            for job in set(needs) - set(given_up):
                floors[job] = needs[job]
            rows, limits = _rows(problem, floors)
            if linprog(np.zeros(rows.shape[1]), A_ub=rows, b_ub=limits).status == 0:
                return lost
    raise AssertionError("giving up every deadline is always possible")


@pytest.mark.parametrize("seed", range(16))
def test_the_fewest_deadlines_are_dropped_and_the_rest_kept(seed: int) -> None:
    rng = np.random.default_rng(seed)
    plain = random_problem(seed, 4, (2, 4))
    best = plain.throughputs.rates.max(axis=1)
    jobs = tuple(
        replace(job, deadline_in_s=job.steps_left / (speed * rng.uniform(0.3, 1.2)))
        for job, speed in zip(plain.jobs, best.tolist(), strict=True)
    )
    problem = replace(plain, jobs=jobs)
    needs = {i: job.steps_left / (job.deadline_in_s or 1.0) for i, job in enumerate(jobs)}
    found = allocate(Objective.MIN_COST_SLO, problem)
    assert len(found.dropped) == _fewest_lost(problem, needs)
    lost = {slo.job for slo in found.dropped}
    for index, job in enumerate(jobs):
        if job.name not in lost:
            assert found.effective[job.name] >= needs[index] * (1 - 1e-6)
    assert violation(problem, found) <= FEASIBLE


def test_a_hopeless_deadline_is_named_with_its_rates() -> None:
    problem = Problem(
        jobs=(
            JobView(name="late", steps_left=100.0, deadline_in_s=-5.0),
            JobView(name="far", steps_left=1000.0, deadline_in_s=10.0),
            JobView(name="fine", steps_left=10.0, deadline_in_s=100.0),
        ),
        types=(TypeView(name="a", devices=1, dollars_per_hour=1.0),),
        throughputs=ThroughputTable(rates=np.array([[2.0], [2.0], [2.0]])),
    )
    found = allocate(Objective.MIN_COST_SLO, problem)
    named = {slo.job: (slo.needed_steps_per_s, slo.best_steps_per_s) for slo in found.dropped}
    assert named == {"late": (np.inf, 2.0), "far": (100.0, 2.0)}
    assert found.effective["fine"] >= 0.1 * (1 - 1e-6)


@pytest.mark.parametrize(("bound", "least"), [("MOST_WEIGHED", 2), ("MILP_SECONDS", 0.0)])
def test_past_a_bound_what_lacks_most_is_dropped_and_says_so(
    monkeypatch: pytest.MonkeyPatch, bound: str, least: float
) -> None:
    jobs = tuple(
        JobView(name=name, steps_left=90.0 - at, deadline_in_s=100.0)
        for at, name in enumerate("abc")
    )
    problem = Problem(
        jobs=jobs,
        types=(TypeView(name="x", devices=1, dollars_per_hour=1.0),),
        throughputs=ThroughputTable(rates=np.ones((3, 1))),
    )
    exact = allocate(Objective.MIN_COST_SLO, problem)
    assert [slo.approximate for slo in exact.dropped] == [False, False]
    monkeypatch.setattr(deadlines, bound, least)
    rough = allocate(Objective.MIN_COST_SLO, problem)
    assert rough.dropped
    assert all(slo.approximate for slo in rough.dropped)
    assert violation(problem, rough) <= FEASIBLE


def test_of_equal_ratios_the_one_that_does_most_work_is_taken() -> None:
    def problem(price: float, previous: Allocation | None) -> Problem:
        return Problem(
            jobs=(JobView(name="one"),),
            types=(
                TypeView(name="fast", devices=1, dollars_per_hour=price),
                TypeView(name="slow", devices=1, dollars_per_hour=1.0),
            ),
            throughputs=ThroughputTable(rates=np.array([[4.0, 1.0]])),
            previous=previous,
        )

    first = allocate(Objective.MIN_COST, problem(10.0, None))
    assert first.of("one") == pytest.approx({"fast": 0.0, "slow": 1.0}, abs=1e-6)
    then = allocate(Objective.MIN_COST, problem(2.0, first))
    assert then.of("one") == pytest.approx({"fast": 1.0, "slow": 0.0}, abs=1e-6)


def test_a_type_that_no_job_can_use_needs_no_price() -> None:
    problem = Problem(
        jobs=(JobView(name="one"),),
        types=(TypeView(name="a", devices=1, dollars_per_hour=2.0), TypeView(name="b", devices=1)),
        throughputs=ThroughputTable(rates=np.array([[3.0, 0.0]])),
    )
    assert allocate(Objective.MIN_COST, problem).objective == pytest.approx(0.5)


@pytest.mark.parametrize("objective", [Objective.MIN_COST, Objective.MIN_COST_SLO])
def test_a_type_without_a_price_is_refused_by_name(objective: Objective) -> None:
    problem = random_problem(0, 3, (2, 4))
    types = (problem.types[0], replace(problem.types[1], dollars_per_hour=0.0))
    with pytest.raises(PriceMissingError, match="t1"):
        allocate(objective, replace(problem, types=types))


def test_a_floor_serves_everyone_where_the_bare_ratio_serves_one() -> None:
    problem = random_problem(3, 6, (4, 4))
    bare = allocate(Objective.MIN_COST, problem)
    floored = allocate(Objective.MIN_COST, replace(problem, min_service=0.5))
    assert min(bare.effective.values()) == pytest.approx(0.0, abs=1e-9)
    assert min(floored.effective.values()) > 0.01
    assert floored.objective <= bare.objective * (1 + 1e-9)
