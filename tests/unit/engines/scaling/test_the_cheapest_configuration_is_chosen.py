# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replicas, share and accelerator are chosen together: brute force, ties, and what no one keeps."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.scaling.configurations import Configuration, Demand, ranked
from ullage.engines.scaling.pooled_queue import LatencyTarget, PooledLoad, late_part
from ullage.engines.scaling.service_times import ServiceTime

CONFIGURATIONS = st.builds(
    Configuration,
    accelerator=st.sampled_from(["a100", "h100", "l4"]),
    share_percent=st.integers(1, 100),
    service=st.builds(ServiceTime, mean_s=st.floats(0.01, 1), sigma=st.floats(0, 1)),
    cost=st.floats(0.1, 100),
)


def a_demand(rate: float, least: int = 1, most: int = 10) -> Demand:
    return Demand(
        target=LatencyTarget(limit_s=1.0, quantile=0.99),
        load=PooledLoad(requests_per_s=rate),
        least=least,
        most=most,
    )


@given(
    configurations=st.lists(CONFIGURATIONS, min_size=1, max_size=5),
    rate=st.floats(0, 40),
    least=st.integers(1, 3),
)
def test_nothing_cheaper_keeps_the_target(
    configurations: list[Configuration], rate: float, least: int
) -> None:
    demand = a_demand(rate, least)
    best = ranked(configurations, demand)[0]
    costs = [
        count * one.cost
        for one in configurations
        for count in range(least, demand.most + 1)
        if late_part(one.service, demand.load, count, demand.target.limit_s) <= 0.01
    ]
    assert best.keeps == bool(costs)
    if costs:
        assert best.cost == min(costs)
        assert best.predicted_s <= 1.0 + 1e-6


def test_where_none_keeps_the_target_the_fastest_with_all_replicas_comes_first() -> None:
    slow, fast = (
        Configuration(
            accelerator=name,
            share_percent=100,
            service=ServiceTime(mean_s=mean_s, sigma=0.1),
            cost=1.0,
        )
        for name, mean_s in (("l4", 3.0), ("h100", 2.0))
    )
    first, second = ranked([slow, fast], a_demand(1.0))
    assert (first.configuration, first.replicas, first.keeps) == (fast, 10, False)
    assert second.configuration == slow


def test_more_than_all_replicas_can_serve_is_late_for_ever() -> None:
    one = Configuration(
        accelerator="l4",
        share_percent=50,
        service=ServiceTime(mean_s=1.0, sigma=0.1),
        cost=1.0,
    )
    (option,) = ranked([one], a_demand(1e6))
    assert (option.keeps, option.replicas, option.predicted_s) == (False, 10, math.inf)
