# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests for text before servers that batch continuously: order, limits, and who goes midway."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from fakes.generative_server import COMPLETIONS, GenerativeServer, generative_server
from fakes.routed import Routed, routed, until
from ullage_router.generation import Generate, GenerationKey
from ullage_router.generation_times import GenerationTimes
from ullage_router.settings import GenerativeSettings

GENERATIVE = GenerativeSettings(cache_limit=0.9)


def a_page(used: object, name: str = "vllm:kv_cache_usage_perc") -> str:
    return f'# TYPE {name} gauge\n{name}{{engine="0",model_name="m"}} {used}\n'


def asked(router: Routed, tokens: int, *, stream: bool = True, **headers: str) -> Any:
    body = {"model": "m", "prompt": "p", "max_tokens": tokens, "stream": stream}
    return router.client.post(router.url + COMPLETIONS, json=body, headers=headers)


async def read(router: Routed, tokens: int, **given: Any) -> tuple[int, bytes]:
    async with asked(router, tokens, **given) as answer:
        return answer.status, await answer.read()


def before(*servers: GenerativeServer, in_flight: int = 4, **given: Any) -> Any:
    backends = [one.backend for one in servers]
    return routed(*backends, generative=GENERATIVE, in_flight=in_flight, **given)


def full(router: Routed) -> list[bool]:
    return [one.cache_full for one in router.dispatcher.pool.replicas]


async def test_a_replica_runs_many_requests_and_no_more_than_it_may() -> None:
    async with generative_server() as server, before(server, in_flight=2) as router:
        asking = [asyncio.create_task(read(router, 1)) for _ in range(3)]
        await until(lambda: server.running == 2 and len(router.dispatcher.queue) == 1)
        server.let(3)
        assert [status for status, _ in await asyncio.gather(*asking)] == [200] * 3
        assert len(server.asked) == 3


@pytest.mark.parametrize("name", ["vllm:kv_cache_usage_perc", "sglang:token_usage"])
async def test_a_replica_whose_cache_is_full_is_sent_nothing_new(name: str) -> None:
    async with (
        generative_server(page=a_page(0.95, name)) as packed,
        generative_server(page=a_page(0.5, name)) as other,
        before(packed, other) as router,
    ):
        await until(lambda: full(router) == [True, False])
        asking = [asyncio.create_task(read(router, 1)) for _ in range(4)]
        await until(lambda: other.running == 4)
        waits = asyncio.create_task(read(router, 1))
        await until(lambda: len(router.dispatcher.queue) == 1)
        assert await router.metric("ullage_replicas_cache_full") == 1
        packed.page = a_page(0.9, name)  # at its limit, not above it
        packed.let(1)
        assert (await waits)[0] == 200
        other.let(4)
        await asyncio.gather(*asking)
        assert (len(packed.asked), len(other.asked)) == (1, 4)


@pytest.mark.parametrize("used", ["NaN", "+Inf", "-0.1", "1.01", "full", "1e999"])
async def test_a_cache_that_makes_no_sense_limits_nothing(used: str) -> None:
    async with generative_server(page=a_page(used)) as server, before(server) as router:
        server.let(1)
        assert (await read(router, 1))[0] == 200
        assert full(router) == [False]


async def test_a_client_who_goes_before_the_first_token_frees_the_place() -> None:
    async with generative_server() as server, before(server, in_flight=1) as router:
        for stream in (True, False):
            gone = asyncio.create_task(read(router, 5, stream=stream))
            await until(lambda: server.running == 1)
            gone.cancel()
            await until(lambda: server.running == 0)
        assert server.left == 2
        server.let(1)
        assert (await read(router, 1))[0] == 200


async def test_a_client_who_goes_midway_frees_the_place_though_no_token_comes() -> None:
    async with generative_server() as server, before(server, in_flight=1) as router:
        server.let(1)
        async with asked(router, 5) as answer:
            await answer.content.readuntil(b"\n\n")
        await until(lambda: server.running == 0 and router.dispatcher.idle)
        assert server.left == 1
        assert await router.metric("ullage_requests_total", outcome="met") == 1
        server.let(1)
        assert (await read(router, 1))[0] == 200


async def test_a_server_that_dies_midway_ends_only_its_own_answers() -> None:
    async with (
        generative_server(dies_after=2) as mortal,
        generative_server() as other,
        before(mortal, other) as router,
    ):
        asking = [asyncio.create_task(_events(router)) for _ in range(2)]
        await until(lambda: mortal.running == 1 and other.running == 1)
        mortal.let(3)
        other.let(3)
        answers = sorted(await asyncio.gather(*asking))
        broken, whole = answers if answers[0][0] else answers[::-1]
        assert whole[1].endswith(b"data: [DONE]\n\n")
        assert whole[1].count(b'"text": "x"') == 3
        assert broken[1].count(b'"text": "x"') == 2
        event = broken[1].rpartition(b"data: ")[2]
        assert json.loads(event)["error"]["code"] == "bad_gateway"
        assert await router.metric("ullage_requests_total", outcome="failed") == 1


