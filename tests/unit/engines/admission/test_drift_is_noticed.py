# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A class that changed is taken for a new one, a class with odd rows is not."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import pytest

from ullage.engines.admission.drift import Drift, follow


def after(residuals: Iterable[float]) -> Drift:
    state = Drift()
    for one in residuals:
        state = follow(state, one)
    return state


def until_alarm(residuals: Iterable[float]) -> int:
    state = Drift()
    for count, one in enumerate(residuals, start=1):
        state = follow(state, one)
        if state.drifted():
            return count
    return 0


def test_honest_residuals_raise_no_alarm_for_long() -> None:
    runs = []
    for seed in range(20):
        rng = random.Random(seed)
        runs.append(until_alarm(rng.gauss(0, 1) for _ in range(3000)) or 3000)
    assert sum(runs) / len(runs) > 300


@pytest.mark.parametrize("shift", [1.5, -1.5])
def test_a_shift_either_way_is_found_within_a_dozen_rows(shift: float) -> None:
    counts = []
    for seed in range(20):
        rng = random.Random(seed)
        counts.append(until_alarm(rng.gauss(shift, 1) for _ in range(300)))
    assert min(counts) > 0
    assert sum(counts) / len(counts) < 12


def test_one_odd_row_is_no_change() -> None:
    assert not after([0.0, 50.0, 0.0]).drifted()
    assert after([50.0, 50.0, 50.0]).drifted()


def test_sides_are_kept_apart_and_rows_counted() -> None:
    state = after([2.0, 2.0, -2.0])
    assert (state.slower, state.faster, state.rows) == (0.5, 1.5, 3)


@pytest.mark.parametrize("residual", [math.nan, math.inf])
def test_a_residual_that_is_no_number_is_refused(residual: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        follow(Drift(), residual)
