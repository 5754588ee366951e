# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The router's HTTP side: takes requests in, and answers each of them once."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from ullage_router import generation
from ullage_router.calls import Answer
from ullage_router.dispatcher import JSON, Dispatcher
from ullage_router.grpc_server import GrpcServer
from ullage_router.intake import Held, Intake, Refused
from ullage_router.load_page import LOAD_PATH, load_page
from ullage_router.metrics import Refusal
from ullage_router.open_inference import error_body
from ullage_router.paths import MODELS, OPENAI
from ullage_router.replicas import Stream
from ullage_router.settings import Address, Addresses, Settings
from ullage_router.submission import Submission

log = logging.getLogger("ullage.router")

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

LARGE_BYTES: Final = 64 * 1024
"""An answer above it does not fit into a socket's buffer, so its client must take it in."""
EVENTS: Final = "text/event-stream"
PAGE_S: Final = 1.0
LINGER_S: Final = 1.0
"""For the rest of a body that was refused."""


class BoundedServer(web.Server):
    """Takes no more connections than it may."""

    def __init__(self, handler: Handler, most: int, idle_s: float) -> None:
        """``idle_s`` is also the time in which a new connection must bring its first request."""
        super().__init__(
            handler,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=idle_s,
            lingering_time=LINGER_S,
        )
        self._most = most

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Close one too many."""
        super().connection_made(handler, transport)
        if len(self.connections) > self._most:
            transport.abort()


class Server:
    """Listens for requests and for scrapes; ``start``, ``drain`` and ``stop`` once each."""

    def __init__(self, settings: Settings, dispatcher: Dispatcher) -> None:
        self._settings = settings
        self._dispatcher = dispatcher
        self._intake = Intake(settings=settings, queue=dispatcher.queue)
        self._submission = Submission(settings, dispatcher)
        self._grpc: GrpcServer | None = None
        self._open = 0
        self._draining = False
        self._page, self._page_at = b"", -math.inf
        self._runners: list[web.ServerRunner] = []
        self.port = 0
        self.metrics_port = 0
        self.grpc_port = 0

    async def start(self, addresses: Addresses) -> None:
        """Listen on all addresses.

        Raises:
            OSError: one cannot be listened on.
        """
        self.port = await self._listen(self._handle, addresses.http)
        self.metrics_port = await self._listen(self._scrape, addresses.metrics)
        if addresses.grpc is not None:
            self._grpc = GrpcServer(
                self._settings, self._dispatcher, self._intake, self._submission
            )
            self.grpc_port = await self._grpc.start(addresses.grpc)

    async def drain(self) -> None:
        """Tell that it is not ready, then take no more connections, until all is answered."""
        self._draining = True
        if self._grpc is not None:
            self._grpc.leave()
        await asyncio.sleep(self._settings.linger_s)
        async with asyncio.TaskGroup() as both:
            both.create_task(self._drain_http())
            if self._grpc is not None:
                both.create_task(self._grpc.stop(self._settings.drain_s))

    async def _drain_http(self) -> None:
        for site in list(self._runners[0].sites):
            await site.stop()
        end = self._dispatcher.now_s() + self._settings.drain_s
        while self._open and self._dispatcher.now_s() < end:
            await asyncio.sleep(0.01)
        if self._open:
            log.warning("%d requests are not answered when the router ends", self._open)

    async def stop(self) -> None:
        """Close all connections."""
        if self._grpc is not None:
            await self._grpc.stop(0)
        for runner in self._runners:
            await runner.cleanup()

    async def _listen(self, handler: Handler, address: Address) -> int:
        limits = self._settings.limits
        server = BoundedServer(handler, limits.connections, limits.idle_s)
        runner = web.ServerRunner(server, shutdown_timeout=LINGER_S)
        self._runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, *address, backlog=1024).start()
        return int(runner.addresses[0][1])

    async def _scrape(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/ready":
            # unlike /v2/health/ready: without replicas, too, it takes requests and holds them
            ready = self._dispatcher.fault is None and not self._draining
            return web.Response(status=200 if ready else 503, text="ready\n" if ready else "no\n")
        if request.path == LOAD_PATH:
            return await load_page(self._dispatcher, request.query)
        if request.path != "/metrics":
            return web.Response(status=404, text="metrics are at /metrics\n")
        now = self._dispatcher.now_s()
        if now - self._page_at >= PAGE_S:
            self._page = generate_latest(self._dispatcher.metrics.registry)
            self._page_at = now
        return web.Response(body=self._page, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        arrived_s = self._dispatcher.now_s()
        self._open += 1
        try:
            try:
                answer = await self._answer(request, arrived_s)
            except Refused as refused:
                return self._refuse(request, refused)
            if answer.error:
                answer = replace(answer, body=_error_body(request, answer.status, answer.error))
            return await self._send(request, answer)
        finally:
            self._open -= 1

    def _refuse(self, request: web.BaseRequest, refused: Refused) -> web.Response:
        self._dispatcher.metrics.refused(refused.reason)
        headers = dict(JSON)
        if refused.reason is Refusal.FULL:
            headers["Retry-After"] = "1"
        body = _error_body(request, refused.status, str(refused))
        response = web.Response(status=refused.status, body=body, headers=headers)
        if refused.reason is not Refusal.MALFORMED:
            response.force_close()
        return response

    async def _send(self, request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
        if answer.stream is not None:
            return await self._send_parts(request, answer, answer.stream)
        response = web.Response(status=answer.status, body=answer.body, headers=answer.headers)
        if self._draining:
            response.force_close()
        if len(answer.body) > LARGE_BYTES:
            try:
                async with asyncio.timeout(self._settings.limits.body_s):
                    await response.prepare(request)
                    await response.write_eof()
            except TimeoutError:
                self._dispatcher.metrics.refused(Refusal.SLOW)
                if request.transport is not None:
                    request.transport.abort()
        return response

    async def _send_parts(
        self, request: web.BaseRequest, answer: Answer, stream: Stream
    ) -> web.StreamResponse:
        """Send parts as they come; an answer that broke off ends without its end."""
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        if self._draining:
            response.force_close()
        try:
            await response.prepare(request)
            while (part := await stream.next()) is not None:
                async with asyncio.timeout(self._settings.limits.body_s):
                    await response.write(part)
            if not stream.broken:
                await response.write_eof()
            else:
                await self._broken_off(request, response, stream)
        except TimeoutError:
            self._dispatcher.metrics.refused(Refusal.SLOW)
            if request.transport is not None:
                request.transport.abort()
        finally:
            stream.leave()
        return response

    async def _broken_off(
        self, request: web.BaseRequest, response: web.StreamResponse, stream: Stream
    ) -> None:
        """End an answer whose replica did not; clients of OpenAI's API are told why.

        The blank lines end a part of an event that was there before.
        """
        if response.content_type == EVENTS and OPENAI.fullmatch(request.path):
            limits = self._settings.limits
            status, text = 502, "the replica failed; the answer ends here"
            if stream.overdue:
                status, text = 504, f"the answer took more than {limits.stream_s:g} s; it ends here"
            event = b"\n\ndata: " + generation.error_body(status, text) + b"\n\n"
            async with asyncio.timeout(limits.body_s):
                await response.write(event)
        if request.transport is not None:
            request.transport.abort()

    async def _answer(self, request: web.BaseRequest, arrived_s: float) -> Answer:
        if not request.raw_path.startswith("/"):
            raise Refused(400, "the target of a request is a path", Refusal.MALFORMED)
        match request.path:
            case "/v2/health/live":
                return Answer(status=200, body=b'{"live":true}', headers=JSON)
            case "/v2/health/ready":
                is_ready = self._submission.takes_requests and not self._draining
                body = b'{"ready":true}' if is_ready else b'{"ready":false}'
                return Answer(status=200 if is_ready else 503, body=body, headers=JSON)
        if request.method in ("GET", "HEAD") and MODELS.fullmatch(request.path):
            return await self._submission.about(request.method, request.raw_path, arrived_s)
        held = Held(queue=self._dispatcher.queue)
        try:
            taken = await self._intake.take(request, arrived_s, held)
            return await self._submission.answer(request.method, taken, arrived_s)
        finally:
            held.give_back()


def _error_body(request: web.BaseRequest, status: int, text: str) -> bytes:
    """What the router itself says, in the form that clients of the path read."""
    if OPENAI.fullmatch(request.path):
        return generation.error_body(status, text)
    return error_body(text)
