# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``/metrics`` over TLS, for clients that the API server authenticates and authorises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from ullage.process.connections import sent
from ullage.process.listener import TLSListener
from ullage.process.times import CERTIFICATE_LOOK_S
from ullage.process.token_access import TokenAccess

PATH: Final = "/metrics"


class SecureMetrics:
    """One listener; ``start`` and ``stop`` once each."""

    def __init__(
        self,
        page: Callable[[], bytes],
        access: TokenAccess,
        folder: Path,
        *,
        look_s: float = CERTIFICATE_LOOK_S,
    ) -> None:
        """``page`` renders the metrics; ``folder`` has ``tls.crt`` and ``tls.key``."""
        self._page = page
        self._access = access
        app = web.Application()
        app.add_routes([web.get(PATH, self._answer)])
        self._listener = TLSListener(app, folder, name="metrics over TLS", look_s=look_s)

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

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        header = request.headers.get("Authorization", "")
        verdict = await self._access.judge(header, PATH)
        if verdict.status != 200:
            challenge = {"WWW-Authenticate": "Bearer"} if verdict.status == 401 else {}
            return web.Response(status=verdict.status, text=verdict.text, headers=challenge)
        headers = {"Content-Type": CONTENT_TYPE_LATEST}
        return await sent(request, web.Response(body=self._page(), headers=headers))
