# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The router's HTTP server: accepts requests, and answers each of them once.

``GET /load`` on the metrics port returns the load, for the autoscaler of the replicas; with
``?after=N&wait=S`` it answers as soon as the number of arrived requests is not N, at the latest
after S seconds, so that a service without replicas wakes at its first request.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from ullage_router import generation
from ullage_router.answers import JSON
from ullage_router.calls import ClientAnswer
from ullage_router.dispatcher import Dispatcher
from ullage_router.grpc_server import GrpcServer
from ullage_router.intake import HeldBytes, Intake, RequestRefused
from ullage_router.metrics import IntakeRefusal
from ullage_router.open_inference import error_body
from ullage_router.paths import MODELS, OPENAI
from ullage_router.replicas import AnswerStream
from ullage_router.settings import Address, Addresses, RouterSettings
from ullage_router.submission import CallSubmission
from ullage_router.times import LINGER_S, LOAD_WAIT_MOST_S, METRICS_PAGE_AGE_S

LOAD_PATH: Final = "/load"
MOST_DIGITS: Final = 18


async def load_page(dispatcher: Dispatcher, query: Mapping[str, str]) -> web.Response:
    """The page, or 400 for an invalid query."""
    after, wait_s = _whole(query, "after", 10**MOST_DIGITS), _whole(query, "wait", LOAD_WAIT_MOST_S)
    if after is None or wait_s is None:
        text = f"after and wait are whole numbers, wait at most {LOAD_WAIT_MOST_S}"
        return web.Response(status=400, body=error_body(text), headers=JSON)
    if wait_s:
        await dispatcher.arrivals.beyond(after, wait_s)
    load = {
        "arrived": dispatcher.arrivals.total,
        "requestsMilli": round(1e3 * dispatcher.arrivals.per_s(dispatcher.now_s())),
        "waiting": len(dispatcher.queue),
        "idleSeconds": int(dispatcher.idle_s),
        # Rounded up: 0 means that no request has waited for a replica yet.
        "wakeMillis": math.ceil(1e3 * dispatcher.wake_s),
    }
    return web.Response(body=json.dumps(load).encode(), headers=JSON)


def _whole(query: Mapping[str, str], name: str, most: int) -> int | None:
    text = query.get(name, "0")
    if not (text.isascii() and text.isdigit()) or len(text) > MOST_DIGITS or int(text) > most:
        return None
    return int(text)


log = logging.getLogger("ullage.router")

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

LARGE_BYTES: Final = 64 * 1024
"""A larger answer does not fit into a socket's buffer, so its client must read it."""
EVENTS: Final = "text/event-stream"


class BoundedServer(web.Server):
    """A server with a limit on connections."""

    def __init__(self, handler: Handler, most: int, idle_s: float) -> None:
        """``idle_s`` is also the time for the first request of a new connection."""
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
        """Close a connection above the limit."""
        super().connection_made(handler, transport)
        if len(self.connections) > self._most:
            transport.abort()


class RouterServer:
    """Listens for requests and for scrapes; ``start``, ``drain`` and ``stop`` once each."""

    def __init__(self, settings: RouterSettings, dispatcher: Dispatcher) -> None:
        self._settings = settings
        self._dispatcher = dispatcher
        self._intake = Intake(settings=settings, queue=dispatcher.queue)
        self._submission = CallSubmission(settings, dispatcher)
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
        """Report not ready, then stop accepting connections, until all is answered."""
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
            # unlike /v2/health/ready: without replicas it also accepts requests and holds them
            ready = self._dispatcher.fault is None and not self._draining
            return web.Response(status=200 if ready else 503, text="ready\n" if ready else "no\n")
        if request.path == LOAD_PATH:
            return await load_page(self._dispatcher, request.query)
        if request.path != "/metrics":
            return web.Response(status=404, text="metrics are at /metrics\n")
        now = self._dispatcher.now_s()
        if now - self._page_at >= METRICS_PAGE_AGE_S:
            self._page = generate_latest(self._dispatcher.metrics.registry)
            self._page_at = now
        return web.Response(body=self._page, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        arrived_s = self._dispatcher.now_s()
        self._open += 1
        try:
            try:
                answer = await self._answer(request, arrived_s)
            except RequestRefused as refused:
                return self._refuse(request, refused)
            if answer.error:
                answer = replace(answer, body=_error_body(request, answer.status, answer.error))
            return await self._send(request, answer)
        finally:
            self._open -= 1

    def _refuse(self, request: web.BaseRequest, refused: RequestRefused) -> web.Response:
        self._dispatcher.metrics.refused(refused.reason)
        headers = dict(JSON)
        if refused.reason is IntakeRefusal.FULL:
            headers["Retry-After"] = "1"
        body = _error_body(request, refused.status, str(refused))
        response = web.Response(status=refused.status, body=body, headers=headers)
        if refused.reason is not IntakeRefusal.MALFORMED:
            response.force_close()
        return response

    async def _send(self, request: web.BaseRequest, answer: ClientAnswer) -> web.StreamResponse:
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
                self._dispatcher.metrics.refused(IntakeRefusal.SLOW)
                if request.transport is not None:
                    request.transport.abort()
        return response

    async def _send_parts(
        self, request: web.BaseRequest, answer: ClientAnswer, stream: AnswerStream
    ) -> web.StreamResponse:
        """Send parts on arrival; a broken answer has no end marker."""
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
            self._dispatcher.metrics.refused(IntakeRefusal.SLOW)
            if request.transport is not None:
                request.transport.abort()
        finally:
            stream.leave()
        return response

    async def _broken_off(
        self, request: web.BaseRequest, response: web.StreamResponse, stream: AnswerStream
    ) -> None:
        """End an answer broken by its replica; clients of OpenAI's API get the reason.

        The blank lines end an incomplete event.
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

    async def _answer(self, request: web.BaseRequest, arrived_s: float) -> ClientAnswer:
        if not request.raw_path.startswith("/"):
            raise RequestRefused(400, "the target of a request is a path", IntakeRefusal.MALFORMED)
        match request.path:
            case "/v2/health/live":
                return ClientAnswer(status=200, body=b'{"live":true}', headers=JSON)
            case "/v2/health/ready":
                is_ready = self._submission.takes_requests and not self._draining
                body = b'{"ready":true}' if is_ready else b'{"ready":false}'
                return ClientAnswer(status=200 if is_ready else 503, body=body, headers=JSON)
        if request.method in ("GET", "HEAD") and MODELS.fullmatch(request.path):
            return await self._submission.about(request.method, request.raw_path, arrived_s)
        held = HeldBytes(queue=self._dispatcher.queue)
        try:
            taken = await self._intake.take(request, arrived_s, held)
            return await self._submission.answer(request.method, taken, arrived_s)
        finally:
            held.give_back()


def _error_body(request: web.BaseRequest, status: int, text: str) -> bytes:
    """An error of the router itself, in the format of the path's clients."""
    if OPENAI.fullmatch(request.path):
        return generation.error_body(status, text)
    return error_body(text)
