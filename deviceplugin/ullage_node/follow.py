# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Mirrors one kind of object: list, then watch, for ever.

A list replaces everything, so deletions missed between watches are noticed. An unreadable object is
reported and leaves the last good one in place. API server errors never raise: it backs off and
retries, and reports for how long it has been disconnected.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from ullage.api.readers import JsonObject, WireError
from ullage.process.faults import fault_text
from ullage_node.api_client import ApiClient, ApiServerError
from ullage_node.times import API_BACKOFF_FIRST_S, SHORT_WATCH_S, WATCH_BACKOFF_MOST_S

GONE: Final = 410

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class ObjectMirror(Protocol):
    """Receives the objects."""

    unreadable: int
    """Objects that could not be parsed."""

    def replace(self, items: Sequence[JsonObject]) -> None:
        """A complete list."""
        ...

    def changed(self, item: JsonObject) -> None:
        """One object was added or changed.

        Raises:
            WireError: it cannot be read.
        """
        ...

    def removed(self, item: JsonObject) -> None:
        """One object is gone."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedKind:
    """The kind of object to follow."""

    path: str
    fields: str
    """Field selector."""


class Follower:
    """Mirrors one subject; ``connected`` = the API server answers."""

    def __init__(self, client: ApiClient, subject: WatchedKind, mirror: ObjectMirror) -> None:
        self._client = client
        self._subject = subject
        self._mirror = mirror
        self._backoff = API_BACKOFF_FIRST_S
        self.connected = False
        self.problem = ""
        self.on_change: Callable[[], None] = lambda: None
        """Called when :attr:`connected` changes."""

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            try:
                await self._list_and_watch()
            except (ApiServerError, WireError) as error:
                if not (isinstance(error, ApiServerError) and error.status == GONE):
                    self._set(False, str(error))
            await asyncio.sleep(self._backoff * random.uniform(0.5, 1.0))  # jitter only
            self._backoff = min(self._backoff * 2, WATCH_BACKOFF_MOST_S)

    async def _list_and_watch(self) -> None:
        """Return when a stream ended so soon that reopening it would be a hot loop."""
        subject = self._subject
        listed = await self._client.list_all(subject.path, subject.fields)
        self._set(True, "")
        self._mirror.replace(listed.items)
        version = listed.version
        while True:
            opened = time.monotonic()
            async for event in self._client.watch(subject.path, subject.fields, version):
                metadata = event.object.get("metadata")
                newer = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
                version = newer if isinstance(newer, str) else version
                self._backoff = API_BACKOFF_FIRST_S
                self._tell(event.type, event.object)
            if time.monotonic() - opened < SHORT_WATCH_S:
                return

    def _tell(self, kind: str, item: JsonObject) -> None:
        try:
            if kind in ("ADDED", "MODIFIED"):
                self._mirror.changed(item)
            elif kind == "DELETED":
                self._mirror.removed(item)
        except Exception as error:  # one bad object must not stop the others
            self._mirror.unreadable += 1
            _log.warning("unreadable object", path=self._subject.path, error=fault_text(error))

    def _set(self, connected: bool, problem: str) -> None:
        if problem and problem != self.problem:
            _log.warning("API server", path=self._subject.path, problem=problem)
        changed, self.problem = connected != self.connected, problem
        self.connected = connected
        if changed:
            self.on_change()
