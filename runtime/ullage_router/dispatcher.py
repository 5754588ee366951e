# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Gives waiting requests to free replicas, and every request one answer.

A replica that answers wrongly, late or not at all fails its whole batch. Of it, each idempotent
request runs once more, alone and elsewhere, so that one that kills its server meets two at most;
the others are answered with an error at once. Before that, a batch of idempotent requests is sent
again as it is where a kept connection ended without an answer: replicas close idle connections,
and that is no failure. A batch that a replica refuses (4xx), or whose answer
cannot be read, runs again one by one, so that only the request at fault has that answer. Where a
replica says that a model is not ready, nothing ran: its requests wait again, and that replica gets
none for this model until it says otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from multidict import CIMultiDict

from ullage_router.arrivals import ArrivalRate
from ullage_router.calls import ClientAnswer, RouterCall
from ullage_router.following import Unknown, addresses_of_name
from ullage_router.generation import GenerationKey
from ullage_router.generation_times import GenerationTimes
from ullage_router.generations import Generations
from ullage_router.grpc_replicas import GrpcConnections
from ullage_router.http_replicas import HttpConnections
from ullage_router.metrics import BatchSplit, RequestResult, RouterMetrics
from ullage_router.open_inference import (
    MalformedAnswer,
    QueuedRequest,
    UnreadableAnswer,
    error_body,
)
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
from ullage_router.run_times import RunTimes, first_costs
from ullage_router.settings import ReplicaAddress, RouterSettings
from ullage_router.times import (
    APART_S,
    EXPIRE_S,
    HANG_LEAST_S,
    LEARN_S,
    LEAVES_EARLY_S,
    REFRESH_S,
    RETRY_AFTER_MOST_S,
)
from ullage_router.wires import wire_of
from ullage_run.binary_tensors import HEADER, Body, json_bytes_of

log = logging.getLogger("ullage.router")

TOO_MANY: Final = 429
SERVER_ERROR: Final = 500
BAD_GATEWAY: Final = 502
UNAVAILABLE: Final = 503
GATEWAY_TIMEOUT: Final = 504
LEAVES_EARLY: Final = 0.05
"""Part of its time by which a client that leaves at its deadline may do so before ours."""
SILENT_PROBES: Final = 3
"""Probes in a row without an answer that take a replica out; it may just be busy."""
MODELS: Final = 32
"""Models of which it is kept that a replica was not ready for them."""
NOT_READY: Final = re.compile(rb"not (?:yet )?ready", re.IGNORECASE)
"""How a server's 503 says that a model is not."""
SAID_BYTES: Final = 1024
ENCODED: Final = "Content-Encoding"
HANG_FACTOR: Final = 4.0
"""A batch that takes so many times the longest that was seen counts as hanging."""
JSON: Final[Mapping[str, str]] = {"Content-Type": "application/json"}


@dataclass(slots=True)
class Streams:
    """The answer of a call where it comes in parts, and since when on the router's clock."""

    call: RouterCall
    stream: AnswerStream | None = None
    began_s: float = 0.0


