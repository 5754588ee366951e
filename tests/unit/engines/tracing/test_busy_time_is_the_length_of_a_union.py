# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Unions of intervals beside a time line of whole moments."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.tracing.intervals import Intervals

MOMENTS = 40
PAIRS = st.lists(
    st.tuples(st.integers(0, MOMENTS - 1), st.integers(0, 12)).map(
        lambda pair: (pair[0], min(MOMENTS, pair[0] + pair[1]))
    ),
    max_size=12,
)


def union(pairs: list[tuple[int, int]]) -> Intervals:
    columns = np.array(pairs, float).reshape(-1, 2)
    return Intervals.union(columns[:, 0], columns[:, 1])


def moments(pairs: list[tuple[int, int]]) -> set[int]:
    return {moment for start, end in pairs for moment in range(start, end)}


@given(PAIRS, PAIRS)
def test_unions_and_differences_hold_the_same_moments(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    a, b = union(first), union(second)
    assert a.length == len(moments(first))
    assert (a | b).length == len(moments(first) | moments(second))
    assert (a - b).length == len(moments(first) - moments(second))
    middles = np.arange(MOMENTS) + 0.5
    assert set(np.flatnonzero(a.holds(middles)).tolist()) == moments(first)


@given(PAIRS, st.lists(st.integers(0, MOMENTS), min_size=2, max_size=6).map(sorted))
def test_parts_between_edges_are_those_of_the_time_line(
    pairs: list[tuple[int, int]], edges: list[int]
) -> None:
    parts = union(pairs).between(np.array(edges, float)).tolist()
    held = moments(pairs)
    assert parts == [len(held & set(range(start, end))) for start, end in pairwise(edges)]


def test_intervals_that_touch_are_joined() -> None:
    joined = union([(0, 2), (2, 5), (7, 7)])
    assert joined.starts.tolist() == [0, 7]
    assert joined.ends.tolist() == [5, 7]


def test_no_interval_has_no_length() -> None:
    empty = union([])
    assert empty.length == 0
    assert empty.between(np.array([0.0, 9.0])).tolist() == [0]
    assert (empty - union([(0, 3)])).length == 0
