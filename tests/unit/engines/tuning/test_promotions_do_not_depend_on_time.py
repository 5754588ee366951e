# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Who goes on is decided by values at epochs, never by the time; a wild report harms its trial."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.examples import examples
from fakes.tuning_trials import RULES, curve, pool
from ullage.engines.tuning.baselines import first_come
from ullage.engines.tuning.metrics import MetricHistory, ReportProblem
from ullage.engines.tuning.planner import plan
from ullage.engines.tuning.rungs import (
    AsyncHalving,
    Brackets,
    SyncHalving,
    budgets,
    for_trials,
    hyperband,
    in_brackets,
)
from ullage.engines.tuning.simulator import ChangeKind, SimulatedChange, TrialFacts, play


def until(found: object) -> dict[int, int]:
    return {one.trial: one.until_epoch for one in found}  # type: ignore[attr-defined]


def report_all(rungs: SyncHalving, values: dict[int, float], epoch: int) -> object:
    found: object = ()
    for trial, value in values.items():
        found = rungs.report(trial, epoch, value).runs
    return found


class Compared(int):
    """A number of a trial that counts how often it is compared with others."""

    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return int.__eq__(self, other) is True

    __hash__ = int.__hash__


def test_a_report_is_not_compared_with_every_trial_that_went_on() -> None:
    members = tuple(map(Compared, range(200)))
    rungs = AsyncHalving(members=members, epochs=(1, 3))
    Compared.times = 0
    went_on = [rungs.report(one, 1, float(one)).runs for one in members]
    assert sum(map(len, went_on)) > 50
    assert Compared.times < 20 * len(members)


def test_nothing_is_decided_before_all_have_reported() -> None:
    rungs = SyncHalving(members=(0, 1, 2), epochs=(1, 3))
    assert until(rungs.first()) == {0: 1, 1: 1, 2: 1}
    assert rungs.report(0, 1, 0.9).runs == ()
    assert rungs.report(2, 1, 0.1).runs == ()
    assert rungs.rungs[-1].pending == (1,)
    assert until(rungs.report(1, 1, 0.5).runs) == {0: 3}
    assert rungs.promotions == ((0,),)


def test_least_is_best_where_it_is_said() -> None:
    rungs = SyncHalving(members=(0, 1, 2), epochs=(1, 3), maximise=False)
    assert until(report_all(rungs, {0: 0.9, 1: 0.5, 2: 0.1}, 1)) == {2: 3}


def test_a_tie_goes_to_the_lower_number() -> None:
    rungs = SyncHalving(members=(2, 1, 0), epochs=(1, 3))
    assert until(report_all(rungs, {2: 0.5, 1: 0.5, 0: 0.5}, 1)) == {0: 3}


def test_values_count_at_the_epoch_of_the_rung_alone() -> None:
    rungs = SyncHalving(members=(0, 1, 2), epochs=(2, 4))
    for trial, early in ((0, 0.99), (1, 0.2), (2, 0.1)):
        rungs.report(trial, 1, early)
    assert until(report_all(rungs, {0: 0.1, 1: 0.2, 2: 0.3}, 2)) == {2: 4}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (math.nan, ReportProblem.NOT_A_NUMBER),
        (math.inf, ReportProblem.NOT_A_NUMBER),
        (None, ReportProblem.MISSING),
    ],
)
def test_a_trial_without_a_number_is_never_promoted(
    value: float | None, problem: ReportProblem
) -> None:
    rungs = SyncHalving(members=(0, 1, 2), epochs=(1, 3))
    assert rungs.report(0, 1, value).problem is problem
    assert rungs.rungs[0].problems == {0: problem}
    rungs.report(1, 1, -5.0)
    assert until(rungs.report(2, 1, -6.0).runs) == {1: 3}


def test_a_rung_of_which_none_has_a_number_ends_the_bracket() -> None:
    rungs = SyncHalving(members=(0, 1), epochs=(1, 3))
    rungs.report(0, 1, math.nan)
    assert rungs.ended(1) == ()
    assert rungs.promotions == ()
    assert rungs.rungs[-1].complete


def test_epochs_that_come_again_or_go_back_count_once() -> None:
    history = MetricHistory()
    assert history.record(0, 2, 0.5) is None
    assert history.record(0, 2, 0.9) is ReportProblem.REPEATED
    assert history.record(0, 1, 0.9) is ReportProblem.BACKWARDS
    assert history.record(0, 3, None) is ReportProblem.MISSING
    assert history.record(0, 3, 0.7) is ReportProblem.REPEATED
    assert history.record(1, 0, 0.7) is ReportProblem.BACKWARDS
    assert (history.value(0, 2), history.value(0, 3)) == (0.5, None)
    assert history.curve(0) == {2: 0.5}


