# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A replica that dies, hangs or answers wrongly: repeated once elsewhere, or an error at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from fakes.batch_server import (
    Misdeed,
    answer_another,
    batch_server,
    die,
    doubled,
    fail,
    hang,
    lose_a_row,
    talk_nonsense,
)
from fakes.routed import routed, tensor, until
from ullage_router.settings import ClientLimits, ReplicaAddress


def slow(_: int) -> float:
    return 0.05


@pytest.mark.slow
@pytest.mark.parametrize("misdeed", [die, fail, lose_a_row, answer_another, talk_nonsense, hang])
async def test_all_of_a_failed_batch_run_once_more_elsewhere(misdeed: Misdeed) -> None:
    gate = asyncio.Event()

    async def held(_: web.BaseRequest, asked: dict[str, Any]) -> web.Response:
        await gate.wait()
        return web.Response(body=doubled(asked), content_type="application/json")

    async with (
        batch_server(misdeeds=[held]) as one,
        batch_server(misdeeds=[held]) as other,
        routed(one, other, objective_s=60.0) as router,
    ):
        await router.taught(0.5)
        filling = []
        for count in (1, 2):
            filling.append(asyncio.create_task(router.infer([-1.0])))
            await until(lambda: len(one.asked) + len(other.asked) == count)  # noqa: B023
        waiting = [asyncio.create_task(router.infer([float(n)])) for n in range(12)]
        await until(lambda: len(router.dispatcher.queue) == 12)
        one.misdeeds = [misdeed] * (2 if misdeed is die else 1)  # on a new connection, too
        gate.set()
        answers = await asyncio.gather(*waiting, *filling)
        assert [status for status, _ in answers[:12]] == [200] * 12
        assert [body["outputs"][0]["data"] for _, body in answers[:12]] == [
            [2.0 * n] for n in range(12)
        ]
        assert await router.metric("ullage_requests_retried_total") > 0


async def test_a_request_that_kills_every_server_meets_two() -> None:
    async with batch_server() as a, batch_server() as b, batch_server() as c:
        servers = [a, b, c]
        for server in servers:
            server.misdeeds = [die] * 9
        async with routed(*servers) as router:
            status, body = await router.infer()
            assert status == 502
            assert "the replica failed" in body["error"]
            assert sum(bool(server.asked) for server in servers) == 2
            asked = sum(len(server.asked) for server in servers)
            assert asked <= 3, "the first may have had it once more, on a new connection"
            assert await router.metric("ullage_requests_total", outcome="failed") == 1


async def test_with_one_replica_there_is_no_elsewhere_and_the_error_comes_at_once() -> None:
    async with batch_server(misdeeds=[die] * 9) as server, routed(server) as router:
        status, body = await router.infer()
        assert status == 502
        assert body["error"]
        server.misdeeds.clear()
        assert (await router.infer())[0] == 200, "it came back with the next probe"


async def test_what_is_not_idempotent_is_never_repeated() -> None:
    async with (
        batch_server(misdeeds=[die]) as one,
        batch_server(misdeeds=[die]) as other,
        routed(one, other) as router,
    ):
        status, _ = await router.infer(parameters={"sequence_id": 7})
        assert status == 502
        assert len(one.asked) + len(other.asked) == 1


async def test_a_hanging_replica_is_left_after_its_limit_where_nothing_is_known_of_times() -> None:
    limits = ClientLimits(answer_s=0.1)
    async with batch_server(misdeeds=[hang]) as server, routed(server, limits=limits) as router:
        status, body = await router.infer()
        assert status == 504
        assert "no answer in 0.1 s" in body["error"]


@pytest.mark.slow
async def test_a_request_that_a_replica_refuses_harms_only_itself() -> None:
    async with batch_server(seconds=slow, refuses={"13.0"}) as server, routed(server) as router:
        await router.taught(0.05)
        answers = await asyncio.gather(*(router.infer([float(n)]) for n in range(20)))
        assert [status for status, _ in answers] == [200] * 13 + [400] + [200] * 6
        assert answers[13][1] == {"error": "an element is refused"}
        assert answers[12][1]["outputs"][0]["data"] == [24.0]


@pytest.mark.slow
async def test_an_output_that_is_no_number_harms_only_its_request() -> None:
    async with batch_server(seconds=slow, overflows={"13.0"}) as server, routed(server) as router:
        await router.taught(0.05)

        async def answered(row: float) -> tuple[int, bytes]:
            body = {"inputs": [tensor([row])]}
            url = f"{router.url}/v2/models/double/infer"
            async with router.client.post(url, json=body) as answer:
                return answer.status, await answer.read()

        answers = await asyncio.gather(*(answered(float(n)) for n in range(20)))
        assert [status for status, _ in answers] == [200] * 20
        assert b"NaN" in answers[13][1]
        assert b'"data":[24.0]' in answers[12][1]
        assert router.dispatcher.pool.replicas[0].up


async def test_what_was_not_delivered_waits_for_another_replica_whatever_it_is() -> None:
    async with batch_server() as one, batch_server() as other, routed(one, other) as router:
        await one.stop()
        one_gone, statuses = 0, []
        for _ in range(6):
            status, _ = await router.infer(parameters={"sequence_id": 7})
            statuses.append(status)
        assert statuses == [200] * 6
        assert one_gone == len(one.asked)
        assert not router.dispatcher.pool.replicas[0].up


async def test_requests_wait_for_a_replica_that_restarts() -> None:
    async with batch_server() as server, routed(server) as router:
        port = server.port
        await server.stop()
        waiting = [asyncio.create_task(router.infer([float(n)])) for n in range(8)]
        await until(lambda: not router.dispatcher.ready)
        async with router.client.get(f"{router.url}/v2/health/ready") as answer:
            assert answer.status == 503
        await server.start(port)
        answers = await asyncio.gather(*waiting)
        assert [body["outputs"][0]["data"] for _, body in answers] == [[2.0 * n] for n in range(8)]


async def test_with_all_replicas_gone_requests_are_refused_at_their_deadline() -> None:
    backend = ReplicaAddress(url="http://127.0.0.1:9")
    async with routed(backend, up=0) as router:
        status, body = await router.infer(headers={"x-deadline-ms": "50"})
        assert status == 503
        assert body == {"error": "no replica is ready"}
        assert await router.metric("ullage_requests_total", outcome="dropped") == 1


async def test_a_server_that_says_it_is_not_ready_gets_nothing() -> None:
    async with batch_server() as one, batch_server() as other, routed(one, other) as router:
        one.ready = False
        await until(lambda: not router.dispatcher.pool.replicas[0].up)
        one.asked.clear()
        await asyncio.gather(*(router.infer() for _ in range(10)))
        assert not one.asked
        assert len(other.asked) == 10
