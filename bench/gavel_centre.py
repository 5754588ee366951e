# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The middle of the optimal face, by a primal-dual interior point method without crossover.

A corner gives some of several equal jobs all and others nothing, and another corner the next time;
the middle is one point. Dense normal equations: for a few hundred rows, never for thousands.
Mehrotra's predictor and corrector, as in Nocedal and Wright, Numerical Optimization, chapter 14.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import scipy

from ullage.engines.allocation.model import Floats

_STEPS: Final = 100
_GAP: Final = 1e-9
_LOOSE: Final = 1e-6
"""Gap that is still an answer where rounding keeps the method from the smaller one."""
_BACK: Final = 0.99
"""Part of the way to the boundary that a step goes."""
_FLOOR: Final = 1e-13


def centre(matrix: scipy.sparse.csr_array, limits: Floats, goal: Floats) -> tuple[Floats, Floats]:
    """Max ``goal @ x`` over ``matrix @ x <= limits``, x >= 0; the analytic centre of the optima.

    Args:
        matrix: Coefficients, shape (rows, columns).
        limits: Right-hand sides, shape (rows,).
        goal: Gain of a unit of each column, shape (columns,).

    Returns:
        The point, shape (columns,), and the dual of each row, shape (rows,).

    Raises:
        ArithmeticError: no convergence; the problem is infeasible or unbounded.
    """
    dense = matrix.toarray()
    # The centre does not move when a row is scaled; the arithmetic is better with rows near 1.
    size = np.abs(dense).max(axis=1)
    size[size == 0] = 1.0
    dense, limits = dense / size[:, None], limits / size
    rows, columns = dense.shape
    whole = np.hstack([dense, np.eye(rows)])
    cost = np.concatenate([-goal, np.zeros(rows)])
    x, y, s = _start(whole, limits, cost)
    near = np.inf
    for _ in range(_STEPS):
        short, dual = limits - whole @ x, cost - whole.T @ y - s
        mu = float(x @ s) / len(x)
        near = max(
            np.abs(short).max() / (1 + np.abs(limits).max()),
            np.abs(dual).max() / (1 + np.abs(cost).max()),
            mu / (1 + abs(float(cost @ x))),
        )
        if near < _GAP:
            break
        factor = _factored(whole, x / s)
        push = _direction(whole, factor, x, s, short, dual, x * s)
        ahead = [_reach(x, push[0]), _reach(s, push[2])]
        predicted = float((x + ahead[0] * push[0]) @ (s + ahead[1] * push[2])) / len(x)
        sigma = (predicted / mu) ** 3
        target = x * s + push[0] * push[2] - sigma * mu
        push = _direction(whole, factor, x, s, short, dual, target)
        primal = min(1.0, _BACK * _reach(x, push[0]))
        other = min(1.0, _BACK * _reach(s, push[2]))
        x, y, s = x + primal * push[0], y + other * push[1], s + other * push[2]
    if near > _LOOSE:
        raise ArithmeticError(f"the interior point method did not converge (gap {near:.1e})")
    return x[:columns], -y / size


def _start(whole: Floats, limits: Floats, cost: Floats) -> tuple[Floats, Floats, Floats]:
    """A point well inside, of the size of the data (Mehrotra)."""
    factor = _factored(whole, np.ones(whole.shape[1]))
    x = whole.T @ scipy.linalg.cho_solve(factor, limits)
    y = scipy.linalg.cho_solve(factor, whole @ cost)
    s = cost - whole.T @ y
    x += max(-1.5 * x.min(), 0.0) + 1e-3
    s += max(-1.5 * s.min(), 0.0) + 1e-3
    dot = float(x @ s)
    return x + 0.5 * dot / s.sum(), y, s + 0.5 * dot / x.sum()


def _factored(whole: Floats, weight: Floats) -> tuple[Floats, bool]:
    normal = (whole * weight) @ whole.T
    normal[np.diag_indices_from(normal)] *= 1 + _FLOOR
    factor: tuple[Floats, bool] = scipy.linalg.cho_factor(normal, check_finite=False)
    return factor


def _direction(
    whole: Floats,
    factor: tuple[Floats, bool],
    x: Floats,
    s: Floats,
    short: Floats,
    dual: Floats,
    product: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Newton's step towards complementarity ``x * s - product``."""
    dy = scipy.linalg.cho_solve(
        factor, short + whole @ ((x * dual + product) / s), check_finite=False
    )
    ds = dual - whole.T @ dy
    return -(product + x * ds) / s, dy, ds


def _reach(point: Floats, push: Floats) -> float:
    """Longest step up to 1 that keeps the point non-negative."""
    down = push < 0
    return float(min(1.0, (-point[down] / push[down]).min())) if down.any() else 1.0
