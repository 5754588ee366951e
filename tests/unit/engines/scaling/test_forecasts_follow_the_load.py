# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A forecast keeps a level, follows a ramp, knows a season; what is late makes it careful."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.scaling.forecast import (
    FIRST_CAUTION,
    MOST_CAUTION,
    MOST_MARGIN,
    SEASONAL_FACTOR,
    adapted,
    forecast,
)


def test_an_even_load_is_forecast_as_it_is() -> None:
    found = forecast([5.0] * 50, 4)
    assert found.level == pytest.approx(5.0)
    assert found.ahead == pytest.approx(5.0)
    assert not found.seasonal


def test_a_ramp_is_met_when_replicas_serve() -> None:
    rates = [float(rate) for rate in range(10, 60)]
    found = forecast(rates, 4)
    assert 61 <= found.ahead <= 75  # the load four bins later is 63


def test_a_ramp_goes_on_a_little_less_steeply_the_further_ahead() -> None:
    rates = [float(rate) for rate in range(10, 60)]
    before, rises = 0.0, []
    for ahead in range(1, 9):
        found = forecast(rates, ahead)
        rise = found.ahead / found.margin - found.level
        rises.append(rise - before)
        before = rise
    assert 0.7 < rises[0] < 1  # it was one more in each bin
    assert all(0.5 < after / rise < 1 for rise, after in pairwise(rises))


def test_a_falling_load_is_not_extrapolated_below_its_level() -> None:
    found = forecast([100.0 - at for at in range(60)], 4)
    assert found.ahead >= 0.9 * found.level


def test_a_season_tells_what_the_trend_cannot() -> None:
    rates = [2.0] * 40
    assert forecast(rates, 4).ahead < 3
    found = forecast(rates, 4, expected=np.array([1.0] * 40 + [1.0, 1.0, 3.0, 3.0]))
    assert found.seasonal
    assert found.ahead == pytest.approx(6.0, rel=0.1)  # three times the level of today


def test_a_season_that_says_nothing_changes_nothing() -> None:
    rates = [float(rate) for rate in range(1, 41)]
    silent = np.zeros(44)
    later = np.array([0.0] * 42 + [90.0, 90.0])  # what came before it is not known
    assert forecast(rates, 4, expected=silent) == forecast(rates, 4)
    assert forecast(rates, 4, expected=later) == forecast(rates, 4)


def test_caution_covers_more_of_what_came() -> None:
    rates = np.random.default_rng(3).lognormal(0, 0.5, 200).tolist()
    careless, careful = (forecast(rates, 4, caution=part).ahead for part in (0.1, 0.98))
    assert careless < careful


def test_late_requests_make_it_careful_and_kept_objectives_bold() -> None:
    assert adapted(FIRST_CAUTION, 0.5, 1.0, 0.99) > FIRST_CAUTION
    assert adapted(FIRST_CAUTION, 0.0, 1.0, 0.99) < FIRST_CAUTION
    assert adapted(FIRST_CAUTION, 0.0, 0.0, 0.99) == FIRST_CAUTION  # nothing came


def test_the_caution_settles_where_half_of_the_allowed_requests_are_late() -> None:
    caution, late = 0.5, []
    for _ in range(20_000):  # the higher the caution, the fewer are late
        late.append(0.1 * (1 - caution))
        caution = adapted(caution, late[-1], 1.0, 0.98)
    assert late[-1] == pytest.approx(0.01, rel=0.01)


@given(
    rates=st.lists(st.floats(0, 1e9), min_size=1, max_size=300),
    ahead=st.integers(1, 50),
    season=st.lists(st.floats(0, 1e9), min_size=1, max_size=20),
    caution=st.floats(0, 1),
)
def test_any_load_has_a_bounded_forecast(
    rates: list[float], ahead: int, season: list[float], caution: float
) -> None:
    said = np.resize(np.array(season), len(rates) + ahead)
    found = forecast(rates, ahead, expected=said, caution=caution)
    most = MOST_MARGIN * max(SEASONAL_FACTOR, 1 + ahead) * 4 * (max(rates) + 1e-9)
    assert 0 <= found.ahead <= most
    assert math.isfinite(found.level)


@given(
    late=st.floats(0, 1), weight=st.floats(0, 1e9), caution=st.floats(0, 1), part=st.floats(0.5, 1)
)
def test_caution_stays_within_its_bounds(
    late: float, weight: float, caution: float, part: float
) -> None:
    assert 0 <= adapted(caution, late, weight, part) <= MOST_CAUTION


@pytest.mark.parametrize("rates", [[], [math.nan], [-1.0], [math.inf]])
def test_a_rate_that_is_none_is_refused(rates: list[float]) -> None:
    with pytest.raises(ValueError, match="rates of at least 0"):
        forecast(rates, 1)


def test_a_forecast_of_nothing_ahead_is_refused() -> None:
    with pytest.raises(ValueError, match="one bin ahead"):
        forecast([1.0], 0)
