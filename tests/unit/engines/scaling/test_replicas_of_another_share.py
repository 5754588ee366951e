# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A share is changed where that saves enough or mends what more replicas cannot: brute force."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.scaling.configurations import Configuration, Demand
from ullage.engines.scaling.pooled_queue import LatencyTarget, PooledLoad, late_part
from ullage.engines.scaling.service_times import ServiceTime
from ullage.engines.scaling.share_choice import SAVES, SPARE, better_share, configured, shares


def with_share(percent: int, mean_s: float, sigma: float = 0.2) -> Configuration:
    return Configuration(
        accelerator="l4",
        share_percent=percent,
        service=ServiceTime(mean_s=mean_s, sigma=sigma),
        cost=float(percent),
    )


def a_demand(rate: float, most: int = 6, limit_s: float = 1.0) -> Demand:
    return Demand(
        target=LatencyTarget(limit_s=limit_s, quantile=0.99),
        load=PooledLoad(requests_per_s=rate, pooled=False),
        least=1,
        most=most,
    )


def in_proportion(_: str, percent: int) -> float:
    return 100 / percent


def at_share(now: Configuration, percent: int) -> Configuration:
    return configured(now, now.accelerator, percent, in_proportion)


@pytest.mark.parametrize(
    ("least", "most", "expected"),
    [
        (20, 40, (20, 25, 30, 35, 40)),
        (22, 31, (22, 25, 30, 31)),
        (1, 3, (1, 3)),
        (50, 50, (50,)),
    ],
)
def test_shares_are_the_bounds_and_multiples_of_five(
    least: int, most: int, expected: tuple[int, ...]
) -> None:
    assert shares(least, most) == expected


def test_a_request_takes_as_much_longer_as_the_curve_says() -> None:
    found = at_share(with_share(80, 0.1), 20)
    assert found == with_share(20, 0.4)


@given(
    now=st.integers(1, 100),
    mean_s=st.floats(0.01, 0.8),
    rate=st.floats(0, 20),
    least=st.integers(1, 100),
    most=st.integers(1, 100),
)
def test_nothing_that_may_be_chosen_is_cheaper(
    now: int, mean_s: float, rate: float, least: int, most: int
) -> None:
    here, demand = with_share(now, mean_s), a_demand(rate)
    bounds = sorted((least, most))
    others = [at_share(here, one) for one in shares(bounds[0], bounds[1])]

    def cost(one: Configuration, limit_s: float) -> float | None:
        for count in range(1, demand.most + 1):
            if late_part(one.service, demand.load, count, limit_s) <= 0.01:
                return count * one.cost
        return None

    found, present = better_share(here, others, demand), cost(here, 1.0)
    if present is None:
        allowed = [cost(one, 1.0) for one in others if one.share_percent > now]
    else:
        smaller = [cost(one, 1.0 * (1 - SPARE)) for one in others if one.share_percent < now]
        allowed = [one for one in smaller if one is not None and one <= (1 - SAVES) * present]
    kept = [one for one in allowed if one is not None]
    assert (found is None) == (not kept)
    if found is not None:
        assert found.cost == min(kept)


@given(
    mean_s=st.floats(0.01, 1.5),
    rate=st.floats(0, 20),
    kinds=st.lists(
        st.tuples(st.sampled_from(["l4", "t4", "a100"]), st.integers(1, 100), st.floats(0.1, 9)),
        max_size=6,
    ),
)
def test_another_accelerator_is_chosen_by_its_price(
    mean_s: float, rate: float, kinds: list[tuple[str, int, float]]
) -> None:
    speed = {"l4": 1.0, "t4": 2.0, "a100": 0.4}
    here, demand = with_share(50, mean_s), a_demand(rate)

    def seconds(accelerator: str, percent: int) -> float:
        return speed[accelerator] / percent

    others = [
        configured(here, name, percent, seconds, 1.0 if name == "l4" else price)
        for name, percent, price in kinds
    ]

    def cost(one: Configuration, limit_s: float) -> float:
        kept = (
            count * one.cost
            for count in range(1, demand.most + 1)
            if late_part(one.service, demand.load, count, limit_s) <= 0.01
        )
        return min(kept, default=math.inf)

    present = cost(here, 1.0)
    keeps = math.isfinite(present)
    limit_s, most = (1 - SPARE, (1 - SAVES) * present) if keeps else (1.0, math.inf)
    allowed = [
        cost(one, limit_s)
        for one in others
        if one.accelerator != "l4" or (one.share_percent < 50 if keeps else one.share_percent > 50)
    ]
    best = min((one for one in allowed if one <= most and math.isfinite(one)), default=None)
    found = better_share(here, others, demand)
    assert (found.cost if found is not None else None) == best


def test_a_share_that_serves_too_slowly_becomes_larger() -> None:
    slow = with_share(20, 1.5)
    others = [at_share(slow, one) for one in shares(20, 80)]
    found = better_share(slow, others, a_demand(0.1))
    assert found is not None
    assert found.configuration.share_percent > 20


def test_a_saving_that_is_small_changes_nothing() -> None:
    here = with_share(50, 0.1)
    assert better_share(here, [at_share(here, 45)], a_demand(0.1)) is None
