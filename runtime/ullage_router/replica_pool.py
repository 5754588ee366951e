# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The replicas of a router: adds and removes them, probes them, tracks ready models."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from ullage_router.answers import UNAVAILABLE, own_answer
from ullage_router.background import BackgroundTasks
from ullage_router.calls import ClientAnswer
from ullage_router.following import Unknown, addresses_of_name
from ullage_router.generation_times import GenerationTimes
from ullage_router.generations import Generations
from ullage_router.replicas import (
    OK,
    Broken,
    NotDelivered,
    ReplicaConnections,
    Reply,
    RouterReplica,
    TooLate,
)
from ullage_router.run_times import RunTimes, first_costs
from ullage_router.settings import ReplicaAddress, RouterSettings

log = logging.getLogger("ullage.router")

SILENT_PROBES: Final = 3
"""Consecutive failed probes that take a replica out; it may just be busy."""
MODELS: Final = 32
"""Most models recorded as not ready at some replica."""
NOT_READY: Final = re.compile(rb"not (?:yet )?ready", re.IGNORECASE)
"""Text of a server's 503 for a model that is not ready."""
SAID_BYTES: Final = 1024


class ReplicaPool:
    """The replicas of one queue; ``start`` once, on one event loop."""

    def __init__(
        self,
        settings: RouterSettings,
        connections: ReplicaConnections,
        generations: Generations | None,
        background: BackgroundTasks,
        *,
        changed: Callable[[], None],
        woke: Callable[[], None],
    ) -> None:
        """``changed`` is called when a replica accepts more, ``woke`` before it for the first."""
        self._settings = settings
        self._connections = connections
        self._generations = generations
        self._background = background
        self._changed, self._woke = changed, woke
        self.replicas: tuple[RouterReplica, ...] = ()
        self._times: dict[tuple[str, float], RunTimes | GenerationTimes] = {}
        """By device and share: replicas on equal ones share their times, also with later ones."""
        self._probes: dict[RouterReplica, list[asyncio.Task[None]]] = {}
        self._joined = 0
        self._slow_models: dict[str, None] = {}
        """Readiness paths of models that once were not ready."""
        self.looked_up = False
        """True once the name of the replicas was resolved."""
        for backend in settings.backends:
            self._join(backend)

    def start(self) -> None:
        """Probe the replicas, and follow their DNS name if any."""
        for replica in self.replicas:
            self._watch(replica)
        if self._settings.followed is not None:
            self._background.start(self._follow(self._settings.followed))

    @property
    def is_up(self) -> bool:
        """True if a replica is ready."""
        return any(replica.up for replica in self.replicas)

    def up(self) -> int:
        """Number of replicas that are ready."""
        return sum(replica.up for replica in self.replicas)

    def caches_full(self) -> int:
        """Number of ready replicas whose KV cache is full."""
        return sum(replica.up and replica.cache_full for replica in self.replicas)

    def is_ready_for(self, path: str) -> bool:
        """True if a replica is ready for the model of a readiness path."""
        return any(
            replica.up and not (replica.unready_models and path in replica.unready_models)
            for replica in self.replicas
        )

    def rate_per_s(self) -> float:
        """Requests per second of all ready replicas."""
        return sum(replica.times.rate_per_s() for replica in self.replicas if replica.up)

    def knows(self, key: str) -> bool:
        """True if the run times of a key are known for all devices where it may run."""
        return bool(self._times) and all(times.knows(key) for times in self._times.values())

    async def learn(self, apps: Callable[[], Collection[str]]) -> None:
        """Update the run times; ``apps`` returns the waiting applications."""
        for times in self._times.values():
            await times.learn(apps())

    async def ask_any(self, method: str, path: str) -> ClientAnswer:
        """Query a replica bypassing the queue: health and metadata.

        A model is ready if it is ready at one replica.
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
        return unready or own_answer(UNAVAILABLE, error, retry_after_s=1)

    def mark_down(self, replica: RouterReplica, error: str) -> None:
        """Send a replica nothing until a probe succeeds."""
        if replica.up:
            log.warning("replica %s is down: %s", replica.backend.url, error)
        replica.down()

    def mark_unready(self, replica: RouterReplica, path: str) -> None:
        """Send a replica no request for a model until it is ready for it."""
        if path not in replica.unready_models:
            log.warning("replica %s is not ready for %s", replica.backend.url, path)
        replica.unready_models.add(path)

    async def is_unready(self, replica: RouterReplica, path: str, reply: Reply) -> bool:
        """True if a replica's 503 means that a model is not ready, so that nothing ran."""
        if not path or not self._keeps(path):
            return False
        if NOT_READY.search(reply.body[:SAID_BYTES]):
            return True
        return await self._model_is_unready(replica, path)

    def _join(self, backend: ReplicaAddress) -> RouterReplica:
        """Add a replica."""
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
        self._probes[replica] = [self._background.start(self._probe(replica))]
        if self._generations is not None:
            looks = self._generations.watch_cache(replica, self._connections, self._changed)
            self._probes[replica].append(self._background.start(looks))

    def _part(self, replica: RouterReplica) -> None:
        """Remove a replica; its running requests may still be answered."""
        replica.down()
        self.replicas = tuple(other for other in self.replicas if other is not replica)
        for probe in self._probes.pop(replica):
            probe.cancel()
        self._connections.forget(replica)

    async def _follow(self, named: ReplicaAddress) -> None:
        """Add and remove replicas with the addresses of a name, periodically."""
        while True:
            try:
                urls = await addresses_of_name(named.url)
            except Unknown as error:
                log.warning("%s: %s; the replicas stay as they were", named.url, error)
            else:
                self.looked_up = True
                for replica in self.replicas:
                    if replica.backend.url not in urls:
                        log.info("replica %s has gone", replica.backend.url)
                        self._part(replica)
                for url in sorted(urls - {replica.backend.url for replica in self.replicas}):
                    self._watch(self._join(replace(named, url=url)))
            await asyncio.sleep(self._settings.follow_s)

    async def _probe(self, replica: RouterReplica) -> None:
        """Probe a replica's readiness periodically."""
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
                self._changed()
            elif not ready:
                self.mark_down(replica, error)
            await asyncio.sleep(settings.probe_s)

    async def _look_for_models(self, replica: RouterReplica) -> None:
        """Check which models are ready now; a starting replica is probed for all slow ones."""
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
                self._changed()

    async def _model_is_unready(self, replica: RouterReplica, path: str) -> bool:
        try:
            within_s = max(1.0, self._settings.probe_s)
            reply = await self._connections.ask(replica, "GET", path, {}, b"", within_s)
        except (NotDelivered, Broken):
            return path in replica.unready_models
        return reply.status == UNAVAILABLE

    def _keeps(self, path: str) -> bool:
        """Record a model that is slow to become ready; ``False`` = too many are recorded."""
        known = self._slow_models
        if path not in known and len(known) >= MODELS:
            waited_for = {path for replica in self.replicas for path in replica.unready_models}
            ready = next((model for model in known if model not in waited_for), None)
            if ready is None:
                return False
            del known[ready]
        known[path] = None
        return True
