# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rounds: received time follows promised time; no one starves, nothing idles, little is stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from ullage.engines.allocation.model import Allocation, PairShare, Problem
from ullage.engines.allocation.policies import Objective, allocate, waterfill
from ullage.engines.allocation.round_records import RoundJob, RoundPlan, RoundSettings, RoundState
from ullage.engines.allocation.rounds import next_round
from unit.engines.allocation.instances import pair_rows, random_problem, table_problem

ROUND = 360.0
SETTINGS = RoundSettings(round_s=ROUND)


def _allocation(shares: Mapping[str, Mapping[str, float]], *pairs: PairShare) -> Allocation:
    types = tuple(sorted({kind for row in shares.values() for kind in row}))
    return Allocation(
        jobs=tuple(shares),
        types=types,
        fractions=np.array([[row.get(kind, 0.0) for kind in types] for row in shares.values()]),
        pairs=pairs,
    )


def _jobs(problem: Problem, **changes: float) -> list[RoundJob]:
    return [
        RoundJob(
            name=job.name,
            gang=job.gang,
            speeds={
                kind.name: float(speed) if job.gang <= kind.devices else 0.0
                for kind, speed in zip(problem.types, row, strict=True)
            },
            **changes,
        )
        for job, row in zip(problem.jobs, problem.throughputs.rates, strict=True)
    ]


def _play(
    jobs: Sequence[RoundJob],
    allocation: Allocation,
    free: Mapping[str, int],
    rounds: int,
    settings: RoundSettings = SETTINGS,
) -> list[RoundPlan]:
    state, plans = RoundState(), []
    for number in range(rounds):
        plan = next_round(
            state, allocation, free, number * settings.round_s, jobs=jobs, settings=settings
        )
        plans.append(plan)
        state = plan.state
    return plans


def _received(plans: Sequence[RoundPlan]) -> dict[tuple[str, str], float]:
    rounds: dict[tuple[str, str], float] = {}
    for plan in plans:
        for run in plan.runs:
            for name in run.members:
                rounds[name, run.type] = rounds.get((name, run.type), 0.0) + 1 / len(plans)
    return rounds


@pytest.mark.parametrize("seed", range(5))
def test_after_fifty_rounds_every_job_has_what_was_promised(seed: int) -> None:
    """Crowded, and no gang fills half a type: fractions can be cut into rounds."""
    problem = table_problem(seed, 70, (24, 16, 8))
    allocation = waterfill.solve(problem)
    free = {kind.name: kind.devices for kind in problem.types}
    plans = _play(_jobs(problem), allocation, free, 50)
    got = _received(plans)
    for name in allocation.jobs:
        spare = sum(run.spare and name in run.members for plan in plans for run in plan.runs) / 50
        for kind, share in allocation.of(name).items():
            assert got.get((name, kind), 0.0) >= share - 0.05
            assert got.get((name, kind), 0.0) <= share + 0.05 + spare


def test_pairs_receive_their_promise_too() -> None:
    base = random_problem(1, 6, (2, 2))
    jobs = tuple(replace(job, kind=job.name, gang=1) for job in base.jobs)
    rates = np.maximum(base.throughputs.rates, 0.1)
    rows = tuple(pair_rows([job.name for job in jobs], rates, 3))
    speeds = replace(base.throughputs, rates=rates, pairs=rows)
    problem = replace(base, jobs=jobs, throughputs=speeds)
    allocation = allocate(Objective.MAX_MIN_FAIRNESS, problem)
    assert allocation.pairs
    got = _received(_play(_jobs(problem), allocation, {"t0": 2, "t1": 2}, 100))
    for name in allocation.jobs:
        for kind, share in allocation.of(name).items():
            assert got.get((name, kind), 0.0) >= share - 0.05


def test_a_lone_job_on_an_idle_cluster_starts_at_once() -> None:
    job = RoundJob(name="a", gang=2, speeds={"t": 1.0}, checkpointable=False)
    plan = next_round(
        RoundState(at_s=9e5),
        _allocation({"a": {"t": 1.0}}),
        {"t": 4},
        1e6,
        jobs=[job],
        settings=SETTINGS,
    )
    assert [(run.members, run.type, run.kept) for run in plan.runs] == [(("a",), "t", False)]
    assert (plan.waiting, plan.stops) == ((), ())


