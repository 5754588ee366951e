# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A season is remembered in slots: what came yesterday at this time is expected today."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.scaling.autoscaler import ScalingTerms
from ullage.engines.scaling.configurations import Configuration
from ullage.engines.scaling.following import KEPT_BINS, Heard, ScalingMemory, follow
from ullage.engines.scaling.pooled_queue import LatencyTarget
from ullage.engines.scaling.season import MOST_GROWTH, expected, learned, slots_of
from ullage.engines.scaling.service_times import ServiceTime
from ullage.engines.scaling.times import SEASON_SLOT_S

BIN_S, DAY_S = 15.0, 86_400.0
SLOT_BINS = round(SEASON_SLOT_S / BIN_S)
BUSY = range(36, 40)
"""Slots from nine to ten."""


def after_days(*days: list[float]) -> tuple[float, ...]:
    """The slots after days of a load that is given by slot."""
    slots: tuple[float, ...] = ()
    rates: list[float] = []
    for number, day in enumerate(days):
        for at in range(slots_of(DAY_S) * SLOT_BINS):
            rates = [*rates, day[at // SLOT_BINS]][-KEPT_BINS:]
            now_s = number * DAY_S + (at + 1) * BIN_S
            slots = learned(slots, rates, now_s=now_s, bin_s=BIN_S, season_s=DAY_S)
    return slots


def a_day(busy: float, quiet: float = 1.0) -> list[float]:
    return [busy if slot in BUSY else quiet for slot in range(slots_of(DAY_S))]


def said(slots: tuple[float, ...], now_s: float, bins: int = 4, ahead: int = 4) -> list[float]:
    return list(expected(slots, now_s=now_s, bin_s=BIN_S, season_s=DAY_S, bins=bins, ahead=ahead))


def test_a_day_is_known_after_a_day() -> None:
    assert after_days(a_day(5.0)) == pytest.approx(a_day(5.0))


def test_the_load_of_yesterday_is_expected_at_its_time() -> None:
    slots = after_days(a_day(5.0))
    middle_s = (BUSY[0] + 1) * SEASON_SLOT_S
    assert said(slots, DAY_S + middle_s) == pytest.approx([5.0] * 8)
    assert said(slots, DAY_S + BUSY[0] * SEASON_SLOT_S) == pytest.approx([1.0] * 4 + [5.0] * 4)


def test_a_load_that_came_once_raises_little_and_fades() -> None:
    usual, once = a_day(2.0), a_day(200.0)
    at = BUSY[0]
    assert after_days(usual, once)[at] == pytest.approx(2.0 * MOST_GROWTH)
    assert after_days(usual, once, usual)[at] == pytest.approx(2.0 * (MOST_GROWTH + 1) / 2)


def test_a_load_that_has_gone_is_forgotten_by_half_a_day() -> None:
    slots = after_days(a_day(8.0), a_day(1.0), a_day(1.0))
    assert slots[BUSY[0]] == pytest.approx(1 + 7 / 4)


def test_a_slot_that_was_not_seen_says_nothing() -> None:
    slots = list(after_days(a_day(5.0)))
    slots[BUSY[0]] = 0.0
    inside_s = (BUSY[0] + 0.5) * SEASON_SLOT_S
    assert said(tuple(slots), inside_s) == [0.0] * 8


def test_part_of_a_slot_is_not_taken_for_all_of_it() -> None:
    few = [9.0] * (SLOT_BINS // 2 - 1)
    assert not any(learned((), few, now_s=SEASON_SLOT_S, bin_s=BIN_S, season_s=DAY_S))
    assert any(learned((), [9.0] * SLOT_BINS, now_s=SEASON_SLOT_S, bin_s=BIN_S, season_s=DAY_S))


def test_slots_of_another_season_are_none() -> None:
    assert said((1.0, 2.0), 100.0) == [0.0] * 8
    assert learned((1.0,), [1.0], now_s=100.0, bin_s=BIN_S, season_s=0.0) == ()


@pytest.mark.slow
def test_replicas_are_there_before_a_daily_rise() -> None:
    """The same rise on two days: the second is met before it comes."""
    terms = ScalingTerms(
        target=LatencyTarget(limit_s=0.5, quantile=0.99),
        least=1,
        most=50,
        bin_s=BIN_S,
        launch_s=300.0,
        season_s=DAY_S,
    )
    one = Configuration(
        accelerator="l4", share_percent=100, service=ServiceTime(mean_s=0.1, sigma=0.0), cost=100.0
    )
    day, memory = a_day(60.0, 10.0), ScalingMemory()
    before_rise = (BUSY[0] * SLOT_BINS) - 4
    found: list[int] = []
    current = 1
    for at in range(2 * len(day) * SLOT_BINS):
        per_s = day[at // SLOT_BINS % len(day)]
        heard = Heard(
            now_s=(at + 1) * BIN_S,
            requests_per_s=per_s,
            late=0.0,
            ended=per_s * BIN_S,
            waiting=0,
            current=current,
        )
        decision, memory = follow(memory, heard, one, terms)
        current = decision.replicas
        if at % (len(day) * SLOT_BINS) == before_rise:
            found.append(current)
    first, second = found
    assert second >= 2 * first


@given(
    slots=st.lists(st.floats(0, 1e7), min_size=slots_of(DAY_S), max_size=slots_of(DAY_S)),
    now_s=st.floats(-1e10, 1e10),
    rates=st.lists(st.floats(0, 1e7), min_size=1, max_size=KEPT_BINS),
    bins=st.integers(1, 80),
    ahead=st.integers(1, 41),
)
def test_any_season_and_clock_give_loads_that_were_seen(
    slots: list[float], now_s: float, rates: list[float], bins: int, ahead: int
) -> None:
    found = said(tuple(slots), now_s, bins, ahead)
    assert len(found) == bins + ahead
    assert all(math.isfinite(one) and 0 <= one <= max(slots) * (1 + 1e-9) for one in found)
    after = learned(slots, rates, now_s=now_s, bin_s=BIN_S, season_s=DAY_S)
    assert len(after) == len(slots)
    assert sum(new != old for new, old in zip(after, slots, strict=True)) <= 1
    assert np.isfinite(after).all()
