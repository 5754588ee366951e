# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests of one kind share a batch, and each gets its own rows back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from fakes.batch_server import batch_server, doubled
from fakes.routed import routed, tensor, until
from ullage.engines.batching.chooser import BatchPolicy, BatchRules
from ullage_router.settings import ReplicaAddress


def slow(_: int) -> float:
    return 0.02


async def test_each_of_many_clients_gets_its_own_answer() -> None:
    async with batch_server(seconds=slow) as server, routed(server) as router:
        await router.taught(0.02)
        server.asked.clear()
        answers = await asyncio.gather(*(router.infer([float(n)]) for n in range(40)))
        assert [status for status, _ in answers] == [200] * 40
        assert [body["outputs"][0]["data"] for _, body in answers] == [[2.0 * n] for n in range(40)]
        assert len(server.asked) < 20
        assert max(server.sizes) > 4


async def test_rows_of_different_numbers_stay_with_their_requests() -> None:
    async with batch_server(seconds=slow) as server, routed(server) as router:
        await router.taught(0.02)
        asked = [[float(10 * n + row) for row in range(1 + n % 3)] for n in range(24)]
        answers = await asyncio.gather(
            *(router.infer(rows, id=f"own-{at}") for at, rows in enumerate(asked))
        )
        for at, (status, body) in enumerate(answers):
            assert status == 200
            assert body["id"] == f"own-{at}"
            assert body["outputs"][0]["shape"] == [len(asked[at]), 1]
            assert body["outputs"][0]["data"] == [2 * one for one in asked[at]]


async def test_requests_of_different_shape_type_name_or_wish_never_share_a_batch() -> None:
    variants = [
        {"inputs": [tensor([1.0])]},
        {"inputs": [tensor([1.0], shape=[1])]},
        {"inputs": [tensor([1, 2], shape=[1, 2])]},
        {"inputs": [tensor([1], datatype="INT64")]},
        {"inputs": [tensor([1.0], name="y")]},
        {"inputs": [tensor([1.0])], "parameters": {"beam": 2}},
        {"inputs": [tensor([1.0])], "outputs": [{"name": "out_x"}]},
        {"inputs": [tensor([1.0]), tensor([1.0], name="y")]},
    ]
    async with batch_server(seconds=slow) as server, routed(server) as router:
        await router.taught(0.02)
        server.asked.clear()
        answers = await asyncio.gather(
            *(router.infer(**variant) for variant in variants for _ in range(4))
        )
        assert [status for status, _ in answers] == [200] * len(answers)
        kinds = []
        for asked in server.asked:
            asked.pop("id", None)
            inputs = [(one["name"], one["datatype"], one["shape"][1:]) for one in asked["inputs"]]
            kinds.append(str([asked.get("parameters"), asked.get("outputs"), inputs]))
        assert len(set(kinds)) == len(variants)


async def test_requests_with_different_credentials_never_share_a_batch() -> None:
    async with batch_server(seconds=slow) as server, routed(server) as router:
        await router.taught(0.02)
        server.headers.clear()
        server.asked.clear()
        who = ["Bearer a", "Bearer b"] * 10
        answers = await asyncio.gather(
            *(router.infer([float(at)], headers={"Authorization": one})
              for at, one in enumerate(who))
        )  # fmt: skip
        assert {status for status, _ in answers} == {200}
        for headers, asked in zip(server.headers, server.asked, strict=True):
            odd = headers["Authorization"] == "Bearer b"
            assert {one % 2 == 1 for one in asked["inputs"][0]["data"]} == {odd}


async def test_a_batch_has_no_more_rows_than_the_server_takes() -> None:
    all_wait = asyncio.Event()

    async def answer_later(_: web.BaseRequest, asked: dict[str, Any]) -> web.Response:
        await all_wait.wait()
        return web.Response(body=doubled(asked), content_type="application/json")

    async with (
        batch_server(misdeeds=[answer_later]) as server,
        routed(server, most_rows=4) as router,
    ):
        await router.taught(0.02)
        asking = [asyncio.create_task(router.infer([1.0, 2.0]))]
        await until(lambda: len(server.asked) == 1)
        asking += [asyncio.create_task(router.infer([1.0, 2.0])) for _ in range(20)]
        await until(lambda: len(router.dispatcher.queue) == 20)
        all_wait.set()
        assert {status for status, _ in await asyncio.gather(*asking)} == {200}
        assert max(server.sizes) == 4
        assert sum(server.sizes) == 42


async def test_requests_of_a_sequence_run_alone() -> None:
    async with batch_server(seconds=slow) as server, routed(server) as router:
        await router.taught(0.02)
        server.asked.clear()
        await asyncio.gather(
            *(router.infer([1.0], parameters={"sequence_id": 7}) for _ in range(8))
        )
        assert server.sizes == [1] * 8


@pytest.mark.slow
async def test_a_new_application_runs_alone_until_its_times_are_known() -> None:
    async with batch_server(seconds=slow) as server, routed(server) as router:
        await asyncio.gather(*(router.infer() for _ in range(60)))
        assert server.sizes.count(1) >= 50
        await router.dispatcher.pool.replicas[0].times.learn(())
        await until(lambda: router.dispatcher.pool.knows("default/1"))
        server.asked.clear()
        await asyncio.gather(*(router.infer() for _ in range(40)))
        assert max(server.sizes) > 4


@pytest.mark.slow
@pytest.mark.parametrize("policy", list(BatchPolicy))
async def test_each_policy_answers_all(policy: BatchPolicy) -> None:
    rules = BatchRules(policy=policy)
    async with batch_server(seconds=slow) as server, routed(server, rules=rules) as router:
        answers = await asyncio.gather(*(router.infer([float(n)]) for n in range(100)))
        assert [body["outputs"][0]["data"] for _, body in answers] == [
            [2.0 * n] for n in range(100)
        ]


async def test_first_come_first_served_batches_without_knowing_times() -> None:
    rules = BatchRules(policy=BatchPolicy.FIFO, sizes=(4,))
    async with batch_server(seconds=slow) as server, routed(server, rules=rules) as router:
        await asyncio.gather(*(router.infer() for _ in range(41)))
        assert server.sizes.count(4) >= 8


@pytest.mark.slow
async def test_replicas_share_the_work_evenly() -> None:
    async with (
        batch_server(seconds=slow) as one,
        batch_server(seconds=slow) as other,
        routed(one, other, rules=BatchRules(sizes=(1,))) as router,
    ):
        await asyncio.gather(*(router.infer() for _ in range(40)))
        assert abs(len(one.asked) - len(other.asked)) <= 2


async def test_the_faster_device_is_taken_while_it_is_free() -> None:
    """By far the faster one: what a busy machine adds to its time makes it no slower than that."""
    async with batch_server() as fast, batch_server() as lame:
        backends = (
            ReplicaAddress(url=lame.url, device="small"),
            ReplicaAddress(url=fast.url, device="large"),
        )
        async with routed(*backends) as router:
            await router.taught(4.0, 0.5)
            before = len(lame.asked)
            for _ in range(10):
                await router.infer()
            assert len(lame.asked) == before
