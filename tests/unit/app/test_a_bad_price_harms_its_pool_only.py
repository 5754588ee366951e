# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever a source of prices answers, its own pool is told, the others go on, nothing ends."""

from __future__ import annotations

import math

import pytest

from fakes.clock import FakeClock
from fakes.pool_watch import a_pool
from ullage.api.contract import Reason
from ullage.app.pools import PoolKeeper
from ullage.app.prices import PriceLoop
from ullage.cluster.records.pool import (
    PoolRecord,
    PoolStatus,
    PriceSpec,
)
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.capacity.price import Quote
from ullage.prices.fetcher import Unreachable
from ullage.prices.source import Fetch, PriceUnreadable, Where, checked, moment, price
from ullage.scheduling.capacity import pool_status
from ullage.scheduling.capacity.prices import price_fresh

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
    PriceSpec(type="HTTP", options={"url": "http://a.example/p", "metric": "price"}),
    PriceSpec(type="HTTP", options={"url": "http://a.example/j", "pointer": "/bad"}),
    PriceSpec(type="ConfigMap", options={"name": "prices", "key": "a.json", "row": "bad"}),
    PriceSpec(type="AWS"),
    PriceSpec(type="Azure", options={"region": "eastus"}),
    PriceSpec(type="GCP", options={"parts": [{"sku": "core", "count": 1}]}),
)


def a_market(*pools: PoolRecord, body: bytes = b"", fault: Exception | None = None) -> PriceLoop:
    """A loop whose sources answer these bytes, or raise."""

    class Answers:
        async def get(self, fetch: Fetch | None) -> bytes:
            if fetch is None:
                return b""
            if fault is not None:
                raise fault
            return body

    clock = FakeClock()
    clock.advance(NOW_S)
    where = Where(namespace="house", file_root="/prices")
    return PriceLoop(Answers(), lambda: pools, clock=clock, where=where, period_s=300.0)


def told(loop: PriceLoop, name: str = "bad") -> tuple[bool, Reason, str]:
    found = price_fresh(PoolStatus(), loop.news[f"uid-{name}"], NOW_S)
    assert found is not None
    return found.holds, found.reason, found.message


def well() -> PoolRecord:
    return a_pool("well", price_source=PriceSpec(type="Static", options={"pricePerHour": "2.0"}))


@pytest.mark.parametrize("source", SOURCES, ids=lambda one: str(one.type))
@pytest.mark.parametrize("number", range(len(WILD)))
async def test_a_wild_answer_is_no_price_or_a_sane_one(source: PriceSpec, number: int) -> None:
    loop = a_market(a_pool("bad", price_source=source), well(), body=WILD[number])
    await loop.round()
    holds, reason, message = told(loop)
    quote = loop.news["uid-bad"].record.quote
    if quote is None:
        assert (holds, reason) == (False, Reason.PRICE_UNREADABLE)
        assert 0 < len(message) <= 300
    else:
        assert 0 < quote.price_per_hour <= 1e6
        assert 0 <= quote.at_s <= loop._clock.now()
    assert told(loop, "well")[0]


@pytest.mark.parametrize("fault", [ValueError("bad port"), RecursionError(), KeyError("x")])
async def test_an_exception_of_asking_is_told_to_the_pool(fault: Exception) -> None:
    loop = a_market(a_pool("bad", price_source=SOURCES[0]), well(), fault=fault)
    await loop.round()
    assert told(loop)[1] is Reason.PRICE_UNREACHABLE
    assert type(fault).__name__ in told(loop)[2]
    assert loop.figures.answers == {"unreachable": 1, "read": 1}


async def test_a_long_reason_is_cut() -> None:
    loop = a_market(a_pool("bad", price_source=SOURCES[0]), fault=Unreachable("x" * 10**6))
    await loop.round()
    assert len(told(loop)[2]) <= 300


async def test_a_source_that_no_request_can_be_made_for_is_told() -> None:
    source = PriceSpec(type="HTTP", options={"url": 7})
    loop = a_market(a_pool("bad", price_source=source), well())
    await loop.round()
    await loop.round()
    assert told(loop, "well")[0]
    assert not told(loop)[0]


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


def test_a_pool_that_cannot_be_looked_at_is_told_and_the_others_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    really = pool_status.observed

    def observed(pool: PoolRecord, *rest: object) -> PoolStatus:
        if pool.name == "bad":
            raise OverflowError("math range error")
        return really(pool, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(pool_status, "observed", observed)
    keeper = PoolKeeper()
    pools = {one.name: one for one in (a_pool("bad"), a_pool("well"))}
    for moment_s in (1.0, 6.0, 11.0):
        snapshot = Snapshot(version=1, taken_at=NOW_S + moment_s)
        keeper.look(snapshot, pools, {}, is_leader=True)
        writes = {one.target.name: one for one in keeper.writes(pools, NOW_S + moment_s, epoch=3)}
        if moment_s == 1.0:
            assert writes.keys() == {"bad", "well"}
            (condition,) = writes["bad"].status.conditions
            assert condition.reason == Reason.DECISION_FAILED
        else:
            assert not writes, "the same is not written again"
    assert keeper.failures == 3
