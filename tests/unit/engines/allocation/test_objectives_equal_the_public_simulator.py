# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the policies reach, beside what the public simulator reached on the same instances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from ullage.engines.allocation.model import Floats, Inner, Problem
from ullage.engines.allocation.policies import Objective, allocate, max_min, waterfill
from unit.engines.allocation.instances import problem_of, random_problem, stored, violation

CLOSE = 1e-6


def _gangs(problem: Problem) -> Floats:
    return np.array([float(job.gang) for job in problem.jobs])


def _even(problem: Problem) -> Floats:
    size = np.array([float(kind.devices) for kind in problem.types])
    return problem.throughputs.rates @ (size / size.sum())


def _levels(problem: Problem) -> Floats:
    found = waterfill.solve(problem)
    assert violation(problem, found) <= CLOSE
    speed = (problem.throughputs.rates * found.fractions).sum(axis=1)
    return speed * _gangs(problem) / _even(problem)


def test_there_are_enough_instances() -> None:
    assert len(stored()) >= 200
    assert sum("levels" in body for body in stored()) >= 100
    assert max(len(body["jobs"]) for body in stored()) >= 50


@pytest.mark.slow
def test_max_min_fairness_reaches_the_same_level() -> None:
    for body in stored():
        problem = problem_of(body)
        found = max_min.solve(problem)
        assert found.objective == pytest.approx(body["las"], rel=CLOSE)
        assert violation(problem, found) <= CLOSE
        speed = (problem.throughputs.rates * found.fractions).sum(axis=1)
        weight = np.array([job.weight for job in problem.jobs])
        worst = float((speed * _gangs(problem) / weight / _even(problem)).min())
        assert worst == pytest.approx(body["las"], rel=CLOSE)


@pytest.mark.slow
def test_finish_time_fairness_reaches_the_same_ratio() -> None:
    for body in stored():
        problem = problem_of(body)
        found = allocate(Objective.FINISH_TIME_FAIRNESS, problem)
        assert found.objective == pytest.approx(body["ftf"], rel=CLOSE)
        assert violation(problem, found) <= CLOSE


@pytest.mark.slow
def test_makespan_is_the_optimum_and_never_worse() -> None:
    compared = 0
    for body in stored():
        if "makespan_s" not in body:
            continue
        problem = problem_of(body)
        found = allocate(Objective.MAKESPAN, problem)
        assert found.objective <= body["makespan_s"] * (1 + CLOSE)
        assert found.objective == pytest.approx(_dense_makespan(problem), rel=CLOSE)
        compared += 1
    assert compared > 100


def _dense_makespan(problem: Problem) -> float:
    steps = np.array([job.steps_left for job in problem.jobs])
    unit = steps.max() / problem.throughputs.rates.max()
    return unit / _rise(problem, steps / unit)


def _rise(problem: Problem, wanted: Floats) -> float:
    """Largest z with speed >= z * wanted: one variable for each cell, by the dual simplex."""
    rates = problem.throughputs.rates
    jobs, kinds = rates.shape
    rows = [np.append(-np.ravel(np.eye(jobs)[m][:, None] * rates), wanted[m]) for m in range(jobs)]
    rows += [np.append(np.ravel(np.eye(jobs)[m][:, None] * np.ones(kinds)), 0) for m in range(jobs)]
    rows += [
        np.append(np.ravel(_gangs(problem)[:, None] * np.eye(kinds)[j][None, :]), 0)
        for j in range(kinds)
    ]
    limits = [0.0] * jobs + [1.0] * jobs + [float(kind.devices) for kind in problem.types]
    cost = np.append(np.zeros(jobs * kinds), -1.0)
    return -linprog(cost, A_ub=np.array(rows), b_ub=limits, method="highs-ds").fun


