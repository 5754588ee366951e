# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Sends every write of the operator.

Ordered by urgency, limited in rate and number, fenced by the Lease before each request, idempotent.
A write that fails because the state has changed is reported to the loop, which plans again; nothing
is retried blindly and nothing is written after ``stop`` or a lost Lease.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import structlog

from ullage.api.reasons import Reason
from ullage.cluster.cache.cluster import ClusterState
from ullage.kube.errors import CREATES, FAILED, Fenced, Refused, RequestVerdict, judge
from ullage.kube.events import EventRecorder
from ullage.kube.requests import RequestBuilder, key_of, verb_of
from ullage.kube.writer.bucket import Bucket, WriteWindow
from ullage.kube.writer.limits import WriteLimits
from ullage.kube.writer.queue import Strikes, WaitingWrite, WriteQueue
from ullage.kube.writer.send import SENT, Sender
from ullage.ports import ApiError, BadRequest, Clock, ClusterPort, Throttled
from ullage.process.faults import fault_text
from ullage.scheduling.model.plan import Action, Emit, SetStatus

log = structlog.get_logger("ullage.writer")

_ANSWER_WEIGHT = 0.05
"""Weight of one answer in the average response time."""

OnResult = Callable[[Action, ApiError | None], None]


@dataclass(slots=True)
class WriterStats:
    """Counters that the metrics collector reads."""

    writes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By (verb, kind, result); result is ok, unchanged, failed or the verdict on an error."""
    fenced: int = 0
    """Writes that were not sent because the Lease was not held."""
    queue_depth: int = 0
    in_flight: int = 0
    answer_s: float = 0.0
    """Recent response time of the API server, a moving average."""
    answered_at: float = 0.0
    """Time of its last answer, monotonic seconds."""
    events_dropped: int = 0
    """Events dropped for lack of room in the queue."""
    per_second: float = 0.0
    """The rate in force; below the limit after a 429."""


class Writer:
    """Executes actions in the background; ``submit`` never waits.

    Args:
        cluster: The API server.
        bodies: Templates and identities, usually the cluster state.
        fence: Returns true while the Lease is held; called before each request.
        on_result: Called at each action's end with ``None``, or the error that ended it. An action
            replaced by a newer one on the same object has no end of its own, nor has an Event.
        on_lost: Called once when the API rejects our epoch: a newer leader writes.
        clock: Time source.
        limits: Rates and waits.
        stats: Counters to update.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        bodies: ClusterState,
        *,
        fence: Callable[[], bool],
        on_result: OnResult,
        on_lost: Callable[[], None],
        clock: Clock,
        limits: WriteLimits | None = None,
        stats: WriterStats | None = None,
    ) -> None:
        """Nothing is sent before ``run``."""
        self._limits = limits or WriteLimits()
        self._fence = fence
        self._on_result = on_result
        self._on_lost = on_lost
        self._clock = clock
        self.stats = stats if stats is not None else WriterStats()
        self._stopped = asyncio.Event()
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._window = WriteWindow(self._limits.in_flight)
        self._queue = WriteQueue(self._limits)
        self._strikes = Strikes(self._limits)
        self._bucket = Bucket(self._limits, clock.monotonic, self._rest)
        self._events = EventRecorder(cluster, now=clock.now, guard=self._guard)
        self._sender = Sender(
            cluster,
            RequestBuilder(
                bodies,
                pre_stop_sleep_s=self._limits.pre_stop_sleep_s,
                order_image=self._limits.order_image,
                coordinators=self._limits.coordinators,
            ),
            self._events,
            monotonic=clock.monotonic,
            guard=self._guard,
            remembered_bytes=self._limits.remembered_bytes,
        )

    def submit(self, actions: Sequence[Action]) -> None:
        """Queue actions; after ``stop`` they are counted as fenced and dropped."""
        if self._stopped.is_set():
            self.stats.fenced += len(actions)
            return
        now = self._clock.monotonic()
        for action in actions:
            try:
                if not isinstance(action, Emit) or self._events.is_news(action):
                    self._queue.put(action, now)
            except Exception:  # the boundary of one action: the others are queued
                self._count(action, FAILED)
                log.exception("action not queued", action=type(action).__name__)
        self._gauge()
        self._wake.set()

    async def run(self) -> None:
        """Write until ``stop``; ends when nothing is in flight any more."""
        async with asyncio.TaskGroup() as group:
            while True:
                waiting = await self._next()
                if waiting is None:
                    break
                self.stats.in_flight += 1
                task = group.create_task(self._carry_out(waiting))
                self._tasks.add(task)
                task.add_done_callback(partial(self._ended, waiting))

    async def stop(self) -> None:
        """Refuse new actions, drop waiting ones, wait briefly for those in flight, then cancel."""
        self._close()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=self._limits.stop_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    # -- dispatch ------------------------------------------------------------------------------

    def _close(self) -> None:
        self._stopped.set()
        self.stats.fenced += self._queue.clear()
        self._gauge()
        self._wake.set()

    async def _next(self) -> WaitingWrite | None:
        """The next action that may be written; ``None`` when the writer stops.

        The permission is taken first and the action last, so that urgency is evaluated at the time
        of writing.
        """
        while not self._stopped.is_set():
            now = self._clock.monotonic()
            full = self.stats.in_flight >= self._window.width
            ready = None if full else self._queue.ready_at(now)
            if ready is not None and ready <= now:
                await self._bucket.acquire()
                waiting = self._queue.pop(self._clock.monotonic())
                if waiting is not None and not self._stopped.is_set():
                    self._gauge()
                    return waiting
                continue
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if ready is None else ready - now):
                    await self._wake.wait()
        return None

    async def _carry_out(self, waiting: WaitingWrite) -> None:
        try:
            error = await self._attempts(waiting)
        except Exception as fault:  # the boundary of one action: the others continue
            error = self._failed(waiting, fault)
        if isinstance(waiting.action, Emit):
            return
        self._report(waiting.action, error)
        if error is not None and not isinstance(error, Refused):
            for late in self._queue.drop_after(waiting.key):
                self._report(late, error)

    def _report(self, action: Action, error: ApiError | None) -> None:
        try:
            self._on_result(action, error)
        except Exception:  # the boundary of one answer: assumptions about it expire
            self._count(action, FAILED)
            log.exception("result of a write not taken in", key=key_of(action))

    def _ended(self, waiting: WaitingWrite, task: asyncio.Task[None]) -> None:
        """Free the object and the slot, whatever the result."""
        self._tasks.discard(task)
        self.stats.in_flight -= 1
        self._queue.done(waiting.key)
        self._wake.set()

    async def _attempts(self, waiting: WaitingWrite) -> ApiError | None:
        """Send until it succeeds, is hopeless, or the attempts are used up."""
        attempt = 1
        while True:
            sent = self._clock.monotonic()
            try:
                result = await self._sender.send(waiting.action)
            except ApiError as error:
                self._timed(sent)
                verdict = judge(waiting.action, error)
                self._count(waiting.action, verdict.value)
                last = attempt >= self._limits.tries
                if last or not await self._try_again(verdict, error, attempt):
                    return self._settle(waiting, verdict, error)
            else:
                if result == SENT:
                    self._timed(sent)
                self._count(waiting.action, result)
                self._strikes.clear(waiting.key)
                return None
            attempt += 1
            await self._bucket.acquire()

    async def _try_again(self, verdict: RequestVerdict, error: ApiError, attempt: int) -> bool:
        """Wait as the error requires; true if another attempt makes sense."""
        if verdict is RequestVerdict.THROTTLED and isinstance(error, Throttled):
            asked = error.retry_after_s or self._limits.throttle_s
            self._bucket.slow_down(min(asked, self._limits.throttle_most_s))
            self.stats.per_second = self._bucket.per_second
            return True
        if verdict is RequestVerdict.AGAIN:
            jitter = random.uniform(0.5, 1.5)
            await self._rest(self._limits.retry_s * 2 ** (attempt - 1) * jitter)
            return True
        return False

    # -- the end of a write ----------------------------------------------------------------------

    def _settle(self, waiting: WaitingWrite, verdict: RequestVerdict, error: ApiError) -> ApiError:
        """Reports to the loop, and sets the object's back-off."""
        kind, namespace, name, _ = waiting.key
        if verdict is RequestVerdict.FENCED:
            self.stats.fenced += 1
            return error
        if verdict is RequestVerdict.LOST:
            self._lost(error)
            return error
        self._sender.forget(waiting.action)
        if isinstance(error, Refused):
            return error
        if verdict is RequestVerdict.REFUSED:
            return Refused(Reason.CREATE_REFUSED, kind, namespace, name, error)
        wait = 0.0
        if verdict is RequestVerdict.BUDGET and isinstance(error, Throttled):
            self._hold(waiting, max(error.retry_after_s, self._limits.backoff_s))
        elif verdict in (RequestVerdict.FORBIDDEN, RequestVerdict.BROKEN):
            wait = self._strikes.strike(waiting.key, error.message, at_once=True)
        elif verdict is RequestVerdict.INVALID:
            wait = self._strikes.strike(waiting.key, error.message)
        if wait <= 0.0:
            if verdict is RequestVerdict.INVALID:
                log.info("invalid", kind=kind, namespace=namespace, name=name, error=str(error))
            if verdict in (RequestVerdict.MOVED_ON, RequestVerdict.INVALID):
                self._hold(waiting, self._limits.moved_on_s)
            return error
        self._hold(waiting, wait)
        log.warning("write refused", kind=kind, namespace=namespace, name=name, error=str(error))
        self._report_unwritable(waiting.action, str(error))
        return Refused(Reason.WRITE_REFUSED, kind, namespace, name, error)

    def _failed(self, waiting: WaitingWrite, fault: Exception) -> Refused:
        """Refusal of an action that could not be built or sent: reported, with a back-off."""
        kind, namespace, name, _ = waiting.key
        action, text = waiting.action, fault_text(fault)
        self._count(action, FAILED)
        log.exception("write failed", kind=kind, namespace=namespace, name=name)
        self._hold(waiting, self._strikes.strike(waiting.key, text, at_once=True))
        self._sender.forget(action)
        self._report_unwritable(action, text)
        cause = BadRequest(0, f"it cannot be built or sent: {text}", FAILED)
        verdict = Reason.CREATE_REFUSED if isinstance(action, CREATES) else Reason.WRITE_REFUSED
        return Refused(verdict, kind, namespace, name, cause)

    def _report_unwritable(self, action: Action, text: str) -> None:
        """Report a status by an Event: its own conditions cannot."""
        if isinstance(action, SetStatus):
            self.submit((_unwritable(action, text),))

    def _hold(self, waiting: WaitingWrite, wait_s: float) -> None:
        now = self._clock.monotonic()
        self._queue.hold(waiting.key, now + wait_s, now)

    def _lost(self, error: ApiError) -> None:
        if not self._stopped.is_set():
            log.error("a newer leader writes", error=error.message)
            self._close()
            self._on_lost()

    # -- helpers ---------------------------------------------------------------------------------

    def _guard(self) -> None:
        """Check before each request.

        Raises:
            Fenced: the writer has stopped or the Lease is not held.
        """
        if self._stopped.is_set() or not self._fence():
            raise Fenced

    async def _rest(self, seconds: float) -> bool:
        """Sleep; ends early and returns true when the writer stops."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        return self._stopped.is_set()

    def _timed(self, sent: float) -> None:
        now = self._clock.monotonic()
        self.stats.answer_s += (now - sent - self.stats.answer_s) * _ANSWER_WEIGHT
        self._window.answered(now - sent)
        self.stats.answered_at = now

    def _count(self, action: Action, result: str) -> None:
        verb, kind = verb_of(action)
        self.stats.writes[verb.value, kind, result] += 1

    def _gauge(self) -> None:
        self.stats.queue_depth = len(self._queue)
        self.stats.events_dropped = self._queue.dropped
        self.stats.per_second = self._bucket.per_second


def _unwritable(action: SetStatus, text: str) -> Emit:
    return Emit(
        target=action.owner,
        warning=True,
        epoch=action.epoch,
        reason=Reason.WRITE_REFUSED,
        text=f"its status cannot be built or sent: {text}",
    )
