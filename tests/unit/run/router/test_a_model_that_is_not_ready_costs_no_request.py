# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A server that is ready before its model is, as KServe's: requests wait, and none runs twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fakes.routed import Routed, routed, tensor, until
from fakes.triton_server import triton_server
from ullage.engines.batching.chooser import BatchPolicy, BatchRules
from ullage_router.paths import ready_path_of
from ullage_router.replica_pool import MODELS
from ullage_router.settings import DEADLINE_HEADER

BODY = {"inputs": [tensor([1.0])]}
FIFO = BatchRules(policy=BatchPolicy.FIFO, sizes=(1,))
HURRIED = {DEADLINE_HEADER: "1"}


async def ask(router: Routed, path: str = "/v2/models/same/infer", **given: Any) -> tuple[int, Any]:
    async with router.client.post(router.url + path, json=BODY, **given) as answer:
        return answer.status, await answer.json()


def unready(router: Routed) -> list[set[str]]:
    return [replica.unready_models for replica in router.dispatcher.pool.replicas]


@pytest.mark.parametrize("says", ["Model with name same is not ready.", "Service Unavailable"])
async def test_requests_are_held_until_the_model_is_ready(says: str) -> None:
    """Whether the server says so in words or only where it is asked for it."""
    async with (
        triton_server(model_ready=False, says_it_is_not=says) as server,
        routed(server, hold_s=120.0, rules=FIFO) as router,
    ):
        asking = [asyncio.create_task(ask(router))]
        await until(lambda: len(router.dispatcher.queue) == 1 and server.refused == 1)
        assert await router.metric("ullage_requests_held_total") == 1, "long before its deadline"
        asking += [asyncio.create_task(ask(router, headers=HURRIED)) for _ in range(4)]
        await until(lambda: len(router.dispatcher.queue) == 5 and server.looks > 1)
        assert server.refused == 1, "it is asked for its model, and given no more work"
        server.model_ready = True
        assert [status for status, _ in await asyncio.gather(*asking)] == [200] * 5
        assert len(server.asked) == 5
        assert await router.metric("ullage_requests_retried_total") == 0
        assert await router.metric("ullage_batches_failed_total") == 0
        assert unready(router) == [set()]


async def test_a_good_replica_beside_runs_all_once() -> None:
    async with (
        triton_server(model_ready=False) as early,
        triton_server() as good,
        routed(early, good, rules=FIFO) as router,
    ):
        answers = await asyncio.gather(*(ask(router) for _ in range(120)))
        assert {status for status, _ in answers} == {200}
        assert (len(early.asked), len(good.asked)) == (0, 120)
        assert early.refused <= 1
        assert await router.metric("ullage_requests_retried_total") == 0


async def test_what_may_not_be_repeated_waits_too_for_nothing_ran() -> None:
    async with (
        triton_server(model_ready=False) as server,
        routed(server, hold_s=60.0) as router,
    ):
        body = {**BODY, "parameters": {"sequence_id": 7}}
        url = f"{router.url}/v2/models/same/infer"
        asking = asyncio.create_task(router.client.post(url, json=body))
        await until(lambda: server.refused == 1)
        server.model_ready = True
        answer = await asking
        assert answer.status == 200


async def test_the_protocol_before_is_held_as_well() -> None:
    async with triton_server(model_ready=False) as server, routed(server, hold_s=60.0) as router:
        asking = asyncio.create_task(ask(router, "/v1/models/same:predict"))
        await until(lambda: server.refused == 1 and server.looks > 0)
        assert unready(router) == [{"/v1/models/same"}]
        server.model_ready = True
        assert (await asking)[0] == 200


async def test_other_models_of_the_replica_go_on_past_a_queue_of_one_that_is_not() -> None:
    async with (
        triton_server(model_ready=False, always_ready=frozenset({"same"})) as server,
        routed(server, hold_s=60.0, rules=FIFO) as router,
    ):
        slow = [asyncio.create_task(ask(router, "/v2/models/slow/infer")) for _ in range(20)]
        await until(lambda: len(router.dispatcher.queue) == 20 and server.refused == 1)
        for _ in range(3):
            assert (await ask(router))[0] == 200
        assert not any(task.done() for task in slow)
        async with router.client.get(f"{router.url}/v2/models/slow/ready") as answer:
            assert answer.status == 503
        server.model_ready = True
        assert {status for status, _ in await asyncio.gather(*slow)} == {200}


async def test_when_the_model_is_never_ready_it_says_which_and_the_wait_ends() -> None:
    async with (
        triton_server(model_ready=False) as server,
        routed(server, objective_s=0.05, hold_s=0.1) as router,
    ):
        status, body = await ask(router)
        assert status == 503
        assert body["error"] == "no replica is ready for this model (/v2/models/same/ready)"


async def test_a_server_that_is_busy_is_no_server_that_is_not_ready() -> None:
    """It says 503 while its model is ready: the request failed there, as before."""
    async with triton_server() as server, routed(server) as router:
        server.busy = True
        assert await ask(router) == (503, {"error": "busy"})
        assert unready(router) == [set()]
        assert await router.metric("ullage_batches_failed_total") == 1


async def test_a_replica_that_comes_up_is_asked_for_models_that_were_slow_before() -> None:
    async with (
        triton_server(model_ready=False) as one,
        triton_server(model_ready=False) as other,
        routed(one, other, hold_s=60.0, rules=FIFO) as router,
    ):
        asking = [asyncio.create_task(ask(router)) for _ in range(2)]
        await until(lambda: [len(paths) for paths in unready(router)] == [1, 1])
        one.model_ready = True
        await asyncio.gather(*asking)
        router.dispatcher.pool.replicas[1].down()
        await until(lambda: router.dispatcher.pool.replicas[1].up)
        for _ in range(4):
            assert (await ask(router))[0] == 200
        assert other.refused == 1
        assert not other.asked


async def test_models_that_are_kept_are_bounded_and_those_that_came_ready_make_room() -> None:
    async with triton_server(model_ready=False) as server, routed(server) as router:
        names = [f"/v2/models/m{at}/infer" for at in range(MODELS + 3)]
        asking = [asyncio.create_task(ask(router, name)) for name in names]
        await until(lambda: sum(task.done() for task in asking) == 3)
        assert len(unready(router)[0]) == MODELS
        server.model_ready = True
        answers = await asyncio.gather(*asking)
        assert sorted(status for status, _ in answers) == [200] * MODELS + [503] * 3
        server.model_ready = False
        held = asyncio.create_task(ask(router, "/v2/models/new/infer"))
        await until(lambda: "/v2/models/new/ready" in unready(router)[0])
        server.model_ready = True
        assert (await held)[0] == 200


@pytest.mark.parametrize(
    ("path", "ready"),
    [
        ("/v2/models/m/infer", "/v2/models/m/ready"),
        ("/v2/models/a%20b/versions/3/infer?x=1", "/v2/models/a%20b/versions/3/ready"),
        ("/v1/models/m:predict", "/v1/models/m"),
        ("/v1/models/m", ""),
        ("/v2/models/m", ""),
        ("/v1/chat/completions", ""),
    ],
)
def test_the_path_that_says_whether_a_model_is_ready(path: str, ready: str) -> None:
    assert ready_path_of(path) == ready
