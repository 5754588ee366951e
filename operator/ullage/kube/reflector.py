# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps a sink equal to one stream of the API server: list, watch, list again.

Short watches bound any stall, every list is passed on whole so that objects deleted unseen are
removed, and a full list every few minutes proves that nothing was missed. Must never decide
anything, keep raw objects, or end while its task lives.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import overload

import orjson
import structlog

from ullage.cluster.values.streams import Sink, Stream
from ullage.kube.answers import BadLine, WatchStalled
from ullage.kube.backoff import Backoff
from ullage.kube.client import K8sCluster
from ullage.kube.decoding import packed
from ullage.kube.failure_streak import Streak
from ullage.kube.times import (
    FIRST_WATCH_S,
    KIND_ABSENT_S,
    LISTS_APART_S,
    RETRY_AFTER_MOST_S,
    SHORT_WATCH_S,
    STREAM_FROZEN_S,
    STREAM_UNSYNCED_S,
)
from ullage.ports import (
    ApiError,
    Clock,
    Gone,
    JsonObject,
    NotFound,
    Throttled,
    Unavailable,
    WatchEvent,
)

log = structlog.get_logger("ullage.reflector")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectorTimes:
    """Sizes and times of a reflector."""

    page: int = 500
    """Objects per page of a list."""
    watch_s: int = 45
    """Maximum requested duration of a watch."""
    resync_s: float = 600.0
    """Time between two verifications of the snapshot."""
    first_pause_s: float = 0.5
    answer_pause_s: float = 3.0
    """Longest pause after a failure of the API server or of the connection: bounds the detection of
    its recovery."""
    max_pause_s: float = 30.0
    """Longest pause after a failure of our own, or an unreadable line."""
    healthy_s: float = 60.0
    """Time without a failure after which the next one counts as the first."""


class Packed(Sequence[JsonObject]):
    """Objects of a list as bytes, decoded one by one when read.

    Decoded pods take five times the memory, and a sink keeps only a projection of each: 50,000
    of them at once would not fit.
    """

    def __init__(self) -> None:
        self._raw: list[bytes] = []
        self.uids: set[str] = set()

    def add(self, items: Sequence[JsonObject]) -> None:
        """Keep these objects, without the managedFields, which are unused."""
        for item in items:
            metadata = item.get("metadata")
            if isinstance(metadata, dict):
                metadata.pop("managedFields", None)
            self.uids.add(_uid(item))
            self._raw.append(packed(item))

    def __len__(self) -> int:
        return len(self._raw)

    def __iter__(self) -> Iterator[JsonObject]:
        return (orjson.loads(raw) for raw in self._raw)

    @overload
    def __getitem__(self, at: int) -> JsonObject: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[JsonObject]: ...
    def __getitem__(self, at: int | slice) -> JsonObject | Sequence[JsonObject]:
        if isinstance(at, slice):
            return [orjson.loads(raw) for raw in self._raw[at]]
        decoded: JsonObject = orjson.loads(self._raw[at])
        return decoded


