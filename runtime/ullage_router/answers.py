# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Answers to clients: sent once, counted by timeliness, and used for learning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ullage_router.calls import ClientAnswer, RouterCall
from ullage_router.generation_times import GenerationTimes
from ullage_router.generations import Generations
from ullage_router.metrics import RequestResult, RouterMetrics
from ullage_router.open_inference import MalformedAnswer, error_body
from ullage_router.replicas import OK, AnswerStream, RouterReplica
from ullage_router.times import RETRY_AFTER_MOST_S

TOO_MANY: Final = 429
SERVER_ERROR: Final = 500
BAD_GATEWAY: Final = 502
UNAVAILABLE: Final = 503
GATEWAY_TIMEOUT: Final = 504
JSON: Final[Mapping[str, str]] = {"Content-Type": "application/json"}


@dataclass(slots=True)
class Streams:
    """The streamed answer of a call, and its start on the router's clock."""

    call: RouterCall
    stream: AnswerStream | None = None
    began_s: float = 0.0


class Answers:
    """Sends every call one answer."""

    def __init__(
        self,
        metrics: RouterMetrics,
        generations: Generations | None,
        *,
        clock: Callable[[], float],
        retry_after_s: Callable[[], int],
    ) -> None:
        """``retry_after_s`` predicts the whole seconds until a new request runs."""
        self._metrics = metrics
        self._generations = generations
        self._clock = clock
        self._retry_after_s = retry_after_s

    def give(self, call: RouterCall, answer: ClientAnswer, result: RequestResult) -> None:
        """Answer a call, and count it; a disconnected client gets no answer."""
        if call.answer.done():
            return
        call.give(answer)
        took = self._clock() - call.request.arrival_s
        self._metrics.ended(result, call.app, took)

    def refuse(self, call: RouterCall, status: int, text: str, result: RequestResult) -> None:
        """Give a call an answer of the router's own."""
        self.give(call, own_answer(status, text, retry_after_s=self._retry_after_s()), result)

    def answer(self, replica: RouterReplica, call: RouterCall, answer: ClientAnswer) -> None:
        """Give a call the answer of a replica, in the protocol of its client."""
        met = self._in_time_s(replica, call, answer.body, self._clock()) <= call.due_s
        if call.translate is not None and answer.status == OK:
            try:
                body = call.translate(answer.body)
            except MalformedAnswer as error:
                self.refuse(call, BAD_GATEWAY, str(error), RequestResult.FAILED)
                return
            answer = ClientAnswer(status=OK, body=body.data, headers=body.headers)
        self.give(call, answer, RequestResult.MET if met else RequestResult.LATE)

    def streamed(self, streams: Streams) -> None:
        """Count a streamed answer, by the time of its first part."""
        if streams.call.answer.cancelled():  # if late, already counted when its client left
            return
        request, stream = streams.call.request, streams.stream
        result = RequestResult.MET if streams.began_s <= streams.call.due_s else RequestResult.LATE
        if stream is not None and stream.broken and not stream.left:
            result = RequestResult.FAILED
        self._metrics.began(streams.began_s - request.arrival_s)
        self._metrics.ended(result, streams.call.app, self._clock() - request.arrival_s)

    def learn(
        self, replica: RouterReplica, call: RouterCall, began_s: float, *, whole: bool, parts: bool
    ) -> None:
        """Learn from a generated answer."""
        if self._generations is None or call.generated is None:
            return
        meter = call.generated.meter
        self._generations.learn(replica, call.generated, began_s, whole=whole, streamed=parts)
        self._metrics.generated(call.app, meter.tokens, meter.between_s if parts else 0.0)

    def _in_time_s(
        self, replica: RouterReplica, call: RouterCall, body: bytes, now_s: float
    ) -> float:
        """The time to which a call's deadline applies: of its answer, or its first token.

        For an answer sent as a whole, it is the end less the time of the other tokens.
        """
        generated, times = call.generated, replica.times
        if generated is None or not isinstance(times, GenerationTimes):
            return now_s
        generated.meter.take_whole(body, now_s)
        if generated.key.whole:
            return now_s
        others = max(0, generated.meter.tokens - 1)
        return max(call.request.arrival_s, now_s - others * times.pace.between_s(generated.beside))


def own_answer(status: int, text: str, *, retry_after_s: int) -> ClientAnswer:
    """An answer of the router's own."""
    again = {}
    if status in (TOO_MANY, UNAVAILABLE):
        again["Retry-After"] = str(min(retry_after_s, RETRY_AFTER_MOST_S))
        if retry_after_s > RETRY_AFTER_MOST_S:
            text = f"{text}; it may take {retry_after_s} s"
    return ClientAnswer(status=status, body=error_body(text), headers={**JSON, **again}, error=text)
