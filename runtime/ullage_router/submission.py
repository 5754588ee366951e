# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Submits a request as a call, and waits for its answer; shared by all listeners."""

from __future__ import annotations

import asyncio
from collections import Counter

import orjson

from ullage.engines.batching.chooser import BatchPolicy
from ullage.engines.batching.histogram import LEAST_SAMPLES
from ullage.engines.batching.waiting import BatchRequest
from ullage_router.answers import JSON
from ullage_router.calls import ClientAnswer, Generated, RouterCall
from ullage_router.dispatcher import Dispatcher
from ullage_router.generation import GenerationKey
from ullage_router.intake import DEFAULT_APP, Taken
from ullage_router.paths import ModelPath
from ullage_router.replicas import OK
from ullage_router.run_times import key_of
from ullage_router.settings import RouterSettings


class CallSubmission:
    """Numbers calls, and runs the first of an application alone, to measure its time."""

    def __init__(self, settings: RouterSettings, dispatcher: Dispatcher) -> None:
        self._settings = settings
        self._dispatcher = dispatcher
        self._probing: Counter[str] = Counter()
        self._number = 0

    async def answer(self, method: str, taken: Taken, arrived_s: float) -> ClientAnswer:
        """The answer to a request that arrived at ``arrived_s`` on the router's clock."""
        call = self._call(method, taken, arrived_s)
        probes = (
            self._settings.rules.policy is not BatchPolicy.FIFO
            and not self._dispatcher.pool.knows(call.request.app)
            and self._probing[call.app] < LEAST_SAMPLES
        )
        if probes:
            call.group = None
            self._probing[call.app] += 1
        try:
            self._dispatcher.submit(call)
            return await call.answer
        except asyncio.CancelledError:
            if call.answer.done() and not call.answer.cancelled():
                stream = call.answer.result().stream
                if stream is not None:  # it arrived just when its client left
                    stream.leave()
            raise
        finally:
            if probes:
                self._probing[call.app] -= 1
            if not call.answer.done() or call.answer.cancelled():
                self._dispatcher.gone(call)

    @property
    def takes_requests(self) -> bool:
        """True if a request would be served: now, or by a replica started for it.

        Else a client that waits for readiness before its first request would never wake a service.
        """
        return self._dispatcher.ready or self._dispatcher.asleep

    async def about(self, method: str, path: str, arrived_s: float) -> ClientAnswer:
        """The answer to a query on server or model, sent to a replica bypassing the queue.

        Without a ready replica it waits like any request, and wakes a sleeping service. Readiness
        of a model is answered at once, since probes are no work.
        """
        dispatcher, model = self._dispatcher, ModelPath.of(path)
        probes = model is not None and model.what == "ready"
        if dispatcher.ready or (probes and not dispatcher.asleep):
            return await dispatcher.pool.ask_any(method, path)
        if model is not None and probes:
            body = orjson.dumps({"name": model.name, "ready": True})
            return ClientAnswer(status=OK, body=body, headers=JSON)
        taken = Taken(
            path=path,
            headers={},
            body=b"",
            app=DEFAULT_APP,
            deadline_s=arrived_s + self._settings.objective_s,
            idempotent=True,
            infer=None,
            group=None,
            elements=0,
        )
        return await self.answer(method, taken, arrived_s)

    def _call(self, method: str, taken: Taken, arrived_s: float) -> RouterCall:
        self._number += 1
        generated, key = None, key_of(taken.app, taken.elements)
        if taken.generate is not None:
            asked = GenerationKey.of(taken.app, taken.generate, whole=taken.whole)
            generated = Generated(key=asked, generate=taken.generate)
            key = self._dispatcher.name_of(asked)
        return RouterCall(
            request=BatchRequest(
                number=self._number,
                arrival_s=arrived_s,
                deadline_s=taken.deadline_s,
                app=key,
            ),
            method=method,
            path=taken.path,
            headers=taken.headers,
            body=taken.body,
            answer=asyncio.get_running_loop().create_future(),
            infer=taken.infer,
            group=taken.group,
            idempotent=taken.idempotent,
            translate=taken.translate,
            generated=generated,
        )
