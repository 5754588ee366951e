# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio

from ullage.process.supervised import TaskSupervisor, end


async def at_once(seconds: float) -> None:
    await asyncio.sleep(0)


async def test_a_task_that_fails_begins_again_and_the_others_go_on() -> None:
    supervisor, begun, done = TaskSupervisor(pause=at_once), list[int](), asyncio.Event()

    async def fails() -> None:
        begun.append(len(begun))
        if len(begun) < 4:
            raise RecursionError("too deep")
        done.set()
        await asyncio.Event().wait()

    async def works() -> None:
        await asyncio.Event().wait()

    running = supervisor.spawn(fails=fails, works=works)
    await done.wait()
    assert supervisor.failures == {"fails": 3}
    assert not any(task.done() for task in running)
    await end(running)
    assert all(task.cancelled() for task in running)