class Dispatcher:
    """One queue and its replicas; ``start`` and ``stop`` once each, on one event loop."""

    def __init__(self, settings: RouterSettings) -> None:
        self._settings = settings
        limits = settings.limits
        self.queue = RequestQueue(most_calls=limits.queue_calls, most_bytes=limits.queue_bytes)
        self.arrivals = ArrivalRate(self.now_s())
        self.replicas: tuple[RouterReplica, ...] = ()
        self._generations = Generations(settings) if settings.generative is not None else None
        self._times: dict[tuple[str, float], RunTimes | GenerationTimes] = {}
        """By device and share: replicas on equal ones learn together, and later ones from them."""
        self._probes: dict[RouterReplica, list[asyncio.Task[None]]] = {}
        self._joined = 0
        self._in_flight = 0
        self._asleep_since: float | None = None
        """Since when the first of the requests waits that wait for a replica to be ready."""
        self.wake_s = 0.0
        """How long the last one waited; 0 = none has."""
        self._slow_models: dict[str, None] = {}
        """Paths that say whether a model is ready, of those that once were not."""
        for backend in settings.backends:
            self._join(backend)
        self.metrics = RouterMetrics(
            waiting=lambda: len(self.queue),
            held_bytes=lambda: self.queue.held_bytes,
            in_flight=lambda: self._in_flight,
            up=lambda: sum(replica.up for replica in self.replicas),
            sizes=settings.rules.sizes,
            cache_full=None if self._generations is None else self._caches_full,
        )
        self._wire = wire_of(settings)
        self._connections = _connections(settings)
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._exchanges: dict[int, asyncio.Task[None]] = {}
        """What asks a replica alone, by the number of the request: its client may leave."""
        self._apart_until_s = -math.inf
        self._was_looked_up = False
        self._batches = 0
        self._asked = False
        self._stopped = False
        self.fault: BaseException | None = None
        """Why a part of the router ended that never may."""

    async def start(self) -> None:
        """Probe the replicas and learn from what they run."""
        await self._connections.open()
        for replica in self.replicas:
            self._watch(replica)
        if self._settings.followed is not None:
            self._keep(self._follow(self._settings.followed))
        self._keep(self._learn())
        self._keep(self._expire())
        if self._generations is not None:
            self._keep(self._refresh(self._generations))

    async def stop(self) -> None:
        """End what still runs; who waits is answered that the router ends."""
        self._stopped = True
        tasks = [*self._tasks, *self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for call in self.queue.expired(math.inf):
            self._refuse(call, UNAVAILABLE, "the router is being stopped", RequestResult.FAILED)
        await self._connections.close()

    @property
    def ready(self) -> bool:
        """True if a replica is ready, and the router is whole."""
        return self.fault is None and any(replica.up for replica in self.replicas)

    @property
    def asleep(self) -> bool:
        """True if there is no replica at all, and the next request is what one is started for."""
        return self.fault is None and self._was_looked_up and not self.replicas

    @property
    def idle(self) -> bool:
        """True if nothing waits or runs."""
        return not self.queue and not self._running

    @property
    def idle_s(self) -> float:
        """Seconds since a request was waiting or under way."""
        return self.arrivals.idle_s(self.now_s()) if self.idle else 0.0

    def knows(self, key: str) -> bool:
        """True if the run times of a key are known wherever it may run."""
        return bool(self._times) and all(times.knows(key) for times in self._times.values())

    def name_of(self, key: GenerationKey) -> str:
        """The name under which a request for text waits."""
        return key.text if self._generations is None else self._generations.name_of(key)

    def now_s(self) -> float:
        """The router's clock; it never goes back. uvloop's own has whole milliseconds only."""
        return time.monotonic()

    def submit(self, call: RouterCall) -> None:
        """Take a call in, or answer at once why not."""
        self.arrivals.arrived(self.now_s())
        if not self._ready_for(call):
            self._hold(call)
        self._set_form(call)
        if not self.queue.offer(call):
            if not self.ready:
                self._refuse_unready(call)
                return
            text = f"{len(self.queue)} requests wait already; come again later"
            self._refuse(call, TOO_MANY, text, RequestResult.DROPPED)
            return
        self._soon()

    def gone(self, call: RouterCall) -> None:
        """The client of a call has left; one who left at the deadline had no answer in time."""
        waited = self.queue.remove(call)
        self._leave(call)
        now, arrival_s = self.now_s(), call.request.arrival_s
        if now >= call.due_s - min(LEAVES_EARLY_S, LEAVES_EARLY * (call.due_s - arrival_s)):
            result = RequestResult.DROPPED if waited else RequestResult.LATE
            self.metrics.ended(result, call.app, now - arrival_s)

    def gone_midway(self, call: RouterCall) -> None:
        """The client of an answer that comes in parts has left before its end."""
        self._leave(call)

    def _leave(self, call: RouterCall) -> None:
        """Its replica need not go on, if it works for this client alone."""
        exchange = self._exchanges.get(call.number)
        if exchange is not None:
            exchange.cancel()

    async def ask_any(self, method: str, path: str) -> ClientAnswer:
        """Ask a replica beside the queue, for what is no work: health and metadata.

        Where a model is ready at one replica, it is ready.
        """
        error, unready = "no replica is ready", None
        for replica in [candidate for candidate in self.replicas if candidate.up]:
            try:
                reply = await self._connections.ask(
                    replica, method, path, {}, b"", self._settings.limits.answer_s
                )
            except (NotDelivered, Broken) as problem:
                error = str(problem)
            else:
                answer = ClientAnswer(status=reply.status, body=reply.body, headers=reply.headers)
                if reply.status != UNAVAILABLE:
                    return answer
                unready = unready or answer
        return unready or _error(UNAVAILABLE, error, retry_after_s=1)

    def _keep(self, part: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run a part that has no end."""
        task = asyncio.create_task(part)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _join(self, backend: ReplicaAddress) -> RouterReplica:
        """One more replica."""
        settings = self._settings
        where = (backend.device, backend.share_percent)
        if where not in self._times:
            self._times[where] = self._new_times()
        replica = RouterReplica(
            number=self._joined,
            backend=backend,
            times=self._times[where],
            most_in_flight=settings.in_flight,
            unready_models=set(self._slow_models),
        )
        self._joined += 1
        self.replicas = (*self.replicas, replica)
        return replica

    def _new_times(self) -> RunTimes | GenerationTimes:
        settings = self._settings
        if self._generations is not None:
            return self._generations.times()
        prior = first_costs(settings.rules.sizes, settings.fixed_s)
        return RunTimes(rules=settings.rules, prior=prior)

    def _watch(self, replica: RouterReplica) -> None:
        self._probes[replica] = [self._keep(self._probe(replica))]
        if self._generations is not None:
            looks = self._generations.watch_cache(replica, self._connections, self._soon)
            self._probes[replica].append(self._keep(looks))

    def _caches_full(self) -> int:
        return sum(replica.up and replica.cache_full for replica in self.replicas)

    def _part(self, replica: RouterReplica) -> None:
        """A replica is no more; what it has begun may still be answered."""
        replica.down()
        self.replicas = tuple(other for other in self.replicas if other is not replica)
        for probe in self._probes.pop(replica):
            probe.cancel()
        self._connections.forget(replica)

    async def _follow(self, named: ReplicaAddress) -> None:
        """Let replicas come and go with the addresses of a name, again and again."""
        while True:
            try:
                urls = await addresses_of_name(named.url)
            except Unknown as error:
                log.warning("%s: %s; the replicas stay as they were", named.url, error)
            else:
                self._was_looked_up = True
                for replica in self.replicas:
                    if replica.backend.url not in urls:
                        log.info("replica %s has gone", replica.backend.url)
                        self._part(replica)
                for url in sorted(urls - {replica.backend.url for replica in self.replicas}):
                    self._watch(self._join(replace(named, url=url)))
            await asyncio.sleep(self._settings.follow_s)

    def _hold(self, call: RouterCall) -> bool:
        """Let a call wait beyond its deadline for a replica to be ready; says whether it may."""
        request, now = call.request, self.now_s()
        until_s = request.arrival_s + self._settings.hold_s
        if self._asleep_since is None or not self.queue:  # those before it have left
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

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a part of the router ended", exc_info=error)
            self.fault = error

    def _soon(self) -> None:
        """Decide once for all that arrives in this turn of the loop."""
        if not self._asked and not self._stopped:
            self._asked = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._asked = False
        now = self.now_s()
        passed: set[int] = set()
        while self.queue and not self._stopped:
            candidates = [replica for replica in self.replicas if replica.number not in passed]
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
                self._refuse(call, TOO_MANY, "it cannot be answered in time", RequestResult.DROPPED)
            if picked.run:
                self._begin(replica, self._fitting(picked.run))

    def _fitting(self, calls: tuple[RouterCall, ...]) -> tuple[RouterCall, ...]:
        """As many of a batch as the replica takes rows; the others wait again."""
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
                self._streamed(streams)
                if not streams.stream.left:
                    replica.times.add([calls[0].request.app], took)
                self._learn_of(replica, calls[0], began, whole=not streams.stream.left, parts=True)
            elif reply.status == UNAVAILABLE and await self._is_unready(replica, calls[0], reply):
                self._wait_for_model(replica, calls)
            elif reply.status >= SERVER_ERROR:
                self._failed(replica, calls, f"it answered {reply.status}", reply=reply)
            elif len(calls) > 1 and reply.status != OK:
                self._refused_batch(calls)
            else:
                self._answer(replica, calls, reply, f"ullage-{number}")
                if reply.status == OK:
                    self._learn_of(replica, calls[0], began, whole=True, parts=False)
                self.metrics.ran(len(calls), predicted_s, took)
                if reply.status == OK:
                    replica.times.add([call.request.app for call in calls], took)
        except NotDelivered as error:
            self._undelivered(replica, calls, str(error))
        except UnreadableAnswer:
            self._split(
                calls, BatchSplit.UNREADABLE
            )  # whose answer it is shows when each runs alone
        except (Broken, MalformedAnswer) as error:
            if streams.stream is not None:
                self._streamed(streams)
                self.metrics.lost()
                if not streams.stream.overdue:
                    self._mark_down(replica, str(error))
                return
            if not isinstance(error, KeptConnectionEnded):
                self._mark_down(replica, str(error))
            self._failed(replica, calls, str(error), late=isinstance(error, TooLate))
        except asyncio.CancelledError:
            if streams.stream is not None and streams.stream.left:
                self._streamed(streams)
                self._learn_of(replica, calls[0], began, whole=False, parts=True)
            for call in calls:
                self._refuse(call, UNAVAILABLE, "the router is being stopped", RequestResult.FAILED)
            raise
        except Exception as error:
            log.exception("a batch failed")
            for call in calls:
                self._refuse(
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
        """The current task asks for one client, who may end it; ``False`` = the client has left."""
        task = asyncio.current_task()
        if task is not None:
            self._exchanges[call.number] = task
        if self._generations is not None:
            self._generations.began(replica, number, call)
        return not call.answer.done()

    async def _is_unready(self, replica: RouterReplica, call: RouterCall, reply: Reply) -> bool:
        """True if a replica's 503 says that a model is not ready, so that nothing ran."""
        path = call.ready_path
        if not path or not self._keeps(path):
            return False
        if NOT_READY.search(reply.body[:SAID_BYTES]):
            return True
        return await self._model_is_unready(replica, path)

    async def _model_is_unready(self, replica: RouterReplica, path: str) -> bool:
        try:
            within_s = max(1.0, self._settings.probe_s)
            reply = await self._connections.ask(replica, "GET", path, {}, b"", within_s)
        except (NotDelivered, Broken):
            return path in replica.unready_models
        return reply.status == UNAVAILABLE

    def _keeps(self, path: str) -> bool:
        """Keep a model that is slow to be ready; ``False`` = too many are kept already."""
        known = self._slow_models
        if path not in known and len(known) >= MODELS:
            waited_for = {path for replica in self.replicas for path in replica.unready_models}
            ready = next((model for model in known if model not in waited_for), None)
            if ready is None:
                return False
            del known[ready]
        known[path] = None
        return True

    def _wait_for_model(self, replica: RouterReplica, calls: tuple[RouterCall, ...]) -> None:
        """The replica ran nothing: all wait again, for one at which their model is ready.

        They are held as those are that come later, so none ends because its time is nearly up when
        the model is ready.
        """
        path = calls[0].ready_path
        if path not in replica.unready_models:
            log.warning("replica %s is not ready for %s", replica.backend.url, path)
        replica.unready_models.add(path)
        for call in calls:
            if not call.answer.done():
                if not self._ready_for(call):
                    self._hold(call)
                self.queue.put(call)

    def _ready_for(self, call: RouterCall) -> bool:
        """True if a replica is ready for its model."""
        return self.fault is None and any(
            replica.up
            and not (replica.unready_models and call.ready_path in replica.unready_models)
            for replica in self.replicas
        )

    def _refuse_unready(self, call: RouterCall) -> None:
        text = "no replica is ready"
        if self.ready:
            text = f"{text} for this model ({call.ready_path[:256]})"
        self._refuse(call, UNAVAILABLE, text, RequestResult.DROPPED)

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
            if first.answer.done():  # its client went before it began
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
            new=first.avoid is not None,  # its last try: no connection that may be closed by now
        )

    def _sent_again(self, calls: tuple[RouterCall, ...]) -> bool:
        """True if a batch goes out once more after a kept connection ended unanswered."""
        now = self.now_s()
        wanted = any(now < call.request.deadline_s and not call.answer.done() for call in calls)
        if not wanted or not all(call.idempotent for call in calls):
            return False
        for _ in calls:
            self.metrics.retried()
        return True

    def _streamed(self, streams: Streams) -> None:
        """Count an answer that came in parts, by when its first part was there."""
        if streams.call.answer.cancelled():  # counted when its client left, if it was late
            return
        request, stream = streams.call.request, streams.stream
        result = RequestResult.MET if streams.began_s <= streams.call.due_s else RequestResult.LATE
        if stream is not None and stream.broken and not stream.left:
            result = RequestResult.FAILED
        self.metrics.began(streams.began_s - request.arrival_s)
        self.metrics.ended(result, streams.call.app, self.now_s() - request.arrival_s)

    def _within_s(self, replica: RouterReplica, calls: Sequence[RouterCall], now_s: float) -> float:
        """The time a replica may take: less than its limit only where that can save a request."""
        limit = self._settings.limits.answer_s
        if not any(self._repeatable(call, replica) for call in calls):
            return limit
        worst = replica.times.worst_s([call.request.app for call in calls])
        if worst is None:
            return limit
        hang = max(HANG_FACTOR * worst, HANG_LEAST_S)
        saved = any(call.request.deadline_s > now_s + hang for call in calls)
        return min(hang, limit) if saved else limit

    def _learn_of(
        self, replica: RouterReplica, call: RouterCall, began_s: float, *, whole: bool, parts: bool
    ) -> None:
        """Learn from an answer of text."""
        if self._generations is None or call.generated is None:
            return
        meter = call.generated.meter
        self._generations.learn(replica, call.generated, began_s, whole=whole, streamed=parts)
        self.metrics.generated(call.app, meter.tokens, meter.between_s if parts else 0.0)

    def _answer(
        self, replica: RouterReplica, calls: tuple[RouterCall, ...], reply: Reply, batch_id: str
    ) -> None:
        if len(calls) == 1:
            if calls[0].infer is not None and reply.status == OK and ENCODED not in reply.headers:
                self._wire.check(reply.body, _json_bytes(reply))
            answer = ClientAnswer(status=reply.status, body=reply.body, headers=reply.headers)
            self._answer_one(replica, calls[0], answer)
            return
        requests = [asked.infer for asked in _asked(calls)]
        bodies = self._wire.part(reply.body, _json_bytes(reply), requests, batch_id)
        for call, body in zip(calls, bodies, strict=True):
            if body is None:  # what its client gets is for the replica to say
                self._split([call], BatchSplit.OUTPUT)
            else:
                answer = ClientAnswer(status=reply.status, body=body.data, headers=body.headers)
                self._answer_one(replica, call, answer)

    def _answer_one(self, replica: RouterReplica, call: RouterCall, answer: ClientAnswer) -> None:
        met = self._in_time_s(replica, call, answer.body, self.now_s()) <= call.due_s
        if call.translate is not None and answer.status == OK:
            try:
                body = call.translate(answer.body)
            except MalformedAnswer as error:
                self._refuse(call, BAD_GATEWAY, str(error), RequestResult.FAILED)
                return
            answer = ClientAnswer(status=OK, body=body.data, headers=body.headers)
        self._give(call, answer, RequestResult.MET if met else RequestResult.LATE)

    def _in_time_s(
        self, replica: RouterReplica, call: RouterCall, body: bytes, now_s: float
    ) -> float:
        """The time of what the deadline of a call is about: its answer, or its first token.

        Of a text that comes at once the first token is as long ago as its others take.
        """
        generated, times = call.generated, replica.times
        if generated is None or not isinstance(times, GenerationTimes):
            return now_s
        generated.meter.take_whole(body, now_s)
        if generated.key.whole:
            return now_s
        others = max(0, generated.meter.tokens - 1)
        return max(call.request.arrival_s, now_s - others * times.pace.between_s(generated.beside))

    def _undelivered(
        self, replica: RouterReplica, calls: tuple[RouterCall, ...], error: str
    ) -> None:
        """The replica has seen nothing: all wait again, for whichever is there first."""
        self._mark_down(replica, error)
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
                self._give(call, answer, RequestResult.FAILED)
            else:
                status = GATEWAY_TIMEOUT if late else BAD_GATEWAY
                self._refuse(call, status, f"the replica failed: {error}", RequestResult.FAILED)

    def _repeatable(self, call: RouterCall, replica: RouterReplica) -> bool:
        others = any(other.up for other in self.replicas if other is not replica)
        return call.idempotent and call.avoid is None and others

    def _refused_batch(self, calls: tuple[RouterCall, ...]) -> None:
        """Find whose request a replica refuses: by how inputs are written, then one by one.

        A replica that reads no raw tensors would refuse those of JSON beside them, too.
        """
        if len({call.infer.raw for call in calls if call.infer is not None}) > 1:
            self._apart_until_s = self.now_s() + APART_S
            self._split(calls, BatchSplit.REFUSED, alone=False)
        else:
            self._split(calls, BatchSplit.REFUSED)

    def _split(self, calls: Sequence[RouterCall], why: BatchSplit, *, alone: bool = True) -> None:
        """Run a batch again: each request alone, or else those together that are written alike."""
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
        """Keep a request from others that are written in another way, while replicas mind."""
        apart = call.infer is not None and self.now_s() < self._apart_until_s
        call.raw_apart = call.infer.raw if apart and call.infer is not None else None

    def _again(self, call: RouterCall) -> None:
        """It waits again, for a batch of its own."""
        if not call.answer.done():
            call.group = None
            self.queue.put(call)

    def _mark_down(self, replica: RouterReplica, error: str) -> None:
        if replica.up:
            log.warning("replica %s is down: %s", replica.backend.url, error)
        replica.down()

    def _refuse(self, call: RouterCall, status: int, text: str, result: RequestResult) -> None:
        self._give(call, _error(status, text, retry_after_s=self._retry_after_s()), result)

    def _give(self, call: RouterCall, answer: ClientAnswer, result: RequestResult) -> None:
        if call.answer.done():
            return
        call.give(answer)
        took = self.now_s() - call.request.arrival_s
        self.metrics.ended(result, call.app, took)

    def _retry_after_s(self) -> int:
        """Whole seconds in which what waits is run, as far as that is known."""
        if not self.ready:
            return max(1, math.ceil(self.wake_s))
        rate = sum(replica.times.rate_per_s() for replica in self.replicas if replica.up)
        return max(1, math.ceil(len(self.queue) / rate)) if rate else 1

    async def _probe(self, replica: RouterReplica) -> None:
        """Ask whether it is ready, again and again."""
        settings = self._settings
        silent = 0
        while True:
            try:
                reply = await self._connections.ask(
                    replica, "GET", settings.probe_path, {}, b"", max(1.0, settings.probe_s)
                )
                ready, error, silent = reply.status == OK, f"its probe answers {reply.status}", 0
            except (NotDelivered, Broken) as problem:
                silent += 1
                busy = isinstance(problem, TooLate) and silent < SILENT_PROBES
                ready, error = busy and replica.up, str(problem)
            if ready:
                await self._look_for_models(replica)
            if ready and not replica.up:
                log.info("replica %s is up", replica.backend.url)
                replica.up = True
                self._woke()
                self._soon()
            elif not ready:
                self._mark_down(replica, error)
            await asyncio.sleep(settings.probe_s)

    async def _look_for_models(self, replica: RouterReplica) -> None:
        """See which models are ready now; one that comes up is asked for all that were slow."""
        if not replica.up:
            replica.unready_models.update(self._slow_models)
        paths = sorted(replica.unready_models)
        if not paths:
            return
        looks = [self._model_is_unready(replica, path) for path in paths]
        for path, is_unready in zip(paths, await asyncio.gather(*looks), strict=True):
            if not is_unready:
                log.info("replica %s is ready for %s", replica.backend.url, path)
                replica.unready_models.discard(path)
                self._woke()
                self._soon()

    async def _learn(self) -> None:
        while True:
            await asyncio.sleep(LEARN_S)
            for times in self._times.values():
                await times.learn(self.queue.apps())

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
                    self._refuse(call, TOO_MANY, "its deadline passed", RequestResult.DROPPED)
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
    """The headers of a batch's first request, about the batch."""
    if HEADER not in headers and not joined.json_bytes:
        return headers
    own = CIMultiDict(headers)
    own.pop(HEADER, None)
    own.update(joined.headers)
    return own


def _json_bytes(reply: Reply) -> int:
    """Length of an answer's JSON; 0 = it is nothing else.

    Raises:
        MalformedAnswer: it does not say so in numbers.
    """
    try:
        return json_bytes_of(reply.headers.get(HEADER), len(reply.body))
    except ValueError as error:
        raise MalformedAnswer(f"the replica's answer is malformed: {error}") from None


def _error(status: int, text: str, *, retry_after_s: int) -> ClientAnswer:
    """An answer of the router's own."""
    again = {}
    if status in (TOO_MANY, UNAVAILABLE):
        again["Retry-After"] = str(min(retry_after_s, RETRY_AFTER_MOST_S))
        if retry_after_s > RETRY_AFTER_MOST_S:
            text = f"{text}; it may take {retry_after_s} s"
    return ClientAnswer(status=status, body=error_body(text), headers={**JSON, **again}, error=text)
