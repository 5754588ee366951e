# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``/metrics`` over TLS, for callers that the API server knows and allows.

The certificate is that of a mounted Secret and is read again when it changes. As long as there is
none that can be used the port is closed, and everything else of the process works.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from ullage.process.token_access import TokenAccess

log = structlog.get_logger("ullage.metrics")

PATH: Final = "/metrics"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
LOOK_S: Final = 10.0
"""How often the files are compared; kubelet takes a minute to bring a new Secret."""
HANDSHAKE_S: Final = 10.0
SEND_S: Final = 30.0
"""A reader who takes longer for a page is cut off."""


class SecureMetrics:
    """One listener; ``start`` and ``stop`` once each."""

    def __init__(
        self,
        page: Callable[[], bytes],
        access: TokenAccess,
        folder: Path,
        *,
        look_s: float = LOOK_S,
    ) -> None:
        """``page`` makes the metrics; ``folder`` holds ``tls.crt`` and ``tls.key``."""
        self._page = page
        self._access = access
        self._folder = folder
        self._look_s = look_s
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._loaded: tuple[bytes, bytes] = (b"", b"")
        self._problem = ""
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._keeping: asyncio.Task[None] | None = None
        self.port = 0
        """The port that is listened on; 0 = none yet."""

    async def start(self, port: int, host: str | None = None) -> None:
        """Listen on ``host`` (``None`` = everywhere), now or once there is a certificate."""
        await self._look(host, port)
        self._keeping = asyncio.create_task(self._keep(host, port))

    async def stop(self) -> None:
        """Close the port."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _keep(self, host: str | None, port: int) -> None:
        while True:
            await asyncio.sleep(self._look_s)
            await self._look(host, port)

    async def _look(self, host: str | None, port: int) -> None:
        """Take a new certificate; the one in use stays where the new one cannot be used."""
        try:
            await asyncio.to_thread(self._load)
            if self._loaded != (b"", b"") and self._server is None:
                await self._listen(host, port)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            problem = f"{self._folder}: {error}"
            if problem != self._problem:
                log.error("metrics over TLS: the certificate cannot be used", error=problem)
            self._problem = problem
        else:
            self._problem = ""

    def _load(self) -> None:
        certificate, key = self._folder / CERTIFICATE, self._folder / KEY
        found = certificate.read_bytes(), key.read_bytes()
        if found == self._loaded:
            return
        # a pair that does not fit would break the context in use: it is tried on another one
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        self._context.load_cert_chain(certificate, key)
        self._loaded = found
        log.info("metrics over TLS: certificate loaded", folder=str(self._folder))

    async def _listen(self, host: str | None, port: int) -> None:
        app = web.Application()
        app.add_routes([web.get(PATH, self._answer)])
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=2 * SEND_S)
        await self._runner.setup()
        assert self._runner.server is not None
        self._server = await asyncio.get_running_loop().create_server(
            self._runner.server,
            host,
            port,
            ssl=self._context,
            ssl_handshake_timeout=HANDSHAKE_S,
            ssl_shutdown_timeout=1.0,
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        header = request.headers.get("Authorization", "")
        verdict = await self._access.judge(header, PATH)
        if verdict.status != 200:
            challenge = {"WWW-Authenticate": "Bearer"} if verdict.status == 401 else {}
            return web.Response(status=verdict.status, text=verdict.text, headers=challenge)
        return await _sent(request, self._page())


async def _sent(request: web.Request, page: bytes) -> web.StreamResponse:
    response = web.Response(body=page, headers={"Content-Type": CONTENT_TYPE_LATEST})
    try:
        async with asyncio.timeout(SEND_S):
            await response.prepare(request)
            await response.write_eof()
    except TimeoutError:
        raise ConnectionResetError("the reader of the metrics was too slow") from None
    return response