@pytest.mark.parametrize(
    ("seed", "jobs", "sizes"), [(1, 40, (4, 6, 8)), (4, 40, (4, 6, 8)), (0, 1, (4,))]
)
def test_no_division_reaches_a_better_ratio_of_finish_times(
    seed: int, jobs: int, sizes: tuple[int, ...]
) -> None:
    problem = random_problem(seed, jobs, sizes)
    found = allocate(Objective.FINISH_TIME_FAIRNESS, problem)
    left, age, done = (
        np.array([getattr(job, name) for job in problem.jobs])
        for name in ("steps_left", "age_s", "isolated_s")
    )
    part = np.array([kind.devices for kind in problem.types]) / len(left) / _gangs(problem)[:, None]
    part /= np.maximum(part.sum(axis=1, keepdims=True), 1.0)
    base = done + left / (problem.throughputs.rates * part).sum(axis=1)
    speed = (problem.throughputs.rates * found.fractions).sum(axis=1)
    assert ((age + left / speed) / base).max() == pytest.approx(found.objective, rel=CLOSE)
    needed = left / (found.objective * base - age)
    assert _rise(problem, needed) == pytest.approx(1.0, rel=CLOSE)


@pytest.mark.slow
def test_water_filling_reaches_the_same_levels_or_a_better_vector() -> None:
    """The simulator freezes what could rise by 0.01 % and gives up early; then ours is above it."""
    same = better = 0
    for body in stored():
        if "levels" not in body or "tenants" in body:
            continue
        problem = problem_of(body)
        weight = np.array([job.weight for job in problem.jobs])
        ours, theirs = (
            np.sort(_levels(problem) / weight),
            np.sort(np.array(body["levels"]) / weight),
        )
        apart = np.flatnonzero(np.abs(ours / theirs - 1) > CLOSE)
        if len(apart):
            assert ours[apart[0]] > theirs[apart[0]]
            better += 1
        else:
            same += 1
    assert same >= 80
    assert better >= 1


@pytest.mark.slow
def test_tenants_divide_as_a_search_by_probing_does() -> None:
    """Another way to the same vector: raise one job at a time and see whether it can."""
    compared = 0
    for body in stored():
        if "tenants" in body and len(body["jobs"]) <= 7:
            problem = problem_of(body)
            np.testing.assert_allclose(_levels(problem), _probed(problem), rtol=1e-3, atol=1e-3)
            compared += 1
    assert compared >= 10


def _probed(problem: Problem) -> Floats:
    """Water filling without duals: a job is frozen when no allocation raises it by 0.01 %."""
    unit = _gangs(problem)[:, None] * problem.throughputs.rates / _even(problem)[:, None]
    count = len(unit)
    level, rising = np.zeros(count), np.ones(count, bool)
    for _ in range(2 * count):
        weight = _omega(problem, rising)
        rise = _program(problem, unit, level * (1 - 1e-9), weight, None)
        level = level + weight * rise
        for job in np.flatnonzero((weight > 0) & rising):
            best = _program(problem, unit, level * (1 - 1e-9), np.zeros(count), int(job))
            if best <= level[job] * (1 + 1e-4) + 1e-4:
                rising[job] = False
        if not rising.any():
            return level
    raise AssertionError("the search by probing does not end")


def _omega(problem: Problem, rising: np.ndarray) -> Floats:
    omega = np.zeros(len(rising))
    for tenant in problem.tenants:
        own = [i for i, job in enumerate(problem.jobs) if job.tenant == tenant.name and rising[i]]
        if own and tenant.inner is Inner.FIFO:
            omega[own[0]] = tenant.weight
        elif own:
            total = sum(problem.jobs[i].weight for i in own)
            omega[own] = [tenant.weight * problem.jobs[i].weight / total for i in own]
    return omega


def _program(
    problem: Problem, unit: Floats, floor: Floats, omega: Floats, job: int | None
) -> float:
    count, kinds = unit.shape
    rows = [np.append(-np.ravel(np.eye(count)[m][:, None] * unit), omega[m]) for m in range(count)]
    rows += [
        np.append(np.ravel(np.eye(count)[m][:, None] * np.ones(kinds)), 0) for m in range(count)
    ]
    rows += [
        np.append(np.ravel(_gangs(problem)[:, None] * np.eye(kinds)[j][None, :]), 0)
        for j in range(kinds)
    ]
    limits = [*(-floor), *([1.0] * count), *(float(kind.devices) for kind in problem.types)]
    goal = np.zeros(count * kinds + 1)
    if job is None:
        goal[-1] = -1.0
    else:
        goal[job * kinds : (job + 1) * kinds] = -unit[job]
    top = [(0, None if job is None or i < count * kinds else 0) for i in range(len(goal))]
    answer = linprog(goal, A_ub=np.array(rows), b_ub=limits, bounds=top, method="highs-ds")
    assert answer.status == 0
    return -answer.fun
