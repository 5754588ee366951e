# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever a source of prices answers, its own pool is told, the others go on, nothing ends."""

from __future__ import annotations

import math
from collections import Counter
from typing import cast

import pytest

from builders_raw import raw_pool
from fakes.clock import FakeClock
from fakes.pool_scaling import Replica, reference
from fakes.pool_watch import a_pool, price_source
from ullage.api.pricesource import PriceSource
from ullage.api.reasons import Reason
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.pool import PoolRecord, PoolStatus
from ullage.cluster.values import streams
from ullage.engines.capacity.price import Quote
from ullage.handlers import pool_watch
from ullage.prices.asked import Prices
from ullage.prices.fetcher import Fetcher, Unreachable
from ullage.prices.source import PriceFetch, PriceUnreadable, Where, checked, moment, price
from ullage.scheduling.capacity.pool_status import price_fresh
from ullage.scheduling.model.plan import SetPoolStatus

NOW_S = 1_800_000_000.0
DEEP = b"[" * 200_000
LONG = b"price " + b"1" * 2_000_000
WILD: tuple[bytes, ...] = (
    b"",
    b"null",
    b"[]",
    b"{}",
    b"\x00\xff\xfe",
    b'"text"',
    b"1e999",
    b"-1",
    b"NaN",
    DEEP,
    LONG,
    b"<" * 100_000,
    b"<a>" * 100_000,
    b"price 1 1e400\n",
    b"price 1 -62135596800000\n",
    b"price 1 999999999999999999999999\n",
    b"price NaN\nprice +Inf\n",
    b'price{a="' + b"x" * 100_000 + b'"} 1\n',
    b"price{a=} 1\n",
    b'price{a="\\',
    b"price 1\n" * 20_000,
    b"\n" * 2_000_000,
    b'{"bad": 1e400, "other": []}',
    b'{"bad": {"pricePerHour": 1, "at": "9999-12-31T23:59:59-23:59"}}',
    b'{"bad": {"pricePerHour": 1, "at": "0001-01-01T00:00:00+23:59"}}',
    b'{"bad": {"pricePerHour": [1], "at": {}}}',
    b'{"bad": ' + b"9" * 5_000 + b"}",
    b'{"Items": [{"effectiveStartDate": 7, "retailPrice": {}}]}',
    b'{"SpotPriceHistory": [[], 1]}',
    b'{"skus": [{"skuId": {"a": 1}, "pricingInfo": 7}]}',
)
SOURCES = (
    price_source("HTTP", url="http://a.example/p", metric="price"),
    price_source("HTTP", url="http://a.example/j", pointer="/bad"),
    price_source("ConfigMap", name="prices", key="a.json", row="bad"),
    price_source("AWS"),
    price_source("Azure", region="eastus"),
    price_source("GCP", parts=[{"sku": "1F8B-71B0-3D1B", "count": 1}]),
)


class Market:
    """Prices whose sources answer these bytes, or raise."""

    def __init__(
        self, *pools: PoolRecord, body: bytes = b"", fault: Exception | None = None
    ) -> None:
        self.pools, self.body, self.fault = pools, body, fault
        self.clock = FakeClock(NOW_S)
        self.answers: Counter[str] = Counter()
        self.prices = Prices(
            cast("Fetcher", self),
            lambda: pools,
            clock=self.clock,
            where=Where(namespace="house", file_root="/prices"),
            period_s=300.0,
            answers=self.answers,
        )

    async def get(self, fetch: PriceFetch | None) -> bytes:
        if fetch is not None and self.fault is not None:
            raise self.fault
        return b"" if fetch is None else self.body

    async def round(self) -> None:
        for pool in self.pools:
            await self.prices.ask(pool)


def told(market: Market, name: str = "bad") -> tuple[bool, Reason, str]:
    found = price_fresh(PoolStatus(), market.prices.news(f"uid-{name}"), NOW_S)
    assert found is not None
    return found.holds, found.reason, found.message


