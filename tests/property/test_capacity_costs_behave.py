# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Cost per work rises with prices, hazards are never 0, choices keep every limit."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.capacity_optimum import IDLE, Market, cheapest
from fakes.examples import examples
from ullage.api.words import CostObjective
from ullage.engines.capacity.cost import CostTerms, ScalingCurve, expected
from ullage.engines.capacity.decide import decide
from ullage.engines.capacity.hazard import Hazard, Prior
from ullage.engines.capacity.pricing import PricedOffer, PriceWhy, SwitchingTerms, choose_offer
from ullage.engines.capacity.records import Ask, CapacitySettings, CapacityType, Pool, PoolHolding

PRICES = st.floats(0.01, 50, allow_nan=False)
TERMS = st.builds(
    CostTerms,
    scaling=st.builds(ScalingCurve, per_doubling=st.floats(0.5, 1.0)),
    eviction_h=st.floats(0, 0.5),
    change_h=st.floats(0, 0.2),
    reliable_per_hour=st.sampled_from([0.0, 3.06]),
)

CI = examples(40, many=200)


@st.composite
def pools(draw: st.DrawFn, *, least: int = 1) -> list[Pool]:
    """A few pools, some without price, speed, room or capacity now."""
    count = draw(st.integers(least, 4))
    return [
        Pool(
            name=f"p{number}",
            capacity_type=draw(st.sampled_from([CapacityType.SPOT, CapacityType.ON_DEMAND])),
            price_per_hour=draw(st.none() | PRICES),
            hazard_per_hour=draw(st.sampled_from([0.0, 0.01, 0.2, 1.4])),
            speed=draw(st.sampled_from([0.0, 0.5, 1.0, 2.0])),
            most=draw(st.none() | st.integers(0, 6)),
            available=draw(st.booleans()),
        )
        for number in range(count)
    ]


