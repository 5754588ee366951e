# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A port that serves an application over TLS, with the certificate of a mounted Secret.

The certificate is read again when it changes. As long as there is none that can be used the port is
closed, and everything else of the process works.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web

log = structlog.get_logger("ullage.tls")

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
LOOK_S: Final = 10.0
"""How often the files are compared; kubelet takes a minute to bring a new Secret."""
HANDSHAKE_S: Final = 10.0
KEEPALIVE_S: Final = 60.0


class TLSListener:
    """One listener; ``start`` and ``stop`` once each."""

    def __init__(
        self, app: web.Application, folder: Path, *, name: str, look_s: float = LOOK_S
    ) -> None:
        """``folder`` holds ``tls.crt`` and ``tls.key``; ``name`` is for the log."""
        self._app = app
        self._folder = folder
        self._name = name
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
        """Close the port; requests under way are answered."""
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
                log.error(f"{self._name}: the certificate cannot be used", error=problem)
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
        log.info(f"{self._name}: certificate loaded", folder=str(self._folder))

    async def _listen(self, host: str | None, port: int) -> None:
        if self._runner is None:
            # bodies are taken as they come: what unpacks to gigabytes is never unpacked
            self._runner = web.AppRunner(
                self._app, access_log=None, keepalive_timeout=KEEPALIVE_S, auto_decompress=False
            )
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
