# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A replica that is told to stop ends, even where an answer arrives at the very same moment.

A process that was frozen wakes to both at once: the answer that its child had ready, and SIGTERM.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any

import pytest

from fakes.clock import FakeClock
from ullage.app.fit_schedule import Pace
from ullage.app.learner import Learner, LessonFailed
from ullage.app.solver import Solver, SolverCrashed
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.model.plan import DecideSettings

SNAPSHOT = Snapshot(version=7, taken_at=1000.0)
ITERATIONS = range(8)
"""Turns of the event loop between the answer and the stop."""


class Child(Executor):
    """A child process that answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[Future[Any]] = []

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        self.asked.append(Future())
        return self.asked[-1]


async def decide(child: Child) -> None:
    solver = Solver(deadline_s=60)
    solver._pool = child  # type: ignore[assignment]
    solver._fresh = False
    while True:
        with suppress(SolverCrashed):
            await solver.run(SNAPSHOT, 1000.0, DecideSettings(epoch=1))


async def learn(child: Child) -> None:
    learner = Learner(
        snapshot=lambda: SNAPSHOT,
        publish=lambda _: None,
        clock=FakeClock(),
        pace=Pace(every_s=1.0, fit_every_s=1.0, fit_rows=1),
        deadline_s=60.0,
        executor=lambda: child,
    )
    while True:
        with suppress(LessonFailed):
            await learner._call(b"")


@pytest.mark.parametrize("work", [decide, learn])
@pytest.mark.parametrize("iterations", ITERATIONS)
async def test_a_stop_beside_an_answer_ends_the_task(
    work: Callable[[Child], Awaitable[None]], iterations: int
) -> None:
    child = Child()
    task = asyncio.ensure_future(work(child))
    while not child.asked:
        await asyncio.sleep(0)
    child.asked[-1].set_exception(ValueError("as good as any answer"))
    for _ in range(iterations):
        await asyncio.sleep(0)
    task.cancel()
    _, pending = await asyncio.wait([task], timeout=5.0)
    assert not pending, "the stop was swallowed"
