# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage_run.uneven_plan import divide, gain, most_samples, places

UNITS = st.lists(st.floats(min_value=1e-3, max_value=1e3), min_size=1, max_size=9)


@pytest.mark.parametrize(
    ("units", "even", "sizes"),
    [
        ((1.0,), 8, (8,)),
        ((1.0, 1.0, 1.0, 1.0), 8, (8, 8, 8, 8)),
        ((1.0, 1.0, 2.0, 1.0), 8, (9, 9, 5, 9)),
        ((1.0, 1.0, 2.0, 1.0), 32, (37, 37, 18, 36)),
        ((1.0, 1.0, 1e9, 1.0), 8, (10, 10, 2, 10)),
        ((1.0, 1e9), 1, (1, 1)),
    ],
)
def test_a_slow_rank_gets_less(units: tuple[float, ...], even: int, sizes: tuple[int, ...]) -> None:
    assert divide(units, even) == sizes


@given(UNITS, st.integers(min_value=1, max_value=300))
def test_all_samples_are_given_within_bounds(units: list[float], even: int) -> None:
    sizes = divide(units, even)
    assert sum(sizes) == even * len(units)
    assert all(1 <= size <= most_samples(even) for size in sizes)


@given(
    st.lists(st.floats(min_value=0.1, max_value=10), min_size=2, max_size=3),
    st.integers(min_value=1, max_value=9),
)
def test_no_other_division_ends_earlier(units: list[float], even: int) -> None:
    def longest(sizes: tuple[int, ...]) -> float:
        return max(unit * size for unit, size in zip(units, sizes, strict=True))

    allowed = range(1, most_samples(even) + 1)
    best = min(
        longest(sizes)
        for sizes in itertools.product(allowed, repeat=len(units))
        if sum(sizes) == even * len(units)
    )
    assert longest(divide(units, even)) == pytest.approx(best)


@st.composite
def divisions(draw: st.DrawFn) -> tuple[int, ...]:
    units = draw(UNITS)
    return divide(units, draw(st.integers(min_value=1, max_value=60)))


@given(divisions())
def test_each_sample_has_one_rank(sizes: tuple[int, ...]) -> None:
    world, even = len(sizes), sum(sizes) // len(sizes)
    parts = [places(sizes, rank) for rank in range(world)]
    assert [len(part) for part in parts] == list(sizes)
    whole = list(itertools.product(range(world), range(even)))
    assert sorted(itertools.chain(*parts)) == whole


def test_an_even_division_leaves_all_where_it_is() -> None:
    assert places((3, 3), 1) == [(1, 0), (1, 1), (1, 2)]


def test_a_rank_keeps_its_first_samples() -> None:
    assert places((5, 2, 5), 1) == [(1, 0), (1, 1)]
    assert places((5, 2, 5), 0) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 2)]
    assert places((5, 2, 5), 2) == [(2, 0), (2, 1), (2, 2), (2, 3), (1, 3)]


def test_the_gain_is_that_of_the_slowest() -> None:
    assert gain((1.0, 1.0, 2.0, 1.0), (8, 8, 8, 8), (9, 9, 5, 9)) == pytest.approx(6 / 16)
    assert gain((1.0, 1.0), (8, 8), (9, 7)) < 0
