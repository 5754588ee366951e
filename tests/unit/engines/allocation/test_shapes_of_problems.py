# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pairs, placements, gangs and jobs that nothing can run; steadiness among equal optima."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from bench.gavel_centre import centre
from bench.gavel_rules import like_type
from ullage.engines.allocation.answer import held as held_time
from ullage.engines.allocation.lp import SolveError, at_least, maximise, nearest
from ullage.engines.allocation.model import (
    FEASIBLE,
    Allocation,
    Floats,
    JobView,
    PairRow,
    PairShare,
    Problem,
    ProblemError,
    SolveResult,
    ThroughputTable,
    TypeView,
)
from ullage.engines.allocation.policies import Objective, allocate, waterfill
from ullage.engines.allocation.shape import ProblemShape, shape_of
from ullage_simulate.policies import all_alike
from unit.engines.allocation.instances import alone, pair_rows, random_problem, violation

RATES = np.array([[4.0, 1.0], [2.0, 2.0], [1.0, 3.0]])


def _kinds(counts: tuple[int, ...], sizes: tuple[int, int], *, seed: int = 0) -> Problem:
    kinds = [f"kind-{index}" for index in range(len(counts))]
    jobs = [
        (JobView(name=f"{kind}-{number}", kind=kind), rates)
        for kind, rates, count in zip(kinds, RATES, counts, strict=False)
        for number in range(count)
    ]
    return Problem(
        jobs=tuple(job for job, _ in jobs),
        types=tuple(TypeView(name=f"t{j}", devices=size) for j, size in enumerate(sizes)),
        throughputs=ThroughputTable(
            rates=np.array([row for _, row in jobs]),
            pairs=tuple(pair_rows(kinds, RATES[: len(kinds)], seed)),
        ),
    )


def _row_by_row(problem: Problem) -> float:
    """Max-min with one variable for each job, each pair of jobs and each type."""
    rates, kinds = problem.throughputs.rates, len(problem.types)
    size = np.array([float(kind.devices) for kind in problem.types])
    even = rates @ (size / size.sum())
    rows = {(row.left, row.right): row for row in problem.throughputs.pairs}
    columns: list[tuple[int, dict[int, float]]] = []
    for m, job in enumerate(problem.jobs):
        columns += [(j, {m: float(rates[m, j])}) for j in range(kinds)]
        for k in range(m + 1, len(problem.jobs)):
            row = rows.get((job.kind, problem.jobs[k].kind))
            for j in range(kinds) if row else ():
                a, b = row.left_rates[j], row.right_rates[j]
                if a / rates[m, j] + b / rates[k, j] > problem.min_combined:
                    columns.append((j, {m: a, k: b}))
    jobs = len(rates)
    matrix = np.zeros((2 * jobs + kinds, len(columns) + 1))
    for index, (j, speeds) in enumerate(columns):
        matrix[2 * jobs + j, index] = 1.0
        for m, speed in speeds.items():
            matrix[m, index], matrix[jobs + m, index] = -speed / even[m], 1.0
    matrix[:jobs, -1] = 1.0
    goal = np.append(np.zeros(len(columns)), -1.0)
    limits = [*np.zeros(jobs), *np.ones(jobs), *size]
    return -linprog(goal, A_ub=matrix, b_ub=limits, method="highs-ds").fun


@pytest.mark.parametrize(
    ("counts", "sizes"),
    [((3, 2, 4), (2, 2)), ((1, 1, 1), (1, 1)), ((6,), (1, 2)), ((2, 5), (2, 1))],
)
def test_pairs_by_kind_are_worth_as_much_as_pairs_row_by_row(
    counts: tuple[int, ...], sizes: tuple[int, int]
) -> None:
    problem = _kinds(counts, sizes)
    found = allocate(Objective.MAX_MIN_FAIRNESS, problem)
    assert found.objective == pytest.approx(_row_by_row(problem), rel=1e-6)
    assert violation(problem, found) <= FEASIBLE
    assert all(pair.left != pair.right for pair in found.pairs)


