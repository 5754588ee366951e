# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A client outside asks for trials, lets them go on and ends the search; it harms its own alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders_raw import raw_tuning_job
from fakes.tuning_world import TuningWorld, a_search, counted
from ullage.api.readers import WireError
from ullage.api.reasons import Reason
from ullage.api.words import TuningAlgorithm
from ullage.cluster.projection.tuning import project_tuning_job
from ullage.cluster.records.tuning import MOST_GROUPS, TuningRecord
from ullage.engines.tuning.algorithms import StatedTrial
from ullage.engines.tuning.search_space import Point
from ullage.scheduling.tuning.search import texts_of

POINT: Point = {"lr": 0.01, "width": 32, "act": "relu"}


def stated(trial: int, *epochs: int, refused: str = "") -> StatedTrial:
    return StatedTrial(trial=trial, point=POINT, epochs=epochs or (9,), refused=refused)


def asked(*trials: StatedTrial, more: bool = True, **terms: object) -> TuningRecord:
    return a_search(TuningAlgorithm.EXTERNAL, stated=trials, more_to_come=more, **terms)


def with_trials(job: TuningRecord, *trials: StatedTrial, more: bool = True) -> TuningRecord:
    return replace(job, terms=replace(job.terms, stated=trials, more_to_come=more))


def end_all(world: TuningWorld) -> None:
    for name in sorted(world.runs):
        world.end(name)
    world.carry_out()


def test_trials_run_as_they_are_asked_for() -> None:
    world = TuningWorld(asked())
    assert world.carry_out().status.phase == "Pending"
    assert world.job.status.conditions[0].reason == Reason.WAITS_FOR_SUGGESTIONS
    world.job = with_trials(world.job, stated(0), stated(7, 3))
    step = world.carry_out()
    assert {one.name: one.parameters for one in step.creates} == {
        "digits-t0000-e9": texts_of(POINT),
        "digits-t0007-e3": texts_of(POINT),
    }
    end_all(world)
    assert world.job.status.phase == "Running"
    assert counted(world.job) == {(0, 9): 1, (7, 3): 1}
    assert world.job.status.best_trial.parameters == texts_of(POINT)  # type: ignore[union-attr]
    assert world.job.status.results[0].parameters == ()  # they stand in the client's list
    assert (world.job.status.trials.paused, world.job.status.trials.ended) == (1, 1)


def test_a_client_lets_a_trial_go_on() -> None:
    world = TuningWorld(asked(stated(0, 1), stated(1, 1)))
    world.carry_out()
    end_all(world)
    world.job = with_trials(world.job, stated(0, 1), stated(1, 1, 3, 9))
    for until in (3, 9):
        step = world.carry_out()
        assert [one.name for one in step.creates] == [f"digits-t0001-e{until}"]
        end_all(world)
    assert counted(world.job) == {(0, 1): 1, (1, 1): 1, (1, 3): 1, (1, 9): 1}
    assert world.job.status.best_trial.trial == 1  # type: ignore[union-attr]


def test_the_search_ends_when_the_client_says_so_and_its_trials_have_ended() -> None:
    world = TuningWorld(asked(stated(0), more=False))
    world.carry_out()
    world.carry_out()
    assert world.job.status.phase == "Running"
    end_all(world)
    assert world.job.status.phase == "Succeeded"
    assert world.job.status.trials.stopped == 0


def test_a_trial_that_is_taken_out_is_stopped_and_its_results_go() -> None:
    world = TuningWorld(asked(stated(0, 1), stated(1, 1)))
    world.carry_out()
    world.end("digits-t0000-e1")
    world.carry_out()
    world.job = with_trials(world.job, stated(2, 1))
    step = world.carry_out()
    assert [one.owner.name for one in step.deletes] == ["digits-t0000-e1", "digits-t0001-e1"]
    assert world.job.status.results == ()
    assert list(world.runs) == ["digits-t0002-e1"]


