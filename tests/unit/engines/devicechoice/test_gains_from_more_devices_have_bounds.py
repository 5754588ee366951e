# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A step on another number of devices has bounds that jobs of other families keep to."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.devicechoice_counts import CountRow, fit_scaling, held, left_out, rows_of
from bench.devicechoice_tables import Job
from ullage.engines.devicechoice.comm import FITTED, StepScaling, ring
from ullage.engines.devicechoice.intervals import Interval
from ullage.engines.devicechoice.offers import Source, StepForecast
from ullage.scheduling.learning.recommend import confidence_at, forecast_at, longer_at

COUNTS = st.integers(1, 4096)
TRUE = StepScaling(loss=0.3, still=0.05, wide=0.3, low=-1.6, high=1.6)


def drawn(families: int, seed: int = 5) -> list[CountRow]:
    """Jobs whose steps scatter by Laplace's law around the ring's."""
    rng = np.random.default_rng(seed)
    found: list[CountRow] = []
    for at in range(families * 20):
        steps = {}
        for count in (1, 2, 4, 8):
            width = math.hypot(TRUE.still, TRUE.wide * ring(count))
            steps[count] = math.exp(TRUE.loss * ring(count) + rng.laplace(0, width) / 2)
        found += [
            CountRow(
                table="drawn",
                family=f"f{at % families}",
                few=few,
                many=many,
                few_s=steps[few],
                many_s=steps[many],
            )
            for few in steps
            for many in steps
            if few != many
        ]
    return found


@given(own=COUNTS, other=COUNTS)
def test_bounds_of_fewer_mirror_those_of_more(own: int, other: int) -> None:
    least, most = FITTED.bounds(own, other)
    assert 0 < least <= most
    back = FITTED.bounds(other, own)
    assert (1 / back[1], 1 / back[0]) == pytest.approx((least, most))
    assert FITTED.bounds(own, own) == (1.0, 1.0)


def test_the_farther_the_wider() -> None:
    widths = [math.log(high / low) for low, high in (FITTED.bounds(1, n) for n in (2, 4, 8, 64))]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1] / 1.5
    # from seven to eight the ring is nearly the same, and steps still do not repeat exactly
    assert math.log(FITTED.bounds(7, 8)[1] / FITTED.bounds(7, 8)[0]) > 0.1


def test_no_devices_have_no_bounds() -> None:
    with pytest.raises(ValueError, match="at least 1, not 0 and 2"):
        FITTED.bounds(0, 2)


@given(own=COUNTS, other=COUNTS, wide=st.floats(1.0, 3.0))
def test_a_forecast_lies_within_its_bounds(own: int, other: int, wide: float) -> None:
    step = Interval(value_s=2.0, low_s=2.0 / wide, high_s=2.0 * wide)
    said = forecast_at(StepForecast(step=step, source=Source.MEASURED), own, other).step
    assert said is not None
    least, most = FITTED.bounds(own, other)
    assert said.low_s <= min(said.value_s, step.low_s * least * (1 + 1e-9))
    assert said.high_s >= max(said.value_s, step.high_s * most * (1 - 1e-9))
    assert said.value_s == pytest.approx(2.0 * longer_at(own, other))
    assert 0 < confidence_at(0.9, own, other) <= 0.9


def test_what_did_not_run_stays_so() -> None:
    failed = StepForecast(step=None, source=Source.MEASURED)
    assert forecast_at(failed, 1, 2) == replace(failed, source=Source.ESTIMATED)


def test_a_law_is_found_again_and_holds_for_families_left_out() -> None:
    rows = drawn(families=12)
    found = fit_scaling(rows)
    assert found.loss == pytest.approx(TRUE.loss, abs=0.1)
    inside = [held_ for row, held_ in left_out(rows) if row.few < row.many]
    assert 0.7 <= np.mean(inside) <= 0.9


def test_a_family_does_not_reach_its_own_bounds() -> None:
    rows = drawn(families=4)
    slow = [
        replace(row, many_s=row.many_s * 9) if row.family == "f0" and row.few < row.many else row
        for row in rows
    ]
    inside = [held_ for row, held_ in left_out(slow) if row.family == "f0" and row.few < row.many]
    assert np.mean(inside) < 0.1


def test_a_family_of_many_rows_weighs_no_more_than_one_of_few() -> None:
    rows = drawn(families=4)
    once, twice = fit_scaling(rows), fit_scaling([*rows, *(r for r in rows if r.family == "f1")])
    assert (once.loss, once.still, once.wide) == (twice.loss, twice.still, twice.wide)
    # the quantiles of a few rows may move by one row
    assert (once.low, once.high) == pytest.approx((twice.low, twice.high), rel=0.05)


def test_tables_become_pairs_of_numbers() -> None:
    jobs = {Job(name="LM (batch size 5)", gpus=gpus): 0.1 * gpus for gpus in (1, 2, 4)}
    gavel = {(job, "v100"): step_s for job, step_s in jobs.items()}
    gavel[Job(name="LM (batch size 5)", gpus=8), "v100"] = 0.0  # it did not run
    gavel[Job(name="A3C", gpus=1), "v100"] = 1.0  # not data-parallel
    rows = rows_of(gavel, {("bert", "dgx", 8): {1: 1.0, 2: 1.1}})
    assert len(rows) == 6 + 2
    assert {row.table for row in rows} == {"gavel", "sia"}
    assert held(rows[:1], FITTED) in ([True], [False])
    with pytest.raises(ValueError, match="two numbers"):
        fit_scaling([])
