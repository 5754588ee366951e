# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the pure decision in a separate process, with a deadline.

A process keeps the event loop free and survives a crash of native code. A child that misses its
deadline is killed and replaced: otherwise the next call would queue behind it.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import structlog

from ullage.api.reasons import Reason
from ullage.app.memory import freeze_survivors
from ullage.app.separate_process import ProcessRefused, end_at_once, separate_process, submit
from ullage.app.set_aside import SetAside
from ullage.app.times import CHILD_START_S
from ullage.app.transfer import Packer, Unpacker, pack_answer, unpack_answer
from ullage.app.watchdog import Watchdog
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.allocation.model import Allocation, Problem
from ullage.engines.allocation.policies import Objective, allocate
from ullage.process.collector import uncollected
from ullage.process.faults import fault_text
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.cycle.set_aside import reference
from ullage.scheduling.model.faults import Fault
from ullage.scheduling.model.plan import Action, DecideSettings, Emit, Plan
from ullage.scheduling.times import RECHECK_S

log = structlog.get_logger("ullage.solver")


class SolverTimeout(Exception):
    """The decision missed its deadline; its process was killed."""


class SolverCrashed(Exception):
    """The decision's process died or raised; the text has the details."""


class SolverNotStarted(SolverCrashed):
    """There is no process for the decision."""


class SolverRaised(SolverCrashed):
    """The decision raised; its process lives."""


class Undecided(Exception):
    """The decision raised, in the child; the text has the details."""


FRESH_FACTOR = 3
"""Deadlines granted to the first decision of a child."""
_UNPACKER = Unpacker()
"""The child's last snapshot: only changes are sent to it."""


class Stopwatch:
    """Divides by the engine and measures its time; the decision itself has no clock."""

    def __init__(self) -> None:
        """Nothing was divided yet."""
        self._took_s = 0.0

    def __call__(self, objective: Objective, problem: Problem) -> Allocation:
        """The engine's answer.

        Raises:
            SolveError: no optimum, and no earlier allocation to keep.
        """
        started = time.perf_counter()
        try:
            return allocate(objective, problem)
        finally:
            self._took_s += time.perf_counter() - started

    def take(self) -> float:
        """Seconds since the last call; resets the count."""
        took_s, self._took_s = self._took_s, 0.0
        return took_s


_WATCH = Stopwatch()
_CACHE = CycleCache()
"""State of this child, which makes one decision at a time."""


def solve(payload: bytes) -> bytes:
    """Decide and diff in the child; both ways pickled once, here and in :class:`Solver`.

    Records have no cycles: the collector would walk the whole snapshot repeatedly for nothing, so
    it is paused, and visits a decision's garbage after the answer.
    """
    gc.disable()
    try:
        snapshot, now, settings = _UNPACKER.unpack(payload)
        with Watchdog(snapshot):
            plan = decide(snapshot, now, settings, _WATCH, _CACHE)
        took_s = _WATCH.take()
        if took_s:
            plan = replace(plan, division_seconds=took_s)
        return pack_answer(plan, diff(plan, snapshot), snapshot)
    except Exception as error:  # not every exception survives a pipe
        raise Undecided(fault_text(error)) from error


def tidy() -> None:
    """Between two decisions: free the data of the last one, and collect."""
    _CACHE.leftovers.clear()
    freeze_survivors()


def _warm() -> int:
    """First task of a new child: its imports are done when this returns."""
    return 0