def test_a_trial_outside_the_space_fails_alone() -> None:
    world = TuningWorld(asked(stated(0, refused="lr: '7' is not in the search space"), stated(1)))
    step = world.carry_out()
    assert [one.name for one in step.creates] == ["digits-t0001-e9"]
    end_all(world)
    assert [(one.trial, one.reason) for one in world.job.status.results] == [
        (0, Reason.SUGGESTION_REFUSED),
        (1, None),
    ]
    assert world.job.status.trials.failed == 1


def test_a_client_that_suggests_nonsense_ends_its_own_search() -> None:
    wild = [stated(at, refused="no") for at in range(4)]
    world = TuningWorld(asked(*wild, max_failed_trials=3))
    world.carry_out()
    assert world.job.status.phase == "Failed"
    assert world.job.status.conditions[0].reason == Reason.TOO_MANY_TRIALS_FAILED


def test_trials_of_many_epochs_stay_within_the_status() -> None:
    many = [stated(at, at + 1) for at in range(100)]
    world = TuningWorld(asked(*many, max_epochs=100, trials=100, parallelism=100))
    world.carry_out()
    assert len(world.job.status.groups) == MOST_GROUPS


# -- as they are read ------------------------------------------------------------------------------

GOOD = {"trial": 3, "parameters": {"lr": "0.01", "width": "32"}}


def read(*suggestions: object, **spec: object) -> TuningRecord:
    algorithm = {"ref": "External", "maxEpochs": 9}
    raw = raw_tuning_job(algorithm=algorithm, suggestions=list(suggestions), **spec)
    return project_tuning_job(raw)


def test_suggestions_are_read_by_number() -> None:
    terms = read(GOOD, {**GOOD, "trial": 1, "epochs": [1, 3]}).terms
    assert terms.more_to_come
    assert terms.stated == (
        StatedTrial(trial=1, point={"lr": 0.01, "width": 32}, epochs=(1, 3)),
        StatedTrial(trial=3, point={"lr": 0.01, "width": 32}, epochs=(9,)),
    )
    assert not read(GOOD, suggestionsEnded=True).terms.more_to_come


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"parameters": {"lr": "0.01"}}, "lacks a parameter 'width'"),
        ({"parameters": {"lr": "0.01", "width": "32", "x": "1"}}, "has a parameter 'x'"),
        ({"parameters": {"lr": "0.2", "width": "32"}}, "lr: '0.2' is not in the search space"),
        ({"parameters": {"lr": "nan", "width": "32"}}, "lr: 'nan'"),
        ({"parameters": {"lr": "0.01", "width": "32.0"}}, "width: '32.0'"),
        ({"parameters": {"lr": 0.01, "width": "32"}}, "lr: '0.01'"),
        ({"parameters": {"lr": "1_0e-2", "width": "32"}}, "lr: '1_0e-2'"),
        ({"epochs": [10]}, "epoch 10 is beyond algorithm.maxEpochs, 9"),
        ({"epochs": [3, 3]}, "do not rise"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_trial_is_said_of_it_alone(
    change: dict[str, object], why: str
) -> None:
    first, second = read(GOOD, {**GOOD, "trial": 4, **change}).terms.stated
    assert first.refused == ""
    assert why in second.refused
    assert (second.point, second.epochs) == ({}, (9,))


@pytest.mark.parametrize(
    "suggestions",
    [
        [GOOD, GOOD],
        [{**GOOD, "trial": at} for at in range(10)],
        [{**GOOD, "trial": -1}],
        [{**GOOD, "trial": 1000}],
        [{**GOOD, "trial": "1"}],
        [{**GOOD, "epochs": []}],
        [{**GOOD, "epochs": list(range(1, 18))}],
        [{**GOOD, "epochs": 3}],
        [{**GOOD, "parameters": ["lr"]}],
        ["text"],
    ],
    ids=lambda found: str(found)[:60],
)
def test_a_list_that_makes_no_sense_is_refused_whole(suggestions: list[object]) -> None:
    with pytest.raises(WireError, match="spec"):
        read(*suggestions)
