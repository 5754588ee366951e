# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The generative server batches continuously, behind a router, too, and its cache is a limit."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import numpy as np
import pytest

from fakes.routed import routed, until
from generative import load
from generative.network import BLOCK, END, TOKENS, Cache, TokenSequence, made
from generative.serve import engine_of, read, served
from ullage_node.telemetry.histograms import read_histogram
from ullage_router.cache_use import cache_use
from ullage_router.settings import Backend, Generative

DECODER = made(7)
NEVER = {"logit_bias": {str(END): -100}}


def test_a_token_is_the_same_alone_in_company_and_from_anew() -> None:
    cache = Cache(64)
    alone = TokenSequence([1, 2, 3])
    others = [TokenSequence([9] * 20), TokenSequence([4, 5])]
    for one in (alone, *others):
        assert one.grow(cache)
        DECODER.read(cache, one)
    for one in (alone, *others):
        one.tokens.append(7)
        assert one.grow(cache)
    together = DECODER.step(cache, [alone, *others])
    assert together.shape == (3, TOKENS)
    for one, logits in zip((alone, *others), together, strict=True):
        one.give_back(cache)
        assert one.grow(cache)
        np.testing.assert_allclose(DECODER.read(cache, one), logits, atol=2e-4)


def test_blocks_are_taken_as_a_sequence_grows_and_given_back() -> None:
    cache, one = Cache(2), TokenSequence([1] * BLOCK)
    assert one.grow(cache)
    assert cache.used == 0.5
    one.tokens += [1] * (BLOCK + 1)
    assert not one.grow(cache)
    one.give_back(cache)
    assert (cache.used, one.seen) == (0.0, 0)


async def ask(client: aiohttp.ClientSession, port: int, **body: Any) -> tuple[int, Any]:
    url = f"http://127.0.0.1:{port}/v1/completions"
    async with client.post(url, json={"prompt": "abc", **body}) as answer:
        return answer.status, json.loads(await answer.text())


async def test_answers_run_side_by_side_and_a_spent_cache_starts_one_anew() -> None:
    """Four answers of 43 tokens need three blocks each, of eight that there are."""
    engine = engine_of(places=4, blocks=8)
    async with served(engine, "127.0.0.1", 0) as port, aiohttp.ClientSession() as client:
        asking = [asyncio.create_task(ask(client, port, max_tokens=40, **NEVER)) for _ in range(4)]
        await until(lambda: len(engine.running) > 1)
        for status, body in await asyncio.gather(*asking):
            assert (status, body["usage"]["completion_tokens"]) == (200, 40)
            assert body["choices"][0]["finish_reason"] == "length"
        await until(lambda: engine.cache.used == 0)


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"prompt": 1},
        {"prompt": "a", "max_tokens": 0},
        {"prompt": "a", "max_tokens": 10**9},
        {"prompt": "a", "max_tokens": True},
        {"prompt": "a", "logit_bias": [1]},
        {"prompt": "a", "logit_bias": {"999": 1}},
        {"prompt": "a", "logit_bias": {"1": "x"}},
        {"prompt": "a", "logit_bias": {"1": 1e9}},
    ],
)
def test_what_is_no_request_is_refused(body: object) -> None:
    with pytest.raises(ValueError, match=r"object|text|tokens|logit_bias"):
        read(body, seed=1)


async def test_an_open_load_is_answered_through_a_router_that_reads_its_page() -> None:
    engine = engine_of(places=4)
    limits = Generative(cache_limit=0.9)
    async with served(engine, "127.0.0.1", 0) as port:
        backend = Backend(url=f"http://127.0.0.1:{port}")
        asking = load.Asking(chat=100, draft=3, most_tokens=8)
        async with routed(
            backend, generative=limits, in_flight=4, probe_path="/health", objective_s=30.0
        ) as router:
            seen = await load.offer([router.url], count=12, rate=200, seed=1, asking=asking)
            assert (seen.whole, seen.refused, seen.failed) == (12, 0, 0)
            assert seen.in_time(30.0) == 12
            await until(lambda: router.dispatcher.idle)
    page = engine.metrics.page()
    assert cache_use(page) is not None
    assert read_histogram(page.decode().splitlines(), "ttft").count == 12


async def test_what_no_one_answers_is_counted_and_a_rate_is_above_nothing() -> None:
    seen = await load.offer(["http://127.0.0.1:9"], count=3, rate=100, seed=1)
    assert (seen.first_s, seen.failed) == ([], 3)
    with pytest.raises(ValueError, match="above 0"):
        await load.offer(["http://127.0.0.1:9"], count=1, rate=0, seed=1)
