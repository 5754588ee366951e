# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Serves reviews over TLS, within bounds.

The pod webhook is stateless and calls no other server, so any replica answers, and an untrusted
client learns nothing. Reviews rejected here are admitted by the API server (``failurePolicy:
Ignore``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web

from ullage.api.readers import WireError
from ullage.process.connections import MOST_WAITING
from ullage.process.listener import TLSListener
from ullage.process.times import CERTIFICATE_LOOK_S
from ullage.webhook.review import answer

log = structlog.get_logger("ullage.webhook")

PATH: Final = "/mutate"
MOST_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of one review; the API server accepts objects of at most 3 MiB."""
MOST_HELD_BYTES: Final = 32 * 1024 * 1024
"""Maximum bytes of all reviews in progress: a review of a pod has some kilobytes."""
MOST_REQUESTS: Final = 512
READ_S: Final = 4.0
"""Limit for receiving a review, below that of the API server."""
COME_AGAIN: Final = {"Retry-After": "1"}

Reply = Callable[[bytes], Awaitable[bytes]]
"""Answers a review; raises ``WireError`` for an invalid one."""


async def prepared(body: bytes) -> bytes:
    """The answer to the review of a pod.

    Raises:
        WireError: the body is no review.
    """
    return answer(body)


class WebhookServer:
    """One listener; ``start`` and ``stop`` once each."""

    def __init__(
        self,
        folder: Path,
        *,
        path: str = PATH,
        reply: Reply = prepared,
        look_s: float = CERTIFICATE_LOOK_S,
        read_s: float = READ_S,
    ) -> None:
        """``folder`` has ``tls.crt`` and ``tls.key``; ``path`` is where reviews are posted."""
        self._reply = reply
        self._read_s = read_s
        self._requests = 0
        self._held_bytes = 0
        app = web.Application()
        app.add_routes([web.post(path, self._review), web.get("/healthz", self._health)])
        self._listener = TLSListener(
            app, folder, name="webhook", look_s=look_s, most_waiting=MOST_WAITING
        )

    @property
    def port(self) -> int:
        """The listening port; 0 = none yet."""
        return self._listener.port

    async def start(self, port: int, host: str | None = None) -> None:
        """Listen on ``host`` (``None`` = everywhere), now or once there is a certificate."""
        await self._listener.start(port, host)

    async def stop(self) -> None:
        """Close the port."""
        await self._listener.stop()

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _review(self, request: web.Request) -> web.Response:
        async with self._read(request) as body:
            try:
                answered = await self._reply(body)
            except WireError as error:
                log.warning("no review", error=str(error), peer=request.remote)
                return web.Response(status=400, text=f"{error}\n")
        return web.Response(body=answered, content_type="application/json")

    @asynccontextmanager
    async def _read(self, request: web.Request) -> AsyncIterator[bytes]:
        """The body of a request, within the bounds of one and of all.

        Raises:
            HTTPException: a bound is reached, or the body arrives too slowly.
        """
        if self._requests >= MOST_REQUESTS:
            raise web.HTTPServiceUnavailable(text="too many reviews at once\n", headers=COME_AGAIN)
        body = bytearray()
        self._requests += 1
        try:
            async with asyncio.timeout(self._read_s):
                async for chunk in request.content.iter_any():
                    if len(body) + len(chunk) > MOST_BYTES:
                        raise web.HTTPRequestEntityTooLarge(
                            max_size=MOST_BYTES, actual_size=len(body) + len(chunk)
                        )
                    if self._held_bytes + len(chunk) > MOST_HELD_BYTES:
                        raise web.HTTPServiceUnavailable(
                            text="too many large reviews at once\n", headers=COME_AGAIN
                        )
                    self._held_bytes += len(chunk)
                    body += chunk
            yield bytes(body)
        except TimeoutError:
            raise web.HTTPRequestTimeout(text="the review came too slowly\n") from None
        finally:
            self._requests -= 1
            self._held_bytes -= len(body)