def test_who_is_owed_most_is_the_first_of_those_who_wait() -> None:
    jobs = [RoundJob(name=name, gang=1, speeds={"t": 1.0}) for name in "abcd"]
    owed = {(("a",), "t"): 50.0, (("b",), "t"): 300.0, (("c",), "t"): 100.0, (("d",), "t"): 200.0}
    state = RoundState(at_s=0.0, owed_s=owed)
    shares = _allocation({name: {"t": 0.25} for name in "abcd"})
    plan = next_round(state, shares, {"t": 1}, 0.0, jobs=jobs, settings=SETTINGS)
    assert [run.members for run in plan.runs] == [("b",)]
    assert plan.waiting == ("d", "c", "a")


def test_the_same_arguments_give_the_same_plan_in_any_order_of_jobs() -> None:
    problem = random_problem(3, 12, (4, 4))
    allocation = waterfill.solve(problem)
    jobs = _jobs(problem)
    free = {"t0": 4, "t1": 4}
    assert _play(jobs, allocation, free, 10) == _play(jobs[::-1], allocation, free, 10)


def test_equals_do_not_change_places_within_what_a_restart_costs() -> None:
    jobs = [RoundJob(name=n, gang=1, speeds={"t": 1.0}, restart_s=3 * ROUND) for n in "ab"]
    allocation = _allocation({"a": {"t": 0.5}, "b": {"t": 0.5}})
    dear = _play(jobs, allocation, {"t": 1}, 40)
    cheap = _play([job._replace(restart_s=0.0) for job in jobs], allocation, {"t": 1}, 40)

    def moves(plans: Sequence[RoundPlan]) -> int:
        return sum(len(plan.stops) for plan in plans)

    assert moves(dear) < moves(cheap) / 2
    assert _received(dear)["b", "t"] == pytest.approx(0.5, abs=0.1)


def test_a_stop_names_its_cost_and_where_the_job_goes() -> None:
    jobs = [
        RoundJob(name="a", gang=1, speeds={"t": 1.0, "u": 0.5}, restart_s=5.0, unsaved_s=2.0),
        RoundJob(name="b", gang=1, speeds={"t": 1.0}),
    ]
    state = RoundState(at_s=0.0, running={("a",): "t"})
    allocation = _allocation({"a": {"u": 1.0}, "b": {"t": 1.0}})
    plan = next_round(state, allocation, {"t": 1, "u": 1}, 1.0, jobs=jobs, settings=SETTINGS)
    assert [(s.job, s.type, s.moves_to, s.costs_s) for s in plan.stops] == [("a", "t", "u", 7.0)]


def test_of_two_equal_victims_the_one_with_the_younger_checkpoint_is_stopped() -> None:
    jobs = [
        RoundJob(name="long-unsaved", gang=1, speeds={"t": 1.0}, unsaved_s=300.0),
        RoundJob(name="just-saved", gang=1, speeds={"t": 1.0}, unsaved_s=3.0),
        RoundJob(name="new", gang=1, speeds={"t": 1.0}),
    ]
    state = RoundState(
        running={("long-unsaved",): "t", ("just-saved",): "t"},
        owed_s={(("new",), "t"): 1000.0},
    )
    allocation = _allocation({job.name: {"t": 2 / 3} for job in jobs})
    plan = next_round(state, allocation, {"t": 2}, 0.0, jobs=jobs, settings=SETTINGS)
    assert [stop.job for stop in plan.stops] == ["just-saved"]


def test_a_job_that_cannot_save_its_work_is_never_stopped() -> None:
    fixed = RoundJob(name="fixed", gang=1, speeds={"t": 1.0}, checkpointable=False)
    others = [RoundJob(name=f"o{n}", gang=1, speeds={"t": 1.0}) for n in range(3)]
    shares = {"fixed": {"t": 0.01}} | {job.name: {"t": 0.33} for job in others}
    state = RoundState(running={("fixed",): "t"})
    for number in range(60):
        allocation = _allocation(
            shares if number % 2 else {n: s for n, s in shares.items() if n != "fixed"}
        )
        plan = next_round(
            state, allocation, {"t": 1}, number * ROUND, jobs=[fixed, *others], settings=SETTINGS
        )
        assert [run.members for run in plan.runs] == [("fixed",)]
        assert plan.stops == ()
        state = plan.state


