# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes ``GPUNode.status``: changes at once, rows rate-limited, counters with the heartbeat.

One task, one write at a time. A burst of changes becomes one write; an unchanged status becomes
none until the heartbeat is due. Start phases of containers are delayed briefly, so that the pods of
a burst are reported together. New observations are batched, at most one write in ten seconds. Loads
that replicas follow are reported every ten seconds, including the change to unknown. When the API
server is away the newest status is held, older ones are never sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Mapping

import structlog

from ullage_node.api_client import ApiClient, ApiServerError
from ullage_node.status import has_loads, row_ids, start_digest, urgent_digest
from ullage_node.times import (
    API_BACKOFF_FIRST_S,
    PUBLISH_BACKOFF_MOST_S,
    ROWS_APART_S,
    STATUS_SETTLE_S,
)

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Publisher:
    """Publishes the result of ``compose``; ``None`` = there is no object to write to."""

    def __init__(
        self,
        client: ApiClient,
        name: str,
        compose: Callable[[], Mapping[str, object] | None],
        heartbeat_seconds: float,
        *,
        rows_seconds: float = ROWS_APART_S,
        starts_seconds: float = 0.0,
    ) -> None:
        """``starts_seconds`` is how long changes of starts alone are delayed."""
        self._client = client
        self._name = name
        self._compose = compose
        self._heartbeat = heartbeat_seconds
        self._poked = asyncio.Event()
        self._writing = asyncio.Lock()
        self._digest = ""
        self._written_at = -heartbeat_seconds
        self._pace = rows_seconds
        self._rows: frozenset[str] = frozenset()
        self._rows_at = -rows_seconds
        self._rows_wait = False
        self._loads = False
        self._starts = ""
        self._starts_wait = starts_seconds
        self._starts_due: float | None = None
        """Deadline to write pending changes of starts."""
        self._backoff = 0.0
        self.writes = 0
        self.failures = 0

    def poke(self) -> None:
        """Check for changes soon."""
        self._poked.set()

    def forget(self) -> None:
        """Forget the last write: the object was replaced and does not contain it."""
        self._digest = self._starts = ""
        self._rows = frozenset()
        self._poked.set()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._wait()
            await asyncio.sleep(STATUS_SETTLE_S)
            self._poked.clear()
            await self.publish()

    async def _wait(self) -> None:
        if self._backoff:
            await asyncio.sleep(self._backoff * random.uniform(0.7, 1.0))  # jitter only
            return
        due = self._written_at + self._heartbeat
        if self._rows_wait:
            due = min(due, self._rows_at + self._pace)
        if self._loads:
            due = min(due, self._written_at + self._pace)
        if self._starts_due is not None:
            due = min(due, self._starts_due)
        due -= time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(due, 0.0)):
                await self._poked.wait()

    async def publish(self, *, counters: bool = False) -> bool:
        """Write if there is anything to write; true if something was written.

        Args:
            counters: write also when only counters changed, as when a container has ended and its
                final figures would be lost.
        """
        async with self._writing:
            return await self._publish(counters)

    async def _publish(self, counters: bool) -> bool:
        body = self._compose()
        if body is None:
            self._written_at = time.monotonic()
            return False
        digest = urgent_digest(body)
        rows, now = row_ids(body), time.monotonic()
        due = counters or now >= self._written_at + self._heartbeat
        self._rows_wait = not rows <= self._rows  # removed rows can wait for a heartbeat
        due = due or (self._rows_wait and now >= self._rows_at + self._pace)
        loads = has_loads(body)
        due = due or ((loads or self._loads) and now >= self._written_at + self._pace)
        starts = start_digest(body)
        if starts == self._starts:
            self._starts_due = None
        elif self._starts_due is None:
            self._starts_due = now + self._starts_wait
        due = due or (self._starts_due is not None and now >= self._starts_due)
        if digest == self._digest and not due:
            return False
        try:
            await self._client.apply_status(self._name, body)
        except ApiServerError as error:
            self.failures += 1
            self._backoff = max(self._backoff * 2, API_BACKOFF_FIRST_S)
            self._backoff = min(self._backoff, PUBLISH_BACKOFF_MOST_S)
            _log.warning("status not written", error=str(error), failures=self.failures)
            return False
        self._backoff = 0.0
        self._digest, self._starts, self._starts_due = digest, starts, None
        self._written_at = time.monotonic()
        if self._rows_wait:
            self._rows_at, self._rows_wait = self._written_at, False
        self._rows, self._loads = rows, loads
        self.writes += 1
        return True
