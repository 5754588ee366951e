# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A port that serves an application, as plain HTTP or over TLS.

A client costs a bounded amount of memory and cannot block others (``connections``). With TLS the
certificate is that of a mounted Secret, and is read again when it changes; without a usable one the
port is closed, and the rest of the process works.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web

from ullage.process.connections import FEW_WAITING, RECEIVE_BYTES, ServerConnections
from ullage.process.threads import in_thread
from ullage.process.times import ACCEPT_RETRY_S, CERTIFICATE_LOOK_S, KEEPALIVE_S

log = structlog.get_logger("ullage.listener")

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
BACKLOG: Final = 512
"""Connections that the kernel holds until they are accepted."""


class HttpListener:
    """One port of plain HTTP; ``start`` and ``stop`` once each."""

    def __init__(
        self,
        app: web.Application,
        *,
        name: str,
        context: ssl.SSLContext | None = None,
        most_waiting: int = FEW_WAITING,
    ) -> None:
        """``name`` is for the log, ``context`` makes it a port of TLS."""
        self._name = name
        self.connections = ServerConnections(context, most_waiting)
        app.middlewares.append(self.connections.middleware())
        # bodies are read as they are: compressed ones are never unpacked
        self._runner = web.AppRunner(
            app, access_log=None, keepalive_timeout=KEEPALIVE_S, auto_decompress=False
        )
        self._socket: socket.socket | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.port = 0
        """The listening port; 0 = none yet."""

    async def start(self, port: int, host: str | None = None) -> None:
        """Listen on ``host`` (``None`` = everywhere).

        Raises:
            OSError: the address cannot be had.
        """
        await self._runner.setup()
        self._listen(host, port)

    async def stop(self) -> None:
        """Close the port; requests in progress are answered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
        await self.connections.refuse()
        await self._runner.cleanup()

    def _listen(self, host: str | None, port: int) -> None:
        handlers = self._runner.server
        assert handlers is not None
        self._socket = _bound(host, port)
        self.port = self._socket.getsockname()[1]
        self._tasks.append(asyncio.create_task(self._accept(self._socket, handlers)))

    async def _accept(self, listening: socket.socket, handlers: web.Server) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:
                log.warning(f"{self._name}: a connection was not accepted", error=str(error))
                self.connections.make_room()
                await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            self.connections.take(accepted, str(address[0]), handlers)


class TLSListener(HttpListener):
    """One port over TLS."""

    def __init__(
        self,
        app: web.Application,
        folder: Path,
        *,
        name: str,
        look_s: float = CERTIFICATE_LOOK_S,
        most_waiting: int = FEW_WAITING,
    ) -> None:
        """``folder`` holds ``tls.crt`` and ``tls.key``; ``name`` is for the log."""
        self._folder = folder
        self._look_s = look_s
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._loaded: tuple[bytes, bytes] = (b"", b"")
        self._problem = ""
        super().__init__(app, name=name, context=self._context, most_waiting=most_waiting)

    async def start(self, port: int, host: str | None = None) -> None:
        """Listen on ``host`` (``None`` = everywhere), now or once there is a certificate."""
        await self._runner.setup()
        await self._look(host, port)
        self._tasks.append(asyncio.create_task(self._keep(host, port)))

    async def _keep(self, host: str | None, port: int) -> None:
        while True:
            await asyncio.sleep(self._look_s)
            await self._look(host, port)

    async def _look(self, host: str | None, port: int) -> None:
        """Load a new certificate; the one in use stays if the new one is unusable."""
        try:
            await in_thread(self._load)
            if self._loaded != (b"", b"") and self._socket is None:
                self._listen(host, port)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            problem = f"{self._folder}: {error}"
            if problem != self._problem:
                log.error(f"{self._name}: the certificate cannot be used", error=problem)
            self._problem = problem
        else:
            self._problem = ""

    def _load(self) -> None:
        certificate, key = self._folder / CERTIFICATE, self._folder / KEY
        pair = certificate.read_bytes(), key.read_bytes()
        if pair == self._loaded:
            return
        # a mismatched pair would break the context in use: it is tried on another one
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        self._context.load_cert_chain(certificate, key)
        self._loaded = pair
        log.info(f"{self._name}: certificate loaded", folder=str(self._folder))


def _bound(host: str | None, port: int) -> socket.socket:
    """A listening socket; for all addresses on both IPv4 and IPv6 where the host has both.

    Raises:
        OSError: the address cannot be had.
    """
    if host is not None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    elif socket.has_dualstack_ipv6():
        listening = socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
        )
    else:
        listening = socket.create_server(("", port), backlog=BACKLOG)
    listening.setblocking(False)
    # accepted sockets inherit it: the kernel buffers no more for unserved connections
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    return listening
