# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The command as a process: it serves, and SIGTERM loses no request."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

import aiohttp
import grpc
import pytest

from fakes.batch_server import BatchServer, batch_server, hang
from fakes.grpc_client import grpc_client, typed, values
from fakes.routed import tensor, until
from ullage_router.__main__ import main

COMMAND = (sys.executable, "-m", "ullage_router")
LOCAL = ("--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--connections", "200")


@asynccontextmanager
async def process(
    server: BatchServer, *words: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, list[int]]]:
    started = await asyncio.create_subprocess_exec(
        *COMMAND, *LOCAL, "--backend", server.url, "--objective-ms", "5000", *words,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert started.stdout is not None
    said = (await started.stdout.readline()).split()
    assert said[0] == b"listening"
    try:
        yield started, [int(word) for word in said[1:]]
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


def exit_status(words: list[str]) -> object:
    """Of the command, run in this process."""
    try:
        return main(words)
    except SystemExit as ended:
        return ended.code


async def infer(client: aiohttp.ClientSession, port: int) -> int:
    url = f"http://127.0.0.1:{port}/v2/models/double/infer"
    async with client.post(url, json={"inputs": [tensor([1.0])]}) as answer:
        await answer.read()
        return answer.status


@pytest.mark.slow
async def test_requests_that_wait_at_sigterm_are_answered_and_it_ends_with_0() -> None:
    async with (
        batch_server(seconds=lambda _: 0.1) as server,
        process(server, "--linger-seconds", "0.3") as (router, (port, *_)),
        aiohttp.ClientSession() as client,
    ):
        assert await infer(client, port) == 200
        waiting = [asyncio.create_task(infer(client, port)) for _ in range(8)]
        await until(lambda: len(server.asked) > 1)
        router.send_signal(signal.SIGTERM)
        ready = f"http://127.0.0.1:{port}/v2/health/ready"
        status = 200
        while status == 200:
            async with client.get(ready) as answer:
                status = answer.status
        assert status == 503
        assert await infer(client, port) == 200, "who has not heard of it yet is served"
        assert set(await asyncio.gather(*waiting)) == {200}
        assert await router.wait() == 0


@pytest.mark.slow
async def test_what_is_held_at_sigterm_is_answered_when_a_replica_is_ready() -> None:
    words = ("--linger-seconds", "0", "--hold-seconds", "30", "--objective-ms", "50")
    async with (
        batch_server(ready=False) as server,
        process(server, *words) as (router, (port, metrics)),
        aiohttp.ClientSession() as client,
    ):
        held = asyncio.create_task(infer(client, port))
        async with client.get(f"http://127.0.0.1:{metrics}/load?after=0&wait=30") as answer:
            assert (await answer.json())["waiting"] == 1
        router.send_signal(signal.SIGTERM)
        status = 200
        while status == 200:
            async with client.get(f"http://127.0.0.1:{metrics}/ready") as answer:
                status = answer.status
        assert not held.done()
        server.ready = True
        assert await held == 200
        assert await router.wait() == 0


@pytest.mark.slow
async def test_a_drain_that_does_not_end_is_ended_and_each_request_has_an_answer() -> None:
    words = ("--linger-seconds", "0", "--drain-seconds", "0.3")
    async with (
        batch_server(misdeeds=[hang]) as server,
        process(server, *words) as (router, (port, *_)),
        aiohttp.ClientSession() as client,
    ):
        waiting = [asyncio.create_task(infer(client, port)) for _ in range(3)]
        await until(lambda: len(server.asked) == 1)
        router.send_signal(signal.SIGTERM)
        assert set(await asyncio.gather(*waiting)) == {503}
        assert await router.wait() == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--backend", "ftp://x:1"], "a replica is http://HOST:PORT"),
        (["--backend", "http://x"], "a replica is http://HOST:PORT"),
        (["--backend", "http://x:1,share=200"], "at most 100 percent"),
        (["--backend", "http://x:1,colour=red"], "device=NAME and share=PERCENT"),
        (["--backend", "http://x:1", "--sizes", "4,2"], "sorted"),
        (["--backend", "http://x:1", "--objective-ms", "nan"], "no finite number"),
        (["--backend", "http://x:1", "--objective-ms", "90000"], "above --longest-ms"),
        (["--backend", "http://x:1", "--backend", "http://x:1"], "names a replica twice"),
        (["--backend", "http://x:1", "--backend", "grpc://y:1"], "all replicas speak HTTP"),
        (["--backend", "grpc://x:1", "--probe-path", "/live"], "--probe-path is"),
        (["--backend", "http://x:1", "--listen", "nowhere"], "--listen is not HOST:PORT"),
        (["--backend", "http://x:1", "--grpc-listen", "nowhere"], "--grpc-listen is not"),
        (["--backend", "http://x:1", "--connections", "1e12"], "open files"),
    ],
)
def test_bad_arguments_end_it_with_2_and_the_reason(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*words] if "--objective-ms" in words else [*words, "--objective-ms", "50"]
    assert exit_status(given) == 2
    assert text in capsys.readouterr().err


@pytest.mark.slow
async def test_the_process_ends_with_that_status() -> None:
    words = ("--backend", "ftp://x:1", "--objective-ms", "50")
    ended = await asyncio.create_subprocess_exec(*COMMAND, *words, stderr=asyncio.subprocess.PIPE)
    _, said = await ended.communicate()
    assert ended.returncode == 2
    assert b"a replica is http://HOST:PORT" in said


async def test_it_says_its_version() -> None:
    ended = await asyncio.create_subprocess_exec(
        *COMMAND, "--version", stdout=asyncio.subprocess.PIPE
    )
    said, _ = await ended.communicate()
    assert said.decode().strip() == version("ullage")


@pytest.mark.slow
async def test_calls_over_grpc_that_wait_at_sigterm_are_answered() -> None:
    words = ("--linger-seconds", "1", "--grpc-listen", "127.0.0.1:0")
    async with (
        batch_server(seconds=lambda _: 0.1) as server,
        process(server, *words) as (router, ports),
        grpc_client(ports[2]) as client,
    ):
        await client.infer(typed())
        waiting = [asyncio.create_task(client.infer(typed([float(n)]))) for n in range(8)]
        await until(lambda: len(server.asked) > 1)
        router.send_signal(signal.SIGTERM)
        while (await client.ask("ServerReady")).ready:
            await asyncio.sleep(0.01)
        assert values(await client.infer(typed([9.0]))) == [18.0], "who has not heard of it yet"
        assert [values(one) for one in await asyncio.gather(*waiting)] == [
            [2.0 * n] for n in range(8)
        ]
        assert await router.wait() == 0


@pytest.mark.slow
async def test_a_call_over_grpc_that_the_drain_does_not_wait_for_has_an_error() -> None:
    words = ("--linger-seconds", "0", "--drain-seconds", "0.3", "--grpc-listen", "127.0.0.1:0")
    async with (
        batch_server(misdeeds=[hang]) as server,
        process(server, *words) as (router, ports),
        grpc_client(ports[2]) as client,
    ):
        hanging = asyncio.create_task(client.refused(typed()))
        await until(lambda: len(server.asked) == 1)
        router.send_signal(signal.SIGTERM)
        error = await hanging
        assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        assert await router.wait() == 0
