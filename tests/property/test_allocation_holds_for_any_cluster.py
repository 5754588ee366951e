# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What must hold for every cluster and every set of jobs, whatever the objective."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ullage.engines.allocation.model import FEASIBLE, Problem, TenantView, ThroughputTable
from ullage.engines.allocation.pairs import partners
from ullage.engines.allocation.policies import Objective, allocate, waterfill
from ullage.engines.allocation.round_records import RoundJob, RoundSettings, RoundState
from ullage.engines.allocation.rounds import next_round
from unit.engines.allocation.instances import pair_rows, random_problem, violation

SOME = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Small problems, with and without pairs, with floors and deadlines."""
    sizes = draw(SIZES)
    count = draw(st.integers(1, 9))
    problem = random_problem(draw(st.integers(0, 10_000)), count, sizes)
    problem = replace(problem, min_service=draw(st.sampled_from([0.0, 0.3, 1.0])))
    if draw(st.booleans()):
        jobs = tuple(replace(job, kind=f"k{i % 3}") for i, job in enumerate(problem.jobs))
        rates = problem.throughputs.rates[np.arange(count) % 3 % count]
        kinds = [f"k{i}" for i in range(min(3, count))]
        rows = tuple(pair_rows(kinds, rates[: len(kinds)], 1))
        problem = replace(problem, jobs=jobs, throughputs=ThroughputTable(rates=rates, pairs=rows))
    return problem


@pytest.mark.parametrize("objective", list(Objective))
@SOME
@given(problem=problems())
def test_every_allocation_is_feasible(objective: Objective, problem: Problem) -> None:
    found = allocate(objective, problem)
    assert violation(problem, found) <= FEASIBLE
    again = allocate(objective, replace(problem, previous=found))
    assert violation(problem, again) <= FEASIBLE
    assert again.objective == pytest.approx(found.objective, rel=1e-5, abs=1e-7)
    assert set(found.unplaceable) == {
        job.name
        for job, row in zip(problem.jobs, problem.throughputs.rates, strict=True)
        if not any(
            speed > 0 and job.gang <= kind.devices
            for speed, kind in zip(row, problem.types, strict=True)
        )
    }


@SOME
@given(problem=problems(), tenants=st.integers(1, 3))
def test_water_filling_is_feasible_and_begins_with_max_min(problem: Problem, tenants: int) -> None:
    plain = waterfill.solve(problem)
    assert violation(problem, plain) <= FEASIBLE
    level = allocate(Objective.MAX_MIN_FAIRNESS, problem).objective
    assert plain.objective == pytest.approx(level, rel=1e-6, abs=1e-9)
    jobs = tuple(replace(job, tenant=str(i % tenants)) for i, job in enumerate(problem.jobs))
    names = tuple(TenantView(name=str(number), weight=1.0 + number) for number in range(tenants))
    assert (
        violation(problem, waterfill.solve(replace(problem, jobs=jobs, tenants=names))) <= FEASIBLE
    )


@SOME
@given(problem=problems(), factor=st.floats(1e-3, 1e3))
def test_a_model_that_counts_other_steps_gets_the_same(problem: Problem, factor: float) -> None:
    """Steps/s of different models are never compared: the unit of a step does not matter."""
    rates = problem.throughputs.rates.copy()
    if problem.throughputs.pairs:
        return
    rates[0] *= factor
    other = replace(problem, throughputs=ThroughputTable(rates=rates))
    for objective in (Objective.MAX_MIN_FAIRNESS, Objective.MAX_THROUGHPUT, Objective.MIN_COST):
        one, two = allocate(objective, problem), allocate(objective, other)
        assert one.objective == pytest.approx(two.objective, rel=1e-5, abs=1e-8)


@SOME
@given(
    left=st.integers(1, 9), right=st.integers(1, 9), part=st.floats(0.01, 1.0), same=st.booleans()
)
def test_time_in_pairs_is_split_evenly_and_wholly(
    left: int, right: int, part: float, same: bool
) -> None:
    first = [f"a{i}" for i in range(left + same)]
    second = first if same else [f"b{i}" for i in range(right)]
    total = part * (len(first) / 2 if same else min(len(first), len(second)))
    shares = list(partners(first, second, "t", total))
    assert sum(share.fraction for share in shares) == pytest.approx(total)
    assert all(share.left != share.right for share in shares)
    assert len(shares) <= len(first) + len(second)
    time = dict.fromkeys([*first, *second], 0.0)
    for share in shares:
        time[share.left] += share.fraction
        time[share.right] += share.fraction
    for members in (first, second):
        spread = [time[name] for name in members]
        assert max(spread) - min(spread) <= 1e-9
        assert max(spread) <= 1 + 1e-9


@SOME
@given(problem=problems(), seed=st.integers(0, 1000))
def test_rounds_never_overfill_and_never_stop_what_cannot_save(problem: Problem, seed: int) -> None:
    rng = np.random.default_rng(seed)
    allocation = allocate(Objective.MAX_MIN_FAIRNESS, problem)
    free = {kind.name: kind.devices for kind in problem.types}
    jobs = [
        RoundJob(
            name=job.name,
            gang=job.gang,
            speeds=dict(zip(free, row.tolist(), strict=True)),
            checkpointable=bool(rng.random() < 0.7),
            restart_s=float(rng.uniform(0, 200)),
        )
        for job, row in zip(problem.jobs, problem.throughputs.rates, strict=True)
    ]
    known = {job.name: job for job in jobs}
    state, now = RoundState(), 0.0
    for _ in range(12):
        alive = [job for job in jobs if rng.random() < 0.9 or job.name in str(state.running)]
        cut = RoundSettings(gang_skip_limit=2)
        plan = next_round(state, allocation, free, now, jobs=alive, settings=cut)
        names = [name for run in plan.runs for name in run.members]
        assert len(names) == len(set(names))
        assert {*names, *plan.waiting} == {job.name for job in alive}
        for kind, size in free.items():
            taken = [known[run.members[0]].gang for run in plan.runs if run.type == kind]
            assert sum(taken) <= size
        assert all(known[run.members[0]].speeds[run.type] > 0 for run in plan.runs)
        for members, kind in state.running.items():
            if not all(known[name].checkpointable for name in members):
                assert plan.state.running.get(members) == kind
        assert not any(known[stop.job].checkpointable is False for stop in plan.stops)
        state, now = plan.state, now + float(rng.uniform(-50, 700))
