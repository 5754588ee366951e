# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Plans keep to devices, end near the best there is, and resize only where it pays."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.tuning_exact import shortest_s
from fakes.examples import examples
from fakes.tuning_trials import RULES, WIDTHS, curve, facts, pool, trials
from ullage.engines.tuning.baselines import first_come, longest_first, static, static_sizes
from ullage.engines.tuning.bounds import fluid_bound_s, lower_bound_s
from ullage.engines.tuning.planner import plan
from ullage.engines.tuning.records import PlannedTrial, PlanRules, TrialHolding, TrialPlan
from ullage.engines.tuning.simulator import play
from ullage.engines.tuning.speed_curves import SpeedCurve, Widths

WORKS = st.lists(st.floats(1.0, 1e5), min_size=1, max_size=20)


def size_of(found: TrialPlan, trial: int) -> int:
    return next(one.size for one in found.starts if one.trial == trial)


def held(trial: PlannedTrial, size: int, *devices: int, since_s: float = 0.0) -> PlannedTrial:
    return replace(trial, holding=TrialHolding(size=size, devices=devices, since_s=since_s))


def test_one_trial_takes_the_widest_width() -> None:
    found = plan(trials([100.0]), pool(8), RULES, 0.0)
    (start,) = found.starts
    assert (start.size, start.devices) == (48, (0, 1, 2, 3))


def test_a_width_stays_on_one_node_where_it_can() -> None:
    busy = held(trials([100.0])[0], 12, 0, since_s=0.0)
    wide = PlannedTrial(number=1, work_s=1e4, curve=curve())
    found = plan([replace(busy, checkpoints=False), wide], pool(8), RULES, 10.0)
    assert found.starts[0].devices == (4, 5, 6, 7)


def test_many_trials_share_devices_and_the_longest_start() -> None:
    works = [float(work) for work in range(1, 101)]
    found = plan(trials(works), pool(4), RULES, 0.0)
    parts = Counter[int]()
    for start in found.starts:
        for device in start.devices:
            parts[device] += min(start.size, WIDTHS.parts)
    assert set(parts) == {0, 1, 2, 3}
    assert max(parts.values()) <= WIDTHS.parts
    started = {start.trial for start in found.starts}
    assert started == set(range(100 - len(started), 100))


def test_trials_that_gain_nothing_by_sharing_do_not_share() -> None:
    found = plan(trials([100.0] * 20, curve(1.0, 0.85)), pool(4), RULES, 0.0)
    assert [one.size for one in found.starts] == [WIDTHS.parts] * 4
    found = plan(trials([100.0] * 20, curve(0.9, 0.85)), pool(4), RULES, 0.0)
    assert max(one.size for one in found.starts) < WIDTHS.parts


