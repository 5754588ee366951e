# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The background learner: rows of WorkloadProfiles in, models of slowdowns out.

The numerics run in a separate process, with the lowest CPU priority and a deadline: a crash, a hang
or a bad row costs one lesson, and the previous model stays. Only the leader learns. It never
decides and never writes.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass

import structlog

from ullage.app.fit_schedule import FitSchedule, FitState, Pace
from ullage.app.fit_worker import FitAnswer, FitRequest, FitTask, Key, fit_in_worker, settle_in
from ullage.app.separate_process import ProcessRefused, end_at_once, separate_process, submit
from ullage.app.times import BACKGROUND_LOOK_S
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.admission.model import LearnedModel
from ullage.ports import Clock

log = structlog.get_logger("ullage.learner")

MOST_NAMED = 20
"""Profiles named in the log per lesson."""
BATCH = 100
"""Profiles sent at once: some 20,000 rows, a few hundredths of a second of this process."""


def own_process() -> Executor:
    """One process with the lowest CPU priority."""
    return separate_process(settle_in)


class LessonFailed(Exception):
    """A lesson was late or raised, or its process died; the text has the reason."""


@dataclass(slots=True)
class LearnerStats:
    """Figures of the learner, read by the metrics collector."""

    lessons: int = 0
    fits: int = 0
    seconds: float = 0.0
    """Total work of the learner's process, seconds."""
    late: int = 0
    crashes: int = 0
    refused: int = 0
    """Lessons that raised, for example because of an invalid row."""


class Learner:
    """Owns the process and executes the schedule."""

    def __init__(
        self,
        *,
        snapshot: Callable[[], Snapshot | None],
        publish: Callable[[Mapping[str, LearnedModel]], None],
        clock: Clock,
        pace: Pace,
        deadline_s: float,
        work: Callable[[bytes], bytes] = fit_in_worker,
        executor: Callable[[], Executor] = own_process,
    ) -> None:
        """``snapshot`` returns ``None`` where this replica must not learn.

        ``publish`` gets all models whenever one of them is new.
        """
        self._snapshot = snapshot
        self._publish = publish
        self._clock = clock
        self._deadline_s = deadline_s
        self._work = work
        self._pace = pace
        self._schedule = FitSchedule(pace)
        self._executor = executor
        self._pool: Executor | None = None
        self._fresh = True
        """True when the process has no data yet."""
        self._busy = False
        """True when the process works on a lesson, possibly an abandoned one."""
        self._looked = False
        self._woken = asyncio.Event()
        self.stats = LearnerStats()
        self.refused: dict[str, Mapping[Key, int]] = {}
        """By accelerator: invalid rows, by profile."""

    @property
    def courses(self) -> Mapping[str, FitState]:
        """State of each accelerator."""
        return self._schedule.courses

    @property
    def rebuilding(self) -> bool:
        """True while a model learned before a restart is not available yet."""
        return not self._looked or self._schedule.rebuilding

    def start(self) -> None:
        """Start the process early; if that is refused, the next lesson tries."""
        try:
            submit(self._ready(), settle_in, niceness=0)
        except ProcessRefused as error:
            self.close()  # and not only the pool: the data sent to it is lost
            log.warning("the learner's process is not started", error=str(error))

    def wake(self) -> None:
        """Check at once."""
        self._woken.set()

    async def run(self) -> None:
        """Learn until cancelled."""
        while True:
            try:
                busy = await self.step()
            except Exception:  # decisions continue with the previous models
                log.exception("the learner stumbled")
                self.stats.refused += 1
                busy = False
            if not busy:
                self._woken.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(BACKGROUND_LOOK_S):
                        await self._woken.wait()

    async def step(self) -> bool:
        """Check once and run at most one lesson; returns True when there was one."""
        snapshot = self._snapshot()
        if snapshot is None:
            return False
        self._schedule.see(snapshot, self._clock.now())
        self._looked = True
        task = self._schedule.next(self._clock.now(), self._clock.monotonic())
        if task is None:
            return False
        try:
            answer = await self._teach(task)
        except LessonFailed as error:
            log.warning("learning failed", accelerator=task.accelerator, error=str(error))
            self._schedule.failed(task, str(error), self._clock.monotonic())
            return True
        self.stats.lessons += 1
        self.stats.fits += task.fit
        self.stats.seconds += answer.seconds
        self._note(task.accelerator, answer.refused)
        now, monotonic = self._clock.now(), self._clock.monotonic()
        if self._schedule.learned(task, answer, now, monotonic):
            model = self.courses[task.accelerator].model
            log.info(
                "learned",
                accelerator=task.accelerator,
                fit=task.fit,
                rows=model.rows if model else 0,
                version=model.version if model else 0,
                seconds=round(answer.seconds, 3),
            )
            self._publish(self._schedule.models())
        return True

    def _note(self, accelerator: str, refused: Mapping[Key, int]) -> None:
        """Log rejected rows, once while they are the same."""
        if refused == self.refused.get(accelerator, {}):
            return
        self.refused[accelerator] = refused
        for (namespace, name), rows in sorted(refused.items())[:MOST_NAMED]:
            log.warning(
                "rows not believed",
                accelerator=accelerator,
                profile=f"{namespace}/{name}",
                rows=rows,
            )

    def forget(self) -> None:
        """Reset to the initial state; a busy process is replaced."""
        self._schedule = FitSchedule(self._pace)
        self._looked, self._fresh = False, True
        if self._busy:
            self.close()
        if self._pool is None:
            self.start()

    def close(self) -> None:
        """Kill the process."""
        self._fresh, self._busy = True, False
        if self._pool is None:
            return
        end_at_once(self._pool)
        self._pool = None

    async def _teach(self, task: FitTask) -> FitAnswer:
        """Send changes in bounded pieces, then the task.

        Raises:
            LessonFailed: see its text.
        """
        try:
            self._ready()
        except ProcessRefused as error:
            raise self._refused(error) from error
        whole = self._fresh
        if whole:
            self._schedule.send_all()
            self._fresh = False
        while True:
            changed, removed = self._schedule.unsent(BATCH)
            last = len(changed) + len(removed) < BATCH
            lesson = FitRequest(
                whole=whole, changed=changed, removed=removed, task=task if last else None
            )
            whole = False
            answer = await self._call(pickle.dumps(lesson, protocol=pickle.HIGHEST_PROTOCOL))
            if last:
                lesson_answer: FitAnswer = pickle.loads(answer)
                return lesson_answer

    async def _call(self, payload: bytes) -> bytes:
        try:
            future, self._busy = submit(self._ready(), self._work, payload), True
            async with asyncio.timeout(self._deadline_s):
                answer = await asyncio.wrap_future(future)
            self._busy = False
            return answer
        except TimeoutError:
            self.stats.late += 1
            self.close()
            raise LessonFailed(f"no model within {self._deadline_s:g} s") from None
        except ProcessRefused as error:
            raise self._refused(error) from error
        except BrokenProcessPool as error:
            self.stats.crashes += 1
            self.close()
            raise LessonFailed(f"the learner's process died: {error}") from error
        except asyncio.CancelledError:
            self.close()
            raise
        except Exception as error:  # whatever the pure code raised, in the child
            self.stats.refused += 1
            self._fresh, self._busy = True, False
            raise LessonFailed(f"{type(error).__name__}: {error}") from error

    def _refused(self, error: ProcessRefused) -> LessonFailed:
        self.stats.crashes += 1
        self.close()
        return LessonFailed(str(error))

    def _ready(self) -> Executor:
        if self._pool is None:
            self._pool = self._executor()
            self._fresh = True
        return self._pool
