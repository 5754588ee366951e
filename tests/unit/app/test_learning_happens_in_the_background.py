# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows become models in a child: late, dead and refused lessons leave the last good model."""

from __future__ import annotations

import asyncio
import pickle
import re
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from fakes.lesson_rig import (
    GPU,
    START,
    Inline,
    Stage,
    answer_at_once,
    die,
    die_on_fits,
    grown,
    hang,
    profiles,
    row,
)
from ullage.api.schedulingpolicy import RiskSettings
from ullage.app.fit_schedule import Pace
from ullage.app.fit_worker import FitRequest, FitTask, fit_in_worker
from ullage.app.learner import Learner, own_process
from ullage.app.model_summary import Fitted, digest, stored
from ullage.cluster.records.profile import (
    DeviceModel,
    DeviceProfileRecord,
    ProfileRecord,
    ProfileStatus,
    SoloEntry,
)
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.admission.learning import known_hyper
from ullage.engines.admission.records import Partner


@asynccontextmanager
async def learning(
    stage: Stage,
    work: Callable[[bytes], bytes] = fit_in_worker,
    *,
    deadline_s: float = 120.0,
    executor: Callable[[], Executor] = Inline,
    **pace: Any,
) -> AsyncIterator[Learner]:
    learner = Learner(
        snapshot=stage.picture,
        publish=stage.published.append,
        clock=stage,
        pace=Pace(**pace),
        deadline_s=deadline_s,
        work=work,
        executor=executor,
    )
    try:
        yield learner
    finally:
        learner.close()


async def settled(learner: Learner, stage: Stage, most: int = 12) -> None:
    """Until nothing is left to do; time passes between the lessons."""
    for _ in range(most):
        if not await learner.step():
            return
        stage.time_s += 60
    pytest.fail(f"after {most} lessons there is still something to learn")


def summary(learner: Learner, gpu: str = GPU) -> DeviceModel:
    course = learner.courses[gpu]
    assert course.model is not None
    assert course.fitted is not None
    return stored(Fitted(model=course.model, risk=course.fitted.risk, at_s=course.fitted.at_s))


async def test_rows_become_a_model_and_new_rows_reach_it_without_a_fit() -> None:
    stage = Stage()
    async with learning(stage) as learner:
        await settled(learner, stage)
        assert stage.published[-1][GPU].rows == 24
        assert learner.stats.fits == 1
        first = stage.published[-1][GPU].version
        stage.profiles = grown(stage.profiles, 100)
        await settled(learner, stage)
        assert stage.published[-1][GPU].rows == 25
        assert stage.published[-1][GPU].version == first + 1
        assert learner.stats.fits == 1


async def test_an_unchanged_picture_teaches_nothing() -> None:
    stage = Stage()
    async with learning(stage) as learner:
        await settled(learner, stage)
        done = learner.stats.lessons
        stage.profiles = {key: replace(one) for key, one in stage.profiles.items()}
        await settled(learner, stage)
        assert learner.stats.lessons == done
        assert len(stage.published) == 1


@pytest.mark.slow
async def test_a_restart_gives_the_same_model_without_a_fit() -> None:
    stage = Stage(profiles=profiles(20))
    async with learning(stage) as learner:
        await settled(learner, stage)
        before = learner.courses[GPU].model
        kept = summary(learner)
    assert before is not None
    again = Stage(
        profiles=stage.profiles,
        device_profiles={GPU: DeviceProfileRecord(name=GPU, model=kept)},
    )
    async with learning(again, executor=own_process) as learner:
        waits = [learner.rebuilding]
        await settled(learner, again)
        after = learner.courses[GPU].model
        assert [*waits, learner.rebuilding] == [True, False]
        assert learner.stats.fits == 0
        assert after is not None
        assert digest(after) == digest(before)
        assert after.version == before.version
        assert summary(learner) == kept


def spoiled(good: DeviceModel, name: str, value: float) -> DeviceModel:
    figures = dict(good.hyperparameters) | {name: value}
    return replace(good, hyperparameters=tuple(sorted(figures.items())))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gp.0", 900.0),
        ("gp.77", 1.0),
        ("rung.G0", 9.0),
        ("rung.x", 0.0),
        ("risk.eps", 3.0),
        ("risk.rule", 1.0),
    ],
)
async def test_a_summary_that_makes_no_sense_is_fitted_again(name: str, value: float) -> None:
    stage = Stage()
    async with learning(stage) as learner:
        await settled(learner, stage)
        odd = spoiled(summary(learner), name, value)
    again = Stage(device_profiles={GPU: DeviceProfileRecord(name=GPU, model=odd)})
    async with learning(again) as learner:
        for _ in range(3):
            await learner.step()
            again.time_s += 60
        assert learner.stats.fits == 1
        assert again.published[-1][GPU].rows == 24
        assert learner.courses[GPU].error == ""


async def test_the_loop_goes_on_whatever_the_learner_stumbles_over() -> None:
    stage = Stage()
    async with learning(stage) as learner:
        learner._snapshot = lambda: None if stage.published else explode()
        running = asyncio.create_task(learner.run())
        while not learner.stats.refused:
            await asyncio.sleep(0)
        learner._snapshot = stage.picture
        learner.wake()
        while not stage.published:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def explode() -> Snapshot:
    raise KeyError("a bug")


