# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.batching.batch_time import BatchCosts
from ullage.engines.batching.chooser import BatchChooser, BatchPolicy, BatchRules, SizeRule
from ullage.engines.batching.histogram import TimeHistogram
from ullage.engines.batching.score import score_table
from ullage.engines.batching.waiting import BatchRequest, WaitingRequests

SIZES = (1, 2, 4)
COSTS = BatchCosts(fixed_s=0.02, factors={1: 1.0, 2: 1.1, 4: 1.4})
SINGLE = TimeHistogram.of(np.concatenate([np.linspace(0.05, 0.07, 40), np.linspace(0.3, 0.5, 10)]))


def waiting_with(slacks: list[float], *, app: str = "default") -> WaitingRequests:
    return WaitingRequests.of(
        BatchRequest(number=at, arrival_s=-float(at), deadline_s=slack, app=app)
        for at, slack in enumerate(sorted(slacks))
    )


def a_chooser(**rules: object) -> BatchChooser:
    made = BatchRules(**{"sizes": SIZES, **rules})  # type: ignore[arg-type]
    return BatchChooser(rules=made, costs=COSTS, histograms={"default": SINGLE})


def enumerated(slacks: list[float]) -> float:
    """The best value over sizes, where each size runs the full batch of the greatest score."""
    values = []
    for row in score_table(SINGLE, COSTS, SIZES):
        fit = [s for s in slacks if float(row.in_time(np.array(s))) > 0]
        batches = [np.array(some) for some in combinations(fit, row.size)]
        if batches:
            best = max(batches, key=lambda some: float(row.score(some).sum()))
            values.append(float(row.in_time(best).sum()) / row.mean_s)
    return max(values)


@given(slacks=st.lists(st.floats(0.0, 2.0), min_size=1, max_size=6))
def test_the_choice_is_that_of_exhaustive_enumeration(slacks: list[float]) -> None:
    waiting = waiting_with(slacks)
    choice = a_chooser().choose(waiting, 0.0)
    kept = [r.deadline_s for at, r in enumerate(waiting) if at not in choice.dropped]
    if not kept:
        assert choice.run == ()
        return
    rows = {row.size: row for row in score_table(SINGLE, COSTS, SIZES)}
    row = rows[len(choice.run)]
    chosen = np.array([waiting[at].deadline_s for at in choice.run])
    value = float(row.in_time(chosen).sum()) / row.mean_s
    assert value == pytest.approx(enumerated(kept), rel=1e-6)


@given(
    slacks=st.lists(st.floats(-1.0, 2.0), max_size=40),
    policy=st.sampled_from(list(BatchPolicy)),
    quantile=st.sampled_from([None, 0.99]),
)
def test_nothing_runs_twice_or_is_both_run_and_dropped(
    slacks: list[float], policy: BatchPolicy, quantile: float | None
) -> None:
    choice = a_chooser(policy=policy, quantile=quantile).choose(waiting_with(slacks), 0.0)
    both = [*choice.run, *choice.dropped]
    assert len(both) == len(set(both))
    assert set(both) <= set(range(len(slacks)))
    assert len(choice.run) in {0, *SIZES}
    assert choice.run or len(choice.dropped) == len(slacks)


@given(slacks=st.lists(st.floats(-1.0, 2.0), min_size=1, max_size=40))
def test_exactly_the_hopeless_are_dropped(slacks: list[float]) -> None:
    waiting = waiting_with(slacks)
    least = COSTS.batch_s(1, SINGLE.least_s)
    dropped = {waiting[at].deadline_s for at in a_chooser().choose(waiting, 0.0).dropped}
    assert dropped == {s for s in slacks if s <= least}


def test_a_threshold_drops_who_would_probably_be_late() -> None:
    waiting = waiting_with([0.1, 1.0])
    assert a_chooser().choose(waiting, 0.0).dropped == ()
    assert a_chooser(drop_threshold=0.9).choose(waiting, 0.0).dropped == (0,)


def test_equal_scores_go_by_earlier_deadline() -> None:
    waiting = waiting_with([500.0, 600.0, 700.0])
    assert a_chooser(sizes=(1, 2)).choose(waiting, 0.0).run == (0, 1)


