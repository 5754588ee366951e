# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The kernel starts no process, thread or pipe: typed, told, tried again, and no end of ours."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from multiprocessing import popen_spawn_posix, queues
from unittest.mock import patch

import pytest

from fakes.lesson_rig import Stage, answer_at_once
from ullage.app.fit_schedule import Pace
from ullage.app.learner import Learner, own_process
from ullage.app.separate_process import ProcessRefused, separate_process, submit
from ullage.app.solver import Solver, SolverNotStarted
from ullage.cluster.records.snapshot import Snapshot
from ullage.process.threads import ThreadRefused, in_thread
from ullage.scheduling.model.plan import DecideSettings

SNAPSHOT = Snapshot(version=7, taken_at=1000.0)
SETTINGS = DecideSettings(epoch=1)
Refusal = Callable[[], AbstractContextManager[object]]


def _no(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def no_process() -> AbstractContextManager[object]:
    return patch.object(popen_spawn_posix.Popen, "_launch", side_effect=_no(errno.EAGAIN))


def no_thread() -> AbstractContextManager[object]:
    refused = RuntimeError("can't start new thread")
    return patch.object(threading.Thread, "start", side_effect=refused)


def no_pipe() -> AbstractContextManager[object]:
    return patch.object(queues.connection, "Pipe", side_effect=_no(errno.EMFILE))


KINDS = pytest.mark.parametrize("refusal", [no_process, no_thread, no_pipe])


@pytest.mark.slow
@KINDS
async def test_a_decision_without_a_process_is_typed_and_the_next_one_has_it(
    refusal: Refusal,
) -> None:
    solver = Solver(deadline_s=60)
    try:
        with refusal():
            solver.start()  # the operator begins all the same
            for _ in range(2):
                with pytest.raises(SolverNotStarted, match="no process can be started"):
                    await solver.run(SNAPSHOT, 1000.0, SETTINGS)
            assert solver.pid() is None
            assert not solver.aside.searching, "no object is the cause"
        plan, _ = await solver.run(SNAPSHOT, 1000.0, SETTINGS)
        assert plan.version == 7
    finally:
        solver.close()


@pytest.mark.slow
@KINDS
async def test_a_child_that_died_and_cannot_be_replaced_costs_that_decision(
    refusal: Refusal,
) -> None:
    solver = Solver(deadline_s=60)
    try:
        await solver.run(SNAPSHOT, 1000.0, SETTINGS)
        pid = solver.pid()
        assert pid is not None
        with refusal():
            os.kill(pid, 9)
            with pytest.raises(SolverNotStarted):
                await solver.run(SNAPSHOT, 1000.0, SETTINGS)
            with pytest.raises(SolverNotStarted):
                await solver.run(SNAPSHOT, 1000.0, SETTINGS)
        plan, _ = await solver.run(SNAPSHOT, 1000.0, SETTINGS)
        assert plan.version == 7
    finally:
        solver.close()


@pytest.mark.slow
@KINDS
async def test_a_lesson_without_a_process_is_lost_and_the_next_one_is_given(
    refusal: Refusal,
) -> None:
    stage = Stage()
    learner = Learner(
        snapshot=stage.picture,
        publish=stage.published.append,
        clock=stage,
        pace=Pace(),
        deadline_s=60.0,
        work=answer_at_once,
        executor=own_process,
    )
    try:
        with refusal():
            learner.start()
            assert await learner.step()
            assert learner.stats.crashes == 1
            (course,) = learner.courses.values()
            assert "no process can be started" in course.error
        stage.time_s += 3600
        while await learner.step():
            stage.time_s += 60
        assert stage.published
    finally:
        learner.close()


def test_half_a_pool_is_not_left_behind() -> None:
    """The process is there, and the thread that speaks to it is not."""
    pool = separate_process()
    with no_thread(), pytest.raises(ProcessRefused):
        submit(pool, os.getpid)
    with pytest.raises(RuntimeError):
        pool.submit(os.getpid)


async def test_a_thread_that_is_refused_is_an_error_like_a_file_that_is() -> None:
    with no_thread(), pytest.raises(ThreadRefused, match="no thread could be started"):
        await in_thread(os.getpid)
    assert await in_thread(os.getpid) == os.getpid()


async def test_what_the_work_itself_raises_is_raised() -> None:
    def work() -> None:
        raise RuntimeError("of its own")

    with pytest.raises(RuntimeError, match="of its own"):
        await in_thread(work)
    await asyncio.sleep(0)
