# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The hazard posterior: priors, pool-hours, forgetting, bulk losses, launches."""

from __future__ import annotations

import math

import pytest

from bench.capacity_hazard import probability
from ullage.engines.capacity.hazard import (
    AdvisorBand,
    Hazard,
    Launches,
    Prior,
    band_rate_per_hour,
    prior,
)

YOUNG = Hazard(prior=Prior(events=0.1, hours=10.0))


def test_a_young_pool_has_the_rate_of_its_prior() -> None:
    assert YOUNG.rate_per_hour == pytest.approx(0.01)
    assert YOUNG.mean_lost_fraction == 1.0


def test_bands_are_rates_per_hour() -> None:
    assert band_rate_per_hour(AdvisorBand.UNDER_5) == pytest.approx(-math.log(0.975) / 730)
    rates = [band_rate_per_hour(band) for band in AdvisorBand]
    assert rates == sorted(rates)
    assert prior(AdvisorBand.FROM_5_TO_10).events == pytest.approx(-math.log(0.925) / 73)
    assert prior().hours == 10.0


@pytest.mark.parametrize(("events", "hours"), [(0.0, 10.0), (0.1, 0.0), (-1.0, 1.0)])
def test_a_prior_without_weight_is_refused(events: float, hours: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Prior(events=events, hours=hours)


def test_exposure_counts_pool_hours_only_while_something_is_held() -> None:
    held = YOUNG.after(10, held=True, half_life_h=None)
    idle = YOUNG.after(10, held=False, half_life_h=None)
    assert held.rate_per_hour == pytest.approx(0.1 / 20)
    assert idle.rate_per_hour == YOUNG.rate_per_hour


def test_what_was_seen_counts_half_after_a_half_life_and_the_prior_in_full() -> None:
    seen = YOUNG.lost().after(48, held=False)
    assert (seen.events, seen.hours) == (pytest.approx(0.5), 0.0)
    assert seen.after(4800, held=False).rate_per_hour == pytest.approx(0.01, rel=1e-6)


def test_the_prediction_is_of_the_posterior() -> None:
    seen = Hazard(prior=Prior(events=0.1, hours=10.0), events=1.9, hours=10.0)
    assert probability(seen, 1.0) == pytest.approx(1 - (20 / 21) ** 2)
    assert probability(seen, 0.0) == 0.0


def test_a_bulk_loss_drawn_out_over_minutes_is_one_event() -> None:
    draining = YOUNG.lost(5 / 16)
    for _ in range(3):
        draining = draining.after(5 / 60, held=True, half_life_h=None).lost(3 / 16)
    assert draining.events == 1.0
    assert draining.mean_lost_fraction == pytest.approx(14 / 16)


def test_a_loss_after_a_gain_or_much_later_is_an_event_of_its_own() -> None:
    refilled = YOUNG.lost().after(0.1, held=True, half_life_h=None).gained().lost()
    assert refilled.events == 2.0
    later = YOUNG.lost(0.5).after(0.3, held=True, half_life_h=None).lost(0.5)
    assert later.events == 2.0
    assert YOUNG.gained() is YOUNG


def test_a_recommendation_to_rebalance_is_weak_evidence() -> None:
    warned = YOUNG.warned()
    assert YOUNG.rate_per_hour < warned.rate_per_hour < YOUNG.lost().rate_per_hour
    assert warned.mean_lost_fraction == 1.0


def test_impossible_news_is_refused() -> None:
    with pytest.raises(ValueError, match="time runs forward"):
        YOUNG.after(-1, held=True)
    for fraction in (0.0, 1.1):
        with pytest.raises(ValueError, match="at most all"):
            YOUNG.lost(fraction)


def test_failed_launches_keep_a_pool_alone_for_longer_each_time() -> None:
    once = Launches(score=9).launched(ok=False)
    waits = [Launches().wait_s(), once.wait_s(), once.launched(ok=False).wait_s()]
    assert waits == [0.0, 60.0, 120.0]
    assert Launches(in_a_row=50).wait_s() == 1800.0
    assert once.launched(ok=True).wait_s() == 0.0


def test_a_score_is_a_hint_that_launches_outweigh() -> None:
    assert Launches(score=9).success == pytest.approx(0.9)
    assert Launches().success == pytest.approx(0.5)
    failing = Launches(score=9)
    for _ in range(8):
        failing = failing.launched(ok=False)
    assert failing.success < 0.2
    assert failing.after(480).success == pytest.approx(0.9, abs=0.01)
