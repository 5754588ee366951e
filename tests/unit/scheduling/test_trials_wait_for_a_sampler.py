# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Trials whose parameters a sampler finds begin when it has, and it is told what is known."""

from __future__ import annotations

from fakes.tuning_world import TuningWorld, a_search
from ullage.api.words import TuningAlgorithm
from ullage.engines.tuning.search_space import Point
from ullage.engines.tuning.suggestions import TrialOutcome
from ullage.scheduling.tuning.search import texts_of
from ullage.scheduling.tuning.step import Around, next_step

POINT: Point = {"lr": 0.01, "width": 32, "act": "relu"}


def test_trials_wait_for_the_sampler_and_tell_it_what_is_known() -> None:
    world = TuningWorld(a_search(TuningAlgorithm.TPE, parallelism=2))
    step = world.carry_out()
    assert step.creates == ()
    assert step.asks is not None
    assert (step.asks.trials, step.asks.observed) == ((0, 1), ())
    around = Around(runs=world.runs, now=world.now, epoch=1, suggested={0: POINT})
    step = next_step(world.job, around)
    assert [(one.name, one.parameters) for one in step.creates] == [
        ("digits-t0000-e9", texts_of(POINT))
    ]
    assert step.asks is not None
    assert [(one.trial, one.outcome) for one in step.asks.observed] == [(0, TrialOutcome.RUNNING)]
    world.create(step)
    world.end("digits-t0000-e9")
    world.carry_out()
    asks = world.carry_out().asks
    assert asks is not None
    assert asks.trials == (1, 2)
    (known,) = asks.observed
    assert (known.outcome, known.value, known.point) == (TrialOutcome.COMPLETE, 0.09, POINT)


def test_a_sampler_that_never_answers_leaves_the_search_waiting() -> None:
    world = TuningWorld(a_search(TuningAlgorithm.TPE))
    for _ in range(3):
        step = world.carry_out()
        assert step.asks is not None
        assert step.asks.trials == (0, 1, 2, 3)
    assert world.job.status.phase == "Pending"
