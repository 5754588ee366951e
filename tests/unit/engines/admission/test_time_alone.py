# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Curves of time alone: what generated the points is found again; bad points are refused."""

from __future__ import annotations

import math

import pytest

from bench.share_curve import fit_service_curve, fit_share_curve


def test_two_parts_are_found_again() -> None:
    shares = (0.2, 0.5, 1.0)
    curve = fit_share_curve(shares, [0.3 + 0.2 / one for one in shares])
    assert (curve.fixed_s, curve.scaled_s) == pytest.approx((0.3, 0.2))


def test_one_share_is_read_as_bound_by_compute() -> None:
    curve = fit_share_curve([0.5], [2.0])
    assert (curve.fixed_s, curve.scaled_s) == (0.0, 1.0)


@pytest.mark.parametrize(("seconds", "part"), [((3.0, 1.0), "fixed_s"), ((1.0, 1.3), "scaled_s")])
def test_no_part_is_negative(seconds: tuple[float, float], part: str) -> None:
    curve = fit_share_curve([0.5, 1.0], list(seconds))
    assert getattr(curve, part) == 0.0
    assert curve.fixed_s + curve.scaled_s > 0


@pytest.mark.parametrize(
    ("shares", "seconds"),
    [([], []), ([0.5], [math.nan]), ([0.5], [-1.0]), ([50.0], [1.0]), ([0.0], [1.0])],
)
def test_points_that_cannot_be_are_refused(shares: list[float], seconds: list[float]) -> None:
    with pytest.raises(ValueError, match=r"share|time"):
        fit_share_curve(shares, seconds)


def test_a_service_curve_is_found_again_from_few_points() -> None:
    def truth(b: float, k: float, g: float) -> float:
        return max(0.004 + 0.002 * b / g**0.8, k * 0.002 * b / g**0.8 * 0.9)

    points = [(b, k, g) for b in (1.0, 4.0, 32.0) for k in (1.0, 3.0) for g in (1.0, 2.0, 7.0)]
    curve = fit_service_curve(points, [truth(*one) for one in points])
    for one in [(8.0, 2.0, 3.0), (64.0, 4.0, 4.0)]:
        assert curve.seconds(*one) == pytest.approx(truth(*one), rel=0.05)


def test_points_that_did_not_run_are_refused() -> None:
    with pytest.raises(ValueError, match="leave zeros out"):
        fit_service_curve([(1.0, 1.0, 1.0)], [0.0])
