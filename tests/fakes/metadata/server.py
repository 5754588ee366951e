# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the three have in common: an HTTP server on loopback that can be made to fail."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class MetadataServer(ABC):
    """An async context manager; ``garbage`` and ``failing`` spoil whatever it would answer."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._host = host
        self.garbage: str | None = None
        """Answered to every question for a notice, with 200."""
        self.failing = 0
        """A status that every question is answered with, 0 = none."""
        self.asked: list[tuple[str, str]] = []
        """(method, path) of every question."""
        self._runner: web.AppRunner | None = None
        self._port = 0

    @abstractmethod
    def routes(self) -> list[web.RouteDef]:
        """What is answered."""

    @property
    def url(self) -> str:
        """Base URL on loopback; the same after a restart."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """Port in use."""
        return self._port

    async def start(self) -> None:
        """Listen, on the port of before if there was one."""
        application = web.Application(middlewares=[self._spoil])
        application.router.add_routes(self.routes())
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.05)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Answer nothing any more."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @web.middleware
    async def _spoil(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.asked.append((request.method, request.path))
        if self.failing:
            return web.Response(status=self.failing)
        return await handler(request)