def test_a_trial_that_runs_past_its_epoch_has_no_value_there() -> None:
    rungs = SyncHalving(members=(0, 1, 2), epochs=(2, 4))
    assert rungs.report(0, 10**9, 1.0).problem is ReportProblem.BEYOND_BUDGET
    assert rungs.rungs[0].problems == {0: ReportProblem.MISSING}
    assert until(report_all(rungs, {1: 0.1, 2: 0.2}, 2)) == {2: 4}
    assert rungs.report(0, 2, 1.0).problem is ReportProblem.REPEATED
    assert rungs.report(99, 2, 1.0).problem is ReportProblem.UNKNOWN_TRIAL


def test_the_last_rung_promotes_no_one() -> None:
    rungs = SyncHalving(members=(0, 1), epochs=(1,))
    assert report_all(rungs, {0: 1.0, 1: 2.0}, 1) == ()
    assert rungs.report(0, 1, 3.0).problem is ReportProblem.REPEATED


def test_asha_promotes_by_report() -> None:
    rungs = AsyncHalving(members=tuple(range(6)), epochs=(1, 3, 9))
    assert rungs.report(0, 1, 0.1).runs == ()
    assert rungs.report(1, 1, 0.2).runs == ()
    assert until(rungs.report(2, 1, 0.3).runs) == {2: 3}
    assert rungs.rungs[0].pending == (3, 4, 5)
    assert rungs.rungs[1].pending == (2,)
    assert rungs.report(3, 1, 0.0).runs == ()
    assert rungs.ended(4) == ()
    assert until(rungs.report(5, 1, 0.9).runs) == {5: 3}
    assert rungs.report(2, 1, 0.9).problem is ReportProblem.REPEATED
    assert rungs.report(7, 1, 0.9).problem is ReportProblem.UNKNOWN_TRIAL
    assert rungs.report(2, 3, math.nan).problem is ReportProblem.NOT_A_NUMBER


def test_brackets_of_hyperband_are_the_published_ones() -> None:
    # Li et al. 2018, table 1: R = 81, eta = 3
    found = hyperband(81)
    assert [one.trials for one in found] == [81, 34, 15, 8, 5]
    assert found[0].epochs == (1, 3, 9, 27, 81)
    assert found[-1].epochs == (81,)
    assert budgets(1, 81, 3) == found[0].epochs
    assert budgets(2, 7, 2) == (2, 4, 7)


@pytest.mark.parametrize(
    "wrong", [((), (1,), 3), ((0, 0), (1,), 3), ((0,), (), 3), ((0,), (3, 3), 3), ((0,), (1,), 1)]
)
def test_rungs_that_make_no_sense_are_refused(
    wrong: tuple[tuple[int, ...], tuple[int, ...], int],
) -> None:
    members, epochs, eta = wrong
    for kind in (SyncHalving, AsyncHalving):
        with pytest.raises(ValueError, match=r"each of them once|epochs of rungs"):
            kind(members=members, epochs=epochs, eta=eta)
    with pytest.raises(ValueError, match="eta"):
        hyperband(9, 1)
    with pytest.raises(ValueError, match="eta"):
        budgets(1, 9, 1)


def test_brackets_of_hyperband_decide_apart() -> None:
    def promoted(planner: object, devices: int) -> object:
        brackets = in_brackets(hyperband(9))
        played = play(
            [
                TrialFacts(number=at, epoch_s=10.0 + at, curve=curve(), resize_cost_s=1.0)
                for at in range(17)
            ],
            planner,  # type: ignore[arg-type]
            RULES,
            pool(devices),
            algorithm=brackets,
            metric=lambda trial, epoch: float((trial * 7 + epoch) % 11),
        )
        assert played.stuck == ()
        assert all(one.rungs[-1].complete for one in brackets.brackets)
        return [one.promotions for one in brackets.brackets]

    found = promoted(plan, 4)
    assert [len(one.members) for one in in_brackets(hyperband(9)).brackets] == [9, 5, 3]
    # of 9 trials 3, then 1 go on, of 5 trials 1, of the last bracket none
    assert [[len(rung) for rung in one] for one in found] == [[3, 1], [1], []]  # type: ignore[attr-defined]
    assert found == promoted(first_come, 1)


