# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.lanes_switch import jain
from ullage.engines.lanes.policies import FIRST_STEPS
from ullage.engines.lanes.records import JobDemand
from ullage.engines.lanes.settings import EXACT, IterationPolicy, LaneSettings
from ullage.engines.lanes.simulator import LaneJob, LaneSimulator, PlayedLanes, play_lanes

SERVES_ALL = [one for one in IterationPolicy if one is not IterationPolicy.FIFO]


def a_job(
    name: str,
    *,
    steps: int = 10,
    step_s: float = 1.0,
    arrival_s: float = 0.0,
    total_s: float | None = None,
    total_steps: int | None = None,
) -> LaneJob:
    """All share one lane of the device."""
    demand = JobDemand(
        name=name, persistent_mib=1, ephemeral_mib=900, total_s=total_s, total_steps=total_steps
    )
    return LaneJob(demand=demand, arrival_s=arrival_s, steps=steps, step_s=step_s)


def on_a_lane(policy: IterationPolicy, *, aging: float = 20.0) -> LaneSettings:
    return LaneSettings(capacity_mib=1000, margins=EXACT, policy=policy, aging=aging)


def ends(played: PlayedLanes) -> dict[str, float]:
    return {one.name: one.end_s for one in played.jobs}


def test_fifo_runs_the_first_job_to_its_end() -> None:
    jobs = [a_job("a", steps=3), a_job("b", steps=2), a_job("c", steps=1)]
    assert ends(play_lanes(jobs, on_a_lane(IterationPolicy.FIFO))) == {"a": 3, "b": 5, "c": 6}


def test_rr_gives_equal_steps_and_fair_equal_time() -> None:
    jobs = [a_job("long", steps=100, step_s=3.0), a_job("short", steps=100, step_s=1.0)]
    ran = {}
    for policy in (IterationPolicy.RR, IterationPolicy.FAIR):
        simulator = LaneSimulator(settings=on_a_lane(policy))
        for job in jobs:
            simulator.add(job)
        simulator.run(60.0)
        ran[policy] = [one.ran_s for one in simulator.table.memory.residents.values()]
    assert ran[IterationPolicy.RR] == [45.0, 15.0]
    assert jain(ran[IterationPolicy.FAIR]) > 0.99


def test_pack_runs_steps_in_the_order_in_which_they_were_asked() -> None:
    jobs = [a_job("a", steps=2), a_job("b", steps=2, step_s=5.0), a_job("c", steps=1)]
    assert ends(play_lanes(jobs, on_a_lane(IterationPolicy.PACK))) == {"c": 7, "a": 8, "b": 13}


def test_srtf_runs_the_job_with_the_least_left() -> None:
    jobs = [a_job("long", steps=9, total_s=9.0), a_job("short", steps=2, total_s=2, arrival_s=1.5)]
    assert ends(play_lanes(jobs, on_a_lane(IterationPolicy.SRTF))) == {"short": 4, "long": 11}


def test_srtf_learns_lengths_from_the_number_of_steps() -> None:
    jobs = [a_job("long", steps=30, total_steps=30), a_job("short", steps=8, total_steps=8)]
    found = ends(play_lanes(jobs, on_a_lane(IterationPolicy.SRTF, aging=1e9)))
    assert found["short"] <= FIRST_STEPS + 8 + 1
    assert found["long"] == 38


def test_few_long_steps_can_be_more_than_many_short_ones() -> None:
    jobs = [
        a_job("few", steps=10, step_s=5.0, total_steps=10),
        a_job("many", steps=20, total_steps=20),
    ]
    found = ends(play_lanes(jobs, on_a_lane(IterationPolicy.SRTF, aging=1e9)))
    assert found["many"] < found["few"]


@pytest.mark.parametrize("declared", [1, 5, 6])
def test_a_number_of_steps_that_is_too_small_helps_until_they_are_over(declared: int) -> None:
    liar = a_job("liar", steps=200, total_steps=declared)
    honest = a_job("honest", steps=10, total_steps=10)
    found = ends(play_lanes([liar, honest], on_a_lane(IterationPolicy.SRTF)))
    assert found["honest"] <= 24


def test_a_job_of_no_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one step"):
        a_job("none", total_steps=0)