def test_the_largest_feasible_batch_is_an_option() -> None:
    waiting = waiting_with([0.15, 0.16, 0.17, 0.18])
    chooser = a_chooser(size_rule=SizeRule.LARGEST_FEASIBLE)
    assert len(chooser.choose(waiting, 0.0).run) == 4


def test_first_come_goes_by_arrival_and_needs_no_histogram() -> None:
    waiting = waiting_with([-0.1, 1.0, 2.0, 3.0])
    chooser = BatchChooser(rules=BatchRules(policy=BatchPolicy.FIFO, sizes=(1, 2)), costs=COSTS)
    choice = chooser.choose(waiting, 0.0)
    assert choice.run == (3, 2)
    assert choice.dropped == (0,)


def test_without_a_histogram_the_earliest_deadline_is_first() -> None:
    waiting = waiting_with([0.5, 1.0, 2.0], app="new")
    assert a_chooser().choose(waiting, 0.0).run == (0, 1)


def test_high_estimates_refuse_what_is_tighter_than_they() -> None:
    waiting = waiting_with([0.2, 0.3])
    strict = a_chooser(policy=BatchPolicy.EDF, quantile=0.99).choose(waiting, 0.0)
    assert strict.dropped == (0, 1)
    assert a_chooser(policy=BatchPolicy.EDF).choose(waiting, 0.0).dropped == ()


def test_what_was_learned_replaces_the_tables() -> None:
    chooser = a_chooser()
    waiting = waiting_with([0.2, 0.2])
    assert chooser.choose(waiting, 0.0).dropped == ()
    chooser.learn(COSTS, {"default": TimeHistogram.of([0.9])})
    assert chooser.choose(waiting, 0.0).dropped == (0, 1)


@pytest.mark.parametrize("sizes", [(), (0, 1), (2, 1), (1, 1)])
def test_wild_sizes_are_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="sorted, unique"):
        BatchRules(sizes=sizes)


def test_a_size_without_a_cost_is_refused() -> None:
    with pytest.raises(ValueError, match="no cost"):
        BatchChooser(rules=BatchRules(sizes=(1, 64)), costs=COSTS)


@given(
    slacks=st.lists(st.tuples(st.floats(0.0, 2.0), st.sampled_from("ab")), min_size=1, max_size=12)
)
def test_each_application_is_hopeless_by_its_own_distribution(
    slacks: list[tuple[float, str]],
) -> None:
    known = {"a": SINGLE, "b": TimeHistogram.of(np.linspace(0.8, 0.9, 50))}
    waiting = WaitingRequests.of(
        BatchRequest(number=at, arrival_s=0.0, deadline_s=slack, app=app)
        for at, (slack, app) in enumerate(slacks)
    )
    chooser = BatchChooser(rules=BatchRules(sizes=SIZES), costs=COSTS, histograms=known)
    choice = chooser.choose(waiting, 0.0)
    least = {app: COSTS.batch_s(1, one.least_s) for app, one in known.items()}
    dropped = {waiting[at].number for at in choice.dropped}
    assert dropped == {at for at, (slack, app) in enumerate(slacks) if slack <= least[app]}
    assert choice.run or len(choice.dropped) == len(slacks)


def test_tables_follow_the_mixture_of_those_that_wait() -> None:
    """Long requests beside short ones make a large batch likely late for the short ones."""
    known = {
        "short": TimeHistogram.of(np.full(50, 0.05)),
        "long": TimeHistogram.of(np.full(50, 1.0)),
    }
    chooser = BatchChooser(rules=BatchRules(sizes=SIZES), costs=COSTS, histograms=known)
    alike = WaitingRequests.of(
        BatchRequest(number=at, arrival_s=0.0, deadline_s=0.2, app="short") for at in range(4)
    )
    mixed = WaitingRequests.of(
        BatchRequest(number=at, arrival_s=0.0, deadline_s=due, app=app)
        for at, (due, app) in enumerate(
            [(0.2, "short"), (1.1, "long"), (1.1, "long"), (1.2, "long")]
        )
    )
    assert len(chooser.choose(alike, 0.0).run) == 4
    assert len(chooser.choose(mixed, 0.0).run) < 4
