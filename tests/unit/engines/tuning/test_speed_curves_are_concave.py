# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Speed curves are concave, go through what was measured, and ignore what says nothing."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.tuning.speed_curves import (
    MeasuredSpeeds,
    SpeedCurve,
    Widths,
    concave,
    speed_curve,
)

WIDTHS = Widths(per_device=4, devices=4)


def slopes(curve: SpeedCurve) -> list[float]:
    xs, ys = (0.0, *WIDTHS.widths), (0.0, *curve.speeds)
    return [(ys[i + 1] - ys[i]) / (xs[i + 1] - xs[i]) for i in range(len(WIDTHS.widths))]


def test_widths_are_unit_shares_and_whole_devices() -> None:
    assert WIDTHS.widths == pytest.approx((1 / 4, 1 / 3, 1 / 2, 1, 2, 3, 4))
    assert WIDTHS.sizes == (3, 4, 6, 12, 24, 36, 48)
    assert WIDTHS.widths[WIDTHS.whole] == 1


@pytest.mark.parametrize(("shared", "devices"), [(0, 1), (17, 1), (1, 0), (1, 65)])
def test_widths_have_limits(shared: int, devices: int) -> None:
    with pytest.raises(ValueError, match="from 1 to"):
        Widths(per_device=shared, devices=devices)


def test_without_measurements_speed_is_the_share() -> None:
    found = speed_curve(WIDTHS)
    assert found.speeds[: WIDTHS.whole + 1] == pytest.approx(WIDTHS.widths[: WIDTHS.whole + 1])
    assert found.speeds[-1] == pytest.approx(4**0.85)


def test_a_concave_measurement_is_kept() -> None:
    measured = {0.25: 0.5, 0.5: 0.75, 1.0: 1.0, 2.0: 1.4, 4.0: 1.8}
    found = speed_curve(WIDTHS, measured)
    assert {w: found.speeds[WIDTHS.widths.index(w)] for w in measured} == pytest.approx(measured)


def test_a_dent_is_filled() -> None:
    found = speed_curve(WIDTHS, {0.5: 0.8, 1.0: 0.9, 2.0: 1.8})
    assert found.speeds[WIDTHS.whole] == pytest.approx(0.8 + (1.8 - 0.8) / 3)


def test_a_wider_trial_that_is_slower_counts_as_no_faster() -> None:
    found = speed_curve(WIDTHS, {1.0: 1.0, 2.0: 1.5, 4.0: 0.7})
    assert found.speeds[-1] == pytest.approx(1.5)


@given(st.dictionaries(st.sampled_from(WIDTHS.widths), st.floats(1e-3, 1e3), min_size=1))
def test_every_curve_is_concave_and_never_below_a_measurement(measured: dict[float, float]) -> None:
    found = speed_curve(WIDTHS, measured)
    steps = slopes(found)
    assert all(b <= a + 1e-6 * max(1.0, a) for a, b in pairwise(steps))
    assert all(found.speeds[WIDTHS.widths.index(w)] >= s * (1 - 1e-9) for w, s in measured.items())
    assert concave(WIDTHS, found).speeds == pytest.approx(found.speeds)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_measurement_that_is_no_speed_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        speed_curve(WIDTHS, {1.0: bad})
    assert not MeasuredSpeeds(widths=WIDTHS).observe(1.0, bad, 10)


def test_warm_up_and_unknown_widths_say_nothing() -> None:
    speeds = MeasuredSpeeds(widths=WIDTHS)
    assert not speeds.observe(1.0, 5.0, 3)
    assert not speeds.observe(0.7, 5.0, 10)
    assert speeds.curve() == speed_curve(WIDTHS)


def test_reported_steps_move_the_curve_towards_what_they_say() -> None:
    speeds = MeasuredSpeeds(widths=WIDTHS)
    for _ in range(40):
        assert speeds.observe(1.0, 10.0, 100)
        assert speeds.observe(0.25, 6.0, 100)
        assert speeds.observe(4.0, 20.0, 100)
    found = speeds.curve()
    assert found.speeds[0] == pytest.approx(0.6)
    assert found.speeds[WIDTHS.whole] == pytest.approx(1.0, rel=0.01)
    assert found.speeds[-1] == pytest.approx(2.0)


def test_one_wrong_report_does_not_replace_what_was_known() -> None:
    speeds = MeasuredSpeeds(widths=WIDTHS)
    for _ in range(10):
        speeds.observe(1.0, 10.0, 100)
    speeds.observe(1.0, 1000.0, 100)
    assert speeds.steps_per_s[1.0] < 400


def test_a_class_that_never_ran_at_width_1_is_scaled_by_the_prior() -> None:
    speeds = MeasuredSpeeds(widths=WIDTHS)
    speeds.observe(0.5, 5.0, 100)
    assert speeds.curve().speeds[WIDTHS.widths.index(0.5)] == pytest.approx(0.5)


def test_a_curve_never_falls() -> None:
    with pytest.raises(ValueError, match="never slower"):
        SpeedCurve(speeds=(1.0, 0.5))
