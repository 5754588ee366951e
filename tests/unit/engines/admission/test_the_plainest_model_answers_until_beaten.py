# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The ladder of models: who takes over, on which evidence, and what trims do to a forecast."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from bench.single_numbers import point
from ullage.engines.admission.ladder import (
    LEAST_ROWS,
    NOMINAL_Z,
    RungOutcomes,
    Trim,
    choose,
    finite_quantile,
    fit_trim,
)
from ullage.engines.admission.records import Rung

PLAIN = Rung.UTILISATION_SUM


def outcomes(
    observed: np.ndarray, mean: np.ndarray, sd: float, objective: float = 0.7
) -> RungOutcomes:
    return RungOutcomes(
        mean=mean,
        sd=np.full(len(mean), sd),
        observed=observed,
        objective=np.full(len(mean), objective),
    )


def seen(rows: int = 200, seed: int = 0) -> np.ndarray:
    return np.abs(np.random.default_rng(seed).normal(0.5, 0.2, rows))


def off(observed: np.ndarray, sd: float, seed: int = 1) -> np.ndarray:
    noise: np.ndarray = observed + np.random.default_rng(seed).normal(0.0, sd, len(observed))
    return noise


@pytest.mark.parametrize(("mean", "sd", "value"), [(0.2, 0.3, 0.5), (0.0, 1.0, -2.0)])
def test_the_score_is_the_integral_it_stands_for(mean: float, sd: float, value: float) -> None:
    below = quad(lambda x: norm.cdf(x, mean, sd) ** 2, mean - 12 * sd, value)[0]
    above = quad(lambda x: (1 - norm.cdf(x, mean, sd)) ** 2, value, mean + 12 * sd)[0]
    one = outcomes(np.array([value]), np.array([mean]), sd)
    assert one.crps == pytest.approx(below + above, rel=1e-6)


def test_the_honest_spread_scores_best() -> None:
    observed = seen(4000)
    mean = off(observed, 0.1)
    scores = {sd: outcomes(observed, mean, sd).crps for sd in (0.03, 0.1, 0.4)}
    assert min(scores, key=scores.__getitem__) == 0.1


def test_closer_forecasts_take_over_in_spite_of_an_odd_row() -> None:
    observed = seen()
    close = off(observed, 0.02)
    close[0] += 1.0  # fifty spreads off: a log density would never forgive it
    found = {
        PLAIN: outcomes(observed, np.full(len(observed), 0.5), 0.2),
        Rung.GP: outcomes(observed, close, 0.02),
    }
    assert choose(found, eps=0.05, start=PLAIN) is Rung.GP


def test_a_closer_forecast_that_admits_as_much_takes_over() -> None:
    observed = seen()
    mean = np.full(len(observed), 0.5)
    found = {
        PLAIN: outcomes(observed, mean, 0.4, objective=9.0),
        Rung.GP: outcomes(observed, mean, 0.2, objective=9.0),
    }
    assert found[PLAIN].recall(0.05) == found[Rung.GP].recall(0.05)
    assert choose(found, eps=0.05, start=PLAIN) is Rung.GP


def test_few_rows_prove_nothing() -> None:
    observed = seen(LEAST_ROWS - 1)
    found = {
        PLAIN: outcomes(observed, np.full(len(observed), 0.5), 0.2),
        Rung.GP: outcomes(observed, off(observed, 0.01), 0.01),
    }
    assert choose(found, eps=0.05, start=PLAIN) is PLAIN


def test_a_model_that_finds_fewer_safe_ones_does_not_take_over_unless_slack_allows() -> None:
    observed = seen(400)
    truth = off(observed, 0.15)
    blind = np.where(observed < 0.7, 0.69, observed)  # exact where it is of no use
    found = {
        PLAIN: outcomes(observed, truth, 0.15),
        Rung.BIAS: outcomes(observed, np.where(observed < 0.4, 1.0, blind), 0.05),
    }
    less = found[Rung.BIAS].recall(0.05)
    assert less < found[PLAIN].recall(0.05)
    assert choose(found, eps=0.05, start=PLAIN) is PLAIN


def test_rungs_without_forecasts_are_passed_over() -> None:
    observed = seen()
    found = {
        PLAIN: outcomes(observed, np.full(len(observed), 0.5), 0.2),
        Rung.GP: outcomes(observed, off(observed, 0.05), 0.05),
    }
    assert choose(found, eps=0.05, start=PLAIN) is Rung.GP
    assert choose({}, eps=0.05, start=Rung.PRIOR) is Rung.PRIOR


def test_a_trim_covers_nine_of_ten_of_the_rows_it_was_fitted_on() -> None:
    observed = seen(2000)
    mean = 0.5 + 2.0 * (off(observed, 0.1) - 0.5)  # leans too far
    trim = fit_trim(mean, np.full(2000, 0.05), observed, 0.5)
    assert 0.3 < trim.slope < 0.6
    held = observed <= trim.mean(mean) + 1.2816 * trim.spread * 0.05
    assert float(held.mean()) == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize("rows", [10, 19, 60])
def test_the_bound_covers_nine_of_ten_new_rows_however_few_it_was_fitted_on(rows: int) -> None:
    random = np.random.default_rng(7)
    trials = 3000
    drawn = random.standard_t(4, size=(trials, rows + 1))
    nothing, ones = np.zeros(rows), np.ones(rows)
    held = [one[-1] <= NOMINAL_Z * fit_trim(nothing, ones, one[:-1], 0.0).spread for one in drawn]
    plain = [one[-1] <= np.quantile(one[:-1], 0.9) for one in drawn]
    exact = math.ceil((rows + 1) * 0.9) / (rows + 1)
    assert np.mean(held) == pytest.approx(exact, abs=0.02)
    assert np.mean(held) >= 0.9 - 0.02
    assert np.mean(plain) < np.mean(held)


@pytest.mark.parametrize(
    ("rows", "rank"), [(1, 1), (9, 9), (10, 10), (18, 18), (19, 18), (99, 90), (400, 361)]
)
def test_a_quantile_of_few_values_leaves_room_for_one_more(rows: int, rank: int) -> None:
    values = np.random.default_rng(3).permutation(np.arange(1.0, rows + 1))
    assert finite_quantile(values, 0.9) == rank


def test_with_few_rows_nothing_is_trimmed() -> None:
    trim = fit_trim(np.zeros(9), np.ones(9), np.ones(9), 0.3)
    assert trim == Trim(centre=0.3)


def test_sums_are_trimmed_as_their_parts() -> None:
    trim = Trim(centre=0.2, slope=0.5)
    parts = np.array([0.1, 0.4, 0.9])
    assert trim.summed(parts.sum(), 3) == pytest.approx(trim.mean(parts).sum())


def test_the_named_slowdown_errs_least_in_relative_terms() -> None:
    draws = np.exp(np.random.default_rng(3).normal(0.8, 0.3, 200_000))
    errors = {
        shift: float(np.abs(math.exp(shift) / draws - 1).mean()) for shift in (0.6, 0.71, 0.8)
    }
    assert min(errors, key=errors.__getitem__) == 0.71
    assert point(np.array([0.8]), np.array([0.3]))[0] == pytest.approx(math.exp(0.71))
    assert point(np.array([0.01]), np.array([1.0]))[0] == 1.0