def test_packing_never_loses_and_here_gains() -> None:
    problem = _kinds((4, 4, 4), (2, 2))
    packed, bare = (allocate(Objective.MAX_MIN_FAIRNESS, p) for p in (problem, alone(problem)))
    assert packed.pairs
    assert packed.objective > bare.objective * 1.05


@pytest.mark.parametrize("objective", list(Objective))
def test_every_objective_takes_pairs_and_stays_feasible(objective: Objective) -> None:
    problem = _kinds((3, 2, 2), (2, 1))
    types = tuple(replace(kind, dollars_per_hour=1.0) for kind in problem.types)
    found = allocate(objective, replace(problem, types=types, min_service=0.2))
    assert violation(problem, found) <= FEASIBLE
    for job in problem.jobs:
        assert sum(found.of(job.name).values()) <= 1 + FEASIBLE


def test_a_lone_job_has_no_partner_of_its_own_kind() -> None:
    problem = _kinds((1,), (1, 1))
    assert allocate(Objective.MAX_MIN_FAIRNESS, problem).pairs == ()


def test_gangs_of_different_sizes_never_share() -> None:
    row = PairRow(left="a", right="b", gang=2, left_rates=(0.9,), right_rates=(0.9,))
    problem = Problem(
        jobs=(JobView(name="x", kind="a", gang=2), JobView(name="y", kind="b", gang=1)),
        types=(TypeView(name="t", devices=2),),
        throughputs=ThroughputTable(rates=np.ones((2, 1)), pairs=(row,)),
    )
    assert allocate(Objective.MAX_MIN_FAIRNESS, problem).pairs == ()


def test_two_placements_share_one_pool() -> None:
    """A gang that is slow when spread uses the pool as a job of one speed, the better one."""
    rates = np.array([[4.0, 2.0], [3.0, 3.0]])
    jobs = (JobView(name="a", gang=2), JobView(name="b"))
    types = tuple(TypeView(name=name, devices=2, pool="p") for name in ("together", "spread"))
    problem = Problem(jobs=jobs, types=types, throughputs=ThroughputTable(rates=rates))
    single = Problem(
        jobs=jobs,
        types=(TypeView(name="p", devices=2),),
        throughputs=ThroughputTable(rates=rates.max(axis=1, keepdims=True)),
    )
    found = allocate(Objective.MAX_MIN_FAIRNESS, problem)
    assert violation(problem, found) <= FEASIBLE
    assert found.objective == pytest.approx(
        allocate(Objective.MAX_MIN_FAIRNESS, single).objective, rel=1e-6
    )
    assert found.of("a")["spread"] == pytest.approx(0.0, abs=1e-6)


def test_a_gang_larger_than_a_type_gets_no_time_there() -> None:
    problem = Problem(
        jobs=(JobView(name="big", gang=4), JobView(name="small")),
        types=(TypeView(name="few", devices=2), TypeView(name="many", devices=4)),
        throughputs=ThroughputTable(rates=np.array([[9.0, 1.0], [1.0, 1.0]])),
    )
    found = allocate(Objective.MAX_MIN_FAIRNESS, problem)
    assert found.of("big")["few"] == 0.0
    assert found.of("big")["many"] > 0.1


@pytest.mark.parametrize("objective", list(Objective))
def test_a_job_that_nothing_can_run_is_named_and_harms_no_one(objective: Objective) -> None:
    plain = random_problem(7, 6, (4, 4))
    rates = np.vstack([plain.throughputs.rates, np.zeros(2)])
    more = replace(
        plain, jobs=(*plain.jobs, JobView(name="none")), throughputs=ThroughputTable(rates=rates)
    )
    found = allocate(objective, more)
    assert found.unplaceable == ("none",)
    assert found.fractions[-1].tolist() == [0.0, 0.0]
    if objective is Objective.MAX_MIN_FAIRNESS:
        assert found.objective == pytest.approx(allocate(objective, plain).objective, rel=1e-9)


