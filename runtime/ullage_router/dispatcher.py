# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Dispatches waiting requests to free replicas, and answers every request once.

A replica with an invalid, late or missing answer fails its whole batch. Each of its idempotent
requests is retried once, alone and on another replica, so that one that kills its server reaches
two at most; the others are answered with an error at once. Before that, a batch of idempotent
requests is resent unchanged if a kept connection ended without an answer: replicas close idle
connections, which is no failure. A batch that a replica refuses (4xx), or whose answer cannot be
read, is rerun one by one, so that only the faulty request gets that answer. If a replica reports
that a model is not ready, nothing ran: its requests are requeued, and that replica gets none for
this model until it is ready.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from multidict import CIMultiDict

from ullage_router.answers import (
    BAD_GATEWAY,
    GATEWAY_TIMEOUT,
    SERVER_ERROR,
    TOO_MANY,
    UNAVAILABLE,
    Answers,
    Streams,
)
from ullage_router.arrivals import ArrivalRate
from ullage_router.background import BackgroundTasks
from ullage_router.calls import ClientAnswer, RouterCall
from ullage_router.generation import GenerationKey
from ullage_router.generations import Generations
from ullage_router.grpc_replicas import GrpcConnections
from ullage_router.http_replicas import HttpConnections
from ullage_router.metrics import BatchSplit, RequestResult, RouterMetrics
from ullage_router.open_inference import MalformedAnswer, QueuedRequest, UnreadableAnswer
from ullage_router.replica_pool import ReplicaPool
from ullage_router.replicas import (
    OK,
    AnswerStream,
    Broken,
    KeptConnectionEnded,
    NotDelivered,
    ReplicaConnections,
    Reply,
    RouterReplica,
    TooLate,
    least_loaded,
)
from ullage_router.request_queue import RequestQueue
from ullage_router.settings import RouterSettings
from ullage_router.times import APART_S, EXPIRE_S, HANG_LEAST_S, LEARN_S, LEAVES_EARLY_S, REFRESH_S
from ullage_router.wires import wire_of
from ullage_run.binary_tensors import HEADER, Body, json_bytes_of

log = logging.getLogger("ullage.router")

LEAVES_EARLY: Final = 0.05
"""Fraction of its time by which a client that leaves at its deadline may precede ours."""
ENCODED: Final = "Content-Encoding"
HANG_FACTOR: Final = 4.0
"""A batch that takes this many times the longest one seen counts as hanging."""


