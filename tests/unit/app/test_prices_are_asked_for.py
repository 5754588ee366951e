# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Prices are asked for from time to time, shared, doubted and never guessed."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import cast

import orjson
import pytest

from fakes.clock import FakeClock
from fakes.pool_watch import a_pool, price_source
from ullage.api.reasons import Reason
from ullage.cluster.records.pool import CapacityType, PoolRecord, PoolStatus
from ullage.prices.asked import Prices
from ullage.prices.fetcher import Fetcher, Unreachable
from ullage.prices.source import PriceFetch, Where
from ullage.scheduling.capacity.pool_status import PriceNews, price_fresh

URL = "http://prices.example.com/all"
CORE, GPU = "1F8B-71B0-3D1B", "5812-D8DD-2AB5"


def asking(name: str, pointer: str = "") -> PoolRecord:
    return a_pool(name, price_source=price_source("HTTP", url=URL, pointer=pointer or f"/{name}"))


class Market:
    """What sources answer; counts the questions."""

    def __init__(self, *pools: PoolRecord) -> None:
        self.pools = list(pools)
        self.table: dict[str, object] = {"a": 1.0, "b": 2.0}
        self.down = ""
        self.hangs = False
        self.asked: list[str] = []
        self.kept: frozenset[str] = frozenset()
        self.most_at_once = self.now_open = 0
        self.clock = FakeClock()
        self.prices = Prices(
            cast("Fetcher", self),
            lambda: self.pools,
            clock=self.clock,
            where=Where(namespace="house", file_root="/etc/ullage/prices"),
            period_s=300.0,
            answers=Counter(),
        )

    async def get(self, fetch: PriceFetch | None) -> bytes:
        if fetch is None:
            return b""
        self.asked.append(fetch.url)
        self.kept = fetch.paging.keep if fetch.paging is not None else frozenset()
        if self.hangs:
            await asyncio.Event().wait()
        self.now_open += 1
        self.most_at_once = max(self.most_at_once, self.now_open)
        await asyncio.sleep(0)
        self.now_open -= 1
        if self.down:
            raise Unreachable(self.down)
        return orjson.dumps(self.table)

    async def round(self, after_s: float = 0.0) -> None:
        self.clock.advance(after_s)
        await asyncio.gather(*(self.prices.ask(pool) for pool in self.pools))

    def price(self, name: str) -> float | None:
        news = self.prices.news(f"uid-{name}")
        quote = news.record.quote if news is not None else None
        return None if quote is None else quote.price_per_hour

    def said(self, pool: PoolRecord) -> tuple[bool, Reason, str]:
        news = self.prices.news(pool.uid)
        found = price_fresh(PoolStatus(), news, self.clock.now())
        assert found is not None
        return found.holds, found.reason, found.message


async def test_pools_that_ask_for_the_same_share_one_answer() -> None:
    market = Market(asking("a"), asking("b"))
    await market.round()
    assert (market.price("a"), market.price("b")) == (1.0, 2.0)
    assert market.asked == [URL]


async def test_pools_share_one_walk_through_a_catalogue_and_not_often() -> None:
    def machine(name: str, sku: str) -> PoolRecord:
        return a_pool(name, price_source=price_source("GCP", parts=[{"sku": sku, "count": 1}]))

    market = Market(machine("a", CORE), machine("b", GPU))
    market.table = {"skus": []}
    await market.round()
    assert len(market.asked) == 1
    assert market.kept == {CORE, GPU}
    rate = {"unitPrice": {"currencyCode": "USD", "units": "1", "nanos": 0}}
    priced = {
        "effectiveTime": "1970-01-01T00:00:00Z",
        "pricingExpression": {"usageUnit": "h", "tieredRates": [rate]},
    }
    market.table = {"skus": [{"skuId": sku, "pricingInfo": [priced]} for sku in (CORE, GPU)]}
    await market.round(60.0)
    assert (market.price("a"), market.price("b"), len(market.asked)) == (1.0, 1.0, 2)
    await market.round(1800.0)
    assert len(market.asked) == 2
    await market.round(1800.0)
    assert len(market.asked) == 3


async def test_a_source_is_asked_once_a_period() -> None:
    market = Market(asking("a"))
    await market.round()
    await market.round(after_s=299.0)
    assert len(market.asked) == 1
    await market.round(after_s=2.0)
    assert len(market.asked) == 2


async def test_who_does_not_answer_is_asked_ever_less_often_and_told_about() -> None:
    pool = asking("a")
    market = Market(pool)
    market.down = "prices.example.com: no route"
    for _ in range(3600):
        await market.round(after_s=1.0)
    assert 5 <= len(market.asked) <= 9
    assert market.said(pool) == (False, Reason.PRICE_UNREACHABLE, market.down)
    market.down = ""
    await market.round(after_s=1801.0)
    assert market.said(pool)[:2] == (True, Reason.PRICE_READ)


