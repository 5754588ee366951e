# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A TLS port on real sockets: thousands of callers who say nothing cost little and stop no one."""

from __future__ import annotations

import asyncio
import resource
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
import uvloop
from aiohttp import web

from certificates import certificate
from ullage.process import connections as bounds
from ullage.process.listener import TLSListener

NAME = "ullage-webhook.ullage-system.svc"
pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl makes the certificates of this test"
)
OTHERS, CALLER = "127.0.0.2", "127.0.0.3"


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mounted")
    certificate(folder, NAME)
    return folder


@asynccontextmanager
async def served(folder: Path, gate: asyncio.Event | None = None) -> AsyncIterator[TLSListener]:
    async def answer(_: web.Request) -> web.Response:
        if gate is not None:
            await gate.wait()
        return web.Response(text="answered")

    app = web.Application()
    app.add_routes([web.get("/", answer)])
    listener = TLSListener(app, folder, name="test", most_waiting=bounds.MOST_WAITING)
    await listener.start(0, "0.0.0.0")
    try:
        yield listener
    finally:
        await listener.stop()


class Callers:
    """Connections from one address each; closed at the end."""

    def __init__(self, listener: TLSListener, folder: Path) -> None:
        self.port, self.listener = listener.port, listener
        self.trusted = ssl.create_default_context(cafile=str(folder / "tls.crt"))
        self._sockets: list[socket.socket] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Callers:
        return self

    async def __aexit__(self, *_: object) -> None:
        for writer in self._writers:
            writer.transport.abort()
        for one in self._sockets:
            one.close()

    async def plain(self, number: int, sent: bytes = b"", address: str = OTHERS) -> None:
        """Connections without TLS that send this and no more."""
        loop = asyncio.get_running_loop()
        for _ in range(number):
            one = socket.socket()
            one.setblocking(False)
            one.bind((address, 0))
            self._sockets.append(one)
            await loop.sock_connect(one, ("127.0.0.1", self.port))
            if sent:
                with suppress(ConnectionError):
                    await loop.sock_sendall(one, sent)

    async def tls(self, sent: bytes = b"", address: str = OTHERS) -> asyncio.StreamReader:
        """A connection with TLS."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.trusted, server_hostname=NAME, local_addr=(address, 0)
        )
        self._writers.append(writer)
        writer.write(sent)
        return reader

    async def asks(self, address: str = CALLER) -> str:
        """A request on a new connection."""
        connector = aiohttp.TCPConnector(local_addr=(address, 0))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(
                f"https://127.0.0.1:{self.port}/", ssl=self.trusted, server_hostname=NAME
            ) as response,
        ):
            return await response.text()


@asynccontextmanager
async def calling(
    folder: Path, gate: asyncio.Event | None = None
) -> AsyncIterator[tuple[TLSListener, Callers]]:
    async with served(folder, gate) as listener, Callers(listener, folder) as callers:
        yield listener, callers


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@pytest.fixture
def many_files() -> Iterator[None]:
    """So many open files that no other limit is met."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8192
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this process may open {hard} files, and {wanted} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.usefixtures("many_files")
async def test_thousands_who_say_nothing_cost_little_and_a_request_is_answered(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "FIRST_BYTE_S", 600.0)  # none leaves by its silence meanwhile
    monkeypatch.setattr(bounds, "TLS_HANDSHAKE_S", 600.0)
    async with calling(mounted) as (listener, callers):
        assert await callers.asks() == "answered"
        before = resident_mib()
        for _ in range(30):
            await callers.plain(100)
            assert listener.connections.waiting <= bounds.MOST_WAITING
        assert await callers.asks() == "answered"
        assert listener.connections.waiting > bounds.MOST_WAITING / 2
        assert listener.connections.served <= 2
        assert resident_mib() - before < 30, "TLS for all of them would take a gigabyte"


