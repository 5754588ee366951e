# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.stragglers.detector import relative_to_others

TIMES = st.lists(st.floats(min_value=1e-6, max_value=1e6), min_size=2, max_size=12)


@pytest.mark.parametrize(
    ("own", "ratios"),
    [
        ((), ()),
        ((5.0,), (1.0,)),
        ((1.0, 2.0), (0.5, 2.0)),
        ((1.0, 1.0, 3.0), (0.5, 0.5, 3.0)),
        ((0.0, 1.0, 2.0), (1.0, 0.5, 2.0)),
        ((0.0, 0.0), (1.0, 1.0)),
    ],
)
def test_each_is_compared_with_the_others(
    own: tuple[float, ...], ratios: tuple[float, ...]
) -> None:
    assert relative_to_others(own) == ratios


@given(TIMES, st.floats(min_value=1e-3, max_value=1e3))
def test_the_unit_does_not_matter(own: list[float], unit: float) -> None:
    scaled = relative_to_others([time * unit for time in own])
    assert scaled == pytest.approx(relative_to_others(own))


@given(TIMES)
def test_it_is_the_plain_formula(own: list[float]) -> None:
    for at, ratio in enumerate(relative_to_others(own)):
        others = own[:at] + own[at + 1 :]
        assert ratio == pytest.approx(own[at] / statistics.median(others))
