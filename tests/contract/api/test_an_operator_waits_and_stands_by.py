# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The whole operator over HTTP, and what its probes say while the API server is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import aiohttp
import pytest

from fakes.apiserver import FakeApiServer, make_cluster
from fakes.replicas import InlineLearner, InlineSolver
from ullage.app.operator import Operator, Surroundings
from ullage.app.settings import HttpSettings, LeaseSettings, Settings
from ullage.ports import POD

QUICK = LeaseSettings(duration_seconds=3.0, renew_deadline_seconds=1.5, period_seconds=0.2)


@dataclass
class Served:
    """An operator that runs, and its endpoints."""

    operator: Operator
    task: asyncio.Task[None]
    url: str

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            return answer.status, await answer.text()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(90):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.fixture
async def served(api: FakeApiServer, unused_tcp_port: int) -> AsyncIterator[Served]:
    """It starts while the server is away."""
    await api.stop()
    http = HttpSettings(port=unused_tcp_port, debug_port=0)
    async with make_cluster(api.url) as cluster:
        operator = Operator(
            Settings(identity="a", lease=QUICK, http=http),
            cluster,
            Surroundings(solver=InlineSolver, learner=InlineLearner),
        )
        task = asyncio.create_task(operator.run())
        await until(lambda: operator.endpoints.port > 0)
        yield Served(operator, task, f"http://127.0.0.1:{unused_tcp_port}")
        operator.stop()
        await task


@pytest.mark.slow
async def test_it_waits_leads_stands_by_and_leads_again(api: FakeApiServer, served: Served) -> None:
    operator, lease = served.operator, served.operator.lease
    status, said = await served.get("/readyz")
    assert (status, said[:10]) == (503, "self-test:")
    assert await served.get("/healthz") == (200, "ok\n")

    await api.start()
    await until(lambda: lease.held and operator.replica.counters.loop.cycles > 0)
    assert await served.get("/readyz") == (200, "ok\n")
    assert "ullage_leader 1.0" in (await served.get("/metrics"))[1]

    first, cycles = operator.term, operator.replica.counters.loop.cycles
    await api.stop()
    await until(lambda: operator.term is not first)
    assert not lease.held
    assert (await served.get("/healthz"))[0] == 200
    assert "ullage_leader 0.0" in (await served.get("/metrics"))[1]

    written = api.write_count()
    await api.start()
    await until(lambda: lease.held and operator.replica.counters.loop.cycles > cycles)
    assert lease.epoch == 2
    assert api.write_count(plural="leases") == api.write_count() >= written
    assert await served.get("/readyz") == (200, "ok\n")
    assert not served.task.done()
    assert api.objects(POD) == []


async def test_a_missing_right_is_named_until_it_is_given(
    api: FakeApiServer, served: Served
) -> None:
    api.access.denied = {("patch", "gpunodes")}
    await api.start()
    while "may not patch gpunodes" not in (await served.get("/readyz"))[1]:
        await asyncio.sleep(0.02)
    assert await served.get("/healthz") == (200, "ok\n")
    api.access.denied = set()
    await until(lambda: served.operator.lease.held)


async def test_the_web_page_shows_what_the_operator_sees(
    api: FakeApiServer, unused_tcp_port: int
) -> None:
    http = HttpSettings(port=0, debug_port=0, web_port=unused_tcp_port)
    async with make_cluster(api.url) as cluster:
        operator = Operator(
            Settings(identity="a", lease=QUICK, http=http),
            cluster,
            Surroundings(solver=InlineSolver, learner=InlineLearner),
        )
        task = asyncio.create_task(operator.run())
        await until(lambda: operator.lease.held)
        page = Served(operator, task, f"http://127.0.0.1:{unused_tcp_port}")
        assert "<title>Ullage</title>" in (await page.get("/"))[1]
        status, said = await page.get("/state.json")
        assert (status, '"queue":{"total":0' in said) == (200, True)
        operator.stop()
        await task