def test_brackets_take_the_trials_that_there_are() -> None:
    def sizes(trials: int) -> list[int]:
        return [one.trials for one in for_trials(hyperband(9), trials)]

    assert sizes(17) == [9, 5, 3]
    assert sizes(12) == [9, 3]
    assert sizes(4) == [4]
    assert sizes(20) == [9, 5, 3, 3]
    assert for_trials(hyperband(9), 20)[-1].epochs == hyperband(9)[0].epochs
    for shapes, trials in ((), 3), (hyperband(9), 0):
        with pytest.raises(ValueError, match="one bracket and one trial"):
            for_trials(shapes, trials)


def test_brackets_share_no_trial_and_know_their_own() -> None:
    brackets = in_brackets(hyperband(9))
    assert brackets.report(99, 1, 1.0).problem is ReportProblem.UNKNOWN_TRIAL
    assert brackets.ended(99) == ()
    with pytest.raises(ValueError, match="one bracket"):
        Brackets(brackets=(SyncHalving(members=(0,), epochs=(1,)),) * 2)


@given(
    st.lists(st.one_of(st.floats(), st.none()), min_size=2, max_size=30),
    st.randoms(use_true_random=False),
)
def test_the_order_of_reports_changes_no_promotion(
    values: list[float | None], chance: object
) -> None:
    members = list(range(len(values)))

    def promoted(order: list[int]) -> tuple[tuple[int, ...], ...]:
        rungs = SyncHalving(members=tuple(members), epochs=(1, 2), eta=2)
        for trial in order:
            rungs.report(trial, 1, values[trial])
        return rungs.promotions

    shuffled = list(members)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert promoted(members) == promoted(shuffled)


def learned(seed: int) -> tuple[list[TrialFacts], object]:
    """Trials of 27 with random curves of learning that cross each other, and what they report."""
    chance = np.random.default_rng(seed)
    epochs_s = 60 * chance.lognormal(0, 0.8, 27)
    ends, speeds = chance.random(27), chance.uniform(0.05, 2.0, 27)
    bad = set(chance.choice(27, 3, replace=False).tolist())

    def metric(trial: int, epoch: int) -> float | None:
        return (
            math.nan
            if trial in bad
            else float(ends[trial] * (1 - math.exp(-speeds[trial] * epoch)))
        )

    facts = [
        TrialFacts(
            number=at,
            epoch_s=float(epoch_s),
            curve=curve(),
            resize_cost_s=5.0,
            checkpoints=at % 5 != 0,
            checkpoint_epochs=1 + at % 3,
        )
        for at, epoch_s in enumerate(epochs_s)
    ]
    return facts, metric


@examples(10, 200)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.floats(1, 3000))
def test_resized_trials_are_promoted_as_those_that_are_not(
    seed: int, devices: int, lost_s: float
) -> None:
    facts, metric = learned(seed)

    def promoted(planner: object, count: int, changes: tuple[SimulatedChange, ...] = ()) -> object:
        rungs = SyncHalving(members=tuple(range(27)), epochs=(1, 3, 9))
        played = play(
            facts,
            planner,  # type: ignore[arg-type]
            RULES,
            pool(count),
            algorithm=rungs,
            metric=metric,  # type: ignore[arg-type]
            changes=changes,
        )
        assert played.stuck == ()
        assert rungs.rungs[-1].complete
        return rungs.promotions, rungs.rungs[-1].best(1, maximise=True)

    plain = promoted(first_come, 1)
    assert promoted(plan, devices) == plain
    changes = (
        SimulatedChange(at_s=lost_s, kind=ChangeKind.LOST, number=0),
        SimulatedChange(at_s=lost_s + 300, kind=ChangeKind.GAINED, number=0),
    )
    assert promoted(plan, devices, changes) == plain


@examples(60, 2000)
@given(
    values=st.permutations(range(12)).flatmap(
        lambda order: st.lists(
            st.none() | st.integers(0, 4), min_size=len(order), max_size=len(order)
        ).map(lambda values: tuple(zip(order, values, strict=True)))
    ),
    eta=st.integers(2, 4),
    maximise=st.booleans(),
)
def test_asha_promotes_as_if_it_sorted_the_rung_at_each_report(
    values: tuple[tuple[int, int | None], ...], eta: int, maximise: bool
) -> None:
    rungs = AsyncHalving(members=tuple(range(12)), epochs=(1, 3), eta=eta, maximise=maximise)
    went_on: list[int] = []
    for trial, value in values:
        reported = rungs.report(trial, 1, None if value is None else float(value))
        bottom = rungs.rungs[0]
        best = bottom.best(len(bottom.values) // eta, maximise=maximise)
        due = [one for one in best if one not in went_on]
        assert [one.trial for one in reported.runs] == due
        went_on += due
    assert rungs.rungs[1].members == tuple(went_on)
