# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One open watch: history, then live changes, bookmarks, and an end in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import orjson

from fakes.apiserver.errors import Refusal
from fakes.apiserver.faults import Faults
from fakes.apiserver.resources import Resource
from fakes.apiserver.selectors import Test
from fakes.apiserver.store import Change, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchQuery:
    """What a client asked to watch."""

    resource: Resource
    namespace: str
    selected: Test
    version: str
    bookmarks: bool
    timeout_s: float


class Cut(Exception):
    """The connection ends here without a proper end."""


def line(kind: str, raw: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + raw + b"}\n"


def error_line(refusal: Refusal) -> bytes:
    return line("ERROR", orjson.dumps(refusal.body()))


def _event(change: Change, query: WatchQuery) -> bytes | None:
    """The change as this watcher sees it: an object may enter or leave its selection."""
    if query.namespace and change.key[0] != query.namespace:
        return None
    was = change.before is not None and query.selected(change.before.obj)
    now = not change.deleted and query.selected(change.after.obj)
    if now:
        return line("MODIFIED" if was else "ADDED", change.after.raw)
    return line("DELETED", change.after.raw) if was else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kick:
    """Ends one watch: cut off, or with an ERROR line."""

    refusal: Refusal | None


Queue = asyncio.Queue[Change | Kick]


class Watches:
    """All open watches of one server."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self._store = store
        self._faults = faults
        self._queues: set[Queue] = set()
        self.bookmark_s = 60.0

    @property
    def open(self) -> int:
        """How many watches are open now."""
        return len(self._queues)

    def end_all(self, refusal: Refusal | None = None) -> None:
        """End every open watch: cut off, or with an ERROR line."""
        for queue in self._queues:
            queue.put_nowait(Kick(refusal=refusal))

    async def stream(self, query: WatchQuery) -> AsyncGenerator[bytes]:
        """Lines of one watch; the faults are woven in."""
        queue: Queue = asyncio.Queue()
        self._queues.add(queue)
        self._store.listeners[query.resource].add(queue)
        try:
            async for chunk in self._lines(query, queue):
                await self._faults.thawed()
                if self._faults.bad_lines > 0:
                    self._faults.bad_lines -= 1
                    yield b'{"type":"MODIFIED","object":{"metad\n'
                if self._faults.half_lines > 0:
                    self._faults.half_lines -= 1
                    yield chunk[: len(chunk) // 2]
                    raise Cut
                yield chunk
            await self._faults.thawed()
        finally:
            self._queues.discard(queue)
            self._store.listeners[query.resource].discard(queue)

    async def _lines(self, query: WatchQuery, queue: Queue) -> AsyncGenerator[bytes]:
        if self._faults.watch_errors:
            yield error_line(Refusal(self._faults.watch_errors.pop(0), "injected watch error"))
            return
        try:
            missed = self._first(query)
        except Refusal as refusal:
            yield error_line(refusal)
            return
        for first in missed:
            yield first
        loop = asyncio.get_running_loop()
        end = loop.time() + query.timeout_s
        bookmark = loop.time() + self.bookmark_s
        while (now := loop.time()) < end:
            if query.bookmarks and now >= bookmark:
                bookmark = now + self.bookmark_s
                yield self._bookmark(query.resource)
            try:
                async with asyncio.timeout_at(min(end, bookmark)):
                    change = await queue.get()
            except TimeoutError:
                continue
            if isinstance(change, Kick):
                if change.refusal is None:
                    raise Cut
                yield error_line(change.refusal)
                return
            if event := _event(change, query):
                yield event
        if query.bookmarks:
            yield self._bookmark(query.resource)

    def _first(self, query: WatchQuery) -> list[bytes]:
        if query.version in ("", "0"):
            return [
                line("ADDED", stored.raw)
                for _, stored in self._store.items(query.resource, query.namespace)
                if query.selected(stored.obj)
            ]
        missed = self._store.since(query.resource, int(query.version))
        return [event for change in missed if (event := _event(change, query))]

    def _bookmark(self, resource: Resource) -> bytes:
        body = {
            "kind": resource.kind.kind,
            "apiVersion": resource.kind.api_version,
            "metadata": {"resourceVersion": str(self._store.version), "creationTimestamp": None},
        }
        return line("BOOKMARK", orjson.dumps(body))
