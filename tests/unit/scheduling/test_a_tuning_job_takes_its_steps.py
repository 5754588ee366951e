# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A TuningJob creates TrainingJobs of trials, counts their results, and lets the best go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.tuning_world import SPACE, TuningWorld, a_search, counted
from ullage.api.reasons import Reason
from ullage.api.words import Goal, TuningAlgorithm
from ullage.cluster.records.metrics import EpochValue
from ullage.cluster.records.snapshot import RefusedWrite
from ullage.cluster.records.tuning import TrialResult
from ullage.engines.tuning.algorithms import ALGORITHMS, trials_of
from ullage.engines.tuning.search_space import ChoiceParameter, IntRange, SearchSpace, random_point
from ullage.scheduling.tuning.search import Search, point_of, texts_of
from ullage.scheduling.tuning.step import MOST_KEPT, Around, next_step


def test_every_word_has_an_algorithm() -> None:
    assert ALGORITHMS.keys() == set(TuningAlgorithm)


def test_as_many_trials_begin_as_may_run_at_one_time() -> None:
    world = TuningWorld(a_search(parallelism=4))
    step = world.step()
    assert [one.name for one in step.creates] == [f"digits-t000{n}-e1" for n in range(4)]
    assert step.creates[2].parameters == texts_of(random_point(SPACE, 0, 2))
    world.create(step)
    assert not world.step().creates


