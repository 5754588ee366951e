# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Trials that are played end, whatever comes and goes; what they did is accounted for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.tuning_trials import RULES, WIDTHS, curve, facts, pool
from ullage.engines.tuning.baselines import first_come
from ullage.engines.tuning.metrics import ReportProblem
from ullage.engines.tuning.planner import plan
from ullage.engines.tuning.rungs import AsyncHalving, SyncHalving
from ullage.engines.tuning.simulator import ChangeKind, PlayedTrials, SimulatedChange, play

LOST, GAINED, STOPPED = ChangeKind.LOST, ChangeKind.GAINED, ChangeKind.STOPPED


def work_of(played: PlayedTrials, trial: int) -> float:
    """Seconds at width 1 that the segments of a trial did."""
    speeds = dict(zip(WIDTHS.sizes, curve().speeds, strict=True))
    return sum(
        (one.end_s - one.start_s - one.cost_s) * speeds[one.size]
        for one in played.segments
        if one.trial == trial
    )


def test_one_device_runs_trials_one_after_the_other() -> None:
    played = play(facts([3.0, 4.0]), first_come, RULES, pool(1))
    assert played.ends_s == {0: pytest.approx(3.0), 1: pytest.approx(7.0)}
    assert played.useful_fraction(1, WIDTHS.parts) == pytest.approx(1.0)
    assert (played.resizes, played.plans) == (0, 2)


def test_a_resize_costs_its_time() -> None:
    works = {0: 2000.0, 1: 1500.0, 2: 300.0}
    played = play(facts([*works.values()], resize_cost_s=10.0), plan, RULES, pool(2))
    assert played.resizes >= 1
    for trial, work in works.items():
        assert work_of(played, trial) == pytest.approx(work)
    assert sum(one.cost_s for one in played.segments) == pytest.approx(10.0 * played.resizes)


def test_trials_that_arrive_later_wait_for_their_arrival() -> None:
    later = [replace(one, arrival_s=50.0 * one.number) for one in facts([10.0, 10.0])]
    played = play(later, first_come, RULES, pool(2))
    assert played.ends_s == {0: pytest.approx(10.0), 1: pytest.approx(60.0)}


def test_a_lost_device_sends_its_trial_back_to_the_checkpoint() -> None:
    every = facts([10.0], epochs=10, checkpoint_epochs=4)
    changes = (
        SimulatedChange(at_s=75.0, kind=LOST, number=0),
        SimulatedChange(at_s=100.0, kind=GAINED, number=0),
    )
    played = play(every, first_come, RULES, pool(1), changes=changes)
    assert played.ends_s == {0: pytest.approx(100 + 60)}
    assert [epoch for _, epoch in played.reports] == [1, 2, 3, 4, 5, 6, 7, 5, 6, 7, 8, 9, 10]


def test_without_checkpoints_a_lost_trial_begins_again() -> None:
    every = facts([10.0], epochs=10, checkpoints=False)
    changes = (SimulatedChange(at_s=75.0, kind=LOST, number=0),)
    played = play(every, first_come, RULES, pool(2), changes=changes)
    assert played.ends_s == {0: pytest.approx(175)}


def test_what_repeats_after_a_loss_counts_once() -> None:
    rungs = SyncHalving(members=(0, 1), epochs=(8,))
    every = facts([10.0, 10.0], checkpoint_epochs=4)
    changes = (
        SimulatedChange(at_s=75.0, kind=LOST, number=0),
        SimulatedChange(at_s=80.0, kind=GAINED, number=0),
    )
    values = iter(range(1000))
    play(
        every, first_come, RULES, pool(2), algorithm=rungs, metric=lambda *_: next(values),
        changes=changes,
    )  # fmt: skip
    for trial in (0, 1):
        assert sorted(rungs.history.curve(trial)) == list(range(1, 9))
    assert rungs.history.record(0, 5, 0.0) is ReportProblem.REPEATED


def test_a_stopped_trial_frees_its_width_at_once() -> None:
    changes = (
        SimulatedChange(at_s=10.0, kind=STOPPED, number=0),
        SimulatedChange(at_s=11.0, kind=STOPPED, number=9),
    )
    played = play(facts([1000.0, 5.0]), first_come, RULES, pool(1), changes=changes)
    assert played.ends_s == {0: pytest.approx(10.0), 1: pytest.approx(15.0)}


def test_a_stopped_trial_holds_no_rung_up() -> None:
    rungs = SyncHalving(members=(0, 1), epochs=(1, 2))
    played = play(
        facts([1000.0, 5.0]),
        plan,
        RULES,
        pool(2),
        algorithm=rungs,
        metric=lambda trial, _: float(trial),
        changes=(SimulatedChange(at_s=20.0, kind=STOPPED, number=0),),
    )
    assert rungs.promotions == ((1,),)
    assert played.makespan_s < 100


def test_a_pool_that_is_gone_leaves_trials_stuck_and_says_so() -> None:
    played = play(
        facts([10.0]),
        plan,
        RULES,
        pool(1),
        changes=(SimulatedChange(at_s=1.0, kind=LOST, number=0),),
    )
    assert (played.stuck, played.ends_s) == ((0,), {})


def test_asha_plays_to_its_end() -> None:
    rungs = AsyncHalving(members=tuple(range(27)), epochs=(1, 3, 9))
    works = (60 * np.random.default_rng(1).lognormal(0, 0.8, 27)).tolist()
    played = play(
        facts(works), plan, RULES, pool(4), algorithm=rungs, metric=lambda trial, _: float(trial)
    )
    assert played.stuck == ()
    assert all(rung.complete for rung in rungs.rungs)
    assert len(rungs.rungs[1].members) >= 9


def test_a_curve_that_was_believed_wrong_ends_all_trials_too() -> None:
    wrong = facts([100.0, 500.0, 20.0], believed=curve(1.0, 0.01))
    played = play(wrong, plan, RULES, pool(2))
    assert sorted(played.ends_s) == [0, 1, 2]
    assert work_of(played, 1) == pytest.approx(500.0)


@given(
    st.lists(st.floats(1.0, 1e4), min_size=1, max_size=12),
    st.lists(
        st.tuples(st.floats(0, 5e3), st.sampled_from([LOST, GAINED, STOPPED]), st.integers(0, 5)),
        max_size=12,
    ),
)
def test_every_trial_ends_or_is_told_to_be_stuck(
    works: list[float], wild: list[tuple[float, ChangeKind, int]]
) -> None:
    changes = tuple(SimulatedChange(at_s=at, kind=kind, number=number) for at, kind, number in wild)
    played = play(facts(works, resize_cost_s=7.0), plan, RULES, pool(3), changes=changes)
    assert sorted({*played.ends_s, *played.stuck}) == list(range(len(works)))
    stopped = {one.number for one in changes if one.kind is STOPPED}
    if not played.stuck and not any(one.kind is LOST for one in changes):
        for trial in set(range(len(works))) - stopped:
            assert work_of(played, trial) == pytest.approx(works[trial])
