# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A router over real sockets in the test's own process, and its client."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

from fakes.batch_server import BatchServer
from fakes.grpc_batch_server import GrpcBatchServer
from fakes.triton_server import TritonServer
from ullage.engines.batching.chooser import BatchRules
from ullage_router.dispatcher import Dispatcher
from ullage_router.server import RouterServer
from ullage_router.settings import Addresses, ClientLimits, ReplicaAddress, RouterSettings

LOOPBACK = "127.0.0.1"


@dataclass(slots=True, kw_only=True)
class Routed:
    """A router that runs."""

    dispatcher: Dispatcher
    server: RouterServer
    client: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server.port}"

    async def infer(
        self, rows: Sequence[float] = (1.0,), *, name: str = "double", **given: Any
    ) -> tuple[int, dict[str, Any]]:
        """Status and body of an answer; one element a row."""
        headers = given.pop("headers", {})
        body = {"inputs": [tensor(rows)], **given}
        async with self.client.post(
            f"{self.url}/v2/models/{name}/infer", json=body, headers=headers
        ) as answer:
            return answer.status, await answer.json()

    async def taught(self, *seconds: float) -> None:
        """Let each replica know the time of single requests, as if it had run many."""
        times = {id(one.times): one.times for one in self.dispatcher.pool.replicas}.values()
        for known, took in zip(times, seconds, strict=True):
            for _ in range(60):
                known.add(["default/1"], took)
            await known.learn(())
            await until(lambda known=known: known.single_s > 0)

    async def metric(self, name: str, **labels: str) -> float:
        """A sample of the page of metrics; 0 where it has none."""
        self.server._page_at = float("-inf")
        url = f"http://{LOOPBACK}:{self.server.metrics_port}/metrics"
        async with self.client.get(url) as answer:
            page = await answer.text()
        for line in page.splitlines():
            found = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if found and found[1] == name:
                has = dict(re.findall(r'(\w+)="([^"]*)"', found[2] or ""))
                if labels.items() <= has.items():
                    return float(found[3])
        return 0.0


def tensor(rows: Sequence[float], **changes: Any) -> dict[str, Any]:
    return {
        "name": "x",
        "datatype": "FP64",
        "shape": [len(rows), 1],
        "data": list(rows),
        **changes,
    }


async def until(true: Callable[[], bool], within_s: float = 30.0) -> None:
    """Wait for something that must come true."""
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, "it did not come true"
        await asyncio.sleep(0.005)


@asynccontextmanager
async def routed(
    *backends: BatchServer | GrpcBatchServer | TritonServer | ReplicaAddress,
    limits: ClientLimits | None = None,
    rules: BatchRules | None = None,
    up: int | None = None,
    over_grpc: bool = False,
    **given: Any,
) -> AsyncIterator[Routed]:
    """A router before these servers, once as many of them as ``up`` says are ready."""
    settings = RouterSettings(
        backends=tuple(
            one if isinstance(one, ReplicaAddress) else ReplicaAddress(url=one.url)
            for one in backends
        ),
        objective_s=given.pop("objective_s", 60.0),
        probe_s=0.02,
        linger_s=0.0,
        rules=rules or BatchRules(),
        limits=limits or ClientLimits(),
    )
    settings = replace(settings, **given)
    dispatcher = Dispatcher(settings)
    server = RouterServer(settings, dispatcher)
    await dispatcher.start()
    anywhere = (LOOPBACK, 0)
    await server.start(
        Addresses(http=anywhere, metrics=anywhere, grpc=anywhere if over_grpc else None)
    )
    wanted = len(backends) if up is None else up
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as client:
        try:
            await until(lambda: sum(one.up for one in dispatcher.pool.replicas) >= wanted)
            yield Routed(dispatcher=dispatcher, server=server, client=client)
            assert dispatcher.fault is None
        finally:
            await dispatcher.stop()
            await server.stop()
