# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Shares of a volume: fair ones, the container that gets too little, and the one that takes it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.api.dataio import StarvationCause
from ullage.engines.dataio.fairness import VolumeUse, jain_index, judge, max_min_shares
from ullage.engines.dataio.starvation import WINDOWS, StarvationWatch

MB = 1e6
AMOUNTS = st.floats(0, 1e9, allow_nan=False, allow_infinity=False)


def use(key: str, mb: float, stalled: float, **more: float) -> VolumeUse:
    requests = more.pop("requests_per_s", mb * 8)
    return VolumeUse(key=key, bytes_per_s=mb * MB, requests_per_s=requests, stalled=stalled, **more)


def water_level(capacity: float, wanted: list[float]) -> list[float]:
    """Max-min shares by bisection of the level that fills the capacity."""
    if sum(wanted) <= capacity:
        return wanted
    low, high = 0.0, max(wanted)
    for _ in range(200):
        level = (low + high) / 2
        low, high = (low, level) if sum(min(w, level) for w in wanted) > capacity else (level, high)
    return [min(w, low) for w in wanted]


@given(AMOUNTS, st.lists(AMOUNTS, min_size=1, max_size=8))
def test_shares_are_those_of_the_water_level(capacity: float, wanted: list[float]) -> None:
    shares = max_min_shares(capacity, wanted)
    expected = water_level(capacity, wanted)
    tolerance = 1e-9 * max(1.0, capacity, *wanted)
    assert all(math.isclose(a, b, abs_tol=tolerance) for a, b in zip(shares, expected, strict=True))
    assert sum(shares) <= capacity + tolerance


@given(st.lists(AMOUNTS, min_size=1, max_size=8), st.floats(1e-3, 1e3))
def test_jains_index_is_bounded_and_knows_no_unit(ratios: list[float], unit: float) -> None:
    index = jain_index(ratios)
    assert 1 / len(ratios) - 1e-9 <= index <= 1 + 1e-9
    assert index == pytest.approx(jain_index([ratio * unit for ratio in ratios]), abs=1e-6)


def test_a_hog_of_bandwidth_is_named_with_its_victim() -> None:
    judgement = judge([use("etl", 78, 0.99), use("train", 22, 0.75)])
    (short,) = judgement.short
    assert (short.victim, short.hog, short.cause) == ("train", "etl", StarvationCause.BANDWIDTH)
    assert short.got == 22 * MB
    assert short.wanted == pytest.approx(88 * MB)
    assert short.hog_part == pytest.approx(0.78)
    assert judgement.jain < 0.8


def test_a_hog_of_requests_is_named_though_it_moves_few_bytes() -> None:
    small = use("index", 12, 0.99, requests_per_s=3000)
    (short,) = judge([small, use("train", 4, 0.9, requests_per_s=32)]).short
    assert (short.hog, short.cause) == ("index", StarvationCause.REQUESTS)


@pytest.mark.parametrize(
    "uses",
    [
        [use("a", 50, 0.9), use("b", 50, 0.9)],
        [use("a", 90, 0.95), use("b", 5, 0.02)],  # the small one gets all that it wants
        [use("a", 90, 0.9), use("b", 10, 0.3, throttled=0.8)],  # its CPU quota stops it
        [use("a", 90, 0.9), use("b", 10, 0.9, data_wait=0.02)],  # its program waits for nothing
        [use("a", 20, 0.95)],  # a slow volume, and no one else
        [],
        [use("a", 0, 0.0), use("b", 0, 0.0)],
    ],
)
def test_fair_or_slow_for_another_reason_is_not_starved(uses: list[VolumeUse]) -> None:
    assert judge(uses).short == ()


@given(
    st.lists(
        st.builds(
            VolumeUse,
            key=st.uuids(),
            bytes_per_s=AMOUNTS,
            requests_per_s=AMOUNTS,
            stalled=st.floats(0, 1),
            throttled=st.floats(0, 1),
            data_wait=st.none() | st.floats(0, 1),
        ),
        max_size=6,
    )
)
def test_whatever_comes_who_is_short_waits_and_another_is_to_blame(uses: list[VolumeUse]) -> None:
    by_key = {item.key: item for item in uses}
    judgement = judge(list(by_key.values()))
    for short in judgement.short:
        assert short.hog != short.victim
        assert by_key[short.victim].waits
        assert short.got < short.fair <= judgement.moved * (1 + 1e-9)


def hogged(victim_mb: float = 10) -> dict[str, list[VolumeUse]]:
    return {"7:0": [use("etl", 100 - victim_mb, 0.99), use("train", victim_mb, 0.85)]}


def fair() -> dict[str, list[VolumeUse]]:
    return {"7:0": [use("etl", 50, 0.95), use("train", 50, 0.9)]}


def test_it_takes_three_windows_to_starve_and_three_to_recover() -> None:
    watch = StarvationWatch()
    for _ in range(WINDOWS - 1):
        assert watch.take(hogged()) == ()
    (starvation,) = watch.take(hogged())
    assert (starvation.volume, starvation.newest.victim, starvation.newest.hog) == (
        "7:0",
        "train",
        "etl",
    )
    for _ in range(WINDOWS - 1):
        assert watch.take(fair()) != ()
    assert watch.take(fair()) == ()


def test_single_bad_windows_are_no_news() -> None:
    watch = StarvationWatch()
    for _ in range(10):
        for window in (hogged(), hogged(), fair()):
            assert watch.take(window) == ()


def test_a_container_that_gets_nothing_keeps_its_wish_for_a_while() -> None:
    watch = StarvationWatch()
    watch.take({"7:0": [use("train", 60, 0.2)]})
    none = {"7:0": [use("etl", 100, 0.99), use("train", 0, 1.0)]}
    results = [watch.take(none) for _ in range(WINDOWS)]
    (starvation,) = results[-1]
    assert starvation.newest.wanted == pytest.approx(75 * MB)


def test_a_container_that_goes_is_forgotten() -> None:
    watch = StarvationWatch()
    for _ in range(WINDOWS):
        watch.take(hogged())
    assert watch.take({"7:0": [use("etl", 100, 0.99)]}) == ()
    assert watch.take(hogged()) == ()


def test_the_hog_is_the_one_of_most_windows() -> None:
    watch = StarvationWatch()
    other = {
        "7:0": [
            replace(item, key="scan" if item.key == "etl" else item.key) for item in hogged()["7:0"]
        ]
    }
    for window in (hogged(), hogged(), other):
        found = watch.take(window)
    assert found[0].newest.hog == "etl"
