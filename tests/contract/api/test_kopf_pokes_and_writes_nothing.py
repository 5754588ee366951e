# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""kopf over the fake API server: it tells of every change of our kinds and touches nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

import kopf
import pytest

from contract.api.suite.world import a_job
from fakes.apiserver import FakeApiServer
from ullage.app.kopf_shell import KopfThread, Poker
from ullage.ports import SCHEDULING_POLICY, TRAINING_JOB


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def put_job(api: FakeApiServer, name: str, replicas: int = 1) -> None:
    job = a_job(name, replicas=replicas)
    job["metadata"]["namespace"] = "d"
    api.put(TRAINING_JOB, job)


@pytest.fixture
async def pokes(api: FakeApiServer) -> AsyncIterator[Counter[str]]:
    """What kopf told while it ran; one job and one policy are there from the start."""
    put_job(api, "first")
    api.put(SCHEDULING_POLICY, {"metadata": {"name": "default"}, "spec": {}})
    seen: Counter[str] = Counter()

    def poke(reason: str) -> None:
        seen[reason] += 1

    thread = KopfThread(
        Poker(loop=asyncio.get_running_loop(), poke=poke),
        lambda: kopf.ConnectionInfo(server=api.url),
    )
    thread.start()
    try:
        await until(lambda: api.open_watches == 3)
        yield seen
    finally:
        await thread.stop(timeout_s=20.0)
        assert thread.failure is None
        assert not thread.alive


async def test_every_change_pokes(api: FakeApiServer, pokes: Counter[str]) -> None:
    jobs, policies = "kopf:trainingjobs", "kopf:schedulingpolicies"
    await until(lambda: pokes[jobs] == 1 and pokes[policies] == 1)
    put_job(api, "second")
    await until(lambda: pokes[jobs] == 2)
    put_job(api, "second", replicas=2)
    await until(lambda: pokes[jobs] == 3)
    api.remove(TRAINING_JOB, "second", "d")
    await until(lambda: pokes[jobs] == 4)
    assert pokes[policies] == 1


async def test_it_writes_nothing_and_asks_for_nothing_else(
    api: FakeApiServer, pokes: Counter[str]
) -> None:
    put_job(api, "second")
    await until(lambda: pokes["kopf:trainingjobs"] == 2)
    assert not api.writes
    asked = {seen.ask.plural for seen in api.requests}
    assert asked == {"trainingjobs", "inferenceservices", "schedulingpolicies"}
    lists = [seen for seen in api.requests if seen.ask.verb == "list"]
    assert {seen.query["limit"] for seen in lists} == {"500"}


async def test_an_expired_watch_is_opened_again(api: FakeApiServer, pokes: Counter[str]) -> None:
    await until(lambda: pokes["kopf:trainingjobs"] == 1)
    api.expire_watches()
    await until(lambda: api.open_watches == 0)
    await until(lambda: api.open_watches == 3)
    put_job(api, "late")
    await until(lambda: pokes["kopf:trainingjobs"] >= 2)
