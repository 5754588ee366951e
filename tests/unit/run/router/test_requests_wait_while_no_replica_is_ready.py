# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""No replica is ready: the first requests wait for one, bounded by time, count and bytes."""

from __future__ import annotations

import asyncio

import pytest

from fakes.batch_server import batch_server
from fakes.routed import LOOPBACK, Routed, routed, tensor, until
from ullage_router.settings import Limits


async def _ready(router: Routed) -> int:
    async with router.client.get(f"http://{LOOPBACK}:{router.server.metrics_port}/ready") as answer:
        return answer.status


async def test_requests_wait_beyond_their_deadline_and_none_is_lost() -> None:
    async with (
        batch_server(ready=False) as server,
        routed(server, up=0, objective_s=0.05, hold_s=30.0) as router,
    ):
        assert await _ready(router) == 200, "it takes requests while it has no replica"
        waiting = [asyncio.create_task(router.infer([float(n)])) for n in range(20)]
        await until(lambda: len(router.dispatcher.queue) == 20)
        await asyncio.sleep(0.2)
        assert not any(task.done() for task in waiting)
        server.ready = True
        answers = await asyncio.gather(*waiting)
        assert [status for status, _ in answers] == [200] * 20
        assert [body["outputs"][0]["data"] for _, body in answers] == [[2.0 * n] for n in range(20)]
        assert await router.metric("ullage_requests_held_total") == 20
        assert await router.metric("ullage_requests_total", outcome="late") == 20
        assert await router.metric("ullage_wake_seconds_count") == 1
        assert await router.metric("ullage_wake_seconds_sum") >= 0.2


async def test_who_came_in_time_before_the_last_replica_went_waits_too() -> None:
    async with (
        batch_server(seconds=lambda _: 0.1) as server,
        routed(server, objective_s=0.4, hold_s=30.0) as router,
    ):
        first = asyncio.create_task(router.infer([1.0]))
        await until(lambda: len(server.asked) == 1)
        server.ready = False
        rest = [asyncio.create_task(router.infer([2.0])) for _ in range(3)]
        await first
        await until(lambda: not router.dispatcher.ready or not router.dispatcher.queue)
        server.ready = True
        assert [status for status, _ in await asyncio.gather(*rest)] == [200] * 3


async def test_when_no_replica_comes_it_says_so_and_when_to_come_again() -> None:
    async with (
        batch_server(ready=False) as server,
        routed(server, up=0, objective_s=0.01, hold_s=0.1) as router,
        router.client.post(
            f"{router.url}/v2/models/double/infer", json={"inputs": [tensor([1.0])]}
        ) as answer,
    ):
        assert answer.status == 503
        assert int(answer.headers["Retry-After"]) >= 1
        assert "no replica is ready" in (await answer.json())["error"]


async def test_what_waits_is_bounded_by_count_and_bytes() -> None:
    limits = Limits(queue_calls=3, queue_bytes=1 << 20, body_bytes=1 << 19)
    async with (
        batch_server(ready=False) as server,
        routed(server, up=0, objective_s=0.01, hold_s=30.0, limits=limits) as router,
    ):
        waiting = [asyncio.create_task(router.infer()) for _ in range(3)]
        await until(lambda: len(router.dispatcher.queue) == 3)
        status, body = await router.infer()
        assert (status, body["error"]) == (503, "no replica is ready")
        server.ready = True
        assert [status for status, _ in await asyncio.gather(*waiting)] == [200] * 3


async def test_without_a_time_to_wait_the_deadline_holds() -> None:
    async with (
        batch_server(ready=False) as server,
        routed(server, up=0, objective_s=0.02) as router,
    ):
        assert (await router.infer())[0] == 503
        assert await router.metric("ullage_requests_held_total") == 0


async def test_a_client_who_leaves_is_held_no_more() -> None:
    async with (
        batch_server(ready=False) as server,
        routed(server, up=0, objective_s=0.01, hold_s=30.0) as router,
    ):
        left = asyncio.create_task(router.infer())
        await until(lambda: len(router.dispatcher.queue) == 1)
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        await until(lambda: not router.dispatcher.queue)
        server.ready = True
        await until(lambda: router.dispatcher.ready)
        assert not server.asked


async def test_what_runs_is_counted() -> None:
    async with (
        batch_server(seconds=lambda _: 0.3) as server,
        routed(server, objective_s=60.0) as router,
    ):
        asked = asyncio.create_task(router.infer())
        await until(lambda: len(server.asked) == 1)
        assert await router.metric("ullage_requests_in_flight") == 1
        await asked
        assert await router.metric("ullage_requests_in_flight") == 0


@pytest.mark.slow
async def test_a_router_that_drains_is_not_ready() -> None:
    async with batch_server() as server, routed(server, linger_s=1.0) as router:
        drained = asyncio.create_task(router.server.drain())
        await asyncio.sleep(0)
        assert await _ready(router) == 503
        await drained