class Solver:
    """Owns the child process."""

    def __init__(self, deadline_s: float, work: Callable[[bytes], bytes] = solve) -> None:
        self._deadline_s = deadline_s
        self._work = work
        self._pool: ProcessPoolExecutor | None = None
        self._packer = Packer()
        self._fresh = True
        """The child has not answered yet: it is still importing, and is sent the whole snapshot."""
        self.aside = SetAside()
        self._under_way: Future[int] | Future[bytes] | Future[None] | None = None
        """Work of the child: its imports, a decision, possibly abandoned, or cleaning up after an
        answer."""
        self.timeouts = 0
        self.crashes = 0

    def start(self) -> None:
        """Start the child early; if that is refused, the next decision tries."""
        try:
            self._ready()
        except SolverNotStarted as error:
            log.warning("the decision's process is not started", error=str(error))

    def pid(self) -> int | None:
        """Process id of the child, when it runs."""
        processes = self._pool._processes if self._pool else None
        return next(iter(processes), None) if processes else None

    async def run(
        self, snapshot: Snapshot, now: float, settings: DecideSettings
    ) -> tuple[Plan, tuple[Action, ...]]:
        """Decide on a snapshot, without objects that make decisions fail.

        A cause that the failure does not identify is searched for within the deadline; the rest of
        the search follows in the next decisions.

        Raises:
            SolverTimeout: no answer within the deadline.
            SolverCrashed: the child died or could not be started, or the decision raised.
        """
        began = time.monotonic()
        good: tuple[Plan, tuple[Action, ...]] | None = None
        while True:
            restricted = replace(settings, aside=self.aside.of(snapshot, now))
            try:
                plan, actions = await self._once(snapshot, now, restricted)
            except SolverNotStarted:
                raise
            except (SolverTimeout, SolverCrashed) as error:
                raised = isinstance(error, SolverRaised)
                late = isinstance(error, SolverTimeout)
                again = (
                    self.aside.failed(snapshot, now, str(error), answered=raised, late=late)
                    and raised
                )
                if not again or time.monotonic() - began >= self._deadline_s:
                    raise
                continue
            probed = self.aside.probes
            if not probed:
                good = plan, actions
            self.aside.decided(snapshot, plan.faults, now)
            if self.aside.hurries and time.monotonic() - began < self._deadline_s:
                continue
            if probed:
                plan, actions = good or await self._not_probing(snapshot, now, settings, plan)
            news = self.aside.news()
            if self.aside.searching or news:
                plan = replace(plan, wake_at=min(plan.wake_at or now + RECHECK_S, now + RECHECK_S))
            return plan, (*actions, *_fault_events(snapshot, news, settings.epoch))

    async def _not_probing(
        self, snapshot: Snapshot, now: float, settings: DecideSettings, probe: Plan
    ) -> tuple[Plan, tuple[Action, ...]]:
        """The decision to execute during a search; the probe's plan if there is none.

        Raises:
            SolverTimeout: no answer within the deadline.
            SolverCrashed: the child died, or the decision raised.
        """
        aside = self.aside.without_probing(snapshot, now)
        if aside is None:
            return probe, ()
        return await self._once(snapshot, now, replace(settings, aside=aside))

    async def _once(
        self, snapshot: Snapshot, now: float, settings: DecideSettings
    ) -> tuple[Plan, tuple[Action, ...]]:
        with uncollected():
            payload = self._packer.pack(snapshot, now, settings)
        await self._free()
        deadline_s = self._deadline_s * (FRESH_FACTOR if self._fresh else 1)
        pool = self._ready()
        try:
            self._under_way = future = submit(pool, self._work, payload)
            async with asyncio.timeout(deadline_s):
                answer = await asyncio.wrap_future(future)
        except TimeoutError:
            self.timeouts += 1
            self._replace()
            raise SolverTimeout(f"no decision within {deadline_s:g} s") from None
        except BrokenProcessPool as error:
            self.crashes += 1
            self._replace()
            raise SolverCrashed(f"the decision's process died: {error}") from error
        except ProcessRefused as error:
            raise self._refused(error) from error
        except asyncio.CancelledError:
            self._packer.reset()
            raise
        except Exception as error:  # whatever the pure code raised, in the child
            self.crashes += 1
            self._packer.reset()
            self._under_way = None
            text = str(error) if isinstance(error, Undecided) else fault_text(error)
            raise SolverRaised(text) from error
        self._fresh, self._under_way = False, self._tidy()
        with uncollected():
            return unpack_answer(answer, snapshot)

    def _tidy(self) -> Future[None] | None:
        """Let the child collect before the next decision, which also detects a dead child."""
        try:
            return submit(self._ready(), tidy)
        except (BrokenProcessPool, SolverNotStarted, ProcessRefused):
            return None

    def forget(self) -> None:
        """Send everything again: the previous leadership is over."""
        self._packer.reset()

    def close(self) -> None:
        """Kill the child."""
        self._packer.reset()
        self._under_way = None
        if self._pool is None:
            return
        end_at_once(self._pool)
        self._pool = None

    async def _free(self) -> None:
        """Wait until the child is done with its imports, or with an abandoned decision.

        Raises:
            SolverNotStarted: it is not in time; no object of this snapshot is the cause.
        """
        before = self._under_way
        if before is None or before.cancelled():
            return
        limit_s = CHILD_START_S if self._fresh else self._deadline_s
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.shield(asyncio.wrap_future(before))
        except TimeoutError as error:
            self._replace()
            text = f"the decision's process is not ready after {limit_s:g} s"
            raise SolverNotStarted(text) from error
        except BrokenProcessPool as error:
            self.crashes += 1
            self._replace()
            raise SolverNotStarted(f"the decision's process died: {error}") from error
        except Exception as error:  # an answer that no caller waits for
            log.info("an abandoned decision failed", error=fault_text(error))
        self._under_way = None

    def _ready(self) -> ProcessPoolExecutor:
        """The child, started if needed.

        Raises:
            SolverNotStarted: the kernel refuses a process.
        """
        if self._pool is None:
            try:
                pool = separate_process()
                self._under_way = submit(pool, _warm)
            except ProcessRefused as error:
                raise self._refused(error) from error
            self._pool, self._fresh = pool, True
        return self._pool

    def _refused(self, error: ProcessRefused) -> SolverNotStarted:
        self.crashes += 1
        self.close()
        return SolverNotStarted(str(error))

    def _replace(self) -> None:
        self.close()
        self.start()


def _fault_events(snapshot: Snapshot, news: Sequence[Fault], epoch: int) -> Iterator[Emit]:
    """One Event for each object that was just set aside."""
    for fault in news:
        target = reference(snapshot, fault)
        if target is not None:
            yield Emit(
                target=target,
                warning=True,
                epoch=epoch,
                reason=Reason.DECISION_FAILED,
                text=f"no decision can be made about it: {fault.text}",
            )
