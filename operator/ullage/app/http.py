# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The operator's endpoints: liveness, readiness and metrics, a snapshot for loopback.

Metrics are public, or over TLS for clients that the API server authorises (:mod:`secure_metrics`).

A snapshot names the work of every tenant, and no client is authenticated: it is served on loopback,
for users with ``kubectl port-forward`` or ``exec`` on the pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from ullage.app.health import HealthView, health_problems, readiness_problems
from ullage.app.replay import Inputs, parts
from ullage.app.times import METRICS_PAGE_S, SNAPSHOT_READ_S, SNAPSHOT_RETRY_S
from ullage.process.connections import sent
from ullage.process.listener import HttpListener
from ullage.process.secure_metrics import SecureMetrics
from ullage.process.threads import in_thread

log = structlog.get_logger("ullage.http")

LOOPBACK: Final = "127.0.0.1"
CHUNK_BYTES: Final = 64 * 1024


Route = tuple[str, Callable[[web.Request], Awaitable[web.StreamResponse]]]


class Endpoints:
    """Serves all ports; ``start`` and ``stop`` once each."""

    def __init__(
        self,
        view: Callable[[], HealthView],
        metrics: CollectorRegistry,
        inputs: Callable[[], Inputs | None],
        secure: Callable[[Callable[[], bytes]], SecureMetrics] | None = None,
    ) -> None:
        """``inputs`` returns the inputs of the last decision.

        ``secure`` makes what serves the page of metrics in place of the port of the probes.
        """
        self._view = view
        self._metrics = metrics
        self._inputs = inputs
        self._secure = secure(self._metrics_page) if secure is not None else None
        self._snapshot_lock = asyncio.Lock()
        self._page = b""
        self._page_at = float("-inf")
        self._listeners: list[HttpListener] = []
        self.port = 0
        self.debug_port = 0
        self.debug_host = LOOPBACK

    async def start(
        self,
        *,
        port: int,
        debug_port: int | None,
        metrics_port: int = 0,
        host: str | None = None,
    ) -> None:
        """Listen on ``host`` (``None`` = everywhere); ``debug_port`` ``None`` = no snapshots.

        Raises:
            OSError: the port of the probes is in use. Without the other one the operator works, and
                logs a warning.
        """
        routes: list[Route] = [("/healthz", self._health), ("/readyz", self._ready)]
        if self._secure is None:
            routes.append(("/metrics", self._scrape))
        self.port = await self._listen(host, port, *routes)
        if self._secure is not None:
            await self._secure.start(metrics_port, host)
        if debug_port is None:
            return
        try:
            self.debug_port = await self._listen(
                LOOPBACK, debug_port, ("/debug/snapshot", self._snapshot)
            )
        except OSError as error:
            log.warning("no snapshots are given", port=debug_port, error=str(error))

    async def stop(self) -> None:
        """Close all ports."""
        if self._secure is not None:
            await self._secure.stop()
        for listener in self._listeners:
            await listener.stop()

    async def _listen(
        self,
        host: str | None,
        port: int,
        *routes: Route,
    ) -> int:
        """Listen; returns the bound port, where 0 means any."""
        app = web.Application()
        app.add_routes([web.get(path, answer) for path, answer in routes])
        listener = HttpListener(app, name="debug" if host == LOOPBACK else "probes and metrics")
        self._listeners.append(listener)
        await listener.start(port, host)
        return listener.port

    async def _health(self, request: web.Request) -> web.StreamResponse:
        return await sent(request, _answer(health_problems(self._view())))

    async def _ready(self, request: web.Request) -> web.StreamResponse:
        return await sent(request, _answer(readiness_problems(self._view())))

    async def _scrape(self, request: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": CONTENT_TYPE_LATEST}
        return await sent(request, web.Response(body=self._metrics_page(), headers=headers))

    def _metrics_page(self) -> bytes:
        """Figures cached for a second: frequent scrapes cost nothing."""
        now = asyncio.get_running_loop().time()
        if now - self._page_at >= METRICS_PAGE_S:
            self._page, self._page_at = generate_latest(self._metrics), now
        return self._page

    async def _snapshot(self, request: web.Request) -> web.StreamResponse:
        """Send only records: templates, environments and secrets never enter a snapshot."""
        inputs = self._inputs()
        if inputs is None:
            return web.Response(status=404, text="no decision was made yet\n")
        if self._snapshot_lock.locked():
            return web.Response(
                status=503,
                text="another reader is being given a snapshot\n",
                headers={"Retry-After": str(SNAPSHOT_RETRY_S)},
            )
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        async with self._snapshot_lock:
            await response.prepare(request)
            pieces = parts(inputs)
            try:
                async with asyncio.timeout(SNAPSHOT_READ_S):
                    # each chunk is built in a thread, so that the event loop stays free
                    while chunk := await in_thread(_chunk, pieces):
                        await response.write(chunk)
            except TimeoutError:
                log.warning("a reader of the snapshot was too slow", most_s=SNAPSHOT_READ_S)
                raise ConnectionResetError("too slow") from None
            await response.write_eof()
        return response


def _chunk(pieces: Iterator[bytes]) -> bytes:
    """The next pieces, together about a chunk; empty at the end."""
    chunk = bytearray()
    for part in pieces:
        chunk += part
        if len(chunk) >= CHUNK_BYTES:
            break
    return bytes(chunk)


def _answer(problems: list[str]) -> web.Response:
    if problems:
        return web.Response(status=503, text="\n".join(problems) + "\n")
    return web.Response(text="ok\n")
