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
from ullage.api.gpurequest import GPURequest
from ullage.api.reasons import Reason
from ullage.api.words import TuningAlgorithm
from ullage.cluster.records.status import WorkloadStatus
from ullage.cluster.records.tuning import MOST_RESIZES, TrialPool, TrialResize, TrialResult
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.tuning.times import percent_had, percent_of, size_of, trial_times, widths_of
from ullage.scheduling.tuning.widths import kept_resizes, resized_runs

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
    assert world.now < step.again_at <= world.now + 50.0


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
    first = replace(_measured(0, 600, 50), epoch=3)
    results = [first, _measured(0, 900, 100), _measured(1, 1_200, 50)]
    times = trial_times(pool, results, ())
    assert times.curve.speeds == pytest.approx((0.75, 1.0))
    assert times.epoch_s(0) == pytest.approx(150)
    assert times.epoch_s(1) == pytest.approx(100)
    assert times.epoch_s(7) == pytest.approx(125)


def test_trials_at_different_widths_say_nothing_of_widths() -> None:
    """The wide one may be slow by itself."""
    pool = TrialPool(devices=2, min_percent=50)
    times = trial_times(pool, [_measured(0, 900, 50), _measured(1, 9_000, 100)], ())
    assert times.curve.speeds == pytest.approx((0.5**0.85, 1.0))


def test_widths_narrower_than_any_that_was_measured_are_tried() -> None:
    times = trial_times(QUARTERS, [_measured(0, 900, 100)], ())
    quarter, *_, whole = times.curve.speeds
    assert quarter / whole == pytest.approx(0.25**0.85)


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
    kept = kept_resizes(resizes, {0: 9, 1: 9, 2: 3}, {(at, 9) for at in range(2, 1_000)})
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


def test_a_width_that_no_device_has_room_for_is_given_up() -> None:
    pool = TrialPool(devices=4, min_percent=50, max_devices=2)
    world = _a_world(trials=1, pool=pool)
    world.carry_out()
    (name,) = world.runs
    for asked in (200, 100, 50, 50):
        assert percent_had(world.runs[name].gpu) == asked
        assert not world.carry_out().deletes, "it may still start"
        world.now += 121.0
        world.carry_out()
        world.delete(world.step())
        world.now += 1.0
        world.carry_out()
    assert [one.not_started for one in world.job.status.resizes] == [True, True]


def test_an_image_may_take_its_time() -> None:
    pool = TrialPool(devices=4, min_percent=50, max_devices=2)
    world = _a_world(trials=1, pool=pool)
    world.carry_out()
    (name,) = world.runs
    world.runs[name] = replace(world.runs[name], status=WorkloadStatus(phase="Starting"))
    world.now += 3_600.0
    world.carry_out()
    assert not world.job.status.resizes


def test_a_cap_narrows_no_trial_that_runs() -> None:
    world = _with_one_left()
    waited = TrialResize(
        trial=0, epoch=9, from_percent=50, to_percent=25, not_started=True, time=world.now
    )
    world.carry_out()
    world.job = replace(world.job, status=replace(world.job.status, resizes=(waited,)))
    world.now += 61.0
    world.carry_out()
    assert world.job.status.resizes == (waited,)


def test_no_trial_asks_for_more_than_the_one_that_found_none_for_a_while() -> None:
    pool = TrialPool(devices=4, min_percent=50)
    waited = TrialResize(
        trial=7, epoch=9, from_percent=100, to_percent=50, not_started=True, time=900.0
    )
    world = _a_world(trials=2, pool=pool)
    world.job = replace(world.job, status=replace(world.job.status, resizes=(waited,)))
    world.now = 1_000.0
    assert {one.percent for one in world.step().creates} == {50}
    world.now = 2_000.0
    assert {one.percent for one in world.step().creates} == {100}


def test_no_running_trial_is_stopped_while_another_one_waits_for_a_device() -> None:
    world = _with_one_left()
    world.job = replace(world.job, terms=replace(world.job.terms, trials=5))
    world.carry_out()
    assert any(name.startswith("digits-t0004") for name in world.runs), "it waits"
    world.now += 61.0
    world.carry_out()
    assert not world.job.status.resizes
    world.start("digits-t0004-e9")
    world.end("digits-t0004-e9")
    world.carry_out()
    world.carry_out()
    assert [one.trial for one in world.job.status.resizes] == [3]