def test_a_length_that_is_declared_too_short_helps_until_it_is_over() -> None:
    liar = a_job("liar", steps=50, total_s=1.0)
    honest = a_job("honest", steps=10, total_s=10.0)
    found = ends(play_lanes([liar, honest], on_a_lane(IterationPolicy.SRTF)))
    assert found["honest"] <= 22


@settings(max_examples=40)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_srtf_is_the_best_of_all_orders_where_all_came_at_once(lengths: list[int]) -> None:
    """They come while a step of another job runs, so that the first choice is among all."""
    jobs = [a_job(f"j{at}", steps=n, total_s=n) for at, n in enumerate(lengths)]
    first = a_job("first", steps=1, total_s=1.0)
    played = play_lanes([first, *jobs], on_a_lane(IterationPolicy.SRTF, aging=1e9))
    found = sum(end - 1 for end in ends(played).values()) / len(lengths)
    best = min(
        sum(sum(order[: at + 1]) for at in range(len(order))) for order in permutations(lengths)
    )
    assert found == pytest.approx(best / len(lengths))


@pytest.mark.parametrize("policy", SERVES_ALL)
def test_a_stream_of_newcomers_starves_no_one(policy: IterationPolicy) -> None:
    """Short jobs that fill the lane alone; the long one would never end without a share."""
    jobs = [a_job("long", steps=20, total_s=20.0)]
    jobs += [a_job(f"short-{at}", steps=2, total_s=2.0, arrival_s=2.0 * at) for at in range(600)]
    simulator = LaneSimulator(settings=on_a_lane(policy))
    for job in jobs:
        simulator.add(job)
    simulator.run(1200.0)
    assert "long" in ends(simulator.played())


def test_without_aging_srtf_would_starve_the_long_job() -> None:
    jobs = [a_job("long", steps=20, total_s=20.0)]
    jobs += [a_job(f"short-{at}", steps=2, total_s=2.0, arrival_s=2.0 * at) for at in range(600)]
    simulator = LaneSimulator(settings=on_a_lane(IterationPolicy.SRTF, aging=1e9))
    for job in jobs:
        simulator.add(job)
    simulator.run(1200.0)
    assert "long" not in ends(simulator.played())


def test_a_job_that_paused_catches_up_by_no_more_than_its_credit() -> None:
    """A notebook that wakes after an hour does not hold the lane for an hour."""
    table = LaneSimulator(settings=on_a_lane(IterationPolicy.FAIR))
    table.add(a_job("busy", steps=100_000))
    table.add(a_job("waker", steps=1_000, arrival_s=0.0))
    table.run(10.0)
    table.table.withdraw("waker", 10.0)
    table.run(3600.0)
    _, changes = table.table.acquire("waker", table.now_s)
    assert changes == ()
    waker = table.table.memory.residents["waker"]
    busy = table.table.memory.residents["busy"]
    assert busy.level_s - waker.level_s <= table.settings.credit_s + 1.0


@settings(max_examples=30)
@given(
    lengths=st.lists(
        st.tuples(st.integers(1, 8), st.floats(0.1, 5), st.floats(0, 20)), min_size=1, max_size=8
    ),
    policy=st.sampled_from(IterationPolicy),
)
def test_every_job_ends_and_a_lane_never_idles_while_one_asks(
    lengths: list[tuple[int, float, float]], policy: IterationPolicy
) -> None:
    jobs = [
        a_job(f"j{at}", steps=steps, step_s=step_s, arrival_s=arrival)
        for at, (steps, step_s, arrival) in enumerate(lengths)
    ]
    played = play_lanes(jobs, on_a_lane(policy))
    assert len(played.jobs) == len(jobs)
    now = 0.0
    for job in sorted(jobs, key=lambda one: one.arrival_s):
        now = max(now, job.arrival_s) + job.steps * job.step_s
    assert max(ends(played).values()) == pytest.approx(now)


def test_lanes_side_by_side_stretch_each_other_by_what_is_said() -> None:
    small = [
        LaneJob(
            demand=JobDemand(name=name, persistent_mib=1, ephemeral_mib=100),
            arrival_s=0.0,
            steps=1,
            step_s=1.0,
        )
        for name in "ab"
    ]
    settings_ = on_a_lane(IterationPolicy.FAIR)
    assert ends(play_lanes(small, settings_)) == {"a": 1.0, "b": 1.0}
    assert ends(play_lanes(small, settings_, slowdown=0.25))["b"] == 1.25
