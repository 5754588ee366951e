# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.batching.histogram import TAIL_BINS, SlidingWindow, TimeHistogram, mixture

TIMES = st.lists(st.floats(1e-4, 1e3), min_size=1, max_size=80)


@given(samples=TIMES)
def test_a_histogram_brackets_its_samples(samples: list[float]) -> None:
    found = TimeHistogram.of(samples)
    assert found.edges[0] < min(samples) <= max(samples) < found.edges[-1]
    assert found.edges[0] <= found.mean_s <= found.edges[-1]
    # no time is shorter, and it is not much shorter than the shortest
    assert found.least_s < min(samples)
    assert found.least_s == pytest.approx(min(samples), rel=1e-2)
    assert found.below(found.edges[0]) == 0
    assert found.below(found.edges[-1]) == 1


@given(samples=TIMES, part=st.floats(0.001, 0.999))
def test_a_quantile_is_the_inverse_of_the_distribution(samples: list[float], part: float) -> None:
    found = TimeHistogram.of(samples)
    assert float(found.below(found.quantile_s(part))) == pytest.approx(part, abs=1e-6)


def test_the_tail_above_p90_has_bins_of_its_own() -> None:
    times = np.random.default_rng(1).lognormal(-3, 1, 20_000)
    found = TimeHistogram.of(times)
    assert int((found.edges > np.quantile(times, 0.9)).sum()) >= TAIL_BINS


@given(samples=TIMES, count=st.integers(1, 16))
def test_the_longest_of_more_is_never_shorter(samples: list[float], count: int) -> None:
    found = TimeHistogram.of(samples)
    assert (found.longest_of(count + 1).cdf <= found.longest_of(count).cdf).all()


def test_a_mixture_lies_where_its_weights_say() -> None:
    parts = {"short": TimeHistogram.of([0.01]), "long": TimeHistogram.of([1.0])}
    found = mixture(parts, {"short": 3, "long": 1})
    assert float(found.below(0.5)) == pytest.approx(0.75)
    assert found.mean_s == pytest.approx(0.75 * 0.01 + 0.25 * 1.0, rel=1e-3)


def test_a_mixture_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="part at least"):
        mixture({"a": TimeHistogram.of([1.0])}, {"a": 0})


@pytest.mark.parametrize("samples", [[], [0.0], [-1.0], [float("nan")], [float("inf")]])
def test_wild_samples_are_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="positive finite"):
        TimeHistogram.of(samples)


def test_a_window_forgets_the_oldest_and_leaves_wild_times_out() -> None:
    window = SlidingWindow(size=3)
    for time_s in (9.0, 1.0, float("nan"), -1.0, 2.0, 3.0):
        window.add(time_s)
    assert list(window.samples) == [1.0, 2.0, 3.0]
    assert window.histogram(least=4) is None
    found = window.histogram(least=3)
    assert found is not None
    assert found.edges[-1] < 9
