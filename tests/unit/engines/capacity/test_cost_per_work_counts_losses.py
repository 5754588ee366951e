# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Cost per work: the worked example to three decimals, lives, scaling, and what is refused."""

from __future__ import annotations

import math

import pytest

from ullage.engines.capacity.cost import CostTerms, ScalingCurve, expected, life_h
from ullage.engines.capacity.records import Ask, Pool

TERMS = CostTerms(
    scaling=ScalingCurve(per_doubling=0.97),
    eviction_h=5 / 60,
    change_h=3 / 60,
    reliable_per_hour=3.06,
)
HELD = Pool(name="held", price_per_hour=0.95, hazard_per_hour=0.095)
EAST_1A = Pool(name="us-east-1a", price_per_hour=0.98, hazard_per_hour=1.39)
EAST_2A = Pool(name="us-east-2a", price_per_hour=1.023, hazard_per_hour=0.175)
WEST_2C = Pool(name="us-west-2c", price_per_hour=0.942, hazard_per_hour=0.146)


def test_the_current_allocation_of_the_example() -> None:
    found = expected([HELD], [8], TERMS, changed=False)
    assert (found.cost, found.work) == pytest.approx((10.310, 6.910), abs=5e-4)
    assert found.per_work == pytest.approx(1.492, abs=5e-4)
    assert found.per_hour == pytest.approx(3.06 + 8 * 0.95)


@pytest.mark.parametrize(("pool", "value"), [(EAST_1A, 1.623), (EAST_2A, 1.453), (WEST_2C, 1.399)])
def test_eight_more_in_another_pool(pool: Pool, value: float) -> None:
    found = expected([HELD, pool], [8, 8], TERMS, changed=True)
    assert found.per_work == pytest.approx(value, abs=5e-4)


def test_a_pool_that_is_never_lost_lives_the_whole_horizon() -> None:
    assert life_h(0.0, 2.0) == 2.0
    assert life_h(1e-15, 2.0) == 2.0
    assert life_h(0.095, 1.0) == pytest.approx(0.9540, abs=5e-5)


def test_losses_are_one_event_per_pool_however_many_instances_it_has() -> None:
    bare = CostTerms(eviction_h=0.25)
    one = expected([HELD], [1], bare, changed=False)
    eight = expected([HELD], [8], bare, changed=False)
    assert eight.per_work == pytest.approx(one.per_work)


def test_a_change_is_paid_in_work() -> None:
    still = expected([HELD], [8], TERMS, changed=False)
    moved = expected([HELD], [8], TERMS, changed=True)
    assert moved.cost == still.cost
    assert moved.work < still.work


def test_overheads_beyond_a_life_leave_no_work() -> None:
    found = expected([EAST_1A], [4], CostTerms(eviction_h=5.0), changed=True)
    assert found.work == 0
    assert math.isinf(found.per_work)


def test_scaling_follows_its_table_and_then_its_factor() -> None:
    curve = ScalingCurve(per_doubling=0.9, table=((1, 1.0), (4, 0.8)))
    assert [curve.at(n) for n in (0, 1, 2, 4, 8)] == pytest.approx([1, 1, 0.9, 0.8, 0.72])
    assert ScalingCurve(per_doubling=0.97).at(16) == pytest.approx(0.97**4)


@pytest.mark.parametrize(
    "curve",
    [
        {"per_doubling": 0.0},
        {"per_doubling": 1.1},
        {"table": ((4, 0.8), (2, 0.9))},
        {"table": ((0, 1.0),)},
        {"table": ((1, 0.0),)},
    ],
)
def test_curves_that_are_none_are_refused(curve: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="scaling"):
        ScalingCurve(**curve)  # type: ignore[arg-type]


def test_instances_without_a_price_are_refused() -> None:
    with pytest.raises(ValueError, match="has no price"):
        expected([Pool(name="a", price_per_hour=None)], [1], TERMS, changed=False)


def test_pools_and_asks_that_no_one_can_mean_are_refused() -> None:
    with pytest.raises(ValueError, match="never below 0"):
        Pool(name="a", price_per_hour=-1.0)
    with pytest.raises(ValueError, match="never below 0"):
        Pool(name="a", price_per_hour=1.0, hazard_per_hour=math.nan)
    with pytest.raises(ValueError, match=r"replicas 3\.\.2"):
        Ask(least=3, most=2)
    with pytest.raises(ValueError, match="no multiple of 4"):
        Ask(least=5, most=7, gang=4)