def well() -> PoolRecord:
    return a_pool("well", price_source=price_source("Static", pricePerHour="2.0"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda one: str(one.type))
@pytest.mark.parametrize("number", range(len(WILD)))
async def test_a_wild_answer_is_no_price_or_a_sane_one(source: PriceSource, number: int) -> None:
    market = Market(a_pool("bad", price_source=source), well(), body=WILD[number])
    await market.round()
    holds, reason, message = told(market)
    quote = market.prices.news("uid-bad").record.quote  # type: ignore[union-attr]
    if quote is None:
        assert (holds, reason) == (False, Reason.PRICE_UNREADABLE)
        assert 0 < len(message) <= 300
    else:
        assert 0 < quote.price_per_hour <= 1e6
        assert 0 <= quote.at_s <= market.clock.now()
    assert told(market, "well")[0]


@pytest.mark.parametrize("fault", [ValueError("bad port"), RecursionError(), KeyError("x")])
async def test_an_exception_of_asking_is_told_to_the_pool(fault: Exception) -> None:
    market = Market(a_pool("bad", price_source=SOURCES[0]), well(), fault=fault)
    await market.round()
    assert told(market)[1] is Reason.PRICE_UNREACHABLE
    assert type(fault).__name__ in told(market)[2]
    assert market.answers == {"unreachable": 1, "read": 1}


async def test_a_long_reason_is_cut() -> None:
    market = Market(a_pool("bad", price_source=SOURCES[0]), fault=Unreachable("x" * 10**6))
    await market.round()
    assert len(told(market)[2]) <= 300


@pytest.mark.parametrize("at_s", [math.inf, -math.inf, math.nan, -1.0, NOW_S + 301])
def test_a_moment_that_has_not_been_is_refused(at_s: float) -> None:
    with pytest.raises(PriceUnreadable):
        checked(Quote(price_per_hour=1.0, at_s=at_s), NOW_S)


def test_a_clock_that_is_a_little_ahead_does_not_block_later_prices() -> None:
    assert checked(Quote(price_per_hour=1.0, at_s=NOW_S + 299), NOW_S).at_s == NOW_S


@pytest.mark.parametrize("value", [math.inf, math.nan, -1, 0, 10**400, "1" * 5000, True, [], None])
def test_what_is_no_price_is_refused(value: object) -> None:
    with pytest.raises(PriceUnreadable):
        price(value, "it")


@pytest.mark.parametrize("value", ["10000-01-01T00:00:00Z", "x" * 5000, 7, {}])
def test_what_is_no_time_is_refused(value: object) -> None:
    with pytest.raises(PriceUnreadable):
        moment(value, "it")


async def test_a_pool_that_cannot_be_looked_at_is_told_and_the_others_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    really = pool_watch.observed

    def observed(pool: PoolRecord, *rest: object) -> PoolStatus:
        if pool.name == "bad":
            raise OverflowError("math range error")
        return really(pool, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(pool_watch, "observed", observed)
    state, clock = ClusterState(effect_of), FakeClock(NOW_S)
    for name in ("bad", "well"):
        state.upsert(streams.CAPACITY_POOLS, raw_pool(name), 0.0)
    replica = Replica(state, clock)
    for again in (False, True, True):
        clock.advance(5.0)
        with pytest.raises(OverflowError):
            await replica.scaling.scale(reference("bad", "uid-bad"))
        await replica.scaling.scale(reference("well", "uid-well"))
        writes = {one.target.name: one for one in replica.writes if isinstance(one, SetPoolStatus)}
        replica.writes.clear()
        if again:
            assert not writes, "the same is not written again"
        else:
            assert writes.keys() == {"bad", "well"}
            (condition,) = writes["bad"].status.conditions
            assert condition.reason == Reason.DECISION_FAILED
    assert replica.watch.failures == 3
