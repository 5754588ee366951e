# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Triton's and OpenAI's own clients, and KServe's own server, at the newest and an older version.

Each has an environment of its own, which is kept for later runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from fakes.generative_server import generative_server
from fakes.routed import Routed, routed, until
from fakes.triton_server import triton_server
from ullage_router.settings import DEADLINE_HEADER, ClientLimits, GenerativeSettings, ReplicaAddress

PROGRAMS: Final = Path(__file__).parent / "programs"
KEPT: Final = Path(__file__).parents[2] / "build" / "neighbours"
CLIENTS: Final = {
    "newest": ("openai==3.57.0", "tritonclient[http]==2.73.0"),
    "older": ("openai==1.109.1", "tritonclient[http]==2.41.1"),
}
SERVERS: Final = {"newest": ("kserve==0.21.0",), "older": ("kserve==0.15.2",)}
VERSIONS: Final = ("newest", "older")


def environment(*packages: str) -> Path:
    """The Python of an environment with these packages."""
    where = KEPT / "-".join(packages).replace("[", "-").replace("]", "").replace("==", "-")
    python, done = where / "bin" / "python", where / "done"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(where)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *packages]
        subprocess.run(install, check=True)
        done.touch()
    return python


async def run(python: Path, program: str, *words: str) -> str:
    """What a program prints."""
    process = await asyncio.create_subprocess_exec(
        str(python), str(PROGRAMS / program), *words, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode()


@pytest.mark.parametrize("version", VERSIONS)
async def test_tritonclient_shares_batches_whatever_it_asks_for(version: str) -> None:
    count = 5 * 18 * 8
    python = environment(*CLIENTS[version])
    async with triton_server() as server, routed(server) as router:
        address = f"127.0.0.1:{router.server.port}"
        assert await run(python, "ask_by_tritonclient.py", address, str(count)) == f"{count}\n"
        assert sum(server.sizes) == count, "none ran twice"
        assert await router.metric("ullage_requests_retried_total") == 0


async def by_openai(version: str, router: Routed, times: int = 0) -> dict[str, Any]:
    python = environment(*CLIENTS[version])
    seen = json.loads(await run(python, "ask_by_openai.py", f"{router.url}/v1", str(times)))
    assert isinstance(seen, dict)
    return seen


@pytest.mark.parametrize("version", VERSIONS)
async def test_openai_s_client_shows_why_it_is_refused(version: str) -> None:
    async with routed(ReplicaAddress(url="http://127.0.0.1:9"), up=0, objective_s=0.05) as router:
        router.dispatcher.wake_s = 300.0
        seen = await by_openai(version, router)
        assert "no replica is ready; it may take 300 s" in seen["shown"]
        assert seen["kind"] == "InternalServerError"
        assert (seen["type"], seen["code"]) == ("server_error", "service_unavailable")
        assert seen["param"] is None


@pytest.mark.parametrize("version", VERSIONS)
async def test_openai_s_client_comes_again(version: str) -> None:
    """It gives up at once where it is told to wait for too long."""
    async with routed(ReplicaAddress(url="http://127.0.0.1:9"), up=0, objective_s=0.05) as router:
        await by_openai(version, router, times=1)
        assert router.dispatcher.arrivals.total == 2


@pytest.mark.parametrize("version", VERSIONS)
async def test_openai_s_client_shows_why_a_stream_breaks_off(version: str) -> None:
    async with (
        generative_server(dies_after=2) as server,
        routed(server.backend, generative=GenerativeSettings()) as router,
    ):
        server.let(3)
        seen = await by_openai(version, router)
        assert seen["tokens"] == 2
        assert "the replica failed; the answer ends here" in seen["shown"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_openai_s_client_shows_that_a_stream_took_too_long(version: str) -> None:
    async with (
        generative_server() as server,
        routed(
            server.backend, generative=GenerativeSettings(), limits=ClientLimits(stream_s=0.2)
        ) as router,
    ):
        server.let(1)  # what comes first is passed on, however late
        seen = await by_openai(version, router)
        assert seen["tokens"] == 1
        assert "the answer took more than 0.2 s; it ends here" in seen["shown"]
        await until(lambda: router.dispatcher.idle and server.running == 0)


@contextmanager
def kserve(version: str, file: Path) -> Iterator[ReplicaAddress]:
    """KServe's server, and what it printed when it ended in the file beside."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [environment(*SERVERS[version]), PROGRAMS / "kserve_server.py", port, file]
    with file.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            list(map(str, words)), stdout=log, stderr=log, env=dict(os.environ)
        )
        try:
            yield ReplicaAddress(url=f"http://127.0.0.1:{port}")
        finally:
            process.kill()
            process.wait()


@asynccontextmanager
async def unready(router: Routed) -> AsyncIterator[None]:
    """Once KServe says that it is ready and its model is not."""
    async with asyncio.timeout(120):
        while True:
            async with router.client.get(f"{router.url}/v2/models/same/ready") as answer:
                text = await answer.text()
                if answer.status == 503 and "Model with name same is not ready" in text:
                    break
            await asyncio.sleep(0.1)
    assert router.dispatcher.ready, "by the server's own word"
    yield


def ran(file: Path) -> int:
    """Rows that the model saw."""
    lines = file.with_suffix(".log").read_text(errors="replace").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("ran "))


@pytest.mark.parametrize("version", VERSIONS)
async def test_requests_are_held_while_a_model_of_kserve_is_not_ready(
    version: str, tmp_path: Path
) -> None:
    file = tmp_path / "ready"
    with kserve(version, file) as backend:
        async with routed(backend, up=0, hold_s=120.0) as router, unready(router):
            asking = [asyncio.create_task(ask(router))]
            await until(
                lambda: bool(router.dispatcher.pool.replicas[0].unready_models), within_s=60.0
            )
            asking += [asyncio.create_task(ask(router, deadline_ms=500)) for _ in range(4)]
            await until(lambda: len(router.dispatcher.queue) == 5)
            assert await router.metric("ullage_requests_held_total") == 5
            file.touch()
            assert await asyncio.gather(*asking) == [200] * 5
            assert ran(file) == 5


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_good_replica_beside_kserve_runs_all_and_each_once(
    version: str, tmp_path: Path
) -> None:
    file = tmp_path / "ready"
    with kserve(version, file) as backend:
        async with (
            triton_server(model_ready=False) as good,
            routed(backend, ReplicaAddress(url=good.url), up=1, hold_s=120.0) as router,
        ):
            await until(
                lambda: all(one.up for one in router.dispatcher.pool.replicas), within_s=120.0
            )
            good.model_ready = True
            assert await asyncio.gather(*(ask(router) for _ in range(120))) == [200] * 120
            assert sum(good.sizes) == 120
            assert ran(file) == 0
            assert await router.metric("ullage_requests_retried_total") == 0


async def ask(router: Routed, deadline_ms: int = 60_000) -> int:
    body = {
        "inputs": [
            {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1.0, 2.0, 3.0, 4.0]}
        ],
        "parameters": {"binary_data_output": True},
    }
    url, headers = f"{router.url}/v2/models/same/infer", {DEADLINE_HEADER: str(deadline_ms)}
    async with router.client.post(url, json=body, headers=headers) as answer:
        await answer.read()
        return answer.status
