# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Supervises the background tasks of a process: a failed task restarts after a pause.

A fault of one task is logged and counted; the other tasks continue. A task that keeps failing for a
minute makes the process unhealthy. It must never swallow a cancellation.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from ullage.process.doubling import doubled_s
from ullage.process.faults import fault_text
from ullage.process.times import TASK_RETRY_FIRST_S, TASK_RETRY_MOST_S, TASK_UNHEALTHY_S

log = structlog.get_logger("ullage.tasks")


Work = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class _Faults:
    """Failures of one task, each within ``TASK_UNHEALTHY_S`` of the one before."""

    first: float
    last: float
    count: int
    text: str


class TaskSupervisor:
    """Runs tasks and restarts failed ones.

    Args:
        monotonic: Seconds of a monotonic clock.
        pause: Waits for a number of seconds.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Nothing runs yet."""
        self._monotonic = monotonic
        self._pause = pause
        self._faults: dict[str, _Faults] = {}
        self.failures: Counter[str] = Counter()
        """Failures by name of the task."""

    async def run(self, name: str, work: Work) -> None:
        """Run a task until it returns or is cancelled; after an exception it restarts."""
        while True:
            try:
                return await work()
            except Exception as error:  # the boundary of one task
                wait_s = self._failed(name, error)
                log.exception("task failed", task=name, again_in_s=wait_s)
            await self._pause(wait_s)

    def spawn(self, **work: Work) -> list[asyncio.Task[None]]:
        """Run each piece of work as a task with that name; the caller awaits them."""
        return [asyncio.create_task(self.run(name, each), name=name) for name, each in work.items()]

    def failing(self) -> Mapping[str, str]:
        """Tasks that have failed for ``TASK_UNHEALTHY_S`` or longer, with the last failure."""
        now = self._monotonic()
        return {
            name: faults.text
            for name, faults in self._faults.items()
            if faults.last - faults.first >= TASK_UNHEALTHY_S
            and now - faults.last < TASK_UNHEALTHY_S
        }

    def _failed(self, name: str, error: Exception) -> float:
        """Record a failure; returns the seconds of pause before the restart."""
        now = self._monotonic()
        self.failures[name] += 1
        faults = self._faults.get(name)
        if faults is None or now - faults.last >= TASK_UNHEALTHY_S:
            faults = self._faults[name] = _Faults(first=now, last=now, count=0, text="")
        faults.last, faults.text = now, fault_text(error)
        faults.count += 1
        return doubled_s(TASK_RETRY_FIRST_S, faults.count - 1, TASK_RETRY_MOST_S)


async def end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel the tasks and wait until they have ended, with any result."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
