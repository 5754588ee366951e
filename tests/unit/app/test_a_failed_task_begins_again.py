# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A background task that fails begins again; the others, and the process, go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ullage.process.supervised import TaskSupervisor
from ullage.process.times import TASK_RETRY_MOST_S, TASK_UNHEALTHY_S


class Watched:
    """A supervisor whose pauses pass at once and are written down."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self.supervisor = TaskSupervisor(lambda: self.now, self._pause)

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def failing(self, times: int, lasting_s: float = 0.0) -> Callable[[], Awaitable[None]]:
        """Work that fails so often, each time after so many seconds, and then ends."""
        left = iter(range(times))

        async def work() -> None:
            if next(left, None) is not None:
                self.now += lasting_s
                raise OverflowError("date value out of range")

        return work


async def test_a_task_that_fails_begins_again_after_a_growing_pause() -> None:
    rig = Watched()
    await rig.supervisor.run("pools", rig.failing(8))
    assert rig.pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, TASK_RETRY_MOST_S, TASK_RETRY_MOST_S]
    assert rig.supervisor.failures == {"pools": 8}


async def test_a_task_that_ran_well_for_a_minute_pauses_briefly_again() -> None:
    rig = Watched()
    await rig.supervisor.run("pools", rig.failing(4, lasting_s=TASK_UNHEALTHY_S))
    assert rig.pauses == [0.5] * 4
    assert not rig.supervisor.failing()


async def test_a_task_that_fails_for_a_minute_is_told_until_it_is_well_for_one() -> None:
    rig = Watched()
    await rig.supervisor.run("prices", rig.failing(4))
    assert rig.supervisor.failing() == {}, "four failures in seven seconds may be chance"
    await rig.supervisor.run("prices", rig.failing(8))
    assert rig.supervisor.failing() == {"prices": "OverflowError: date value out of range"}
    rig.now += TASK_UNHEALTHY_S
    assert rig.supervisor.failing() == {}


async def test_the_fault_of_one_task_leaves_the_others_alone() -> None:
    rig = Watched()
    done = asyncio.Event()

    async def well() -> None:
        await done.wait()

    async with asyncio.TaskGroup() as tasks:
        other = tasks.create_task(rig.supervisor.run("leads", well))
        tasks.create_task(rig.supervisor.run("pools", rig.failing(3)))
        await asyncio.sleep(0)
        assert not other.done()
        done.set()
    assert rig.supervisor.failures == {"pools": 3}


async def test_a_cancellation_ends_a_task() -> None:
    rig = Watched()
    task = asyncio.create_task(rig.supervisor.run("leads", asyncio.Event().wait))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not rig.supervisor.failures


async def test_what_is_told_of_a_failure_is_one_short_line() -> None:
    rig = Watched()

    async def wild() -> None:
        rig.now += 10.0
        if rig.now < 3 * TASK_UNHEALTHY_S:
            raise ValueError("x\n" * 2_000)

    await rig.supervisor.run("prices", wild)
    (text,) = rig.supervisor.failing().values()
    assert "\n" not in text
    assert len(text) <= 300
