# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``GET /load``: what arrives, what waits, how long nothing came; the question waits, too."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from fakes.batch_server import batch_server
from fakes.routed import LOOPBACK, Routed, routed, until
from ullage_router.arrivals import MOST_WAITERS, ArrivalRate
from ullage_router.times import ARRIVALS_WINDOW_S


async def _load(router: Routed, query: str = "") -> tuple[int, dict[str, Any]]:
    url = f"http://{LOOPBACK}:{router.server.metrics_port}/load{query}"
    async with router.client.get(url) as answer:
        return answer.status, await answer.json()


async def test_the_first_request_answers_a_question_that_waits() -> None:
    async with (
        batch_server(ready=False) as server,
        routed(server, up=0, hold_s=30.0) as router,
    ):
        assert (await _load(router))[1]["arrived"] == 0
        asked = asyncio.create_task(_load(router, "?after=0&wait=30"))
        await asyncio.sleep(0.1)
        assert not asked.done()
        request = asyncio.create_task(router.infer())
        async with asyncio.timeout(20.0):
            status, load = await asked
        assert (status, load["arrived"], load["waiting"]) == (200, 1, 1)
        assert (load["idleSeconds"], load["wakeMillis"]) == (0, 0)
        server.ready = True
        assert (await request)[0] == 200
        load = (await _load(router))[1]
        assert load["waiting"] == 0
        assert load["wakeMillis"] > 0


async def test_a_wake_in_less_than_a_millisecond_is_one_that_was() -> None:
    async with batch_server() as server, routed(server) as router:
        assert (await _load(router))[1]["wakeMillis"] == 0
        router.dispatcher.wake_s = 1e-6
        assert (await _load(router))[1]["wakeMillis"] == 1


async def test_what_is_no_question_is_refused() -> None:
    async with batch_server() as server, routed(server) as router:
        for query in ("?wait=31", "?wait=-1", "?after=x", "?after=" + "9" * 19, "?wait=1e1"):
            status, said = await _load(router, query)
            assert status == 400
            assert "whole numbers" in said["error"]


async def test_questions_that_wait_are_few() -> None:
    async with batch_server() as server, routed(server) as router:
        waiting = [
            asyncio.create_task(_load(router, "?after=0&wait=30")) for _ in range(MOST_WAITERS)
        ]
        await until(lambda: len(router.dispatcher.arrivals._waiters) == MOST_WAITERS)
        async with asyncio.timeout(20.0):
            status, _ = await _load(router, "?after=0&wait=30")
        assert status == 200, "one more is answered at once"
        await router.infer()
        assert [status for status, _ in await asyncio.gather(*waiting)] == [200] * MOST_WAITERS
        await until(lambda: not router.dispatcher.arrivals._waiters)


async def test_one_who_asks_and_leaves_is_forgotten() -> None:
    async with batch_server() as server, routed(server) as router:
        asked = asyncio.create_task(_load(router, "?after=0&wait=20"))
        await until(lambda: bool(router.dispatcher.arrivals._waiters))
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await until(lambda: not router.dispatcher.arrivals._waiters)


async def test_a_long_request_is_no_idleness() -> None:
    async with (
        batch_server(seconds=lambda _: 0.3) as server,
        routed(server) as router,
    ):
        asked = asyncio.create_task(router.infer())
        await until(lambda: len(server.asked) == 1)
        router.dispatcher.arrivals._last_s -= 100.0
        assert router.dispatcher.idle_s == 0
        await asked
        assert router.dispatcher.idle_s < 50.0


@pytest.mark.slow
async def test_a_wake_is_measured_from_a_request_that_still_waits() -> None:
    async with (
        batch_server(ready=False) as server,
        routed(server, up=0, objective_s=0.01, hold_s=0.1) as router,
    ):
        assert (await router.infer())[0] == 503
        await asyncio.sleep(0.5)
        server.ready = True
        await until(lambda: router.dispatcher.ready)
        assert router.dispatcher.wake_s == 0, "no one waited"
        server.ready = False
        await until(lambda: not router.dispatcher.ready)
        assert (await router.infer())[0] == 503
        await asyncio.sleep(0.5)
        asked = time.monotonic()
        waiting = asyncio.create_task(router.infer())
        await asyncio.sleep(0)
        server.ready = True
        assert (await waiting)[0] in (200, 503)
        assert router.dispatcher.wake_s < time.monotonic() - asked, "not from the one that left"


def test_the_rate_is_that_of_the_last_whole_seconds() -> None:
    arrivals = ArrivalRate(1000.0)
    for at in range(300):
        arrivals.arrived(1000.0 + at / 10)
    assert arrivals.total == 300
    assert arrivals.per_s(1030.0) == pytest.approx(10.0)
    assert arrivals.per_s(1037.0) == pytest.approx(
        10.0 * (ARRIVALS_WINDOW_S - 7) / ARRIVALS_WINDOW_S
    )
    assert arrivals.per_s(1046.0) == 0
    assert arrivals.idle_s(1046.0) == pytest.approx(16.1)
    assert len(arrivals._seconds) == 0


def test_a_router_that_began_just_now_has_a_rate() -> None:
    arrivals = ArrivalRate(1000.5)
    for _ in range(20):
        arrivals.arrived(1000.6)
    assert arrivals.per_s(1002.5) == pytest.approx(10.0)
    assert ArrivalRate(5.0).idle_s(25.0) == 20.0


def test_what_is_kept_is_bounded() -> None:
    arrivals = ArrivalRate(0.0)
    for at in range(1_000):
        arrivals.arrived(float(at))
    assert len(arrivals._seconds) <= ARRIVALS_WINDOW_S + 1