@pytest.mark.parametrize("objective", list(Objective))
def test_no_jobs_and_no_usable_type_are_answers(objective: Objective) -> None:
    priced = (TypeView(name="t", devices=1, dollars_per_hour=1.0),)
    empty = Problem(jobs=(), types=priced, throughputs=ThroughputTable(rates=np.zeros((0, 1))))
    assert allocate(objective, empty).result is SolveResult.NOTHING_TO_DIVIDE
    idle = Problem(
        jobs=(JobView(name="a"),), types=priced, throughputs=ThroughputTable(rates=np.zeros((1, 1)))
    )
    found = allocate(objective, idle)
    assert (found.result, found.unplaceable) == (SolveResult.NOTHING_TO_DIVIDE, ("a",))


@pytest.mark.parametrize("objective", list(Objective))
def test_the_allocation_in_force_stands_while_it_is_an_optimum(objective: Objective) -> None:
    problem = random_problem(11, 12, (4, 6, 3))
    first = allocate(objective, problem)
    again = allocate(objective, replace(problem, previous=first))
    np.testing.assert_allclose(again.fractions, first.fractions, atol=1e-5)
    assert again.objective == pytest.approx(first.objective, rel=1e-6)


def test_a_new_job_moves_little_of_the_others_time() -> None:
    problem = random_problem(12, 12, (8, 8, 8))
    before = replace(
        problem,
        jobs=problem.jobs[:-1],
        throughputs=ThroughputTable(rates=problem.throughputs.rates[:-1]),
    )
    held = allocate(Objective.MAX_MIN_FAIRNESS, before)
    fresh = allocate(Objective.MAX_MIN_FAIRNESS, problem)
    near = allocate(Objective.MAX_MIN_FAIRNESS, replace(problem, previous=held))

    def moved(x: Floats) -> float:
        gang = np.array([job.gang for job in before.jobs])
        return float((gang[:, None] * np.abs(x[:-1] - held.fractions)).sum())

    assert moved(near.fractions) <= moved(fresh.fractions) + 1e-6
    assert near.objective == pytest.approx(fresh.objective, rel=1e-6)


@pytest.mark.parametrize("told", [1, 20, 60])
def test_newcomers_take_their_equals_for_example_and_move_no_one(told: int) -> None:
    problem = Problem(
        jobs=tuple(JobView(name=f"{at:03d}", weight=1.0 + at % 5) for at in range(100)),
        types=tuple(TypeView(name=name, devices=20) for name in ("a", "b")),
        throughputs=ThroughputTable(rates=np.ones((100, 2))),
    )
    held = allocate(Objective.MAX_MIN_FAIRNESS, problem)
    few = replace(held, jobs=held.jobs[:told], fractions=held.fractions[:told])
    near = allocate(Objective.MAX_MIN_FAIRNESS, replace(problem, previous=few))
    np.testing.assert_allclose(near.fractions[:told], held.fractions[:told], atol=1e-5)


def test_what_is_held_is_told_by_column_and_equals_count_like_those_that_are_named() -> None:
    problem = Problem(
        jobs=(JobView(name="a"), JobView(name="b"), JobView(name="c", gang=2)),
        types=(TypeView(name="t", devices=4), TypeView(name="u", devices=4)),
        throughputs=ThroughputTable(rates=np.array([[2.0, 1.0], [2.0, 1.0], [1.0, 3.0]])),
    )
    before = Allocation(
        jobs=("gone", "a", "c"),
        types=("u", "no more", "t"),
        fractions=np.array([[1.0, 0.0, 0.0], [0.25, 0.5, 0.25], [0.75, 0.0, 0.125]]),
    )
    shape = shape_of(replace(problem, previous=before))
    found = held_time(shape)
    assert found is not None
    told = {
        (problem.jobs[int(shape.first[group])].name, problem.types[int(kind)].name): float(time)
        for group, kind, time in zip(shape.left, shape.kind, found, strict=True)
    }
    # two equal jobs, of which one was named, hold twice what that one held
    assert told == {("a", "t"): 0.5, ("a", "u"): 0.5, ("c", "t"): 0.125, ("c", "u"): 0.75}


