# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.batching.batch_time import BatchCosts
from ullage.engines.batching.histogram import TimeHistogram
from ullage.engines.batching.score import ScoreRow, score

COSTS = BatchCosts(fixed_s=0.004, factors={1: 1.0, 2: 1.1, 4: 1.3, 8: 1.7, 16: 2.5})


@pytest.mark.parametrize("size", COSTS.sizes)
def test_the_score_is_that_of_drawn_batches(size: int) -> None:
    rng = np.random.default_rng(size)
    single = TimeHistogram.of(rng.lognormal(-3, 0.7, 200_000))
    row = ScoreRow.of(size, COSTS.batch(size, single))
    drawn = rng.lognormal(-3, 0.7, (200_000, size)).max(axis=1)
    times = COSTS.fixed_s + COSTS.factors[size] * drawn
    slack = np.quantile(times, [0.3, 0.5, 0.7, 0.9])
    rate = 1 / row.mean_s
    expected = [
        np.where(times <= u, np.exp(-rate * (u - times)), 0).mean() / times.mean() * rate
        for u in slack
    ]
    assert row.score(slack) * rate == pytest.approx(expected, rel=0.02)


def test_a_request_without_a_chance_has_no_score() -> None:
    row = ScoreRow.of(1, TimeHistogram.of([1.0]))
    assert row.score(np.array([-1.0, 0.0, 0.5])).tolist() == [0, 0, 0]


@given(
    samples=st.lists(st.floats(0.01, 10), min_size=1, max_size=30),
    rate=st.floats(0.01, 50),
    slack=st.floats(-1, 100),
)
def test_the_table_is_the_closed_form(samples: list[float], rate: float, slack: float) -> None:
    batch = TimeHistogram.of(samples)
    row = ScoreRow.of(1, batch, rate)
    at = np.array([slack])
    found, exact = float(row.score(at)[0]), float(score(batch, at, rate)[0])
    assert found >= 0
    highest = float(score(batch, row.grid_s, rate).max())
    assert found == pytest.approx(exact, abs=0.02 * highest)


def test_plenty_of_slack_makes_a_request_wait() -> None:
    row = ScoreRow.of(1, TimeHistogram.of(np.linspace(0.1, 0.2, 50)))
    near, far = row.score(np.array([0.2, 2.0]))
    assert far < near / 100
