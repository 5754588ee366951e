# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.batching.output_tokens import (
    MOST_TOKENS,
    WINDOW,
    OutputTokens,
    TokenCount,
    TokenWindow,
)

COUNTS = st.lists(st.integers(1, 60), min_size=1, max_size=40)


def of(counts: list[int], *cut: int) -> OutputTokens:
    ended = [TokenCount(tokens=count) for count in counts]
    return OutputTokens.of([*ended, *(TokenCount(tokens=count, cut=True) for count in cut)])


@given(counts=COUNTS, most=st.integers(1, 80))
def test_without_cut_answers_it_is_the_sample(counts: list[int], most: int) -> None:
    known = of(counts)
    assert math.isclose(known.parts.sum(), 1.0)
    assert math.isclose(known.mean(), np.mean(counts))
    assert math.isclose(known.mean(most), np.mean(np.minimum(counts, most)))
    capped = known.capped(most)
    assert math.isclose(capped.mean(), known.mean(most))
    assert math.isclose(capped.parts.sum(), 1.0)


@given(counts=COUNTS, had=st.integers(0, 80), most=st.integers(1, 80))
def test_what_remains_is_that_of_the_longer_answers(counts: list[int], had: int, most: int) -> None:
    longer = [min(count, most) - had for count in counts if count > had]
    left = of(counts).remaining(had, most)
    if longer:
        assert math.isclose(left, max(1.0, float(np.mean(longer))), rel_tol=1e-9)
    else:
        assert left == max(1.0, min(2 * had, most) - had)


@given(counts=COUNTS, cut=st.lists(st.integers(1, 60), max_size=20), had=st.integers(0, 99))
def test_cut_answers_never_make_the_others_shorter(
    counts: list[int], cut: list[int], had: int
) -> None:
    known = of(counts, *cut)
    assert math.isclose(known.parts.sum(), 1.0)
    assert (known.parts > 0).all()
    assert known.mean() >= np.mean([*counts, *cut]) - 1e-9
    assert 1 <= known.remaining(had) <= MOST_TOKENS


def test_the_product_limit_estimate_of_a_small_sample() -> None:
    """Of 1, 2+, 3, 4+, 5 (+ was cut): S falls to 4/5, then to 4/5 * 2/3, then to nothing."""
    known = of([1, 3, 5], 2, 4)
    assert known.counts.tolist() == [1, 3, 5]
    assert known.parts == pytest.approx([1 / 5, 4 / 15, 8 / 15])


def test_bounds_do_not_hide_how_long_answers_are() -> None:
    """Half of the requests allow 50 tokens only: the mean of what came is far too low."""
    random = np.random.default_rng(3)
    lengths = random.geometric(1 / 100, 4000)
    bounds = np.where(np.arange(4000) % 2, 50, 100_000)
    known = OutputTokens.of(
        [
            TokenCount(tokens=int(min(length, bound)), cut=bool(length > bound))
            for length, bound in zip(lengths, bounds, strict=True)
        ]
    )
    assert np.minimum(lengths, bounds).mean() < 75
    assert known.mean() == pytest.approx(100, rel=0.06)


def test_a_window_keeps_the_newest_and_bounds_what_it_is_told() -> None:
    window = TokenWindow()
    window.add(0, cut=False)
    assert not window.seen
    for count in range(1, WINDOW + 10):
        window.add(count, cut=False)
    window.add(10**12, cut=False)
    assert len(window.seen) == WINDOW
    assert window.seen[-1].tokens == MOST_TOKENS


def test_nothing_seen_is_no_distribution() -> None:
    with pytest.raises(ValueError, match="an answer at least"):
        OutputTokens.of([])
