# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A generative server over real sockets whose every token waits until it is let go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from ullage_router.settings import ReplicaAddress

COMPLETIONS = "/v1/completions"


@dataclass(slots=True, kw_only=True)
class GenerativeServer:
    """Answers with ``max_tokens`` tokens; ``page`` is its page of metrics."""

    go: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    page: str = ""
    dies_after: int | None = None
    """Tokens after which it ends the connection."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    running: int = 0
    left: int = 0
    """Clients that went before the end."""
    port: int = 0

    @property
    def backend(self) -> ReplicaAddress:
        return ReplicaAddress(url=f"http://127.0.0.1:{self.port}")

    def let(self, tokens: int) -> None:
        for _ in range(tokens):
            self.go.release()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/metrics":
            return web.Response(text=self.page, status=200 if self.page else 404)
        if request.path != COMPLETIONS:
            return web.Response()
        body = await request.json()
        self.asked.append(body)
        self.running += 1
        try:
            made = self._stream if body.get("stream") else self._whole
            return await made(request, body["max_tokens"])
        except (ConnectionError, asyncio.CancelledError):
            self.left += 1
            raise
        finally:
            self.running -= 1

    async def _token(self, request: web.BaseRequest, number: int) -> None:
        await self.go.acquire()
        if number == self.dies_after:
            assert request.transport is not None
            request.transport.abort()
            raise ConnectionError

    async def _stream(self, request: web.BaseRequest, tokens: int) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        for number in range(tokens):
            await self._token(request, number)
            if not number:
                await answer.prepare(request)
            last = "length" if number == tokens - 1 else None
            chunk = {"choices": [{"text": "x", "finish_reason": last}]}
            await answer.write(f"data: {json.dumps(chunk)}\n\n".encode())
        await answer.write(b"data: [DONE]\n\n")
        await answer.write_eof()
        return answer

    async def _whole(self, request: web.BaseRequest, tokens: int) -> web.StreamResponse:
        for number in range(tokens):
            await self._token(request, number)
        return web.json_response(
            {
                "choices": [{"text": "x" * tokens, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 3, "completion_tokens": tokens},
            }
        )


@asynccontextmanager
async def generative_server(**given: Any) -> AsyncIterator[GenerativeServer]:
    server = GenerativeServer(**given)
    # what is packed is refused by the server as what it is, not by aiohttp in plain text
    low = web.Server(
        server.handle, access_log=None, handler_cancellation=True, auto_decompress=False
    )
    runner = web.ServerRunner(low, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()
