# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Time alone as a function of the share: fitted from few points, never from co-located rows.

Two forms: a step of training at an MPS share, and the service time of a batch on slices with
several processes. Measured points only; nothing is extrapolated below what is physical.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ullage.engines.admission.records import ShareCurve

Floats = NDArray[np.float64]

_START: Final = ((0.2, 0.8, 0.9), (0.5, 0.5, 0.7))
"""Fixed part of the quickest point, exponent of slices, overlap of processes: starts of a fit."""
_LOSS_SCALE: Final = 0.03
"""Log residual from which the soft-L1 loss grows linearly."""


def fit_share_curve(shares: Sequence[float], seconds: Sequence[float]) -> ShareCurve:
    """T(p) = a + b / p with a, b >= 0 by non-negative least squares of the relative error.

    One measured share: a = 0, fully bound by compute, the conservative reading. Derived.

    Args:
        shares: Effective fractions of the device, each 0 < p <= 1, shape (n,).
        seconds: Measured time at each share, seconds, shape (n,).

    Raises:
        ValueError: there is no point, or one is not a positive number.
    """
    p, t = np.asarray(shares, float), np.asarray(seconds, float)
    if not p.size or p.shape != t.shape:
        raise ValueError("a share curve needs one time for each share, and at least one")
    if not (np.isfinite(p).all() and (p > 0).all() and (p <= 1).all()):
        raise ValueError("a share must be above 0 and at most 1 (a fraction, not percent)")
    if not (np.isfinite(t).all() and (t > 0).all()):
        raise ValueError("a measured time must be a positive number of seconds")
    if len(set(shares)) == 1:
        return ShareCurve(fixed_s=0.0, scaled_s=float(np.mean(p * t)))
    fixed, scaled = _two_non_negative(1.0 / t, 1.0 / (p * t))
    return ShareCurve(fixed_s=fixed, scaled_s=scaled)


def _two_non_negative(left: Floats, right: Floats) -> tuple[float, float]:
    """Least squares of left*a + right*b = 1 with a, b >= 0, in closed form."""
    gram = np.array([[left @ left, left @ right], [left @ right, right @ right]])
    sums = np.array([left.sum(), right.sum()])
    a, b = np.linalg.solve(gram, sums)
    if a >= 0 and b >= 0:
        return float(a), float(b)
    if a < 0:
        return 0.0, float(sums[1] / gram[1, 1])
    return float(sums[0] / gram[0, 0]), 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCurve:
    """Latency of a batch: max(t0 + c*b/g^alpha, k*c*b/g^alpha*eta) seconds.

    b = batch, g = slices of the device, k = processes that share them. ``overlap`` (eta) is what
    is left of the others' work when k processes run at once. Source: derived.
    """

    fixed_s: float
    per_item_s: float
    exponent: float
    overlap: float

    def seconds(self, batch: float, processes: float, slices: float) -> float:
        """Latency of one batch; formula of the class.

        Args:
            batch: Items in the batch.
            processes: Processes that share the slices.
            slices: Slices of the device, in units of the smallest.

        Returns:
            Seconds.
        """
        work = self.per_item_s * batch / math.pow(slices, self.exponent)
        return max(self.fixed_s + work, processes * work * self.overlap)


def fit_service_curve(
    points: Sequence[tuple[float, float, float]], seconds: Sequence[float]
) -> ServiceCurve:
    """Fit the four parameters on log residuals with a soft-L1 loss.

    Args:
        points: Batch, processes and slices of each measurement.
        seconds: Measured latency; a zero means that nothing ran and must be left out before.

    Raises:
        ValueError: there is no point, or one is not a positive number.
    """
    from scipy.optimize import least_squares

    x, t = np.asarray(points, float), np.asarray(seconds, float)
    if not len(x) or len(x) != len(t):
        raise ValueError("a service curve needs one latency for each point, and at least one")
    if not (np.isfinite(x).all() and np.isfinite(t).all() and (x > 0).all() and (t > 0).all()):
        raise ValueError("batch, processes, slices and latency must be positive; leave zeros out")
    batch, processes, slices = x.T
    logs = np.log(t)

    def residuals(theta: Floats) -> Floats:
        work = np.exp(theta[1]) * batch / slices ** theta[2]
        alone = np.exp(theta[0]) + work
        error: Floats = np.log(np.maximum(alone, processes * work * np.exp(theta[3]))) - logs
        return error

    per_item = float(np.median(t / batch))
    found = [
        least_squares(
            residuals,
            np.array([np.log(part * t.min()), np.log(per_item), alpha, np.log(eta)]),
            bounds=([-30.0, -30.0, 0.0, -3.0], [10.0, 10.0, 1.5, 1.0]),
            loss="soft_l1",
            f_scale=_LOSS_SCALE,
        )
        for part, alpha, eta in _START
    ]
    best = min(found, key=lambda one: float(one.cost)).x
    return ServiceCurve(
        fixed_s=float(np.exp(best[0])),
        per_item_s=float(np.exp(best[1])),
        exponent=float(best[2]),
        overlap=float(np.exp(best[3])),
    )
