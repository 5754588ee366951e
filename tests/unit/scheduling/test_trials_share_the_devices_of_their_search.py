# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A search that divides devices: how wide trials start, and when a running one is resized."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.tuning_world import TuningWorld, a_search
from ullage.api.contract import Reason
from ullage.api.words import TuningAlgorithm
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.status import Progress
from ullage.cluster.records.tuning import MOST_RESIZES, TrialPool, TrialResize, TrialResult
from ullage.scheduling.tuning.times import (
    DueTrial,
    percent_had,
    percent_of,
    size_of,
    trial_times,
    widths_of,
)
from ullage.scheduling.tuning.widths import kept_resizes

QUARTERS = TrialPool(devices=2, min_percent=25)


def _a_world(trials: int = 9, parallelism: int = 8, pool: TrialPool = QUARTERS) -> TuningWorld:
    job = a_search(TuningAlgorithm.RANDOM, trials=trials, parallelism=parallelism, pool=pool)
    return TuningWorld(job)


def _widths(world: TuningWorld) -> list[int]:
    over = ("Succeeded", "Failed")
    runs = [run for run in world.runs.values() if run.status.phase not in over]
    return sorted(percent_had(run.gpu) for run in runs)


def _measured(trial: int, seconds: int, percent: int) -> TrialResult:
    return TrialResult(trial=trial, epoch=9, value=0.5, seconds=seconds, percent=percent)


def test_many_trials_share_devices_and_few_get_more() -> None:
    many, few = _a_world(trials=9), _a_world(trials=2)
    many.carry_out()
    few.carry_out()
    assert _widths(many) == [25] * 8
    assert _widths(few) == [100, 100]


def test_widths_above_one_device_only_where_they_are_allowed() -> None:
    pool = TrialPool(devices=4, min_percent=25, max_devices=4)
    world = _a_world(trials=1, pool=pool)
    world.carry_out()
    assert _widths(world) == [400]
    assert _widths_of_one(replace(pool, max_devices=2)) == [200]


def _widths_of_one(pool: TrialPool) -> list[int]:
    world = _a_world(trials=1, pool=pool)
    world.carry_out()
    return _widths(world)


def test_parallelism_bounds_trials_all_the_same() -> None:
    world = _a_world(trials=9, parallelism=2)
    world.carry_out()
    assert _widths(world) == [100, 100]


def test_a_result_says_how_much_of_a_device_its_trial_had() -> None:
    world = _a_world(trials=2)
    world.carry_out()
    world.end(sorted(world.runs)[0])
    world.carry_out()
    assert [one.percent for one in world.job.status.results] == [100]


def _with_one_left() -> TuningWorld:
    """Two trials ran in quarters for an hour each; of two others the second one is left."""
    world = _a_world(trials=4, parallelism=4)
    world.carry_out()
    world.now += 1.0
    for name in world.runs:
        world.start(name)
    assert _widths(world) == [50, 50, 50, 50]
    world.now += 1_800.0
    for name in sorted(world.runs)[:3]:
        world.end(name)
    return world


def test_the_last_trial_gets_what_others_left() -> None:
    world = _with_one_left()
    last = sorted(world.runs)[3]
    world.now += 61.0
    step = world.carry_out()  # results are counted
    step = world.carry_out()
    assert not step.deletes, "what others left is asked for in the status first"
    (resize,) = world.job.status.resizes
    assert (resize.trial, resize.from_percent, resize.to_percent) == (3, 50, 100)
    assert resize.gain_seconds > 0
    assert Reason.TRIAL_RESIZED in {one.reason for one in step.events}
    gone = world.step()
    assert [one.owner.name for one in gone.deletes] == [last]
    assert gone.deletes[0].reason is Reason.TRIAL_RESIZED
    world.delete(gone)
    world.now += 5.0
    world.create(world.step())
    assert percent_had(world.runs[last].gpu) == 100


def test_a_resized_trial_counts_all_its_time_and_measures_no_width() -> None:
    world = _with_one_left()
    last = sorted(world.runs)[3]
    world.now += 61.0
    for _ in range(4):
        world.carry_out()
    (resize,) = world.job.status.resizes
    world.start(last)
    world.now += 100.0
    world.end(last)
    world.carry_out()
    result = world.job.status.results[-1]
    assert (result.trial, result.percent) == (3, 0)
    assert result.seconds == resize.seconds + 101


def test_a_trial_without_a_checkpoint_keeps_its_width() -> None:
    world = _with_one_left()
    last = sorted(world.runs)[3]
    world.runs[last] = replace(world.runs[last], checkpoint=False)
    world.now += 61.0
    for _ in range(3):
        world.carry_out()
    assert not world.job.status.resizes
    assert last in world.runs


def test_nothing_is_resized_before_a_trial_was_measured() -> None:
    world = _a_world(trials=8)
    world.carry_out()
    for name in list(world.runs):
        world.start(name)
    for name in sorted(world.runs)[1:]:
        world.end(name, failed=True)
    world.now += 10_000.0
    for _ in range(3):
        world.carry_out()
    assert not world.job.status.resizes


