# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs named tasks: starts them, restarts them after a failure, ends them.

A task that fails is logged, counted and restarted after a pause, and the others continue: nothing
that one of them reads may end the agent. One that keeps failing for a minute makes the process
unhealthy. Every task has an owner that awaits it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

FIRST_SECONDS: Final = 0.5
MOST_SECONDS: Final = 20.0
"""Pause before a failed task begins again: doubling from the first to the longest."""
UNHEALTHY_SECONDS: Final = 60.0
"""Failures over so long a time make the process unhealthy; so long a time without one heals it."""
LONGEST_TEXT: Final = 300

Work = Callable[[], Coroutine[None, None, None]]

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Faults:
    """Failures of one task that followed closely upon each other, CLOCK_MONOTONIC seconds."""

    first_at: float
    last_at: float
    count: int = 0
    text: str = ""


class Supervisor:
    """Begins tasks again that fail."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._faults: dict[str, _Faults] = {}
        self.failures: Counter[str] = Counter()
        """Failures by task."""

    def spawn(self, **work: Work) -> list[asyncio.Task[None]]:
        """Start each piece of work as a task of that name."""
        return [
            asyncio.create_task(self._keep(name, each), name=name) for name, each in work.items()
        ]

    @property
    def failing(self) -> str:
        """The tasks that have been failing for long, empty if none."""
        now = self._clock()
        return "; ".join(
            f"{name} fails: {one.text}"
            for name, one in sorted(self._faults.items())
            if one.last_at - one.first_at >= UNHEALTHY_SECONDS
            and now - one.last_at < UNHEALTHY_SECONDS
        )

    async def _keep(self, name: str, work: Work) -> None:
        while True:
            try:
                return await work()
            except Exception as error:  # the seam of one task
                pause = self._failed(name, error)
                _log.exception("task failed", task=name, again_in=pause)
            await asyncio.sleep(pause)

    def _failed(self, name: str, error: Exception) -> float:
        now = self._clock()
        self.failures[name] += 1
        faults = self._faults.get(name)
        if faults is None or now - faults.last_at >= UNHEALTHY_SECONDS:
            faults = self._faults[name] = _Faults(first_at=now, last_at=now)
        faults.last_at, faults.text = now, fault_text(error)
        faults.count += 1
        return min(FIRST_SECONDS * 2.0 ** min(faults.count - 1, 16), MOST_SECONDS)


def fault_text(error: BaseException) -> str:
    """Type and text of an exception, one short line: it may quote what a tenant wrote."""
    words = " ".join(str(error)[: 2 * LONGEST_TEXT].split())
    return f"{type(error).__name__}: {words}"[:LONGEST_TEXT].rstrip(": ")


async def end(tasks: Sequence[asyncio.Task[object]]) -> None:
    """Cancel the tasks and wait until they are over, whatever they end with."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