def test_whose_partner_ends_goes_on_alone() -> None:
    fixed = RoundJob(name="a", gang=1, speeds={"t": 1.0}, checkpointable=False)
    other = RoundJob(name="c", gang=1, speeds={"t": 1.0})
    state = RoundState(running={("a", "b"): "t"}, owed_s={(("c",), "t"): 5000.0})
    allocation = _allocation({"a": {"t": 0.1}, "c": {"t": 0.9}})
    plan = next_round(state, allocation, {"t": 1}, 10.0, jobs=[fixed, other], settings=SETTINGS)
    assert [(run.members, run.kept) for run in plan.runs] == [(("a",), True)]
    assert plan.stops == ()


def test_devices_are_kept_for_a_gang_that_small_jobs_pass_by() -> None:
    """Small jobs that cannot be stopped come and go; without a reservation a gang never starts."""
    gang = RoundJob(name="gang", gang=4, speeds={"t": 1.0})
    ends = {f"s{n}": n + 1 for n in range(40)}
    started = None
    state = RoundState()
    for number in range(30):
        alive = [n for n, end in ends.items() if end > number and int(n[1:]) < number + 4]
        jobs = [gang] + [
            RoundJob(name=n, gang=1, speeds={"t": 1.0}, checkpointable=False) for n in alive
        ]
        allocation = _allocation({"gang": {"t": 0.5}} | {n: {"t": 0.5} for n in alive})
        plan = next_round(state, allocation, {"t": 4}, number * ROUND, jobs=jobs, settings=SETTINGS)
        state = plan.state
        if any(run.members == ("gang",) for run in plan.runs):
            started = number
            break
    assert started is not None
    assert started <= SETTINGS.gang_skip_limit + 6


def test_a_reservation_says_what_is_kept_and_what_is_missing() -> None:
    gang = RoundJob(name="gang", gang=3, speeds={"t": 1.0})
    small = [RoundJob(name=n, gang=1, speeds={"t": 1.0}, checkpointable=False) for n in "abc"]
    state = RoundState(running={("a",): "t"}, skipped={"gang": 3})
    allocation = _allocation({"gang": {"t": 0.2}} | {n: {"t": 0.6} for n in "abc"})
    plan = next_round(state, allocation, {"t": 3}, 0.0, jobs=[gang, *small], settings=SETTINGS)
    assert [(r.job, r.devices, r.missing) for r in plan.reserved] == [("gang", 2, 1)]
    assert [run.members for run in plan.runs] == [("a",)]


def test_a_gang_that_gets_its_turn_keeps_no_devices_beside_it() -> None:
    gang = RoundJob(name="gang", gang=2, speeds={"t": 1.0})
    small = [RoundJob(name=n, gang=1, speeds={"t": 1.0}, checkpointable=False) for n in "abc"]
    allocation = _allocation({"gang": {"t": 0.2}} | {n: {"t": 0.6} for n in "abc"})
    state = RoundState(skipped={"gang": 3})
    plan = next_round(state, allocation, {"t": 3}, 0.0, jobs=[gang, *small], settings=SETTINGS)
    assert [run.members for run in plan.runs] == [("gang",), ("a",)]
    assert plan.reserved == ()


def test_reserved_devices_work_for_jobs_that_can_be_stopped_again() -> None:
    gang = RoundJob(name="gang", gang=3, speeds={"t": 1.0})
    fixed = RoundJob(name="a", gang=1, speeds={"t": 1.0}, checkpointable=False)
    soft = RoundJob(name="b", gang=1, speeds={"t": 1.0})
    state = RoundState(running={("a",): "t"}, skipped={"gang": 3})
    allocation = _allocation({"gang": {"t": 0.2}, "a": {"t": 0.6}, "b": {"t": 0.6}})
    plan = next_round(state, allocation, {"t": 3}, 0.0, jobs=[gang, fixed, soft], settings=SETTINGS)
    assert {run.members for run in plan.runs} == {("a",), ("b",)}