def test_time_beside_another_is_held_by_both_and_by_neither_alone() -> None:
    kinds, rates = ["a", "b"], np.array([[4.0, 1.0], [2.0, 2.0]])
    problem = Problem(
        jobs=tuple(JobView(name=kind, kind=kind) for kind in kinds),
        types=(TypeView(name="t", devices=4), TypeView(name="u", devices=4)),
        throughputs=ThroughputTable(rates=rates, pairs=tuple(pair_rows(kinds, rates, 0))),
    )
    beside = tuple(
        PairShare(left=left, right=right, type="t", fraction=0.25)
        for left, right in (("a", "b"), ("b", "a"), ("a", "gone"))
    )
    before = Allocation(
        jobs=("a", "b"),
        types=("t", "u"),
        fractions=np.array([[0.75, 0.0], [0.5, 0.25]]),
        pairs=beside,
    )
    shape = shape_of(replace(problem, previous=before))
    found = held_time(shape)
    assert found is not None

    def name(group: int) -> str:
        return problem.jobs[int(shape.first[group])].name if group >= 0 else ""

    told = {
        (name(left), name(right), problem.types[int(kind)].name): float(time)
        for left, right, kind, time in zip(shape.left, shape.right, shape.kind, found, strict=True)
        if time
    }
    (pair,) = [key for key in told if key[1]]
    assert set(pair) == {"a", "b", "t"}
    assert told == {("a", "", "t"): 0.25, ("b", "", "u"): 0.25, pair: 0.5}


@pytest.mark.parametrize(
    "before",
    [
        None,
        Allocation(jobs=(), types=("t",), fractions=np.zeros((0, 1))),
        Allocation(jobs=("gone",), types=("t",), fractions=np.ones((1, 1))),
        Allocation(jobs=("a",), types=("no more",), fractions=np.ones((1, 1))),
    ],
)
def test_of_other_jobs_or_types_nothing_is_held(before: Allocation | None) -> None:
    problem = Problem(
        jobs=(JobView(name="a"),),
        types=(TypeView(name="t", devices=1),),
        throughputs=ThroughputTable(rates=np.ones((1, 1))),
        previous=before,
    )
    assert held_time(shape_of(problem)) is None


def test_equal_jobs_get_equal_time_and_order_does_not_matter() -> None:
    problem = random_problem(13, 8, (3, 3))
    double = replace(
        problem,
        jobs=(*problem.jobs, *(replace(job, name=f"{job.name}x") for job in problem.jobs)),
        throughputs=ThroughputTable(rates=np.vstack([problem.throughputs.rates] * 2)),
    )
    found = allocate(Objective.MAX_MIN_FAIRNESS, double)
    np.testing.assert_allclose(found.fractions[:8], found.fractions[8:])
    backwards = replace(
        double,
        jobs=double.jobs[::-1],
        throughputs=ThroughputTable(rates=double.throughputs.rates[::-1]),
    )
    assert allocate(Objective.MAX_MIN_FAIRNESS, backwards).objective == pytest.approx(
        found.objective, rel=1e-9
    )


def test_the_middle_of_the_optima_has_the_same_value() -> None:
    for seed in range(5):
        problem = random_problem(seed, 10, (3, 4, 5))
        for objective in (Objective.MAX_MIN_FAIRNESS, Objective.MAKESPAN):
            corner = allocate(objective, problem)
            middle = allocate(objective, replace(problem, centre=centre))
            assert middle.objective == pytest.approx(corner.objective, rel=1e-6)
            assert violation(problem, middle) <= FEASIBLE


