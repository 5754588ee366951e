# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests in progress at generative replicas, their measurements, and full caches.

A place is free again when its answer ends; that time is predicted repeatedly from the tokens so
far. Two limits bound a replica's requests: the time between tokens, by their number, and its KV
cache, by its own page of metrics.

A full cache makes a server stop or recompute running requests, so above a limit it gets no more.
The page is the server's own claim: a value outside 0 to 1 is ignored.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ullage_router.calls import Generated, RouterCall
from ullage_router.generation import GenerationKey
from ullage_router.generation_times import AnswerLengths, GenerationTimes
from ullage_router.replicas import OK, Broken, NotDelivered, ReplicaConnections, RouterReplica
from ullage_router.settings import RouterSettings
from ullage_router.times import CACHE_LOOK_S, CACHE_PAGE_S

PAGE: Final = "/metrics"
PAGE_BYTES: Final = 4 << 20
GAUGES: Final = (
    b"vllm:kv_cache_usage_perc",
    b"vllm:gpu_cache_usage_perc",
    b"sglang:token_usage",
    b"llamacpp:kv_cache_usage_ratio",
)
"""Gauges between 0 and 1: vLLM since 0.10 and before (vllm-project/vllm#18354), SGLang 0.4 and 0.5,
llama.cpp until May 2025 (ggml-org/llama.cpp#13660); a later llama.cpp does not report its cache.
"""
_SAMPLE: Final = re.compile(
    rb"^(?:" + b"|".join(GAUGES) + rb")(?:\{[^\n]*\})?[ \t]+([^ \t\r\n]{1,40})", re.MULTILINE
)
SAMPLES: Final = 1024
"""Most samples read: a server has one for each of its engines."""


class PageTooLong(ValueError):
    """A page is too large."""


def cache_use(page: bytes) -> float | None:
    """The cache use of the fullest engine, 0 to 1; ``None`` = not reported.

    Raises:
        PageTooLong: the page is too large.
    """
    if len(page) > PAGE_BYTES:
        raise PageTooLong(f"{PAGE} has more than {PAGE_BYTES >> 20} MiB")
    fullest: float | None = None
    for at, match in enumerate(_SAMPLE.finditer(page)):
        if at >= SAMPLES:
            break
        part = _part(match[1])
        if part is not None and (fullest is None or part > fullest):
            fullest = part
    return fullest


def _part(text: bytes) -> float | None:
    try:
        part = float(text)
    except ValueError:
        return None
    return part if 0 <= part <= 1 else None


log = logging.getLogger("ullage.router")

STALE_LOOKS: Final = 4
"""Consecutive failed reads after which a full cache counts as unknown."""


@dataclass(slots=True)
class Generations:
    """Answers in progress, by replica and batch; for one event loop."""

    settings: RouterSettings
    lengths: AnswerLengths = field(default_factory=AnswerLengths)
    _running: dict[RouterReplica, dict[int, Generated]] = field(default_factory=dict)

    def times(self) -> GenerationTimes:
        """Empty times for a new device."""
        settings = self.settings
        return GenerationTimes(
            rules=settings.rules, lengths=self.lengths, places=settings.in_flight
        )

    def name_of(self, key: GenerationKey) -> str:
        """The queue name of a request: unknown models share one."""
        return self.lengths.named(key).text

    def began(self, replica: RouterReplica, number: int, call: RouterCall) -> None:
        """Record that a request is about to be sent to a replica."""
        if call.generated is not None:
            call.generated.beside = len(replica.ends_s)
            self._running.setdefault(replica, {})[number] = call.generated

    def ended(self, replica: RouterReplica, number: int) -> None:
        """Record the end of an exchange, successful or not."""
        running = self._running.get(replica, {})
        running.pop(number, None)
        if not running:
            self._running.pop(replica, None)

    def learn(
        self,
        replica: RouterReplica,
        generated: Generated,
        began_s: float,
        *,
        whole: bool,
        streamed: bool,
    ) -> None:
        """Learn from an answer.

        Args:
            replica: Its sender.
            generated: The request, its meter at its last token.
            began_s: When it was sent.
            whole: It is complete; else its client or its replica disconnected.
            streamed: Its tokens came one by one.
        """
        meter, times = generated.meter, replica.times
        if not isinstance(times, GenerationTimes) or not meter.first_s:
            return
        tokens = meter.tokens
        self.lengths.add(generated.key, tokens, cut=meter.cut or not whole)
        if streamed:
            times.first(generated.key, meter.first_s - began_s)
            times.pace_of(tokens, generated.beside, len(replica.ends_s), meter.between_s)

    def refresh(self, now_s: float) -> None:
        """Update the predicted end of each answer, and the limit of each replica."""
        generative = self.settings.generative
        for replica, running in self._running.items():
            times = replica.times
            if not isinstance(times, GenerationTimes):
                continue
            for number, answer in running.items():
                left_s = times.remaining_s(answer.key, answer.meter.tokens)
                replica.ends_s[number] = now_s + left_s
            if generative is not None and generative.between_s:
                most = self.settings.in_flight
                replica.most_in_flight = times.pace.most_within(generative.between_s, most)

    async def watch_cache(
        self, replica: RouterReplica, connections: ReplicaConnections, changed: Callable[[], None]
    ) -> None:
        """Poll a replica's cache until cancelled."""
        generative = self.settings.generative
        limit = 1.0 if generative is None else generative.cache_limit
        silent, logged = 0, ""
        while True:
            used, error = None, ""
            try:
                reply = await connections.ask(replica, "GET", PAGE, {}, b"", CACHE_PAGE_S)
                silent = 0
                used = cache_use(reply.body) if reply.status == OK else None
                if used is None:
                    error = f"{PAGE} (status {reply.status}) does not say it"
            except PageTooLong as failed:
                error = str(failed)
            except (NotDelivered, Broken) as failed:
                silent += 1
                error = str(failed)
            if error and error != logged and replica.up:
                log.warning("the KV cache of %s has no limit: %s", replica.backend.url, error)
                logged = error
            full = replica.cache_full if 0 < silent < STALE_LOOKS else (used or 0.0) > limit
            if full is not replica.cache_full:
                replica.cache_full = full
                changed()
            await asyncio.sleep(CACHE_LOOK_S)