class Dispatcher:
    """One queue and its replicas; ``start`` and ``stop`` once each, on one event loop."""

    def __init__(self, settings: RouterSettings) -> None:
        self._settings = settings
        limits = settings.limits
        self.queue = RequestQueue(most_calls=limits.queue_calls, most_bytes=limits.queue_bytes)
        self.arrivals = ArrivalRate(self.now_s())
        self._generations = Generations(settings) if settings.generative is not None else None
        self._in_flight = 0
        self._asleep_since: float | None = None
        """Time since when the first of the requests without a ready replica waits."""
        self.wake_s = 0.0
        """Seconds that the last of them waited; 0 = none."""
        self._wire = wire_of(settings)
        self._connections = _connections(settings)
        self._background = BackgroundTasks()
        self.pool = ReplicaPool(
            settings,
            self._connections,
            self._generations,
            self._background,
            changed=self._soon,
            woke=self._woke,
        )
        self.metrics = RouterMetrics(
            waiting=lambda: len(self.queue),
            held_bytes=lambda: self.queue.held_bytes,
            in_flight=lambda: self._in_flight,
            up=self.pool.up,
            sizes=settings.rules.sizes,
            cache_full=None if self._generations is None else self.pool.caches_full,
        )
        self._answers = Answers(
            self.metrics, self._generations, clock=self.now_s, retry_after_s=self._retry_after_s
        )
        self._running: set[asyncio.Task[None]] = set()
        self._exchanges: dict[int, asyncio.Task[None]] = {}
        """Tasks with an exchange for a single client, which may leave, by number of the call."""
        self._apart_until_s = -math.inf
        self._batches = 0
        self._asked = False
        self._stopped = False

    async def start(self) -> None:
        """Probe the replicas and learn from their batches."""
        await self._connections.open()
        self.pool.start()
        self._background.start(self._learn())
        self._background.start(self._expire())
        if self._generations is not None:
            self._background.start(self._refresh(self._generations))

    async def stop(self) -> None:
        """Cancel running exchanges; waiting clients are answered that the router stops."""
        self._stopped = True
        tasks = [*self._background.running(), *self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for call in self.queue.expired(math.inf):
            self._answers.refuse(
                call, UNAVAILABLE, "the router is being stopped", RequestResult.FAILED
            )
        await self._connections.close()

    @property
    def fault(self) -> BaseException | None:
        """Error of a permanent part of the router that has ended."""
        return self._background.fault

    @property
    def ready(self) -> bool:
        """True if a replica is ready, and no part of the router has failed."""
        return self.fault is None and self.pool.is_up

    @property
    def asleep(self) -> bool:
        """True if there is no replica, and the next request causes one to start."""
        return self.fault is None and self.pool.looked_up and not self.pool.replicas

    @property
    def idle(self) -> bool:
        """True if nothing waits or runs."""
        return not self.queue and not self._running

    @property
    def idle_s(self) -> float:
        """Seconds since a request was waiting or under way."""
        return self.arrivals.idle_s(self.now_s()) if self.idle else 0.0

    def name_of(self, key: GenerationKey) -> str:
        """The queue name of a generation request."""
        return key.text if self._generations is None else self._generations.name_of(key)

    def now_s(self) -> float:
        """The router's monotonic clock. uvloop's own has whole milliseconds only."""
        return time.monotonic()

    def submit(self, call: RouterCall) -> None:
        """Queue a call, or refuse it at once with the reason."""
        self.arrivals.arrived(self.now_s())
        if not self._ready_for(call):
            self._hold(call)
        self._set_form(call)
        if not self.queue.offer(call):
            if not self.ready:
                self._refuse_unready(call)
                return
            text = f"{len(self.queue)} requests wait already; come again later"
            self._answers.refuse(call, TOO_MANY, text, RequestResult.DROPPED)
            return
        self._soon()

    def gone(self, call: RouterCall) -> None:
        """Handle a client's disconnect; one at the deadline counts as late."""
        waited = self.queue.remove(call)
        self._leave(call)
        now, arrival_s = self.now_s(), call.request.arrival_s
        if now >= call.due_s - min(LEAVES_EARLY_S, LEAVES_EARLY * (call.due_s - arrival_s)):
            result = RequestResult.DROPPED if waited else RequestResult.LATE
            self.metrics.ended(result, call.app, now - arrival_s)

    def gone_midway(self, call: RouterCall) -> None:
        """Handle a client's disconnect before the end of a streamed answer."""
        self._leave(call)

    def _leave(self, call: RouterCall) -> None:
        """Cancel the exchange, if it serves this client alone."""
        exchange = self._exchanges.get(call.number)
        if exchange is not None:
            exchange.cancel()

    def _hold(self, call: RouterCall) -> bool:
        """Let a call wait beyond its deadline for a ready replica; true if it may."""
        request, now = call.request, self.now_s()
        until_s = request.arrival_s + self._settings.hold_s
        if self._asleep_since is None or not self.queue:  # earlier ones have left
            self._asleep_since = now
        if request.deadline_s >= until_s or now >= until_s:
            return False
        call.request = replace(request, deadline_s=until_s)
        self.metrics.held()
        return True

    def _woke(self) -> None:
        if self._asleep_since is not None and self.queue:
            self.wake_s = self.now_s() - self._asleep_since
            self.metrics.woke(self.wake_s)
        self._asleep_since = None

    def _retry_after_s(self) -> int:
        """Whole seconds to run the waiting requests, if known."""
        if not self.ready:
            return max(1, math.ceil(self.wake_s))
        rate = self.pool.rate_per_s()
        return max(1, math.ceil(len(self.queue) / rate)) if rate else 1

    def _soon(self) -> None:
        """Schedule one decision for all arrivals of this loop iteration."""
        if not self._asked and not self._stopped:
            self._asked = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._asked = False
        now = self.now_s()
        passed: set[int] = set()
        while self.queue and not self._stopped:
            candidates = [replica for replica in self.pool.replicas if replica.number not in passed]
            replica = least_loaded(candidates, now)
            if replica is None:
                return
            picked = self.queue.pick(
                replica.times.chooser, now, replica.number, replica.unready_models
            )
            if picked is None:
                passed.add(replica.number)
                continue
            for call in picked.dropped:
                self._answers.refuse(
                    call, TOO_MANY, "it cannot be answered in time", RequestResult.DROPPED
                )
            if picked.run:
                self._begin(replica, self._fitting(picked.run))

    def _fitting(self, calls: tuple[RouterCall, ...]) -> tuple[RouterCall, ...]:
        """The calls of a batch within the replica's row limit; the others are requeued."""
        most = self._settings.most_rows
        rows, count = 0, 0
        for call in calls:
            rows += call.infer.rows if call.infer else 1
            if most and count and rows > most:
                break
            count += 1
        for call in calls[count:]:
            self.queue.put(call)
        return calls[:count]

    def _begin(self, replica: RouterReplica, calls: tuple[RouterCall, ...]) -> None:
        self._batches += 1
        number = self._batches
        predicted = replica.times.predicted_s([call.request.app for call in calls])
        replica.ends_s[number] = self.now_s() + (predicted or 0.0)
        replica.ran += 1
        self._in_flight += len(calls)
        task = asyncio.create_task(self._run(replica, number, calls, predicted))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(
        self,
        replica: RouterReplica,
        number: int,
        calls: tuple[RouterCall, ...],
        predicted_s: float | None,
    ) -> None:
        began, streams = self.now_s(), Streams(calls[0])
        try:
            if calls[0].infer is None and not self._exchanges_alone(replica, number, calls[0]):
                return
            reply = await self._ask(replica, f"ullage-{number}", calls, began, streams)
            took = self.now_s() - began
            if streams.stream is not None:
                self._answers.streamed(streams)
                if not streams.stream.left:
                    replica.times.add([calls[0].request.app], took)
                self._answers.learn(
                    replica, calls[0], began, whole=not streams.stream.left, parts=True
                )
            elif reply.status == UNAVAILABLE and await self.pool.is_unready(
                replica, calls[0].ready_path, reply
            ):
                self._wait_for_model(replica, calls)
            elif reply.status >= SERVER_ERROR:
                self._failed(replica, calls, f"it answered {reply.status}", reply=reply)
            elif len(calls) > 1 and reply.status != OK:
                self._refused_batch(calls)
            else:
                self._answer(replica, calls, reply, f"ullage-{number}")
                if reply.status == OK:
                    self._answers.learn(replica, calls[0], began, whole=True, parts=False)
                self.metrics.ran(len(calls), predicted_s, took)
                if reply.status == OK:
                    replica.times.add([call.request.app for call in calls], took)
        except NotDelivered as error:
            self._undelivered(replica, calls, str(error))
        except UnreadableAnswer:
            self._split(calls, BatchSplit.UNREADABLE)  # running each alone shows the faulty one
        except (Broken, MalformedAnswer) as error:
            if streams.stream is not None:
                self._answers.streamed(streams)
                self.metrics.lost()
                if not streams.stream.overdue:
                    self.pool.mark_down(replica, str(error))
                return
            if not isinstance(error, KeptConnectionEnded):
                self.pool.mark_down(replica, str(error))
            self._failed(replica, calls, str(error), late=isinstance(error, TooLate))
        except asyncio.CancelledError:
            if streams.stream is not None and streams.stream.left:
                self._answers.streamed(streams)
                self._answers.learn(replica, calls[0], began, whole=False, parts=True)
            for call in calls:
                self._answers.refuse(
                    call, UNAVAILABLE, "the router is being stopped", RequestResult.FAILED
                )
            raise
        except Exception as error:
            log.exception("a batch failed")
            for call in calls:
                self._answers.refuse(
                    call, SERVER_ERROR, f"the router failed: {error}", RequestResult.FAILED
                )
        finally:
            del replica.ends_s[number]
            self._exchanges.pop(calls[0].number, None)
            if self._generations is not None:
                self._generations.ended(replica, number)
            self._in_flight -= len(calls)
            self.arrivals.worked(self.now_s())
            self._soon()

    def _exchanges_alone(self, replica: RouterReplica, number: int, call: RouterCall) -> bool:
        """Register the current task as cancellable by its only client; ``False`` = it has left."""
        task = asyncio.current_task()
        if task is not None:
            self._exchanges[call.number] = task
        if self._generations is not None:
            self._generations.began(replica, number, call)
        return not call.answer.done()

    def _wait_for_model(self, replica: RouterReplica, calls: tuple[RouterCall, ...]) -> None:
        """Requeue all calls for a replica where their model is ready: this one ran nothing.

        They are held like later ones, so that none expires just when the model becomes ready.
        """
        self.pool.mark_unready(replica, calls[0].ready_path)
        for call in calls:
            if not call.answer.done():
                if not self._ready_for(call):
                    self._hold(call)
                self.queue.put(call)

    def _ready_for(self, call: RouterCall) -> bool:
        """True if a replica is ready for its model."""
        return self.fault is None and self.pool.is_ready_for(call.ready_path)

    def _refuse_unready(self, call: RouterCall) -> None:
        text = "no replica is ready"
        if self.ready:
            text = f"{text} for this model ({call.ready_path[:256]})"
        self._answers.refuse(call, UNAVAILABLE, text, RequestResult.DROPPED)

    async def _ask(
        self,
        replica: RouterReplica,
        batch_id: str,
        calls: tuple[RouterCall, ...],
        now_s: float,
        streams: Streams,
    ) -> Reply:
        first = calls[0]
        headers, body = first.headers, first.body
        if len(calls) > 1:
            joined = self._wire.join(_asked(calls), batch_id)
            headers, body = _labelled(headers, joined), joined.data
        within = self._within_s(replica, calls, now_s)

        def begun(reply: Reply, stream: AnswerStream) -> None:
            streams.stream, streams.began_s = stream, self.now_s()
            if first.generated is not None:
                meter = first.generated.meter
                stream.look = lambda part: meter.take(part, self.now_s())
            stream.abandon = lambda: self.gone_midway(first)
            if first.answer.done():  # its client left before it began
                stream.leave()
            first.give(
                ClientAnswer(status=reply.status, body=b"", headers=reply.headers, stream=stream)
            )

        return await self._connections.ask(
            replica,
            first.method,
            first.path,
            headers,
            body,
            within,
            begun if first.infer is None else None,
            again=lambda: self._sent_again(calls),
            new=first.avoid is not None,  # last attempt: a kept connection may be closed
        )

    def _sent_again(self, calls: tuple[RouterCall, ...]) -> bool:
        """True if a batch is resent after a kept connection ended without an answer."""
        now = self.now_s()
        wanted = any(now < call.request.deadline_s and not call.answer.done() for call in calls)
        if not wanted or not all(call.idempotent for call in calls):
            return False
        for _ in calls:
            self.metrics.retried()
        return True

    def _within_s(self, replica: RouterReplica, calls: Sequence[RouterCall], now_s: float) -> float:
        """Time limit of a replica: below its setting only where that can save a request."""
        limit = self._settings.limits.answer_s
        if not any(self._repeatable(call, replica) for call in calls):
            return limit
        worst = replica.times.worst_s([call.request.app for call in calls])
        if worst is None:
            return limit
        hang = max(HANG_FACTOR * worst, HANG_LEAST_S)
        saved = any(call.request.deadline_s > now_s + hang for call in calls)
        return min(hang, limit) if saved else limit

    def _answer(
        self, replica: RouterReplica, calls: tuple[RouterCall, ...], reply: Reply, batch_id: str
    ) -> None:
        if len(calls) == 1:
            if calls[0].infer is not None and reply.status == OK and ENCODED not in reply.headers:
                self._wire.check(reply.body, _json_bytes(reply))
            answer = ClientAnswer(status=reply.status, body=reply.body, headers=reply.headers)
            self._answers.answer(replica, calls[0], answer)
            return
        requests = [asked.infer for asked in _asked(calls)]
        bodies = self._wire.part(reply.body, _json_bytes(reply), requests, batch_id)
        for call, body in zip(calls, bodies, strict=True):
            if body is None:  # the replica's answer is passed on
                self._split([call], BatchSplit.OUTPUT)
            else:
                answer = ClientAnswer(status=reply.status, body=body.data, headers=body.headers)
                self._answers.answer(replica, call, answer)

    def _undelivered(
        self, replica: RouterReplica, calls: tuple[RouterCall, ...], error: str
    ) -> None:
        """Requeue all calls for the first free replica: this one has received nothing."""
        self.pool.mark_down(replica, error)
        for call in calls:
            if not call.answer.done():
                self.queue.put(call)

    def _failed(
        self,
        replica: RouterReplica,
        calls: tuple[RouterCall, ...],
        error: str,
        *,
        late: bool = False,
        reply: Reply | None = None,
    ) -> None:
        self.metrics.lost()
        now = self.now_s()
        for call in calls:
            if self._repeatable(call, replica) and now < call.request.deadline_s:
                call.avoid = replica.number
                self.metrics.retried()
                self._again(call)
            elif reply is not None and len(calls) == 1:
                answer = ClientAnswer(status=reply.status, body=reply.body, headers=reply.headers)
                self._answers.give(call, answer, RequestResult.FAILED)
            else:
                status = GATEWAY_TIMEOUT if late else BAD_GATEWAY
                self._answers.refuse(
                    call, status, f"the replica failed: {error}", RequestResult.FAILED
                )

    def _repeatable(self, call: RouterCall, replica: RouterReplica) -> bool:
        others = any(other.up for other in self.pool.replicas if other is not replica)
        return call.idempotent and call.avoid is None and others

    def _refused_batch(self, calls: tuple[RouterCall, ...]) -> None:
        """Find the request that a replica refuses: by the form of inputs, then one by one.

        A replica without raw tensors would also refuse JSON ones in the same batch.
        """
        if len({call.infer.raw for call in calls if call.infer is not None}) > 1:
            self._apart_until_s = self.now_s() + APART_S
            self._split(calls, BatchSplit.REFUSED, alone=False)
        else:
            self._split(calls, BatchSplit.REFUSED)

    def _split(self, calls: Sequence[RouterCall], why: BatchSplit, *, alone: bool = True) -> None:
        """Rerun a batch: each request alone, or those of the same form together."""
        self.metrics.split(why)
        for call in calls:
            if call.answer.done():
                continue
            self.metrics.retried()
            if alone:
                self._again(call)
            else:
                self._set_form(call)
                self.queue.put(call)

    def _set_form(self, call: RouterCall) -> None:
        """Separate a request from those of another form, while replicas require that."""
        apart = call.infer is not None and self.now_s() < self._apart_until_s
        call.raw_apart = call.infer.raw if apart and call.infer is not None else None

    def _again(self, call: RouterCall) -> None:
        """Requeue it to run alone."""
        if not call.answer.done():
            call.group = None
            self.queue.put(call)

    async def _learn(self) -> None:
        while True:
            await asyncio.sleep(LEARN_S)
            await self.pool.learn(self.queue.apps)

    async def _refresh(self, generations: Generations) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            generations.refresh(self.now_s())
            self._soon()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_S)
            for call in self.queue.expired(self.now_s()):
                if self._ready_for(call):
                    self._answers.refuse(
                        call, TOO_MANY, "its deadline passed", RequestResult.DROPPED
                    )
                elif self._hold(call):
                    self.queue.put(call)
                else:
                    self._refuse_unready(call)


def _connections(settings: RouterSettings) -> ReplicaConnections:
    if settings.over_grpc:
        return GrpcConnections(settings.limits)
    return HttpConnections(settings.limits.answer_bytes, settings.limits.stream_s)


def _asked(calls: Sequence[RouterCall]) -> list[QueuedRequest]:
    return [QueuedRequest(call.body, call.infer) for call in calls if call.infer is not None]


def _labelled(headers: Mapping[str, str], joined: Body) -> Mapping[str, str]:
    """The headers of a batch's first request, adapted to the batch."""
    if HEADER not in headers and not joined.json_bytes:
        return headers
    own = CIMultiDict(headers)
    own.pop(HEADER, None)
    own.update(joined.headers)
    return own


def _json_bytes(reply: Reply) -> int:
    """Length of an answer's JSON; 0 = all of it.

    Raises:
        MalformedAnswer: the length is not a number.
    """
    try:
        return json_bytes_of(reply.headers.get(HEADER), len(reply.body))
    except ValueError as error:
        raise MalformedAnswer(f"the replica's answer is malformed: {error}") from None