def _run_at(percent: int, *, started: float) -> WorkloadRecord:
    world = _a_world(trials=4, parallelism=4)
    world.now = started
    world.carry_out()
    run = world.runs["digits-t0003-e9"]
    status = WorkloadStatus(phase="Running", start_time=started)
    return replace(run, status=status, gpu=GPURequest(count=percent // 100))


def test_a_trial_that_ends_before_its_resize_counts_its_time_once() -> None:
    world = _with_one_left()
    last = sorted(world.runs)[3]
    world.now += 61.0
    world.carry_out()
    world.carry_out()
    (resize,) = world.job.status.resizes
    world.end(last)
    world.carry_out()
    result = world.job.status.results[-1]
    assert (result.trial, result.percent) == (3, 50)
    assert result.seconds == resize.seconds + 1


def test_an_interrupted_trial_measures_no_width() -> None:
    world = _a_world(trials=2)
    world.carry_out()
    name = sorted(world.runs)[0]
    run = world.runs[name]
    world.runs[name] = replace(run, status=replace(run.status, restarts=1))
    world.end(name)
    world.carry_out()
    assert world.job.status.results[0].percent == 0


def test_a_job_that_came_after_its_resize_is_left_alone() -> None:
    """A webhook may have changed what it asks for."""
    resize = TrialResize(trial=3, epoch=9, from_percent=50, to_percent=33, time=900.0)
    assert not list(resized_runs((resize,), [_run_at(100, started=1_000.0)]))
    later = replace(resize, time=1_100.0)
    assert len(list(resized_runs((later,), [_run_at(100, started=1_000.0)]))) == 1


def test_a_trial_that_runs_on_and_on_is_expected_to_run_longer() -> None:
    """Two ended within a minute; the third has run for half an hour, and no one knows how far."""
    pool = TrialPool(devices=1, min_percent=25)
    world = _a_world(trials=3, parallelism=3, pool=pool)
    world.carry_out()
    names = sorted(world.runs)
    for name in names:
        world.start(name)
    world.now += 60.0
    for name in names[:2]:
        world.end(name)
    world.carry_out()
    step = world.carry_out()
    assert not world.job.status.resizes, "it may end at any time"
    assert step.again_at > world.now
    world.now += 1_800.0
    assert world.carry_out().again_at >= world.now
    (resize,) = world.job.status.resizes
    assert (resize.trial, resize.to_percent) == (2, 100)
    assert resize.gain_seconds > 500


def test_one_trial_explores_a_width_for_the_others() -> None:
    pool = TrialPool(devices=4, min_percent=50)
    world = _a_world(trials=8, parallelism=8, pool=pool)
    world.carry_out()
    names = sorted(world.runs)
    assert _widths(world) == [50] * 8
    for name in names:
        world.start(name)
    world.now += 3_600.0
    for name in names[:4]:
        world.end(name)
    world.now += 3_600.0
    world.carry_out()
    world.carry_out()
    assert len(world.job.status.resizes) == 1
    world.delete(world.step())
    world.now += 3_600.0
    world.carry_out()
    world.carry_out()
    assert len(world.job.status.resizes) == 1, "it has not ended"


def test_a_resize_teaches_what_a_width_brings() -> None:
    """Nine epochs of 100 s, then 18: six of them before the resize, twelve in 800 s."""
    first = _measured(3, 900, 50)
    part = TrialResize(trial=3, epoch=27, from_percent=50, to_percent=100, seconds=600)
    second = TrialResult(trial=3, epoch=27, value=0.5, seconds=600 + 800)
    times = trial_times(QUARTERS, [first, second], (part,))
    assert times.speed(100) / times.speed(50) == pytest.approx(1.5)


def test_work_of_a_resized_trial_is_that_of_its_parts() -> None:
    part = TrialResize(trial=3, epoch=9, from_percent=50, to_percent=100, seconds=3_600)
    result = TrialResult(trial=3, epoch=9, value=0.5, seconds=4_500)
    times = trial_times(QUARTERS, [_measured(0, 900, 50), result], (part,))
    assert times.work_s(result) == pytest.approx(3_600 * times.speed(50) + 900)