class Reflector:
    """One stream of one cluster, kept in one sink."""

    def __init__(
        self,
        stream: Stream,
        *,
        source: K8sCluster,
        sink: Sink,
        clock: Clock,
        poke: Callable[[str], None],
        times: ReflectorTimes | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        seed: int | None = None,
    ) -> None:
        """``poke`` is called with the stream's name when the sink reports a change."""
        self.stream = stream
        self._source = source
        self._sink = sink
        self._clock = clock
        self._poke = poke
        self._times = times = times or ReflectorTimes()
        self._sleep = sleep
        self._backoff = Backoff(
            first_s=times.first_pause_s,
            max_s=times.max_pause_s,
            healthy_s=times.healthy_s,
            rng=random.Random(seed),
        )
        self._uids: set[str] = set()
        self._next_resync = 0.0
        self._gone_at = float("-inf")
        self._listed = False
        self._watch_s = self._first_watch_s()
        self._stalled = False
        """True when the last watch stalled: opening another one proves nothing."""
        self._stirred_at = float("inf")
        self.streak = Streak()
        """Failure streak; a stall counts as one."""
        self.last_event_at = clock.monotonic()
        """Monotonic time of the last line, bookmark, list page or newly opened watch."""
        self.resource_version = ""
        self.relists_total = 0
        """Full lists after the first one, without resyncs."""
        self.resync_drift_total = 0
        """Resyncs that found the snapshot wrong; must stay 0."""
        self.stalls_total = 0
        """Watches that outlived their time limit."""
        self.errors_total = 0
        """Failures of any kind that caused a pause."""

    @property
    def synced(self) -> bool:
        """True when the sink equals the server's state, as far as this stream knows."""
        return self._listed and not self.problem()

    def problem(self) -> str:
        """Reason why the sink is behind the server; "" = it is not."""
        failing_s = self.streak.seconds(self._clock.monotonic())
        if not self._listed:
            return f"not listed yet: {self.streak.text}" if failing_s else "not listed yet"
        if failing_s >= STREAM_UNSYNCED_S:
            return f"failing for {failing_s:.0f} s: {self.streak.text}"
        return self.stuck()

    def stuck(self) -> str:
        """Problem that only a restart can fix: no sign of life, or a lasting fault of our own."""
        now = self._clock.monotonic()
        if now - self._stirred_at >= STREAM_FROZEN_S:
            return f"neither hears nor fails for {now - self._stirred_at:.0f} s"
        own_s = self.streak.own_seconds(now)
        return (
            f"failing for {own_s:.0f} s: {self.streak.text}" if own_s >= STREAM_UNSYNCED_S else ""
        )

    @property
    def objects(self) -> int:
        """Number of objects that the stream holds."""
        return len(self._uids)

    def last_event_age_s(self) -> float:
        """Seconds since the last event of the server."""
        return self._clock.monotonic() - self.last_event_at

    async def run(self) -> None:
        """List and watch until cancelled."""
        self._stirred_at = self._clock.monotonic()
        while True:
            try:
                if await self._list():
                    await self._follow()
                else:
                    await self._sleep(KIND_ABSENT_S)
            except Gone as error:
                # One is normal after a compaction or a restart; one after another is a storm.
                now = self._clock.monotonic()
                stormy, self._gone_at = now - self._gone_at < LISTS_APART_S, now
                if stormy:
                    await self._rest(error)
            except Exception as error:  # outermost: nothing may end the stream
                await self._rest(error)

    # Listing.

    async def _list(self) -> bool:
        """List all; true if the API server serves the kind, which is required unless optional."""
        served = True
        try:
            items, version = await self._pages("")
        except NotFound:
            if not self.stream.optional:
                raise
            served, items, version = False, Packed(), ""
            self._heard()
        if self._listed:
            self.relists_total += 1
        self._hand_over(items, version)
        self._listed = True
        self._next_resync = self._clock.monotonic() + self._times.resync_s
        return served

    async def _pages(self, at_version: str) -> tuple[Packed, str]:
        items, version = Packed(), ""
        pages = self._source.list_paged(
            self.stream.kind,
            self.stream.selector,
            limit=self._times.page,
            resource_version=at_version,
        )
        async for page in pages:
            self._heard()
            version = page.resource_version
            items.add(page.items)
        return items, version

    def _hand_over(self, items: Packed, version: str) -> bool:
        changed = self._sink.replace(self.stream, items, self._clock.now())
        self._uids = items.uids
        self.resource_version = version
        self._proved()
        if changed:
            self._poke(self.stream.name)
        return changed

    # Watching.

    async def _follow(self) -> None:
        """Watch repeatedly from the end of the last one, until a list is needed."""
        while True:
            try:
                await self._watch()
            except WatchStalled as error:
                await self._after_stall(error)
            except BadLine:
                raise
            except ApiError as error:
                if error.status != 0 or not self.synced:
                    raise
                await self._rest(error)  # no connection: continue where we were
            if self._clock.monotonic() >= self._next_resync:
                await self._resync()

    async def _watch(self) -> None:
        events = self._source.watch(
            self.stream.kind,
            self.stream.selector,
            resource_version=self.resource_version,
            timeout_s=self._watch_s,
            on_open=self._opened,
        )
        opened, lines = self._clock.monotonic(), 0
        async with aclosing(events):
            async for event in events:
                self._heard()
                lines += 1
                self._take(event)
                self._proved()
        self._heard()
        if not lines and self._clock.monotonic() - opened < SHORT_WATCH_S:
            raise Unavailable(0, "the watch ended at once")
        self._proved()
        self._watch_s = min(2 * self._watch_s, self._times.watch_s)

    def _first_watch_s(self) -> int:
        return min(FIRST_WATCH_S, self._times.watch_s)

    async def _after_stall(self, error: WatchStalled) -> None:
        """Handle a stall: after a second one in a row only a list proves the snapshot."""
        self.stalls_total += 1
        log.warning("watch stalled", stream=self.stream.name, error=str(error))
        again, self._stalled = self._stalled, True
        self._failed(error)
        if again:
            await self._list()

    def _take(self, event: WatchEvent) -> None:
        """Pass one event on and record its version for the next watch."""
        now = self._clock.now()
        match event.type:
            case "ADDED" | "MODIFIED":
                changed = self._sink.upsert(self.stream, event.object, now)
                self._uids.add(_uid(event.object))
            case "DELETED":
                changed = self._sink.remove(self.stream, event.object, now)
                self._uids.discard(_uid(event.object))
            case "BOOKMARK":
                changed = False
            case other:
                raise BadLine(0, f"unknown watch event {other!r}")
        self.resource_version = _version(event.object) or self.resource_version
        if changed:
            self._poke(self.stream.name)

    async def _resync(self) -> None:
        """List exactly our version: the sink must equal it."""
        try:
            items, version = await self._pages(self.resource_version)
        except Gone:
            # Too old to be listed again: a new list is the only proof left.
            await self._list()
            return
        if self._hand_over(items, version):
            self.resync_drift_total += 1
            log.error("resync found drift", stream=self.stream.name, version=version)
        self._next_resync = self._clock.monotonic() + self._times.resync_s

    # Hearing and failing.

    def _heard(self) -> None:
        self.last_event_at = self._stirred_at = self._clock.monotonic()

    def _opened(self) -> None:
        """Record that the server accepted a watch."""
        if not self._stalled:
            self._heard()
            self.streak.worked(self._clock.monotonic())

    def _proved(self) -> None:
        """Record that the server's objects were received."""
        self._stalled = False
        self.streak.worked(self._clock.monotonic())

    def _failed(self, error: Exception) -> None:
        self._stirred_at = self._clock.monotonic()
        self._watch_s = self._first_watch_s()
        self.streak.failed(self._stirred_at, error)

    async def _rest(self, error: Exception) -> None:
        self.errors_total += 1
        self._failed(error)
        wanted = error.retry_after_s if isinstance(error, Throttled) else 0.0
        own = isinstance(error, BadLine) or not isinstance(error, ApiError)
        pause = self._backoff.pause(
            self._clock.monotonic(),
            at_least_s=min(wanted, RETRY_AFTER_MOST_S),
            most_s=self._times.max_pause_s if own else self._times.answer_pause_s,
        )
        log.warning(
            "stream failed",
            stream=self.stream.name,
            error=str(error),
            pause_s=round(pause, 2),
            exc_info=not isinstance(error, ApiError),
        )
        await self._sleep(pause)


def _uid(item: JsonObject) -> str:
    metadata = item.get("metadata")
    return str(metadata.get("uid", "")) if isinstance(metadata, dict) else ""


def _version(item: JsonObject) -> str:
    metadata = item.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else ""