async def test_only_the_leader_learns() -> None:
    stage = Stage(is_leader=False)
    async with learning(stage, die) as learner:
        assert not await learner.step()
        assert learner.rebuilding
        assert learner.stats == type(learner.stats)()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "text", "counter"),
    [(hang, r"no model within 0\.2 s", "late"), (die, "process died", "crashes")],
)
async def test_a_lesson_that_does_not_return_is_given_up_and_tried_later(
    work: Callable[[bytes], bytes], text: str, counter: str
) -> None:
    stage = Stage()
    wait_s = 0.2 if work is hang else 60.0
    async with learning(stage, work, deadline_s=wait_s, executor=own_process) as learner:
        assert await learner.step()
        assert getattr(learner.stats, counter) == 1
        course = learner.courses[GPU]
        assert course.model is None
        assert re.search(text, course.error)
        assert not await learner.step()  # it rests first
        learner._work, learner._deadline_s = fit_in_worker, 120.0
        stage.time_s += 10
        await settled(learner, stage)
        assert course.error == ""
        assert stage.published[-1][GPU].rows == 24


@pytest.mark.slow
async def test_a_fit_that_dies_leaves_the_model_and_rows_still_come_in() -> None:
    stage = Stage()
    async with learning(stage, executor=own_process, fit_rows=5) as learner:
        await settled(learner, stage)
        learner._work = die_on_fits
        for number in range(100, 106):
            stage.profiles = grown(stage.profiles, number)
        stage.time_s += 10_000
        for _ in range(3):
            await learner.step()
            stage.time_s += 5
        course = learner.courses[GPU]
        assert learner.stats.crashes == 1
        assert "process died" in course.error
        assert course.model is not None
        assert course.model.rows == 30
        learner._work = fit_in_worker
        stage.time_s += 600
        await settled(learner, stage)
        assert course.error == ""
        assert learner.stats.fits == 2


WILD_ROWS: tuple[dict[str, object], ...] = (
    *({"slowdown": value} for value in (nan, inf, -inf, -1.0, 0.0, 1e300)),
    *({"step_s": value} for value in (nan, inf, -1.0, 0.0, 1e30)),
    *({"at_s": value} for value in (nan, inf, -1.0, 1e30)),
    *({"share": value} for value in (0, -5, 101, 10**30)),
    {"partners": (Partner(workload_class="lstm", percent=10**30),)},
    {"max_slowdown": nan},
    {"requests_per_s": -1.0},
)


async def test_wild_rows_of_one_profile_teach_nothing_and_the_others_are_learned_from() -> None:
    stage = Stage()
    async with learning(stage) as learner:
        await settled(learner, stage)
        good, model = stage.profiles, stage.published[-1][GPU]
        key = ("tenant-b", "bert")
        rows = [replace(row(70 + at, "lstm", 2.0), **one) for at, one in enumerate(WILD_ROWS)]  # type: ignore[arg-type]
        solo = SoloEntry(device=GPU, share=100, steps_per_second=5e-324, sm_util=nan)
        status = ProfileStatus(step_time=tuple(rows), solo=(solo,), updated=START)
        bad = ProfileRecord(namespace="tenant-b", name="bert", workload_class="odd", status=status)
        stage.profiles = {**good, key: bad}
        stage.time_s += 60
        await settled(learner, stage)
        course = learner.courses[GPU]
        assert course.error == ""
        assert learner.stats.refused == 0
        assert learner.refused == {GPU: {key: len(WILD_ROWS) + 1}}
        assert course.model is not None
        assert (course.model.rows, course.model.hyper) == (model.rows, model.hyper)
        stage.profiles = good
        stage.time_s += 60
        await settled(learner, stage)
        assert learner.refused == {GPU: {}}


async def test_another_risk_budget_is_fitted_for_with_the_same_process() -> None:
    asked: list[FitTask] = []

    def noting(payload: bytes) -> bytes:
        lesson: FitRequest = pickle.loads(payload)
        asked.extend([lesson.task] if lesson.task is not None and lesson.task.fit else [])
        return fit_in_worker(payload)

    stage = Stage()
    async with learning(stage, noting) as learner:
        await settled(learner, stage)
        before = learner.courses[GPU].fitted
        stage.risk = RiskSettings(eps_percent=10)
        await settled(learner, stage)
        assert learner.stats.fits == 2
        fitted = learner.courses[GPU].fitted
        assert before is not None
        assert fitted is not None
        assert fitted.risk.eps == pytest.approx(0.10)
    first, second = asked
    assert first.hyper is None
    assert second.hyper == known_hyper(before.model)
    assert fitted.model.hyper == before.model.hyper


def fails_on_one(payload: bytes) -> bytes:
    lesson: FitRequest = pickle.loads(payload)
    if lesson.task is not None and lesson.task.accelerator == "a-bad":
        raise ValueError("a matrix is singular")
    return fit_in_worker(payload)


async def test_a_type_of_device_that_fails_holds_up_no_other() -> None:
    bad = {("default", f"{name}-bad"): one for (_, name), one in profiles(gpu="a-bad").items()}
    types = {name: DeviceProfileRecord(name=name) for name in (GPU, "a-bad")}
    stage = Stage(profiles={**profiles(), **bad}, device_profiles=types)
    async with learning(stage, fails_on_one) as learner:
        for _ in range(4):
            await learner.step()
        assert learner.courses["a-bad"].error == "ValueError: a matrix is singular"
        assert stage.published[-1][GPU].rows == 24


@pytest.mark.slow
async def test_a_flood_of_rows_is_learned_in_a_part_of_one_core() -> None:
    """A row a second for ten minutes: a lesson of 0.5 s comes every five seconds, no more."""
    stage = Stage(profiles=profiles(100))
    async with learning(stage, answer_at_once) as learner:
        for second in range(600):
            stage.profiles = grown(stage.profiles, 1_000 + second)
            await learner.step()
            stage.time_s += 1
        assert learner.stats.lessons <= 600 / 5 + 2
        assert learner.stats.seconds <= 0.2 * 600
        held = stage.published[-1][GPU].rows
        assert held >= sum(len(one.rows) for one in stage.profiles.values()) - 10
