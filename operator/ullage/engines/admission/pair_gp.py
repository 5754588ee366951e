# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A Gaussian process over (victim, aggressor) rows: the slowdown of one class beside another.

Seven kernel terms: similarity of two victims and of two aggressors in their solo features, and
identity of their classes (learned sensitivity and aggressiveness, and their products). Built and
used only in the background; a decision must never solve against its factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ullage.engines.admission.pair_kernel import (
    AGGRESSOR_SCALE,
    NOISE,
    TERMS,
    THETA_START,
    VICTIM_SCALE,
    Distances,
    KernelShape,
    class_folds,
    kernel,
)
from ullage.engines.admission.pair_kernel import Rows as Rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_PULL: Final = 0.02
"""Weak prior that pulls the log hyper-parameters to their start (derived from the reference)."""
_REACH: Final = 7.0
"""Largest distance of a log hyper-parameter from its start; keeps exponentials finite."""
_JITTER: Final = 1e-6
_LEAST_WEIGHT: Final = 0.02
_NO_FACTOR: Final = 1e10
_NEGLIGIBLE: Final = 1e-13
"""Fraction of the power of a block's strongest direction below which a direction is rounding."""
MAX_ROWS: Final = 2_000
FOLDS: Final = 5
"""Inner folds in which the kind of noise and the kernel shape are chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFit:
    """Settings of the search for hyper-parameters.

    ``tail`` is the degrees of freedom of the Student t noise, 0 = Gaussian noise; ``rounds`` the
    number of reweighting rounds under it; ``shape`` the shape of the kernel.
    """

    iterations: int = 40
    max_rows: int = 400
    seed: int = 0
    tail: float = 0.0
    rounds: int = 2
    shape: KernelShape = KernelShape.GAUSSIAN


REFERENCE: Final = PairFit(iterations=25, max_rows=300)
"""A run of 25 iterations on at most 300 rows, Gaussian noise."""
ROBUST: Final = PairFit(tail=2.0)
"""Heavy-tailed noise: unrepeated measurements contain outliers, which would otherwise distort every
prediction around them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyper:
    """Fitted hyper-parameters, sufficient to condition on any rows."""

    theta: tuple[float, ...]
    tail: float = 0.0
    shape: KernelShape = KernelShape.GAUSSIAN

    @property
    def noise(self) -> float:
        """Variance of one observation."""
        return float(np.exp(self.theta[NOISE]))


def negative_log_likelihood(
    theta: Floats,
    distances: Distances,
    target: Floats,
    weights: Floats,
    shape: KernelShape = KernelShape.GAUSSIAN,
) -> tuple[float, Floats]:
    """Negative log posterior of the hyper-parameters, and its gradient (derived).

    A covariance that cannot be factored counts as very unlikely.

    Args:
        theta: Log hyper-parameters in the order of ``THETA_START``, shape (10,).
        distances: Distances among all n rows.
        target: Log residual of each row, centred, shape (n,).
        weights: Divide the noise of each row, above 0, shape (n,).
        shape: Shape of the kernel.

    Returns:
        The value in nats, and its gradient of shape (10,).
    """
    from scipy.linalg import lapack

    amplitude, noise = np.exp(theta[:TERMS]), np.exp(theta[NOISE])
    victim, aggressor = distances.sides(theta, shape)
    same_v, same_a = distances.same_victim, distances.same_aggressor
    of_victim = amplitude[0] * aggressor + amplitude[1] + amplitude[6] * same_a
    of_aggressor = amplitude[2] + amplitude[5] * same_v
    covariance = victim * of_victim + aggressor * of_aggressor
    covariance += amplitude[3] * same_v + amplitude[4] * same_a
    covariance[np.diag_indices(len(target))] += noise / weights + _JITTER
    # all matrices are symmetric: the transpose of one in row order is the same in column order
    factor, info = lapack.dpotrf(covariance.T, lower=1, overwrite_a=1)
    if info:
        return _NO_FACTOR, np.zeros(len(theta))
    logs = np.log(np.diag(factor)).sum()
    solved = lapack.dpotrs(factor, target, lower=1)[0]
    pull = theta - THETA_START
    value = 0.5 * target @ solved + logs + _PULL * (pull @ pull)

    # d value / d covariance; one triangle of the inverse stands for both, its diagonal for half
    slope = lapack.dpotri(factor, lower=1, overwrite_c=1)[0].T
    slope[np.diag_indices(len(target))] *= 0.5
    slope -= np.outer(0.5 * solved, solved)
    by_victim, by_aggressor = slope * victim, slope * aggressor
    gradient = 2.0 * _PULL * pull
    both = np.vdot(by_victim, aggressor)
    sums = [both, by_victim.sum(), by_aggressor.sum(), np.vdot(slope, same_v)]
    sums += [np.vdot(slope, same_a), np.vdot(by_aggressor, same_v), np.vdot(by_victim, same_a)]
    gradient[:TERMS] += amplitude * np.array(sums)
    steep_v, steep_a = distances.steepness(theta, shape)
    gradient[VICTIM_SCALE] += np.vdot(by_victim, steep_v * of_victim)
    aggressor_part = steep_a * (of_aggressor + amplitude[0] * victim)
    gradient[AGGRESSOR_SCALE] += np.vdot(by_aggressor, aggressor_part)
    gradient[NOISE] += noise * (np.diag(slope) / weights).sum()
    return float(value), gradient


