# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Dynamic prices: the product's rule, the study's rule, and the cheapest way through known ones."""

from __future__ import annotations

import numpy as np
import pytest

from bench.capacity_optimum import IDLE, Market, cheapest
from bench.study_pricing import StudyOffer, study_cost
from ullage.engines.capacity.pricing import PricedOffer, PriceWhy, SwitchingTerms, choose_offer

HERE = PricedOffer(name="here", price_per_hour=1.0, speed=1.0)
NAN = float("nan")


def test_a_job_starts_where_work_is_cheapest() -> None:
    fast = PricedOffer(name="fast", price_per_hour=1.5, speed=2.0)
    found = choose_offer([HERE, fast], None, 100.0)
    assert (found.chosen, found.runner_up, found.reason) == (fast, HERE, PriceWhy.STARTED)
    assert found.next_in_s == 86400.0
    assert found.text == (
        "start on fast (1.500 $/h, 0.75 $ per unit of work);"
        " next here (1.000 $/h, 1 $ per unit of work)"
    )


def test_it_moves_only_when_the_saving_exceeds_what_moving_costs() -> None:
    cheap = PricedOffer(name="cheap", price_per_hour=0.9, speed=1.0)
    # a day saves 2.40; with an hour lost the move costs 0.90, with three 2.70
    for restart_h, why in ((1.0, PriceWhy.SWITCHED), (3.0, PriceWhy.KEPT)):
        found = choose_offer(
            [HERE, cheap], "here", 1e3, settings=SwitchingTerms(restart_h=restart_h)
        )
        assert found.reason is why
    assert "saves" in choose_offer([HERE, cheap], "here", 1e3).text


def test_a_job_that_ends_soon_does_not_move() -> None:
    cheap = PricedOffer(name="cheap", price_per_hour=0.5, speed=1.0)
    assert choose_offer([HERE, cheap], "here", 10.0).reason is PriceWhy.SWITCHED
    assert choose_offer([HERE, cheap], "here", 0.2).reason is PriceWhy.KEPT


def test_the_least_saving_of_the_policy_holds() -> None:
    cheap = PricedOffer(name="cheap", price_per_hour=0.9, speed=1.0)
    found = choose_offer([HERE, cheap], "here", 1e3, settings=SwitchingTerms(min_savings=0.2))
    assert found.reason is PriceWhy.KEPT
    assert found.chosen is HERE


def test_offers_that_go_and_come() -> None:
    found = choose_offer([HERE], "gone", 1.0)
    assert (found.chosen, found.reason) == (HERE, PriceWhy.GONE)
    nothing = choose_offer([], "gone", 1.0)
    assert (nothing.chosen, nothing.reason) == (None, PriceWhy.NOTHING)


def test_offers_that_end_too_late_are_left_out() -> None:
    slow = PricedOffer(name="slow", price_per_hour=0.2, speed=0.5)
    fast = PricedOffer(name="fast", price_per_hour=9.0, speed=3.0)
    assert choose_offer([HERE, slow], None, 10.0).chosen is slow
    assert choose_offer([HERE, slow], None, 10.0, hours_left=12.0).chosen is HERE
    late = choose_offer([HERE, slow], "slow", 10.0, hours_left=12.0)
    assert (late.chosen, late.reason) == (HERE, PriceWhy.IN_TIME)
    # the restart counts for a move, and where nothing is in time the fastest loses least
    assert choose_offer([HERE, slow], "slow", 10.0, hours_left=10.1).chosen is HERE
    assert choose_offer([HERE, slow, fast], "slow", 10.0, hours_left=10.1).chosen is fast
    assert choose_offer([HERE, slow], "here", 10.0, hours_left=10.1).chosen is HERE


def test_offers_without_speed_are_refused() -> None:
    with pytest.raises(ValueError, match="speed above 0"):
        PricedOffer(name="a", price_per_hour=1.0, speed=0.0)


def test_the_study_ranks_some_by_the_instance_and_charges_all_by_the_gpu() -> None:
    one = StudyOffer(name="one", gpus=1, speed=1.0, prices=(1.0, 1.0))
    whole = StudyOffer(name="whole", gpus=4, speed=1.0, prices=(2.0, 2.0), ranked_whole=True)
    packed = StudyOffer(name="packed", gpus=4, speed=1.0, prices=(2.0, 2.0))
    day = 86400.0
    assert study_cost([one, whole], day, 0, again=False) == pytest.approx(24.0)
    assert study_cost([one, packed], day, 0, again=False) == pytest.approx(12.0)
    assert study_cost([packed], day / 2, 0, again=False) == pytest.approx(6.0)


def test_the_study_follows_its_first_choice_or_moves_for_nothing() -> None:
    falling = StudyOffer(name="falling", gpus=1, speed=1.0, prices=(None, 0.5, 0.5))
    steady = StudyOffer(name="steady", gpus=1, speed=1.0, prices=(1.0, 1.0, 1.0))
    two_days = 2 * 86400.0
    assert study_cost([falling, steady], two_days, 0, again=False) == pytest.approx(48.0)
    assert study_cost([falling, steady], two_days, 0, again=True) == pytest.approx(36.0)
    with pytest.raises(ValueError, match="no price"):
        falling.charge(0)


def test_the_cheapest_way_waits_only_where_it_may() -> None:
    market = Market(
        prices=np.array([[1.0, NAN], [1.0, 0.1], [1.0, 0.1]]), speeds=np.array([1.0, 1.0])
    )
    waiting = cheapest(market, 24.0)
    assert waiting.path == (IDLE, 1)
    assert waiting.cost == pytest.approx(2.4)
    assert cheapest(market, 24.0, may_wait=False).path == (0,)
    assert cheapest(market, 24.0, periods=1).cost == pytest.approx(24.0)


def test_the_last_prices_last() -> None:
    market = Market(prices=np.array([[1.0]]), speeds=np.array([1.0]))
    assert cheapest(market, 72.0).cost == pytest.approx(72.0)


def test_work_that_no_one_offers_is_refused() -> None:
    with pytest.raises(ValueError, match="no candidate"):
        cheapest(Market(prices=np.array([[NAN]]), speeds=np.array([1.0])), 1.0)
