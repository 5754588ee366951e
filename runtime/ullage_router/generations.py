# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests in progress at generative replicas, what they teach, and full caches.

A place is free again when its answer ends; that time is predicted again and again from the tokens
so far. Two limits hold a replica's requests: the time between tokens, by their number,
and its KV cache, by its own page of metrics.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ullage_router.cache_use import PAGE, PageTooLong, cache_use
from ullage_router.calls import Call, Generated
from ullage_router.generation import GenerationKey
from ullage_router.generation_times import AnswerLengths, GenerationTimes
from ullage_router.replicas import OK, Broken, Connections, NotDelivered, Replica
from ullage_router.settings import Settings

log = logging.getLogger("ullage.router")

REFRESH_S: Final = 0.25
CACHE_S: Final = 0.5
"""Between two looks at a replica's page of metrics."""
PAGE_S: Final = 2.0
STALE_LOOKS: Final = 4
"""Looks in a row without an answer after which a cache that was full is not known any more."""


@dataclass(slots=True)
class Generations:
    """Answers on their way, by replica and batch; for one event loop."""

    settings: Settings
    lengths: AnswerLengths = field(default_factory=AnswerLengths)
    _running: dict[Replica, dict[int, Generated]] = field(default_factory=dict)

    def times(self) -> GenerationTimes:
        """What is learned on a device that no replica had before."""
        settings = self.settings
        return GenerationTimes(
            rules=settings.rules, lengths=self.lengths, places=settings.in_flight
        )

    def name_of(self, key: GenerationKey) -> str:
        """The name under which a request waits: wild names of models are all as one unknown."""
        return self.lengths.named(key).text

    def began(self, replica: Replica, number: int, call: Call) -> None:
        """A replica is about to be asked."""
        if call.generated is not None:
            call.generated.beside = len(replica.ends_s)
            self._running.setdefault(replica, {})[number] = call.generated

    def ended(self, replica: Replica, number: int) -> None:
        """Its exchange is over, however it went."""
        running = self._running.get(replica, {})
        running.pop(number, None)
        if not running:
            self._running.pop(replica, None)

    def learn(
        self, replica: Replica, generated: Generated, began_s: float, *, whole: bool, streamed: bool
    ) -> None:
        """Take in an answer.

        Args:
            replica: That gave it.
            generated: The request, its meter at its last token.
            began_s: When it was sent.
            whole: It is all that the request asked for; else its client or its replica went.
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
        """Update the predicted end of each answer, and how many each replica may run."""
        generative = self.settings.generative
        for replica, running in self._running.items():
            times = replica.times
            if not isinstance(times, GenerationTimes):
                continue
            for number, one in running.items():
                left_s = times.remaining_s(one.key, one.meter.tokens)
                replica.ends_s[number] = now_s + left_s
            if generative is not None and generative.between_s:
                most = self.settings.in_flight
                replica.most_in_flight = times.pace.most_within(generative.between_s, most)

    async def watch_cache(
        self, replica: Replica, connections: Connections, changed: Callable[[], None]
    ) -> None:
        """Look at a replica's cache again and again, until cancelled."""
        generative = self.settings.generative
        limit = 1.0 if generative is None else generative.cache_limit
        silent, said = 0, ""
        while True:
            used, error = None, ""
            try:
                reply = await connections.ask(replica, "GET", PAGE, {}, b"", PAGE_S)
                silent = 0
                used = cache_use(reply.body) if reply.status == OK else None
                if used is None:
                    error = f"{PAGE} (status {reply.status}) does not say it"
            except PageTooLong as failed:
                error = str(failed)
            except (NotDelivered, Broken) as failed:
                silent += 1
                error = str(failed)
            if error and error != said and replica.up:
                log.warning("the KV cache of %s has no limit: %s", replica.backend.url, error)
                said = error
            full = replica.cache_full if 0 < silent < STALE_LOOKS else (used or 0.0) > limit
            if full is not replica.cache_full:
                replica.cache_full = full
                changed()
            await asyncio.sleep(CACHE_S)
