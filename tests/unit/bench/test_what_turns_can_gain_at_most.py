# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.lanes_cluster import _shared, most_possible


def test_equal_trainings_gain_the_most() -> None:
    # of ten on a device: all end at 10, or one after the other at 1, 2, ... 10
    assert most_possible([1] * 20) == pytest.approx(10 / 5.5)


def test_a_device_each_leaves_nothing_to_gain() -> None:
    assert most_possible([3, 5]) == 1.0


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6))
def test_equal_parts_end_as_small_parts_of_a_step_do(lengths: list[int]) -> None:
    left, now, ends = sorted(map(float, lengths)), 0.0, list[float]()
    while left:
        shortest, many = left[0], len(left)
        now += shortest * many
        ends += [now] * sum(one == shortest for one in left)
        left = [one - shortest for one in left if one > shortest]
    assert _shared(lengths) == ends
