# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""kopf over the fake API server: it tells of every change of its kinds and touches nothing."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable

import kopf
import pytest

from builders_raw import raw_pool, raw_service
from fakes.apiserver import FakeApiServer
from ullage.app.kopf_shell import KopfEnded, Poker, run_kopf
from ullage.ports import CAPACITY_POOL, INFERENCE_SERVICE, SCHEDULING_POLICY


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def put_service(api: FakeApiServer, name: str, replicas: int = 1) -> None:
    api.put(INFERENCE_SERVICE, raw_service(name, replicas=replicas))


@pytest.fixture
async def pokes(api: FakeApiServer) -> AsyncIterator[Counter[str]]:
    """What kopf told while it ran; one object of each kind is there from the start."""
    put_service(api, "first")
    api.put(SCHEDULING_POLICY, {"metadata": {"name": "default"}, "spec": {}})
    api.put(CAPACITY_POOL, raw_pool())
    seen: Counter[str] = Counter()

    def poke(reason: str) -> None:
        seen[reason] += 1

    task = asyncio.create_task(
        run_kopf(
            Poker(loop=asyncio.get_running_loop(), poke=poke),
            lambda: kopf.ConnectionInfo(server=api.url),
            stop_s=20.0,
        )
    )
    try:
        await until(lambda: api.open_watches == 3)
        yield seen
    finally:
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert "kopf" not in {thread.name for thread in threading.enumerate()}


async def test_every_change_pokes(api: FakeApiServer, pokes: Counter[str]) -> None:
    services, policies = "kopf:inferenceservices", "kopf:schedulingpolicies"
    await until(lambda: pokes[services] == 1 and pokes[policies] == 1)
    put_service(api, "second")
    await until(lambda: pokes[services] == 2)
    put_service(api, "second", replicas=2)
    await until(lambda: pokes[services] == 3)
    api.remove(INFERENCE_SERVICE, "second", "default")
    await until(lambda: pokes[services] == 4)
    assert pokes[policies] == pokes["kopf:capacitypools"] == 1


async def test_it_writes_nothing_and_asks_for_nothing_else(
    api: FakeApiServer, pokes: Counter[str]
) -> None:
    put_service(api, "second")
    await until(lambda: pokes["kopf:inferenceservices"] == 2)
    assert not api.writes
    asked = {seen.ask.plural for seen in api.requests}
    assert asked == {"inferenceservices", "schedulingpolicies", "capacitypools"}
    lists = [seen for seen in api.requests if seen.ask.verb == "list"]
    assert {seen.query["limit"] for seen in lists} == {"500"}


async def test_an_expired_watch_is_opened_again(api: FakeApiServer, pokes: Counter[str]) -> None:
    await until(lambda: pokes["kopf:inferenceservices"] == 1)
    api.expire_watches()
    await until(lambda: api.open_watches == 0)
    await until(lambda: api.open_watches == 3)
    put_service(api, "late")
    await until(lambda: pokes["kopf:inferenceservices"] >= 2)


async def test_an_end_by_itself_is_told_with_its_cause(
    api: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def end(**_: object) -> None:
        raise ValueError("no way to log in")

    monkeypatch.setattr(kopf, "operator", end)
    poker = Poker(loop=asyncio.get_running_loop(), poke=lambda _: None)
    with pytest.raises(KopfEnded, match="no way to log in"):
        await run_kopf(poker, lambda: kopf.ConnectionInfo(server=api.url))