@st.composite
def asks(draw: st.DrawFn, names: list[str]) -> Ask:
    gang = draw(st.sampled_from([1, 2]))
    least = draw(st.integers(1, 4))
    return Ask(
        objective=draw(st.sampled_from([CostObjective.COST_PER_WORK, CostObjective.MAKESPAN])),
        least=least,
        most=draw(st.integers(-(-least // gang) * gang, 8)),
        gang=gang,
        budget_per_hour=draw(st.none() | st.floats(0, 100)),
        allow_spot=draw(st.booleans()),
        allow_on_demand=draw(st.booleans()),
        held=tuple(
            PoolHolding(
                pool=name, instances=draw(st.integers(1, 5)), held_s=draw(st.floats(0, 1e4))
            )
            for name in names
            if draw(st.booleans())
        ),
    )


@CI
@given(
    one=pools(),
    terms=TERMS,
    more=st.floats(1.0, 5.0),
    counts=st.lists(st.integers(1, 8), min_size=4),
)
def test_cost_per_work_never_falls_when_a_price_rises(
    one: list[Pool], terms: CostTerms, more: float, counts: list[int]
) -> None:
    priced = [replace(pool, price_per_hour=pool.price_per_hour or 1.0) for pool in one]
    held = counts[: len(priced)]
    before = expected(priced, held, terms, changed=False).per_work
    dearer = [replace(priced[0], price_per_hour=(priced[0].price_per_hour or 1.0) * more)]
    after = expected([*dearer, *priced[1:]], held, terms, changed=False).per_work
    assert after >= before * (1 - 1e-12)


NEWS = st.lists(
    st.one_of(
        st.tuples(st.just("after"), st.floats(0, 1e4), st.booleans()),
        st.tuples(st.just("lost"), st.floats(0.01, 1.0), st.just(False)),
        st.tuples(st.just("gained"), st.just(0.0), st.just(False)),
        st.tuples(st.just("warned"), st.just(0.1), st.just(False)),
    ),
    max_size=20,
)


@CI
@given(news=NEWS, events=st.floats(1e-4, 1.0), hours=st.floats(0.1, 100))
def test_a_hazard_is_never_0_and_a_probability_is_one(
    news: list[tuple[str, float, bool]], events: float, hours: float
) -> None:
    hazard = Hazard(prior=Prior(events=events, hours=hours))
    for kind, value, held in news:
        if kind == "after":
            hazard = hazard.after(value, held=held)
        elif kind == "lost":
            hazard = hazard.lost(value)
        else:
            hazard = hazard.gained() if kind == "gained" else hazard.warned(value)
        assert hazard.rate_per_hour > 0
        assert 0 < hazard.mean_lost_fraction <= 1 + 1e-9


@CI
@given(data=st.data(), found=pools(), terms=TERMS)
def test_a_choice_keeps_every_limit(
    data: st.DataObject, found: list[Pool], terms: CostTerms
) -> None:
    ask = data.draw(asks([pool.name for pool in found]))
    decision = decide(ask, found, terms)
    chosen = {one.pool: one.instances for one in decision.chosen.shares}
    total = sum(chosen.values())
    assert total == 0 or ask.least <= total <= ask.most
    assert total % ask.gang == 0
    if ask.budget_per_hour is not None and total:
        assert decision.chosen.expected.per_hour <= ask.budget_per_hour * (1 + 1e-6)
    held = {one.pool: one.instances for one in ask.held}
    for pool in found:
        count = chosen.get(pool.name, 0)
        assert not count or pool.price_per_hour is not None
        assert pool.most is None or count <= pool.most
        assert pool.available or count <= held.get(pool.name, 0)
        spot = pool.capacity_type is CapacityType.SPOT
        assert not count or (ask.allow_spot if spot else ask.allow_on_demand)


@CI
@given(found=pools(), terms=TERMS, most=st.integers(1, 5))
def test_the_first_choice_is_within_the_gain_of_the_best_single_pool(
    found: list[Pool], terms: CostTerms, most: int
) -> None:
    decision = decide(Ask(most=most), found, terms, settings=CapacitySettings(min_gain=0.0))
    usable = [pool for pool in found if pool.available and pool.price_per_hour and pool.speed]
    alone = [
        expected([pool], [count], terms, changed=True).per_work
        for pool in usable
        for count in range(1, min(most, most if pool.most is None else pool.most) + 1)
    ]
    if alone:
        assert decision.chosen.expected.per_work <= min(alone) * (1 + 1e-9)
    else:
        assert not decision.chosen.shares


@st.composite
def markets(draw: st.DrawFn) -> Market:
    periods, offers = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    cell = st.sampled_from([0.2, 0.5, 1.0, 1.7, float("nan")])
    rows = draw(
        st.lists(
            st.lists(cell, min_size=offers, max_size=offers), min_size=periods, max_size=periods
        )
    )
    # the first offer is always there, so that the work can be done
    for row in rows:
        row[0] = 1.3 if np.isnan(row[0]) else row[0]
    return Market(
        prices=np.array(rows),
        speeds=np.array(
            draw(st.lists(st.sampled_from([0.4, 1.0, 2.5]), min_size=offers, max_size=offers))
        ),
        restart_h=draw(st.sampled_from([0.0, 0.25, 5.0])),
    )


def enumerated(market: Market, work: float, periods: int, *, may_wait: bool) -> float:
    """The cheapest of all paths, walked one by one."""
    choices = ([IDLE] if may_wait else []) + list(range(len(market.speeds)))
    best = float("inf")
    for path in itertools.product(choices, repeat=periods):
        cost, done, held = 0.0, 0.0, IDLE
        for period, offer in enumerate(path):
            if offer != IDLE:
                if np.isnan(market.row(period)[offer]):
                    break
                moved = done > 0 and offer != held
                paid, more = market.run(period, offer, work - done, moved=moved)
                cost, done = cost + paid, done + more
            held = offer
            if done >= work * (1 - 1e-12):
                best = min(best, cost)
                break
    return best


@pytest.mark.slow
@CI
@given(market=markets(), part=st.floats(0.1, 1.0), may_wait=st.booleans())
def test_the_cheapest_way_equals_enumeration(market: Market, part: float, may_wait: bool) -> None:
    periods = len(market.prices)
    work = part * periods * market.period_h * float(market.speeds[0])
    found = cheapest(market, work, may_wait=may_wait, periods=periods)
    assert found.cost == pytest.approx(enumerated(market, work, periods, may_wait=may_wait))


@CI
@given(
    prices=st.lists(PRICES, min_size=2, max_size=5),
    speeds=st.lists(st.floats(0.1, 10), min_size=5, max_size=5),
    work=st.floats(0.01, 1e4),
    restart_h=st.floats(0, 5),
)
def test_a_move_always_pays(
    prices: list[float], speeds: list[float], work: float, restart_h: float
) -> None:
    offers = [
        PricedOffer(name=f"o{number}", price_per_hour=price, speed=speed)
        for number, (price, speed) in enumerate(zip(prices, speeds, strict=False))
    ]
    found = choose_offer(offers, "o0", work, settings=SwitchingTerms(restart_h=restart_h))
    assert found.chosen is not None
    if found.reason is PriceWhy.SWITCHED:
        assert (
            found.saving > found.move_cost == pytest.approx(restart_h * found.chosen.price_per_hour)
        )
