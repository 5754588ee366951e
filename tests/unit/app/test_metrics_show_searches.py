# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of searches sum what statuses say, and however many searches there are, series stay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.tuning_world import TuningWorld, a_search
from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.records.status import Condition
from ullage.cluster.records.tuning import GroupRecord, TrialCounts, TuningRecord, TuningStatus
from ullage.metrics.tuning import TrialStage, tuning_figures


def a_status(**fields: object) -> TuningRecord:
    return replace(a_search(), status=TuningStatus(**fields))  # type: ignore[arg-type]


def test_without_searches_every_state_is_zero() -> None:
    figures = tuning_figures(())
    assert figures.trials == dict.fromkeys(TrialStage, 0)
    assert (figures.jobs, figures.makespan_ratio, figures.utilisation) == ({}, 0.0, 0.0)


def test_trials_are_counted_by_where_they_are_each_once() -> None:
    counts = TrialCounts(waiting=1, running=2, paused=3, ended=9, stopped=4, failed=2)
    figures = tuning_figures([a_status(phase="Running", trials=counts)] * 2)
    assert figures.trials == {
        "waiting": 2, "running": 4, "paused": 6, "stopped": 8, "failed": 4, "complete": 6,
    }  # fmt: skip
    assert figures.jobs == {"Running": 2}


def test_the_ratio_weighs_open_groups_by_their_bound() -> None:
    groups = (
        GroupRecord(
            name="rung-0", epoch=1, trials=9, ended=9,
            makespan_eta=900, lower_bound=100, utilisation="0.10",
        ),
        GroupRecord(
            name="rung-1", epoch=3, trials=3, ended=1,
            makespan_eta=400, lower_bound=300, utilisation="0.50",
        ),
        GroupRecord(
            name="rung-2", epoch=9, trials=3, ended=1,
            makespan_eta=100, lower_bound=100, utilisation="1.00",
        ),
        GroupRecord(name="rung-3", epoch=27, trials=3, ended=0),
    )  # fmt: skip
    figures = tuning_figures([a_status(groups=groups)])
    assert figures.makespan_ratio == pytest.approx(500 / 400)
    assert figures.utilisation == pytest.approx((400 * 0.5 + 100) / 500)


def test_conditions_that_hold_are_counted() -> None:
    def said(type_: ConditionType, status: str) -> Condition:
        return Condition(type=type_, status=status, reason=Reason.NO_TRIAL_RUNS)

    figures = tuning_figures(
        [
            a_status(conditions=(said(ConditionType.STALLED, "True"),)),
            a_status(conditions=(said(ConditionType.STALLED, "False"),)),
            a_status(conditions=(said(ConditionType.POOL_TOO_SMALL, "True"),)),
        ]
    )
    assert (figures.stalled, figures.too_small) == (1, 1)


def test_a_search_that_was_carried_out_adds_up_to_its_trials() -> None:
    world = TuningWorld(a_search(trials=9))
    while world.job.status.phase != "Succeeded":
        world.carry_out()
        assert sum(tuning_figures([world.job]).trials.values()) == 9
        for name in sorted(world.runs):
            world.end(name)
