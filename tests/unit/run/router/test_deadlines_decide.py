# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What cannot be answered in time is refused at once and counted; what may be is run."""

from __future__ import annotations

import asyncio

import pytest

from fakes.batch_server import batch_server, hang
from fakes.routed import routed, tensor, until
from ullage.engines.batching.chooser import BatchPolicy, BatchRules


async def test_a_hopeless_request_is_refused_at_once_with_a_time_to_come_again() -> None:
    async with batch_server(seconds=lambda _: 0.05) as server, routed(server) as router:
        await router.taught(0.05)
        async with router.client.post(
            f"{router.url}/v2/models/double/infer",
            json={"inputs": [tensor([1.0])]},
            headers={"x-deadline-ms": "20"},
        ) as answer:
            assert answer.status == 429
            assert int(answer.headers["Retry-After"]) >= 1
            assert await answer.json() == {"error": "it cannot be answered in time"}
        assert not server.asked
        assert await router.metric("ullage_requests_total", outcome="dropped", app="default") == 1


@pytest.mark.slow
async def test_before_times_are_known_nothing_is_taken_for_hopeless() -> None:
    async with batch_server(seconds=lambda _: 1.0) as server, routed(server) as router:
        status, _ = await router.infer(headers={"x-deadline-ms": "800"})
        assert status == 200
        assert await router.metric("ullage_requests_total", outcome="late", app="default") == 1


async def test_the_earlier_deadline_runs_first() -> None:
    rules = BatchRules(policy=BatchPolicy.EDF, sizes=(1,))
    async with (
        batch_server(seconds=lambda _: 0.02) as server,
        routed(server, rules=rules) as router,
    ):
        first = asyncio.create_task(router.infer([0.0]))
        await until(lambda: len(server.asked) == 1)
        later = [
            asyncio.create_task(
                router.infer([float(ms)], headers={"x-deadline-ms": str(10 * ms)})
            )
            for ms in (4000, 2000, 3000, 1000)
        ]  # fmt: skip
        await asyncio.gather(first, *later)
        ran = [body["inputs"][0]["data"][0] for body in server.asked[1:]]
        assert ran == [1000.0, 2000.0, 3000.0, 4000.0]


async def test_a_request_is_refused_at_its_deadline_while_all_replicas_hang() -> None:
    async with batch_server(misdeeds=[hang]) as server, routed(server) as router:
        first = asyncio.create_task(router.infer())
        await until(lambda: len(server.asked) == 1)
        status, body = await router.infer(headers={"x-deadline-ms": "60"})
        assert status == 429
        assert body == {"error": "its deadline passed"}
        first.cancel()


async def test_the_page_tells_what_became_of_requests_and_how_long_they_took() -> None:
    async with batch_server() as server, routed(server) as router:
        for _ in range(3):
            assert (await router.infer(headers={"x-app": "chat"}))[0] == 200
        assert await router.metric("ullage_requests_total", outcome="met", app="chat") == 3
        assert await router.metric("ullage_request_seconds_count") == 3
        assert await router.metric("ullage_batch_size_count") == 3
        assert await router.metric("ullage_queue_length") == 0
        assert await router.metric("ullage_held_bytes") == 0
        assert await router.metric("ullage_replicas_up") == 1
        assert await router.metric("ullage_build_info", component="router") == 1