async def test_a_price_that_was_read_stands_while_the_source_is_away() -> None:
    pool = asking("a")
    market = Market(pool)
    await market.round()
    market.down = "away"
    await market.round(after_s=3600.0)
    assert market.price("a") == 1.0
    assert market.said(pool)[0]
    await market.round(after_s=6 * 3600.0)
    assert market.said(pool) == (False, Reason.PRICE_UNREACHABLE, "away")


async def test_an_outlier_is_refused_and_the_price_before_stands() -> None:
    pool = asking("a")
    market = Market(pool)
    market.table["a"] = 3.06
    await market.round()
    market.table["a"] = 36.078
    for _ in range(20):
        await market.round(after_s=301.0)
    holds, reason, message = market.said(pool)
    assert (market.price("a"), holds, reason) == (3.06, False, Reason.PRICE_OUTLIER)
    assert "36.078" in message
    assert "3.06" in message
    market.table["a"] = 3.1
    await market.round(after_s=301.0)
    assert market.price("a") == 3.1
    assert market.said(pool)[0]


async def test_the_price_of_before_a_restart_is_the_measure_for_outliers() -> None:
    status = PoolStatus(price=3.06, priced_at_s=1_799_999_000.0)
    market = Market(replace(asking("a"), status=status))
    market.table["a"] = 36.078
    await market.round()
    assert market.price("a") == 3.06


async def test_a_new_source_is_asked_at_once_and_measured_by_nothing_before() -> None:
    market = Market(asking("a"))
    await market.round()
    market.table["elsewhere"] = 30.0
    market.pools = [asking("a", "/elsewhere")]
    await market.round(after_s=1.0)
    assert market.price("a") == 30.0


async def test_a_question_that_is_cancelled_is_asked_by_the_others() -> None:
    first, other = asking("a"), asking("b")
    market = Market(first, other)
    market.hangs = True
    task = asyncio.create_task(market.prices.ask(first))
    while not market.asked:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    market.hangs = False
    await market.prices.ask(other)
    assert (market.price("a"), market.price("b")) == (1.0, 2.0)


async def test_one_bad_row_does_not_hold_up_the_others() -> None:
    bad, good = asking("a"), asking("b")
    market = Market(bad, good)
    market.table["a"] = "free"
    await market.round()
    assert market.price("b") == 2.0
    holds, reason, message = market.said(bad)
    assert (holds, reason) == (False, Reason.PRICE_UNREADABLE)
    assert "price above 0" in message


async def test_a_static_price_needs_no_question() -> None:
    source = price_source("Static", pricePerHour="0.95")
    market = Market(a_pool("a", price_source=source))
    await market.round()
    assert (market.price("a"), market.asked) == (0.95, [])


@pytest.mark.parametrize(
    ("pool", "words"),
    [
        (
            a_pool("a", capacity_type=CapacityType.ON_DEMAND, price_source=price_source("AWS")),
            "history of spot prices",
        ),
        (a_pool("a"), "priceSource is missing"),
    ],
    ids=["on-demand of spot history", "none"],
)
async def test_a_source_that_cannot_be_asked_is_said(pool: PoolRecord, words: str) -> None:
    market = Market(pool)
    await market.round()
    holds, reason, message = market.said(pool)
    assert (holds, reason) == (False, Reason.PRICE_UNREADABLE)
    assert words in message
    assert not market.asked


async def test_few_questions_are_under_way_at_once() -> None:
    pools = [
        a_pool(
            f"p{n}",
            price_source=price_source("HTTP", url=f"{URL}/{n}", pointer="/a"),
        )
        for n in range(40)
    ]
    market = Market(*pools)
    await market.round()
    assert len(market.asked) == 40
    assert market.most_at_once <= 4


async def test_pools_that_go_are_forgotten() -> None:
    market = Market(asking("a"), asking("b"))
    await market.round()
    market.pools = market.pools[1:]
    await market.round(after_s=301.0)
    assert market.prices.news("uid-a") is None
    assert market.prices.news("uid-b") is not None


def test_before_the_first_answer_nothing_is_claimed() -> None:
    assert price_fresh(PoolStatus(), None, 1e9) is None
    old = PoolStatus(price=1.0, priced_at_s=1.0)
    found = price_fresh(old, None, 1e9)
    assert found is not None
    assert found.reason is Reason.PRICE_STALE
    assert price_fresh(PoolStatus(), PriceNews(), 1e9).reason is Reason.NEVER_PRICED  # type: ignore[union-attr]