def test_the_step_comes_again_when_a_trial_may_be_resized() -> None:
    world = _with_one_left()
    last = sorted(world.runs)[3]
    run = world.runs[last]
    world.runs[last] = replace(run, created=world.now - 10.0)
    world.carry_out()
    step = world.carry_out()
    assert not world.job.status.resizes
    assert step.again_at == world.now + 50.0


def test_a_template_that_says_it_all_is_left_alone() -> None:
    world = TuningWorld(a_search(trials=3))
    step = world.carry_out()
    assert {one.percent for one in step.creates} == {0}
    world.end(sorted(world.runs)[0])
    world.carry_out()
    assert not world.job.status.results[0].percent


def test_a_resize_to_nothing_deletes_nothing() -> None:
    """The API holds whatever someone wrote into a status."""
    world = _a_world(trials=2)
    world.carry_out()
    nothing = TrialResize(trial=0, epoch=9, from_percent=100, to_percent=0)
    world.job = replace(world.job, status=replace(world.job.status, resizes=(nothing,)))
    assert not world.step().deletes


def test_speeds_follow_from_results() -> None:
    pool = TrialPool(devices=2, min_percent=50)
    results = [_measured(0, 900, 100), _measured(1, 1_200, 50)]
    times = trial_times(pool, results, ())
    assert times.curve.speeds == pytest.approx((0.75, 1.0))
    assert times.epoch_s(0) == times.epoch_s(1) == times.epoch_s(7) == pytest.approx(100)


def test_results_without_a_time_or_a_value_say_nothing_of_speed() -> None:
    none = [
        replace(_measured(0, 900, 100), value=None),
        _measured(1, 0, 100),
        _measured(2, 900, 0),
    ]
    assert trial_times(QUARTERS, none, ()).mean_s is None


def _a_resize(trial: int, epoch: int = 9) -> TrialResize:
    return TrialResize(trial=trial, epoch=epoch, from_percent=25, to_percent=50)


def test_resizes_of_trials_that_run_are_never_forgotten() -> None:
    resizes = [_a_resize(at) for at in range(MOST_RESIZES + 100)]
    kept = kept_resizes(resizes, {0: 9, 1: 9, 2: 3})
    assert len(kept) == MOST_RESIZES
    assert kept[:3] == (_a_resize(0), _a_resize(1), _a_resize(102))


@given(least=st.integers(8, 100), devices=st.integers(1, 16))
def test_percents_and_sizes_are_one_thing(least: int, devices: int) -> None:
    pool = TrialPool(devices=devices, min_percent=least, max_devices=devices)
    widths = widths_of(pool)
    percents = [percent_of(widths, size) for size in widths.sizes]
    assert min(percents) >= least
    assert max(percents) == 100 * devices
    assert max(Counter(percents).values()) == 1
    assert [size_of(widths, percent) for percent in percents] == list(widths.sizes)


def _reports(world: TuningWorld, name: str, steps: int, rate: str, resumed_at: int = 0) -> None:
    run = world.runs[name]
    told = Progress(steps=steps, steps_per_second=rate, resumed_at=resumed_at)
    world.runs[name] = replace(run, status=replace(run.status, progress=told))


def test_a_trial_that_reports_steps_is_judged_by_its_own() -> None:
    """Two ended within a minute; by its steps the third has an hour left."""
    pool = TrialPool(devices=1, min_percent=25)
    world = _a_world(trials=3, parallelism=3, pool=pool)
    world.carry_out()
    names = sorted(world.runs)
    for name in names:
        world.start(name)
    world.now += 60.0
    for name in names[:2]:
        _reports(world, name, 900, "15.0")
        world.end(name)
    _reports(world, names[2], 9, "0.25")
    world.now += 10.0
    world.carry_out()
    world.carry_out()
    (resize,) = world.job.status.resizes
    assert (resize.trial, resize.to_percent) == (2, 100)
    assert resize.gain_seconds > 1_800


@pytest.mark.parametrize(
    ("steps", "resumed_at", "from_epoch", "left"),
    [(300, 0, 0, 6.0), (500, 300, 3, 4.0), (200, 0, 3, 4.0), (5_000, 0, 0, -41.0)],
)
def test_what_is_left_follows_from_steps(
    steps: int, resumed_at: int, from_epoch: int, left: float
) -> None:
    world = _a_world(trials=1)
    world.carry_out()
    world.end("digits-t0000-e9")
    run = world.runs["digits-t0000-e9"]
    times = trial_times(QUARTERS, [_measured(0, 90, 100)], (), [_told(run, 900, 0)])
    due = DueTrial(trial=1, from_epoch=from_epoch, until_epoch=9, run=_told(run, steps, resumed_at))
    assert times.steps_per_epoch == 100
    assert times.seen_left(due) == pytest.approx(left)


def _told(run: WorkloadRecord, steps: int, resumed_at: int) -> WorkloadRecord:
    told = Progress(steps=steps, resumed_at=resumed_at, steps_per_second="10")
    return replace(run, status=replace(run.status, progress=told))
