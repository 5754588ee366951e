# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The metadata server of Compute Engine.

After "Query VM metadata": a request without ``Metadata-Flavor: Google`` is 403; each answer bears
that header and an ETag of the value; ``wait_for_change=true`` holds the answer back until the value
is not the one of ``last_etag``, or until ``timeout_sec`` have passed, and then answers the value as
it is. ``instance/preempted`` is FALSE, and TRUE once the machine is being preempted.
"""

from __future__ import annotations

import asyncio
import hashlib

from aiohttp import web

from fakes.metadata.server import MetadataServer


class FakeGCE(MetadataServer):
    """Says what the test wants said."""

    def __init__(self) -> None:
        super().__init__()
        self._value = "FALSE"
        self._changed = asyncio.Event()
        self.waiting = 0
        """Questions whose answer is held back now."""
        self.flavored = True
        """Whether answers name the flavor, as those of Google do."""

    def preempt(self, value: str = "TRUE") -> None:
        """Change the value; who waits is told at once."""
        self._value = value
        self._changed.set()
        self._changed = asyncio.Event()

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/computeMetadata/v1/instance/preempted", self._preempted)]

    @property
    def etag(self) -> str:
        return hashlib.sha256(self._value.encode()).hexdigest()[:16]

    async def _preempted(self, request: web.Request) -> web.Response:
        if request.headers.get("Metadata-Flavor") != "Google":
            return web.Response(status=403)
        if request.query.get("wait_for_change", "").lower() == "true":
            await self._wait(request)
        headers = {"ETag": self.etag, "Server": "Metadata Server for VM"}
        if self.flavored:
            headers["Metadata-Flavor"] = "Google"
        text = self._value if self.garbage is None else self.garbage
        return web.Response(text=text, headers=headers)

    async def _wait(self, request: web.Request) -> None:
        last = request.query.get("last_etag")
        if last is not None and last != self.etag:
            return
        limit = float(request.query.get("timeout_sec", "0")) or None
        changed = self._changed
        self.waiting += 1
        try:
            async with asyncio.timeout(limit):
                await changed.wait()
        except TimeoutError:
            return
        finally:
            self.waiting -= 1