def test_of_idle_types_a_job_takes_the_one_that_it_is_quickest_on() -> None:
    job = RoundJob(name="a", gang=1, speeds={"s": 1.0, "t": 5.0, "u": 3.0})
    nothing = _allocation({"a": {"t": 0.0}})
    free = {"s": 1, "t": 1, "u": 1}
    plan = next_round(RoundState(), nothing, free, 0.0, jobs=[job], settings=SETTINGS)
    assert [(run.type, run.spare) for run in plan.runs] == [("t", True)]


def test_no_device_idles_while_a_job_that_may_use_it_waits() -> None:
    for seed in range(8):
        problem = random_problem(seed, 10, (3, 5))
        allocation = allocate(Objective.MAX_THROUGHPUT, problem)
        jobs = _jobs(problem)
        for plan in _play(jobs, allocation, {"t0": 3, "t1": 5}, 5):
            left = {"t0": 3, "t1": 5}
            gangs = {job.name: job for job in jobs}
            for run in plan.runs:
                left[run.type] -= gangs[run.members[0]].gang
            assert min(left.values()) >= 0
            for name in plan.waiting:
                assert not any(
                    speed > 0 and gangs[name].gang <= left[kind]
                    for kind, speed in gangs[name].speeds.items()
                )


def test_state_that_went_through_a_status_changes_nothing() -> None:
    """What is owed is written down: a restart between two rounds is not noticed."""
    problem = random_problem(5, 8, (2, 3))
    allocation = waterfill.solve(problem)
    jobs, free = _jobs(problem), {"t0": 2, "t1": 3}
    whole = _play(jobs, allocation, free, 12)
    state = RoundState()
    for number in range(12):
        kept = {name: getattr(state, name) for name in RoundState.__dataclass_fields__}
        copied = {k: dict(v) if isinstance(v, Mapping) else v for k, v in kept.items()}
        plan = next_round(
            RoundState(**copied), allocation, free, number * ROUND, jobs=jobs, settings=SETTINGS
        )
        state = plan.state
        assert plan == whole[number]


def test_a_clock_that_goes_back_stands_still() -> None:
    job = RoundJob(name="a", gang=1, speeds={"t": 1.0})
    allocation = _allocation({"a": {"t": 1.0}})
    first = next_round(RoundState(), allocation, {"t": 1}, 100.0, jobs=[job], settings=SETTINGS)
    back = next_round(first.state, allocation, {"t": 1}, 40.0, jobs=[job], settings=SETTINGS)
    assert back.state.at_s == 100.0
    assert min(back.state.received_s.values()) >= 0
    assert back.state.owed_s == {(("a",), "t"): 0.0}


def test_debts_are_bounded_and_jobs_that_left_are_forgotten() -> None:
    jobs = [RoundJob(name=n, gang=1, speeds={"t": 1.0}, checkpointable=n != "a") for n in "ab"]
    allocation = _allocation({"a": {"t": 0.5}, "b": {"t": 0.5}})
    state = RoundState(running={("a",): "t"})
    for number in range(200):
        plan = next_round(state, allocation, {"t": 1}, number * ROUND, jobs=jobs, settings=SETTINGS)
        state = plan.state
    assert state.owed_s[("b",), "t"] == 20 * ROUND
    plan = next_round(state, allocation, {"t": 1}, 1e6, jobs=jobs[1:], settings=SETTINGS)
    assert not any("a" in cell[0] for cell in plan.state.owed_s | plan.state.received_s)


def test_idle_devices_stay_with_those_who_have_them() -> None:
    jobs = [RoundJob(name=name, gang=1, speeds={"t": 1.0}) for name in "abc"]
    nothing = _allocation({name: {"t": 0.0} for name in "abc"})

    def taken(state: RoundState) -> list[tuple[str, ...]]:
        plan = next_round(state, nothing, {"t": 1}, 0.0, jobs=jobs, settings=SETTINGS)
        assert all(run.spare for run in plan.runs)
        return [run.members for run in plan.runs]

    assert taken(RoundState()) == [("a",)]
    assert taken(RoundState(running={("b",): "t"})) == [("b",)]
