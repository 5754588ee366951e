# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The Gaussian process agrees with the plain formulas, and its gradient with differences."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from ullage.engines.admission import pair_gp
from ullage.engines.admission.pair_gp import Hyper, Rows
from ullage.engines.admission.pair_kernel import (
    THETA_START,
    Distances,
    KernelShape,
    class_folds,
    kernel,
)


def rows(count: int = 40, seed: int = 0) -> tuple[Rows, np.ndarray]:
    random = np.random.default_rng(seed)
    features = random.standard_normal((6, 3))
    victim, aggressor = random.integers(0, 6, count), random.integers(0, 6, count)
    target = 0.3 * features[victim, 0] + 0.2 * features[aggressor, 1]
    made = Rows(
        victim=victim,
        aggressor=aggressor,
        victim_features=features[victim],
        aggressor_features=features[aggressor],
    )
    return made, target + 0.05 * random.standard_normal(count)


HYPER = Hyper(theta=tuple(THETA_START))


def plain_likeness(apart: float, scale: float, shape: KernelShape) -> float:
    reach = np.sqrt(apart) / scale
    if shape is KernelShape.GAUSSIAN:
        return float(np.exp(-(reach**2) / 2))
    return float((1 + np.sqrt(3) * reach) * np.exp(-np.sqrt(3) * reach))


def plain_kernel(
    theta: np.ndarray, left: Rows, right: Rows, shape: KernelShape = KernelShape.GAUSSIAN
) -> np.ndarray:
    """The formula, entry by entry."""
    e = np.exp(theta)
    out = np.zeros((len(left), len(right)))
    for i in range(len(left)):
        for j in range(len(right)):
            apart_v = np.mean((left.victim_features[i] - right.victim_features[j]) ** 2)
            apart_a = np.mean((left.aggressor_features[i] - right.aggressor_features[j]) ** 2)
            kv, ka = plain_likeness(apart_v, e[7], shape), plain_likeness(apart_a, e[8], shape)
            iv = float(left.victim[i] == right.victim[j])
            ia = float(left.aggressor[i] == right.aggressor[j])
            terms = [kv * ka, kv, ka, iv, ia, iv * ka, kv * ia]
            out[i, j] = np.dot(e[:7], terms)
    return out


@pytest.mark.parametrize("shape", list(KernelShape))
def test_the_kernel_is_the_sum_of_its_seven_terms(shape: KernelShape) -> None:
    made, _ = rows()
    theta = THETA_START + 0.3 * np.random.default_rng(1).standard_normal(10)
    few = made.take(np.arange(7))
    assert np.allclose(kernel(theta, few, made, shape), plain_kernel(theta, few, made, shape))


@pytest.mark.parametrize("shape", list(KernelShape))
def test_predictions_equal_a_direct_solve(shape: KernelShape) -> None:
    made, target = rows()
    hyper = Hyper(theta=HYPER.theta, shape=shape)
    known, asked = made.take(np.arange(30)), made.take(np.arange(30, 40))
    mean, sd = pair_gp.condition(known, target[:30], hyper).predict(asked)
    theta = np.array(HYPER.theta)
    covariance = plain_kernel(theta, known, known, shape) + (HYPER.noise + 1e-6) * np.eye(30)
    cross, centre = plain_kernel(theta, asked, known, shape), target[:30].mean()
    direct = centre + cross @ np.linalg.solve(covariance, target[:30] - centre)
    own = plain_kernel(theta, asked, asked, shape)
    spread = own - cross @ np.linalg.solve(covariance, cross.T)
    assert np.allclose(mean, direct)
    assert np.allclose(sd, np.sqrt(np.diag(spread) + HYPER.noise))


@pytest.mark.parametrize("shape", list(KernelShape))
def test_the_gradient_equals_differences(shape: KernelShape) -> None:
    made, target = rows()
    distances = Distances.between(made, made)
    weights = np.linspace(0.2, 1.5, len(made))
    theta = THETA_START + 0.2
    likelihood = partial(
        pair_gp.negative_log_likelihood,
        distances=distances,
        target=target,
        weights=weights,
        shape=shape,
    )
    _, gradient = likelihood(theta)
    for place in range(10):
        step = np.zeros(10)
        step[place] = 1e-5
        up, _ = likelihood(theta + step)
        down, _ = likelihood(theta - step)
        assert gradient[place] == pytest.approx((up - down) / 2e-5, abs=1e-4)


def test_rows_that_come_later_give_what_all_rows_give_at_once() -> None:
    made, target = rows()
    some = pair_gp.condition(made.take(np.arange(25)), target[:25], HYPER)
    assert len(some.rows) == 25
    grown = pair_gp.condition(made, target, some.hyper)
    fresh = pair_gp.condition(made, target, HYPER)
    assert np.array_equal(grown.predict(made)[0], fresh.predict(made)[0])