async def _events(router: Routed) -> tuple[bool, bytes]:
    """Whether an answer broke off, and what came of it."""
    seen = b""
    async with asked(router, 3) as answer:
        try:
            async for part in answer.content.iter_any():
                seen += part
        except aiohttp.ClientError:
            return True, seen
    return False, seen


async def test_a_server_that_dies_before_the_first_token_is_replaced() -> None:
    async with (
        generative_server(dies_after=0) as mortal,
        generative_server() as other,
        before(mortal, other) as router,
    ):
        mortal.let(4)
        other.let(4)
        answers = await asyncio.gather(*(read(router, 1) for _ in range(2)))
        assert [status for status, _ in answers] == [200, 200]
        assert len(mortal.asked) in (1, 2), "the second is one more try on a new connection"
        assert len(other.asked) == 2


def taught(router: Routed, tokens: dict[str, int]) -> GenerationTimes:
    """Let the router know the answers of applications, as if it had seen many."""
    times = router.dispatcher.pool.replicas[0].times
    assert isinstance(times, GenerationTimes)
    for app, count in tokens.items():
        generate = Generate(model="m", most_tokens=0, streamed=True, prompt_bytes=60)
        key = GenerationKey.of(app, generate, whole=False)
        for _ in range(60):
            times.lengths.add(key, count, cut=False)
            times.first(key, 0.01)
            times.pace_of(count, 1, 1, 0.01)
    return times


async def test_of_equal_deadlines_the_answer_that_frees_its_place_first_goes_first() -> None:
    async with generative_server() as server, before(server, in_flight=1) as router:
        await taught(router, {"long": 400, "short": 5}).learn(())
        busy = asyncio.create_task(read(router, 1))
        await until(lambda: server.running == 1)
        asking = []
        for tokens, app in ((2, "long"), (1, "short")):
            headers = {"x-app": app, "x-deadline-ms": "30000"}
            asking.append(asyncio.create_task(read(router, tokens, **headers)))
            await until(lambda: len(router.dispatcher.queue) == len(asking))
        server.let(4)
        await asyncio.gather(busy, *asking)
        assert [one["max_tokens"] for one in server.asked] == [1, 1, 2]


async def test_what_cannot_have_its_first_token_in_time_is_refused_at_once() -> None:
    async with generative_server() as server, before(server) as router:
        await taught(router, {"default": 5}).learn(())
        status, _ = await read(router, 1, **{"x-deadline-ms": "5"})
        assert status == 429
        assert server.asked == []


async def test_the_deadline_of_a_whole_answer_is_about_its_end() -> None:
    """400 tokens take four seconds; only the client's own deadline makes that too long."""
    async with generative_server() as server, before(server, objective_s=1.0) as router:
        await taught(router, {"default": 400}).learn(())
        status, _ = await read(router, 400, stream=False, **{"x-deadline-ms": "1000"})
        assert (status, server.asked) == (429, [])
        server.let(400)
        assert (await read(router, 400, stream=False))[0] == 200
        assert await router.metric("ullage_requests_total", outcome="met") == 1


async def test_what_is_no_object_is_refused_and_other_paths_are_passed_on() -> None:
    async with generative_server() as server, before(server) as router:
        for body in (b"[1]", b"{", b"[" * 5000):
            async with router.client.post(router.url + COMPLETIONS, data=body) as answer:
                assert answer.status == 400
                assert "the body" in (await answer.json())["error"]["message"]
        assert server.asked == []
        async with router.client.get(router.url + "/v1/models") as answer:
            assert answer.status == 200


async def test_tokens_are_counted_by_what_the_answer_says() -> None:
    async with generative_server() as server, before(server) as router:
        asking = asyncio.create_task(read(router, 4))
        for _ in range(4):  # one by one, so that there is a time between them
            await until(lambda: server.running == 1)
            server.let(1)
            await asyncio.sleep(0.005)
        await asking
        server.let(3)
        await read(router, 3, stream=False)
        await until(lambda: router.dispatcher.idle)
        assert await router.metric("ullage_output_tokens_total") == 7
        assert await router.metric("ullage_inter_token_seconds_count") == 1


async def test_slow_tokens_lower_what_a_replica_runs() -> None:
    limited = GenerativeSettings(between_s=0.015)
    async with (
        generative_server() as server,
        routed(server.backend, generative=limited, in_flight=8) as router,
    ):
        (replica,) = router.dispatcher.pool.replicas
        times = replica.times
        assert isinstance(times, GenerationTimes)
        for running in (1, 2, 4, 8):
            times.pace_of(50, running, running, 0.005 + 0.003 * running)
        busy = asyncio.create_task(read(router, 1))
        await until(lambda: replica.most_in_flight == 3)
        server.let(1)
        assert (await busy)[0] == 200
