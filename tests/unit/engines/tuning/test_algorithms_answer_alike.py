# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Halving, brackets, ASHA and stated trials are driven by one protocol."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from ullage.engines.tuning.metrics import ReportProblem
from ullage.engines.tuning.rungs import (
    AsyncHalving,
    SearchAlgorithm,
    StatedTrials,
    SyncHalving,
    for_trials,
    hyperband,
    in_brackets,
)

TRIALS = 12
LAST = 9


MAKERS: dict[str, Callable[[], SearchAlgorithm]] = {
    "SyncHalving": lambda: SyncHalving(members=tuple(range(TRIALS)), epochs=(1, 3, LAST)),
    "Hyperband": lambda: in_brackets(for_trials(hyperband(LAST), TRIALS)),
    "ASHA": lambda: AsyncHalving(members=tuple(range(TRIALS)), epochs=(1, 3, LAST)),
    "External": lambda: StatedTrials(epochs=dict.fromkeys(range(TRIALS), (1, 3, LAST))),
}
each = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def last_epochs(algorithm: SearchAlgorithm) -> dict[int, int]:
    """How far each trial runs by its last rung."""
    return {trial: rung.until_epoch for rung in algorithm.rungs for trial in rung.members}


@each
def test_trials_run_as_far_as_their_last_rung_says(make: Callable[[], SearchAlgorithm]) -> None:
    algorithm = make()
    until = {one.trial: one.until_epoch for one in algorithm.first()} or last_epochs(algorithm)
    assert sorted(until) == sorted(algorithm.members) == list(range(TRIALS))
    done = dict.fromkeys(until, 0)
    while left := [one for one in until if done[one] < until[one]]:
        trial = left[0]
        done[trial] += 1
        said = algorithm.report(trial, done[trial], (trial * 5) % TRIALS + done[trial] / 100)
        assert said.problem is None
        for run in said.runs:
            assert run.until_epoch > until[run.trial]
            until[run.trial] = run.until_epoch
    assert until == last_epochs(algorithm)
    assert all(rung.complete for rung in algorithm.rungs)
    assert max(until.values()) == LAST


@each
def test_a_trial_that_no_one_knows_changes_nothing(make: Callable[[], SearchAlgorithm]) -> None:
    algorithm = make()
    before = [(rung.group, rung.members, rung.pending) for rung in algorithm.rungs]
    assert algorithm.report(TRIALS + 1, 1, 0.5).problem is ReportProblem.UNKNOWN_TRIAL
    assert tuple(algorithm.ended(TRIALS + 1)) == ()
    assert [(rung.group, rung.members, rung.pending) for rung in algorithm.rungs] == before


@each
def test_trials_that_end_leave_no_rung_open(make: Callable[[], SearchAlgorithm]) -> None:
    algorithm = make()
    for trial in range(TRIALS):
        assert tuple(algorithm.ended(trial)) == ()
    assert all(rung.complete and not rung.values for rung in algorithm.rungs)


@each
def test_groups_have_names_of_their_own(make: Callable[[], SearchAlgorithm]) -> None:
    algorithm = make()
    for trial in range(TRIALS):
        algorithm.report(trial, 1, math.pi * trial)
    groups = [rung.group for rung in algorithm.rungs]
    assert len(set(groups)) == len(groups)


def test_stated_trials_go_on_by_what_is_stated_alone() -> None:
    stated = StatedTrials(epochs={3: (1,), 5: (2, 4)})
    assert [(one.trial, one.until_epoch) for one in stated.first()] == [(3, 1), (5, 2)]
    assert stated.report(3, 1, 0.9).runs == ()
    assert stated.report(5, 2, math.nan).runs == ()  # without a value it does not go on
    assert [(rung.group, rung.members, rung.complete) for rung in stated.by_epoch()] == [
        ("epoch-1", (3,), True),
        ("epoch-2", (5,), True),
    ]


@pytest.mark.parametrize("epochs", [(), (0,), (3, 3), (4, 2)], ids=str)
def test_stated_epochs_rise(epochs: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="epochs of rungs"):
        StatedTrials(epochs={0: epochs})
