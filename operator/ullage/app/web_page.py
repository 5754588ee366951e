# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Serves the web page: read-only, only its own files, no external content.

It names the work of every tenant and does not authenticate: it is for loopback, or for the API
server's proxy behind a network policy. All URLs are relative, so that it works below any path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Final

import orjson
from aiohttp import web

from ullage.app.times import WEB_STATE_S
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.trace import ProfileRequestRecord
from ullage.process.connections import sent
from ullage.process.listener import HttpListener
from ullage.process.threads import in_thread
from ullage.web.state import page_state

FILES: Final = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
Requests = Sequence[ProfileRequestRecord]
LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


class WebPage:
    """One listener; ``start`` and ``stop`` once each."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        currency: str,
        requests: Callable[[], Requests] = tuple,
    ) -> None:
        """``snapshot`` gives the cluster, ``requests`` those of traces; prices: ``currency``."""
        self._snapshot = snapshot
        self._requests = requests
        self._currency = currency
        self._files = {
            path: (files("ullage.web").joinpath(name).read_bytes(), kind)
            for path, (name, kind) in FILES.items()
        }
        self._state_lock = asyncio.Lock()
        self._made = b""
        self._made_at = float("-inf")
        self._listener: HttpListener | None = None
        self._local = True
        self.port = 0

    async def start(self, port: int, host: str | None) -> None:
        """Listen on ``host``; ``None`` = everywhere.

        Raises:
            OSError: the port is taken.
        """
        self._local = host is not None
        app = web.Application()
        app.add_routes([web.get(path, self._file) for path in FILES])
        app.add_routes([web.get("/state.json", self._answer)])
        self._listener = HttpListener(app, name="web page")
        await self._listener.start(port, host)
        self.port = self._listener.port

    async def stop(self) -> None:
        """Close the port."""
        if self._listener is not None:
            await self._listener.stop()

    def _check(self, request: web.Request) -> None:
        """Reject hosts other than localhost, against DNS rebinding."""
        name = request.host.rpartition(":")[0] or request.host
        if self._local and name not in LOCAL_NAMES and request.host not in LOCAL_NAMES:
            raise web.HTTPForbidden(text="ask for localhost\n")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        self._check(request)
        body, kind = self._files[request.path]
        answer = web.Response(body=body, content_type=kind, charset="utf-8", headers=HEADERS)
        return await sent(request, answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self._check(request)
        loop = asyncio.get_running_loop()
        async with self._state_lock:
            if loop.time() - self._made_at >= WEB_STATE_S:
                self._made = await in_thread(
                    _made, self._snapshot(), self._currency, self._requests()
                )
                self._made_at = loop.time()
            made = self._made
        answer = web.Response(body=made, content_type="application/json", headers=HEADERS)
        return await sent(request, answer)


def _made(snapshot: Snapshot, currency: str, requests: Requests) -> bytes:
    return orjson.dumps(page_state(snapshot, currency, requests))