@pytest.mark.parametrize("sent", [b"\x16", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n"])
async def test_those_who_begin_and_stop_have_few_places_and_a_request_is_answered(
    mounted: Path, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_SERVED", 8)
    monkeypatch.setattr(bounds, "CONNECTION_QUIET_S", 0.05)
    async with calling(mounted) as (listener, callers):
        await callers.plain(100, sent)
        assert await callers.asks() == "answered"
        assert listener.connections.served <= 8


async def test_those_who_have_tls_and_ask_nothing_make_room(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_SERVED", 4)
    monkeypatch.setattr(bounds, "CONNECTION_QUIET_S", 0.05)
    async with calling(mounted) as (listener, callers):
        first = await callers.tls(b"GET / HTTP/1.1\r\nHost: w\r\nX-Endless: ")
        for _ in range(3):
            await callers.tls()
        assert listener.connections.served == 4
        assert await callers.asks() == "answered"
        assert await first.read() == b"", "the one that was quiet longest is closed"
        assert listener.connections.served <= 4


async def test_a_request_under_way_is_never_cut_off(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_SERVED", 2)
    monkeypatch.setattr(bounds, "CONNECTION_QUIET_S", 0.0)
    monkeypatch.setattr(bounds, "ROOM_LOOK_S", 0.01)
    gate = asyncio.Event()
    async with calling(mounted, gate) as (listener, callers):
        asked = b"GET / HTTP/1.1\r\nHost: w\r\nConnection: close\r\n\r\n"
        under_way = [await callers.tls(asked) for _ in range(2)]
        waits = asyncio.create_task(callers.asks())
        while not listener.connections.waiting:
            await asyncio.sleep(0.01)
        gate.set()
        for reader in under_way:
            assert (await reader.read()).endswith(b"answered")
        assert await waits == "answered", "it has its turn when one of them is done"


async def test_the_address_with_most_connections_gives_way(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_WAITING", 10)
    async with calling(mounted) as (listener, callers):
        await callers.plain(2, address=CALLER)
        await callers.plain(30)
        while listener.connections.waiting < 10:
            await asyncio.sleep(0.01)
        silent = [one.address for one in listener.connections._silent]
        assert (silent.count(CALLER), silent.count(OTHERS)) == (2, 8)


async def test_without_file_descriptors_the_silent_make_room(mounted: Path) -> None:
    async with calling(mounted) as (listener, callers):
        await callers.plain(30)
        while listener.connections.waiting < 30:
            await asyncio.sleep(0.01)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        spare = [socket.socket() for _ in range(8)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare[-1].fileno() + 1, hard))
        try:
            for one in spare[:2]:  # the caller's own
                one.close()
            assert await callers.asks() == "answered"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for one in spare:
                one.close()
        assert listener.connections.waiting < 30


async def test_who_says_nothing_is_closed_after_a_while(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "FIRST_BYTE_S", 0.05)
    monkeypatch.setattr(bounds, "TLS_HANDSHAKE_S", 0.05)
    async with calling(mounted) as (listener, callers):
        await callers.plain(5)
        await callers.plain(5, b"\x16")
        async with asyncio.timeout(20):
            while listener.connections.waiting or listener.connections.served:
                await asyncio.sleep(0.02)
        assert not listener.connections._counts
        assert not listener.connections._places


async def test_a_burst_of_one_caller_is_answered_in_full(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_SERVED", 8)
    async with calling(mounted) as (_, callers):
        found = await asyncio.gather(*(callers.asks() for _ in range(60)))
        assert found == ["answered"] * 60


async def test_a_port_that_stops_closes_everyone(mounted: Path) -> None:
    async with calling(mounted) as (listener, callers):
        await callers.plain(20)
        await callers.plain(20, b"\x16")
        reader = await callers.tls()
        while listener.connections.served < 21:
            await asyncio.sleep(0.01)
        await listener.stop()
        assert await reader.read() == b""
        assert listener.connections.waiting == 0
        with pytest.raises(OSError, match=r"\d"):
            await callers.plain(1)
        listener.connections.take(socket.socket(), OTHERS, listener._runner.server)  # type: ignore[arg-type]
        assert listener.connections.waiting == 0


@pytest.mark.slow
def test_the_operators_event_loop_does_the_same(mounted: Path) -> None:
    """The operator runs on uvloop, the agents and the webhook on asyncio's own loop."""

    async def asked() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bounds, "MOST_WAITING", 50)
            patch.setattr(bounds, "MOST_SERVED", 4)
            patch.setattr(bounds, "CONNECTION_QUIET_S", 0.05)
            async with calling(mounted) as (listener, callers):
                await callers.plain(100)
                await callers.plain(20, b"\x16\x03\x01")
                await callers.tls()
                assert await callers.asks() == "answered"
                assert listener.connections.waiting <= 50
                assert listener.connections.served <= 4

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asked())