def test_twice_the_weight_is_twice_the_share_where_types_are_alike() -> None:
    jobs = (JobView(name="a", weight=2.0), JobView(name="b"), JobView(name="c"))
    problem = Problem(
        jobs=jobs,
        types=(TypeView(name="t", devices=1),),
        throughputs=ThroughputTable(rates=np.ones((3, 1))),
    )
    found = waterfill.solve(problem)
    assert found.of("a")["t"] == pytest.approx(0.5, rel=1e-5)
    assert found.of("b")["t"] == pytest.approx(0.25, rel=1e-5)


def test_agnostic_variants_see_one_speed() -> None:
    problem = random_problem(2, 5, (2, 2))
    allowed = problem.throughputs.rates > 0
    assert set(np.unique(all_alike(problem).throughputs.rates)) <= {0.0, 1.0}
    alike = like_type(problem, "t0").throughputs.rates
    assert ((alike > 0) == allowed).all()
    assert all(len(set(row[row > 0])) == 1 for row in alike)


def test_a_solver_without_an_answer_leaves_the_last_allocation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = random_problem(4, 5, (2, 2))
    held = allocate(Objective.MAX_MIN_FAIRNESS, problem)

    def fails(*_: object, **__: object) -> None:
        raise SolveError("time limit")

    monkeypatch.setattr("ullage.engines.allocation.policies.max_min.raise_floors", fails)
    kept = allocate(Objective.MAX_MIN_FAIRNESS, replace(problem, previous=held))
    assert kept.result is SolveResult.KEPT_LAST
    np.testing.assert_array_equal(kept.fractions, held.fractions)
    with pytest.raises(SolveError, match="no allocation yet"):
        allocate(Objective.MAX_MIN_FAIRNESS, problem)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: JobView(name="a", gang=0),
        lambda: JobView(name="a", weight=0.0),
        lambda: JobView(name="a", steps_left=float("nan")),
        lambda: TypeView(name="t", devices=-1),
        lambda: ThroughputTable(rates=np.array([[np.nan]])),
        lambda: ThroughputTable(rates=np.array([[-1.0]])),
        lambda: replace(random_problem(0, 2, (1, 1)), min_service=2.0),
        lambda: replace(random_problem(0, 2, (1, 1)), jobs=(JobView(name="a"), JobView(name="a"))),
    ],
)
def test_numbers_that_describe_nothing_are_refused(wrong: object) -> None:
    assert callable(wrong)
    with pytest.raises(ProblemError):
        wrong()


def _gang_and_single() -> ProblemShape:
    """A gang of eight and a job of one device, each with a type that both may use."""
    return shape_of(
        Problem(
            jobs=(JobView(name="gang", gang=8), JobView(name="single")),
            types=(TypeView(name="t", devices=9),),
            throughputs=ThroughputTable(rates=np.array([[2.0], [1.0]])),
        )
    )


def test_a_program_without_a_point_is_an_error_and_no_answer() -> None:
    shape = _gang_and_single()
    never = at_least(shape, np.array([1e6, 1e6]))
    with pytest.raises(SolveError):
        maximise(shape, np.zeros(shape.columns), 0.0, never, corner=True)


def test_of_points_that_keep_the_goal_the_one_with_the_fewest_devices_moved() -> None:
    shape = _gang_and_single()
    found = nearest(shape, np.zeros(2), np.zeros(2), np.array([2.0, 1.0]), 1.0)
    assert found == pytest.approx(np.array([0.0, 1.0]), abs=1e-6), "eight devices for half the time"
    kept = nearest(shape, np.array([1.0, 0.0]), np.zeros(2), np.zeros(2), 0.0)
    assert kept == pytest.approx(np.array([0.5, 0.0]), abs=1e-6), "the gang keeps its speed of 1"