def test_who_begins_is_found_without_reading_what_others_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a search of many trials takes the time of many searches, at each look."""
    read: list[object] = []
    monkeypatch.setattr("ullage.scheduling.tuning.search.point_of", lambda *said: read.append(said))
    world = TuningWorld(a_search(TuningAlgorithm.ASHA, trials=100, parallelism=100))
    world.create(world.step())
    assert len(world.runs) == 100
    assert not read


@pytest.mark.parametrize(
    "stated",
    [
        tuple((f"made-up-{n:02d}", "x" * 36) for n in range(32)),
        (("act", "relu"), ("lr", "0.01"), ("width", "4096")),
        (),
    ],
)
def test_what_an_owner_writes_into_a_trial_does_not_fill_the_status(
    stated: tuple[tuple[str, str], ...],
) -> None:
    world = TuningWorld(a_search(trials=1))
    world.carry_out()
    ((name, run),) = world.runs.items()
    assert run.trial is not None
    world.runs[name] = replace(run, trial=replace(run.trial, parameters=stated))
    world.end(name)
    (result,) = world.step().status.results
    assert result.parameters == texts_of(random_point(SPACE, 0, 0))


def test_parameters_read_back_as_they_were() -> None:
    terms = a_search().terms
    for trial in range(20):
        point = random_point(SPACE, 0, trial)
        assert point_of(terms, texts_of(point)) == point
    assert point_of(terms, (("lr", "much"), ("act", "sigmoid"), ("other", "1"))) == {}


def test_a_trial_goes_on_only_once_the_results_of_its_rung_are_written() -> None:
    world = TuningWorld(a_search(parallelism=9))
    world.carry_out()
    for name in list(world.runs):
        world.end(name)
    step = world.step()
    assert len(step.status.results) == 9
    assert not step.creates, "what is not written may be lost"
    world.write(step)
    assert [one.name for one in world.step().creates] == [f"digits-t000{n}-e3" for n in (6, 7, 8)]


def test_a_search_ends_with_its_best_trial() -> None:
    world = TuningWorld(a_search())
    world.finish()
    status = world.job.status
    assert status.phase == "Succeeded"
    assert (status.best_trial.name, status.best_trial.epoch) == ("digits-t0008", 9)  # type: ignore[union-attr]
    assert status.best_trial.parameters == texts_of(random_point(SPACE, 0, 8))  # type: ignore[union-attr]
    assert [(one.name, one.trials, one.ended) for one in status.groups] == [
        ("rung-0", 9, 9),
        ("rung-1", 3, 3),
        ("rung-2", 1, 1),
    ]
    assert set(counted(world.job).values()) == {1}
    assert world.created == 13
    counts = status.trials
    assert (counts.running, counts.waiting, counts.paused) == (0, 0, 0)
    assert (counts.ended, counts.stopped, counts.failed) == (9, 8, 0)


def test_a_loss_is_made_small() -> None:
    world = TuningWorld(a_search(goal=Goal.MINIMIZE))
    world.finish()
    assert world.job.status.best_trial.trial == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("reported", [None, float("nan")])
def test_a_trial_without_a_value_is_counted_and_does_not_go_on(reported: float | None) -> None:
    world = TuningWorld(a_search(parallelism=9))
    world.carry_out()
    for name in list(world.runs):
        world.end(name)
    best = world.runs["digits-t0008-e1"]
    values = () if reported is None else (EpochValue(epoch=1, value=None),)
    world.runs["digits-t0008-e1"] = replace(best, status=replace(best.status, metrics=values))
    step = world.step()
    lost = next(one for one in step.status.results if one.trial == 8)
    wanted = Reason.METRIC_MISSING if reported is None else Reason.METRIC_NOT_A_NUMBER
    assert (lost.value, lost.reason) == (None, wanted)
    assert [one.reason for one in step.events] == [
        wanted,
        Reason.GROUP_FINISHED,
        Reason.MAKESPAN_ESTIMATED,
    ]
    world.write(step)
    assert [one.trial for one in world.step().creates] == [5, 6, 7]
    world.finish()
    assert world.job.status.trials.failed == 1


def test_a_value_of_another_epoch_is_none_of_this_one() -> None:
    world = TuningWorld(a_search(trials=1))
    world.carry_out()
    world.end("digits-t0000-e1")
    run = world.runs["digits-t0000-e1"]
    early = replace(run.status, metrics=(EpochValue(epoch=2, value=0.5),))
    world.runs["digits-t0000-e1"] = replace(run, status=early)
    assert world.step().status.results[0].reason is Reason.METRIC_MISSING


def test_a_program_that_cannot_run_ends_the_search() -> None:
    world = TuningWorld(a_search(max_failed_trials=2, parallelism=5))
    world.carry_out()
    for name in list(world.runs)[:3]:
        world.end(name, failed=True)
    world.carry_out()
    status = world.job.status
    assert status.phase == "Failed"
    assert [one.reason for one in status.conditions] == [Reason.TOO_MANY_TRIALS_FAILED] * 2
    step = world.carry_out()
    assert not step.creates
    assert {one.owner.name for one in step.deletes} == {"digits-t0003-e1", "digits-t0004-e1"}
    assert world.step().status == status, "and then nothing more happens"


def test_a_search_without_any_value_fails() -> None:
    world = TuningWorld(a_search(trials=3), score=lambda trial, epoch: None)
    world.finish()
    assert world.job.status.phase == "Failed"
    assert world.job.status.conditions[0].reason == Reason.NO_RESULT


def test_a_grid_has_as_many_trials_as_points() -> None:
    space = SearchSpace(
        parameters={
            "width": IntRange(low=1, high=2),
            "act": ChoiceParameter(options=("relu", "tanh")),
        }
    )
    job = a_search(TuningAlgorithm.GRID, space=space, trials=9)
    assert trials_of(job.terms) == 4
    world = TuningWorld(job)
    world.finish()
    tried = {one.parameters for one in world.job.status.results}
    assert len(tried) == 4


def test_a_search_that_is_over_and_deleted_asks_for_nothing() -> None:
    world = TuningWorld(a_search())
    world.finish()
    step = next_step(replace(world.job, deleting=True), Around(runs=world.runs, now=1.0, epoch=1))
    assert (step.creates, step.deletes, step.status) == ((), (), world.job.status)


def test_a_refusal_is_told_and_not_asked_for_again() -> None:
    job = a_search(parallelism=2)
    refused = {"digits-t0000-e1": RefusedWrite(reason=Reason.CREATE_REFUSED, message="no quota")}
    step = next_step(job, Around(runs={}, refused=refused, now=1.0, epoch=1))
    assert step.status.phase == "Pending"
    assert (step.status.conditions[0].reason, "no quota" in step.status.message) == (
        Reason.CREATE_REFUSED,
        True,
    )
    assert "digits-t0000-e1" not in [one.name for one in step.creates]


def test_old_training_jobs_go_and_the_newest_stay() -> None:
    world = TuningWorld(a_search(TuningAlgorithm.RANDOM, trials=100, parallelism=50))
    world.finish()
    assert len(world.runs) == MOST_KEPT
    assert len(world.job.status.results) == 100
    assert not world.step().deletes


def test_a_training_job_of_no_trial_that_is_due_goes() -> None:
    world = TuningWorld(a_search(parallelism=1))
    world.carry_out()
    (name,) = world.runs
    run = world.runs[name]
    of = replace(run.trial, trial=7, until_epoch=9)  # type: ignore[type-var]
    world.runs["digits-t0007-e9"] = replace(
        run, ref=replace(run.ref, name="digits-t0007-e9"), trial=of
    )
    assert [one.owner.name for one in world.step().deletes] == ["digits-t0007-e9"]


def test_results_that_make_no_sense_count_for_nothing() -> None:
    search = Search(terms=a_search().terms)
    assert not search.take(TrialResult(trial=0, epoch=9, value=1.0))
    assert search.take(TrialResult(trial=0, epoch=1, value=1.0))
    assert not search.take(TrialResult(trial=0, epoch=1, value=2.0))
    assert not search.take(TrialResult(trial=99, epoch=1, value=2.0))
    assert [one.value for one in search.results] == [1.0]


@pytest.mark.slow
def test_a_thousand_trials_end_with_few_training_jobs_at_a_time() -> None:
    world = TuningWorld(
        a_search(trials=1_000, parallelism=50, max_epochs=1), score=lambda trial, epoch: 0.5
    )
    most = 0
    while world.job.status.phase != "Succeeded":
        world.carry_out()
        most = max(most, len(world.runs))
        for name in list(world.runs):
            world.end(name)
    assert most <= MOST_KEPT + 2 * 50
    assert len(counted(world.job)) == 1_000


def deleted(world: TuningWorld, **more: bool) -> TuningWorld:
    world.job = replace(world.job, deleting=True, **more)
    return world


def test_a_search_that_is_deleted_counts_what_exists_and_stops_the_rest() -> None:
    world = TuningWorld(a_search(parallelism=4))
    world.carry_out()
    world.end("digits-t0002-e1")
    step = deleted(world).step()
    assert (step.creates, step.asks) == ((), None)
    assert [(one.trial, one.epoch, one.value) for one in step.status.results] == [(2, 1, 2.01)]
    assert step.status.best_trial is not None
    assert step.status.best_trial.name == "digits-t0002"
    assert step.status.trials.running == 0
    others = [f"digits-t000{n}-e1" for n in (0, 1, 3)]
    assert [one.owner.name for one in step.deletes] == others, "a result is not counted yet"
    world.delete(step)
    world.write(step)
    again = world.step()
    assert again.status == world.job.status
    assert again.deletes == ()


def test_a_search_that_is_deleted_writes_nothing_where_nothing_was_brought() -> None:
    world = TuningWorld(a_search(parallelism=2))
    world.carry_out()
    step = deleted(world).step()
    assert step.status == world.job.status
    assert len(step.deletes) == 2


def test_trials_of_a_search_stay_whose_author_keeps_them() -> None:
    world = TuningWorld(a_search(parallelism=2))
    world.carry_out()
    world.end("digits-t0000-e1")
    step = deleted(world, orphans=True).step()
    assert (step.status, step.creates, step.deletes) == (world.job.status, (), ())