def fit(rows: Rows, target: Floats, how: PairFit = REFERENCE, plain: Hyper | None = None) -> Hyper:
    """Fit hyper-parameters by maximum a posteriori.

    Args:
        rows: Directional rows.
        target: Log residual of each row, shape (n,); its mean is subtracted first.
        how: Iterations, rows and tails.
        plain: A fit with the same settings and Gaussian noise, as the start for heavy tails.

    Raises:
        ValueError: there is no row, or a target is not a finite number.
    """
    _check(rows, target)
    if len(rows) > how.max_rows:
        some = np.random.default_rng(how.seed).choice(len(rows), how.max_rows, replace=False)
        rows, target = rows.take(np.sort(some)), target[np.sort(some)]
    distances = Distances.between(rows, rows)
    weights = np.ones(len(rows))
    seek = partial(_minimise, distances=distances, shape=how.shape)
    theta = (
        seek(THETA_START, target - target.mean(), weights, how.iterations)
        if plain is None
        else np.array(plain.theta)
    )
    for _ in range(how.rounds if how.tail else 0):
        weights = _weigh(
            distances.kernel(theta, how.shape), target, float(theta[NOISE]), weights, how.tail
        )
        centred = target - np.average(target, weights=weights)
        theta = seek(theta, centred, weights, how.iterations // 2)
    return Hyper(theta=tuple(float(value) for value in theta), tail=how.tail, shape=how.shape)


def _minimise(
    start: Floats,
    target: Floats,
    weights: Floats,
    iterations: int,
    *,
    distances: Distances,
    shape: KernelShape,
) -> Floats:
    from scipy.optimize import minimize

    solution = minimize(
        negative_log_likelihood,
        start,
        args=(distances, target, weights, shape),
        jac=True,
        method="L-BFGS-B",
        bounds=[(value - _REACH, value + _REACH) for value in THETA_START],
        options={"maxiter": iterations},
    )
    theta: Floats = solution.x
    return theta


def _factor(covariance: Floats) -> Floats:
    """Cholesky factor of a symmetric matrix, computed in place."""
    from scipy.linalg import lapack

    factor, info = lapack.dpotrf(covariance.T, lower=1, overwrite_a=1)
    if info:
        raise ValueError("the covariance of the rows cannot be factored; fit again")
    out: Floats = factor
    return out


def _solve(factor: Floats, right: Floats) -> Floats:
    from scipy.linalg import lapack

    out: Floats = lapack.dpotrs(factor, right, lower=1)[0]
    return out


def _weigh(prior: Floats, target: Floats, log_noise: float, weights: Floats, tail: float) -> Floats:
    """Weights of a Student t likelihood from residuals of rows left out one at a time."""
    from scipy.linalg import lapack

    noise = float(np.exp(log_noise))
    covariance = prior.copy()
    covariance[np.diag_indices(len(target))] += noise / weights + _JITTER
    factor = _factor(covariance)
    lower = lapack.dtrtri(factor, lower=1)[0]  # zeros above the diagonal, as in the factor
    inverse_diagonal: Floats = np.einsum("ij,ij->j", lower, lower)
    spread = 1.0 / inverse_diagonal
    mean = np.average(target, weights=weights)
    residual = _solve(factor, target - mean) * spread
    plain = np.maximum(spread - noise / weights, 0.0) + noise
    return np.maximum((tail + 1.0) / (tail + residual**2 / plain), _LEAST_WEIGHT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """A Gaussian process conditioned on rows; immutable.

    ``weights`` divide the noise of each row: 1 = an ordinary row, near 0 = an outlier.
    """

    hyper: Hyper
    rows: Rows
    target: Floats
    weights: Floats
    mean: float
    factor: Floats
    solved: Floats

    def predict(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and standard deviation of a new observation of each row."""
        cross = self._cross(rows)
        explained = (self._whitened(cross) ** 2).sum(axis=0)
        return self.mean + cross @ self.solved, self._spread(explained)

    def predict_blocks(self, rows: Rows, size: int) -> tuple[Floats, Floats]:
        """As :meth:`predict`, faster for blocks of similar rows.

        The cross-covariances of a block are expressed in as few of their principal directions as
        represent them, and only those are solved for.

        Args:
            rows: n directional rows, block after block.
            size: Rows of a block; divides n.

        Returns:
            Mean and standard deviation of the log residual, each of shape (n,).
        """
        cross = self._cross(rows)
        blocks = cross.reshape(-1, size, len(self.rows))
        powers, turns = np.linalg.eigh(blocks @ blocks.transpose(0, 2, 1))
        kept = powers > _NEGLIGIBLE * powers[:, -1:]
        turned = [turn[:, keep] for turn, keep in zip(turns, kept, strict=True)]
        directions = np.concatenate(
            [turn.T @ block for turn, block in zip(turned, blocks, strict=True)]
        )
        white = self._whitened(directions)
        ends = np.cumsum(kept.sum(axis=1))[:-1]
        explained = np.concatenate(
            [
                ((part @ turn.T) ** 2).sum(axis=0)
                for turn, part in zip(turned, np.split(white, ends, axis=1), strict=True)
            ]
        )
        return self.mean + cross @ self.solved, self._spread(explained)

    def _cross(self, rows: Rows) -> Floats:
        return kernel(self.hyper.theta, rows, self.rows, self.hyper.shape)

    def _whitened(self, cross: Floats) -> Floats:
        from scipy.linalg import solve_triangular

        out: Floats = solve_triangular(self.factor, cross.T, lower=True, check_finite=False)
        return out

    def _spread(self, explained: Floats) -> Floats:
        amplitude = float(np.exp(np.asarray(self.hyper.theta[:TERMS])).sum())
        out: Floats = np.sqrt(np.maximum(amplitude - explained, 0.0) + self.hyper.noise)
        return out


def condition(
    rows: Rows, target: Floats, hyper: Hyper, weights: Floats | None = None, *, rounds: int = 2
) -> Posterior:
    """Condition on rows with fixed hyper-parameters.

    Args:
        rows: At most ``MAX_ROWS`` directional rows.
        target: Log residual of each row, shape (n,).
        hyper: From ``fit``.
        weights: Known weights of the rows, shape (n,); ``None`` = reweight them ``rounds`` times.
        rounds: Number of reweighting rounds under heavy-tailed noise.

    Raises:
        ValueError: there is no row, too many, or a target is not a finite number.
    """
    _check(rows, target)
    if len(rows) > MAX_ROWS:
        raise ValueError(f"{len(rows)} rows, at most {MAX_ROWS} are kept; drop the oldest")
    prior = kernel(hyper.theta, rows, rows, hyper.shape)
    if weights is None:
        weights = np.ones(len(rows))
        for _ in range(rounds if hyper.tail else 0):
            weights = _weigh(prior, target, hyper.theta[NOISE], weights, hyper.tail)
    prior[np.diag_indices(len(rows))] += hyper.noise / weights + _JITTER
    factor = _factor(prior)
    mean = float(np.average(target, weights=weights))
    return Posterior(
        hyper=hyper,
        rows=rows,
        target=target,
        weights=weights,
        mean=mean,
        factor=factor,
        solved=_solve(factor, target - mean),
    )


def learn(
    rows: Rows,
    target: Floats,
    blocks: Sequence[Ints],
    *,
    how: Sequence[PairFit] = (PairFit(), ROBUST),
) -> Posterior:
    """Fit with every kind of noise and keep the fit that predicts left-out blocks best.

    With several fits the shape of the kernel is chosen next, by left-out classes, since a class
    with rows of its own depends little on similar classes.

    Args:
        rows: Directional rows.
        target: Log residual of each row, shape (n,).
        blocks: Row indices of each co-location, each of shape (rows of the block,).
        how: The fits to choose from.

    Raises:
        ValueError: there is no row, or a target is not a finite number.
    """
    hypers: list[Hyper] = []
    by_fit: dict[PairFit, Hyper] = {}
    for option in how:
        hypers.append(fit(rows, target, option, by_fit.get(replace(option, tail=0.0))))
        by_fit[option] = hypers[-1]
    best = hypers[0]
    if len(hypers) > 1 and len(blocks) > 1:
        best = min(hypers, key=lambda hyper: _error(rows, target, hyper, blocks))
        rough = replace(how[hypers.index(best)], shape=KernelShape.MATERN)
        folds = class_folds(rows, FOLDS)
        shapes = (best, fit(rows, target, rough))
        best = min(shapes, key=lambda hyper: _error(rows, target, hyper, folds))
    return condition(rows, target, best)


def _error(rows: Rows, target: Floats, hyper: Hyper, blocks: Sequence[Ints]) -> float:
    index, mean, _ = left_out(rows, target, hyper, blocks, folds=FOLDS)
    return float(np.abs(mean - target[index]).mean()) if len(index) else np.inf


def left_out(
    rows: Rows, target: Floats, hyper: Hyper, blocks: Sequence[Ints], *, folds: int = 0
) -> tuple[Ints, Floats, Floats]:
    """Predict every block from the rows outside it, with fixed hyper-parameters.

    Rows are reweighted without the block, so that the prediction does not depend on it.

    Args:
        rows: Directional rows.
        target: Log residual of each row, shape (n,).
        hyper: From ``fit``.
        blocks: Indices of rows that are left out together, each of shape (rows of the block,); a
            row may be in several.
        folds: Number of folds that blocks are dealt into; 0 = each is a fold of its own.

    Returns:
        Index of each predicted row, mean and standard deviation of its log residual, each of
        shape (predictions,).
    """
    count = min(folds, len(blocks)) if folds else len(blocks)
    index: list[Ints] = [np.zeros(0, np.int64)]
    means: list[Floats] = [np.zeros(0)]
    sds: list[Floats] = [np.zeros(0)]
    for start in range(count):
        out = np.concatenate(blocks[start::count])
        kept = np.ones(len(rows), bool)
        kept[out] = False
        if kept.any():
            mean, sd = condition(rows.take(kept), target[kept], hyper).predict(rows.take(out))
            index.append(out)
            means.append(mean)
            sds.append(sd)
    return np.concatenate(index), np.concatenate(means), np.concatenate(sds)


def _check(rows: Rows, target: Floats) -> None:
    if not len(rows) or len(rows) != len(target):
        raise ValueError(f"{len(rows)} rows with {len(target)} targets; at least one is needed")
    if not np.isfinite(target).all():
        raise ValueError("a target is not a finite number; refuse the row when it arrives")
