# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Probes, metrics, snapshots and the web page answer beside callers who connect and say nothing."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from prometheus_client import CollectorRegistry

from builders import NOW, a_node, a_snapshot
from ullage.app.health import HealthView
from ullage.app.http import Endpoints
from ullage.app.web_page import WebPage
from ullage.process import connections as bounds
from ullage.scheduling.model.plan import DecideSettings
from ullage_node.settings import AgentHttpSettings
from ullage_node.web import WebServer

SILENT = 500
WAITING = 200
PATIENCE_S = 120.0
Served = Callable[[], AbstractAsyncContextManager[str]]


def healthy() -> HealthView:
    return HealthView(
        loop_lag_s=0.0, is_leader=True, decision_age_s=0.0, cycle_age_s=0.0, max_age_s=90.0
    )


@asynccontextmanager
async def operator(path: str, *, debug: bool = False) -> AsyncIterator[str]:
    inputs = (a_snapshot(a_node()), NOW, DecideSettings(epoch=7))
    endpoints = Endpoints(healthy, CollectorRegistry(), lambda: inputs)
    await endpoints.start(host="127.0.0.1", port=0, debug_port=0)
    port = endpoints.debug_port if debug else endpoints.port
    try:
        yield f"http://127.0.0.1:{port}{path}"
    finally:
        await endpoints.stop()


@asynccontextmanager
async def web_page() -> AsyncIterator[str]:
    page = WebPage(lambda: a_snapshot(a_node()), "EUR")
    await page.start(0, "127.0.0.1")
    try:
        yield f"http://127.0.0.1:{page.port}/"
    finally:
        await page.stop()


@asynccontextmanager
async def agent() -> AsyncIterator[str]:
    settings = AgentHttpSettings(
        host="127.0.0.1", port=0, metrics_port=0, certificate_dir=Path("certificates")
    )

    async def review(path: str, body: object) -> None:
        raise AssertionError((path, body))

    server = WebServer(settings, CollectorRegistry(), lambda: "", lambda: "", review)
    await server.start()
    try:
        yield f"http://127.0.0.1:{server.port}/healthz"
    finally:
        await server.stop()


@pytest.fixture
def many_files() -> Iterator[None]:
    """Both ends of every connection are files of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: w\r\nX-Endless: "])
@pytest.mark.parametrize(
    "served",
    [
        pytest.param(lambda: operator("/healthz"), id="operator"),
        pytest.param(lambda: operator("/debug/snapshot", debug=True), id="snapshot"),
        pytest.param(web_page, id="web page"),
        pytest.param(agent, id="agent"),
    ],
)
async def test_a_request_is_answered_beside_silent_connections(
    served: Served, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "CONNECTION_QUIET_S", 0.01)
    monkeypatch.setattr(bounds, "MOST_WAITING", WAITING)
    loop = asyncio.get_running_loop()
    async with served() as url, asyncio.timeout(PATIENCE_S):
        port = int(url.split(":")[2].partition("/")[0])
        silent: list[socket.socket] = []
        try:
            for _ in range(SILENT):
                silent.append(socket.socket())
                silent[-1].setblocking(False)
                with suppress(ConnectionError):  # those before it may have made room
                    await loop.sock_connect(silent[-1], ("127.0.0.1", port))
                    await loop.sock_sendall(silent[-1], sent)
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                assert answer.status == 200
                await answer.read()
            assert len(os.listdir("/proc/self/fd")) < 2 * SILENT, "the process keeps files free"
        finally:
            for one in silent:
                one.close()


async def test_a_probe_that_is_gone_before_its_answer_is_no_error() -> None:
    class Gone(web.Response):
        async def prepare(self, request: web.BaseRequest) -> None:
            raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    response = Gone(text="ok")
    assert await bounds.sent(make_mocked_request("GET", "/healthz"), response) is response