def test_what_is_left_out_is_not_looked_at() -> None:
    made, target = rows()
    blocks = [np.arange(start, start + 10) for start in range(0, 40, 10)]
    heavy = Hyper(theta=HYPER.theta, tail=2.0)
    index, mean, _ = pair_gp.left_out(made, target, heavy, blocks)
    spoilt = target.copy()
    spoilt[:10] += 5.0
    again = pair_gp.left_out(made, spoilt, heavy, blocks)[1]
    assert np.array_equal(mean[index < 10], again[index < 10])
    assert not np.array_equal(mean[index >= 10], again[index >= 10])


def test_heavy_tails_shrug_an_outlier_off() -> None:
    made, target = rows(80)
    spoilt = target.copy()
    spoilt[3] += 4.0
    others = np.arange(len(made)) != 3
    errors = {}
    for how in (pair_gp.PairFit(), pair_gp.ROBUST):
        posterior = pair_gp.condition(made, spoilt, pair_gp.fit(made, spoilt, how))
        errors[how.tail] = np.abs(posterior.predict(made)[0] - target)[others].mean()
    assert errors[2.0] < errors[0.0]


def test_a_row_weighs_less_the_odder_it_is_to_all_others() -> None:
    """The weight of a Student t, from what the others say of the row by a direct solve."""
    made, target = rows(20)
    target[3] += 2.0
    hyper = Hyper(theta=HYPER.theta, tail=4.0)
    prior = plain_kernel(np.array(hyper.theta), made, made)
    weights = []
    for row in range(len(made)):
        others = np.arange(len(made)) != row
        known = prior[np.ix_(others, others)] + (hyper.noise + 1e-6) * np.eye(len(made) - 1)
        cross = np.linalg.solve(known, prior[row, others])
        miss = target[row] - target.mean() - cross @ (target[others] - target.mean())
        spread = prior[row, row] + hyper.noise + 1e-6 - cross @ prior[row, others]
        weights.append((hyper.tail + 1) / (hyper.tail + miss**2 / spread))
    found = pair_gp.condition(made, target, hyper, rounds=1).weights
    assert np.allclose(found, weights)
    assert found.argmin() == 3


def test_noise_is_chosen_by_rows_and_the_shape_by_classes_left_out() -> None:
    made, target = rows(60)
    blocks = [np.array([one]) for one in range(len(made))]

    def error(one: Hyper, out: list[np.ndarray]) -> float:
        index, mean, _ = pair_gp.left_out(made, target, one, out, folds=pair_gp.FOLDS)
        return float(np.abs(mean - target[index]).mean())

    plain, robust = (pair_gp.fit(made, target, how) for how in (pair_gp.PairFit(), pair_gp.ROBUST))
    noise = min((plain, robust), key=lambda one: error(one, blocks))
    rough = pair_gp.fit(made, target, pair_gp.PairFit(tail=noise.tail, shape=KernelShape.MATERN))
    folds = class_folds(made, pair_gp.FOLDS)
    assert len(folds) == pair_gp.FOLDS
    best = min((noise, rough), key=lambda one: error(one, folds))
    assert pair_gp.learn(made, target, blocks).hyper == best


def test_what_is_no_number_is_refused() -> None:
    made, target = rows()
    target[2] = np.nan
    with pytest.raises(ValueError, match="target"):
        pair_gp.condition(made, target, HYPER)
    features = made.victim_features.copy()
    features[0, 0] = np.inf
    with pytest.raises(ValueError, match="feature"):
        Rows(
            victim=made.victim,
            aggressor=made.aggressor,
            victim_features=features,
            aggressor_features=made.aggressor_features,
        )


def test_more_rows_than_are_kept_are_refused() -> None:
    made, target = rows(pair_gp.MAX_ROWS + 1)
    with pytest.raises(ValueError, match="at most"):
        pair_gp.condition(made, target, HYPER)


def test_blocks_of_rows_alike_are_predicted_as_single_rows_are() -> None:
    made, target = rows(60)
    posterior = pair_gp.condition(made, target, HYPER)
    random = np.random.default_rng(5)
    count, size = 8, 20
    nudge = 0.1 * random.standard_normal((count * size, 3))
    some = made.take(np.repeat(np.arange(count), size))
    asked = Rows(
        victim=some.victim,
        aggressor=some.aggressor,
        victim_features=some.victim_features + nudge,
        aggressor_features=some.aggressor_features + nudge,
    )
    mean, sd = posterior.predict(asked)
    again = posterior.predict_blocks(asked, size)
    assert np.allclose(again[0], mean)
    assert np.allclose(again[1], sd, rtol=1e-4)