def test_memory_keeps_a_share_from_being_too_small() -> None:
    heavy = [replace(one, memory_part=0.4) for one in trials([100.0] * 20)]
    found = plan(heavy, pool(2), RULES, 0.0)
    assert len(found.starts) == 4
    assert all(start.size >= WIDTHS.parts // 2 for start in found.starts)


def test_what_is_left_goes_to_the_trial_that_ends_last() -> None:
    long, short = trials([1000.0, 10.0])
    found = plan([held(long, 12, 0), held(short, 12, 1)], pool(3), RULES, 100.0)
    assert [(one.trial, one.from_size, one.size) for one in found.resizes] == [(0, 12, 24)]


def test_a_resize_must_save_three_times_its_cost() -> None:
    works_s, saved_s = 1000.0, 1000.0 - 1000.0 / 4**0.85
    for cost_s, resized in ((saved_s / 3 * 1.01, False), (saved_s / 3 * 0.99, True)):
        trial = replace(trials([works_s])[0], resize_cost_s=cost_s)
        found = plan([held(trial, 12, 0)], pool(4), RULES, 100.0)
        assert bool(found.resizes) is resized
        if resized:
            assert found.resizes[0].gain_s == pytest.approx(saved_s)


def test_a_trial_rests_after_a_resize() -> None:
    trial = held(trials([1000.0])[0], 12, 0, since_s=50.0)
    assert not plan([trial], pool(4), RULES, 109.0).resizes
    assert plan([trial], pool(4), RULES, 110.0).resizes


def test_a_trial_without_checkpoints_is_never_resized() -> None:
    trial = replace(held(trials([1e6])[0], 3, 0), checkpoints=False)
    assert plan([trial], pool(4), RULES, 1e4).resizes == ()
    more = [trial, *(replace(one, number=one.number + 1) for one in trials([10.0] * 30))]
    assert plan(more, pool(1), RULES, 1e4).resizes == ()


def test_a_newcomer_narrows_a_running_trial_only_where_that_pays() -> None:
    for cost_s, narrowed in ((0.0, True), (1e4, False)):
        wide = held(replace(trials([1000.0])[0], resize_cost_s=cost_s), 48, 0, 1, 2, 3)
        newcomer = PlannedTrial(number=1, work_s=1000.0, curve=curve())
        found = plan([wide, newcomer], pool(4), RULES, 100.0)
        assert bool(found.resizes) is narrowed
        assert bool(found.starts) is narrowed


def test_a_trial_whose_device_is_gone_starts_again() -> None:
    found = plan([held(trials([100.0])[0], 12, 7)], pool(2), RULES, 100.0)
    assert [one.trial for one in found.starts] == [0]
    assert not found.resizes


def test_nothing_is_planned_without_trials_or_devices() -> None:
    assert plan([], pool(2), RULES, 0.0) == TrialPlan()
    assert plan(trials([1.0]), (), RULES, 0.0) == TrialPlan()


def test_holdings_beyond_a_device_are_refused() -> None:
    both = [held(one, 12, 0) for one in trials([1.0, 2.0])]
    with pytest.raises(ValueError, match="holds more"):
        plan(both, pool(1), RULES, 0.0)


def test_a_holding_that_is_no_width_is_refused() -> None:
    with pytest.raises(ValueError, match="5 of 12 parts"):
        plan([held(trials([1.0])[0], 5, 0)], pool(1), RULES, 0.0)


@given(WORKS, st.integers(1, 9), st.floats(0, 1e3))
def test_no_plan_exceeds_a_device(works: list[float], devices: int, cost_s: float) -> None:
    played = play(facts(works, resize_cost_s=cost_s), plan, RULES, pool(devices))
    assert sorted(played.ends_s) == list(range(len(works)))
    assert played.stuck == ()
    times = sorted({one.start_s for one in played.segments})
    for now_s in times:
        parts = Counter[int]()
        for one in played.segments:
            if one.start_s <= now_s < one.end_s:
                for device in one.devices:
                    parts[device] += min(one.size, WIDTHS.parts)
        assert max(parts.values(), default=0) <= WIDTHS.parts


@given(WORKS, st.integers(1, 9), st.floats(0.3, 1.0), st.floats(0.3, 1.0))
def test_nothing_ends_before_the_bounds(
    works: list[float], devices: int, below: float, above: float
) -> None:
    shape = curve(below, above)
    waiting = trials(works, shape)
    bound = lower_bound_s(waiting, devices, WIDTHS)
    fluid = fluid_bound_s(waiting, devices, WIDTHS)
    assert bound <= fluid * (1 + 1e-9)
    for planner in (plan, longest_first, first_come):
        ended = play(facts(works, curve=shape), planner, RULES, pool(devices)).makespan_s
        assert ended >= fluid * (1 - 1e-5)


@examples(15, 300)
@given(
    st.lists(st.floats(1.0, 1e3), min_size=1, max_size=5),
    st.integers(1, 3),
    st.floats(0.3, 1.0),
    st.floats(0.3, 1.0),
)
def test_the_exact_optimum_lies_between_bounds_and_planner(
    works: list[float], devices: int, below: float, above: float
) -> None:
    widths = Widths(per_device=2, devices=2)
    shape = curve(below, above, widths)
    waiting = trials(works, shape)
    best = shortest_s(waiting, devices, widths)
    assert lower_bound_s(waiting, devices, widths) <= best * (1 + 1e-6)
    assert fluid_bound_s(waiting, devices, widths) <= best * (1 + 1e-5)
    ended = play(
        facts(works, curve=shape), plan, PlanRules(widths=widths), pool(devices)
    ).makespan_s
    assert best * (1 - 1e-6) <= ended <= 2.0 * best


def test_the_exact_optimum_of_cases_that_are_known() -> None:
    line = SpeedCurve(speeds=(0.5, 1.0, 2.0))
    widths = Widths(per_device=2, devices=2)
    # of work that scales perfectly only the sum counts
    assert shortest_s(trials([3.0, 1.0], line), 2, widths) == pytest.approx(2.0)
    flat = SpeedCurve(speeds=(0.5, 1.0, 1.0))
    # of work that does not, three trials on two devices take turns (McNaughton)
    assert shortest_s(trials([1.0] * 3, flat), 2, widths) == pytest.approx(1.5)
    good = SpeedCurve(speeds=(1.0, 1.0, 1.0))
    assert shortest_s(trials([1.0] * 4, good), 2, widths) == pytest.approx(1.0)
    assert shortest_s([], 2, widths) == 0
    with pytest.raises(ValueError, match="at most"):
        shortest_s(trials([1.0] * 7), 2, widths)
    with pytest.raises(ValueError, match="at most"):
        shortest_s(trials([1.0]), 4, widths)


@pytest.mark.parametrize("cost", [0.0, 0.01])
@pytest.mark.parametrize("count", [9, 27])
@pytest.mark.parametrize("seed", range(4))
def test_plans_beat_one_device_a_trial(seed: int, count: int, cost: float) -> None:
    works = (600 * np.random.default_rng(seed).lognormal(0, 0.8, count)).tolist()
    bound = lower_bound_s(trials(works), 8, WIDTHS)
    fluid = fluid_bound_s(trials(works), 8, WIDTHS)
    ours = play(facts(works, resize_cost_s=cost * bound), plan, RULES, pool(8)).makespan_s
    longest = play(facts(works), longest_first, RULES, pool(8)).makespan_s
    assert ours <= longest
    assert ours <= 1.25 * fluid


def test_a_perfect_trial_never_ends_later_than_alone() -> None:
    assert lower_bound_s(trials([100.0]), 8, WIDTHS) == pytest.approx(100 / 4**0.85)
    assert lower_bound_s(trials([100.0]), 2, WIDTHS) == pytest.approx(100 / 2**0.85)
    assert lower_bound_s([], 8, WIDTHS) == 0
    assert lower_bound_s(trials([1.0]), 0, WIDTHS) == float("inf")


def test_static_widths_follow_the_formula() -> None:
    assert static_sizes([50.0, 25.0, 25.0], 8, WIDTHS) == [48, 24, 24]
    assert static_sizes([90.0, 5.0, 5.0], 8, WIDTHS) == [48, 3, 3]
    assert static_sizes([0.0], 8, WIDTHS) == [3]
    played = play(facts([90.0, 5.0, 5.0]), static([48, 3, 3]), RULES, pool(8))
    assert {one.trial: one.size for one in played.segments} == {0: 48, 1: 3, 2: 3}
    assert played.resizes == 0


def test_baselines_start_in_their_order() -> None:
    for planner, order in ((first_come, [0, 1, 2]), (longest_first, [1, 2, 0])):
        played = play(facts([1.0, 3.0, 2.0]), planner, RULES, pool(1))
        assert [one.trial for one in played.segments] == order


@pytest.mark.parametrize(
    "wrong",
    [
        {"work_s": float("nan")},
        {"work_s": -1.0},
        {"work_s": 1.0, "resize_cost_s": float("inf")},
        {"work_s": 1.0, "memory_part": 1.5},
    ],
)
def test_figures_of_a_trial_have_bounds(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"work|cost|memory"):
        replace(PlannedTrial(number=0, work_s=1.0, curve=curve()), **wrong)


def test_rules_have_bounds() -> None:
    with pytest.raises(ValueError, match="not negative"):
        PlanRules(gain_factor=-1.0)
