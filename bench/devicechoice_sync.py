# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Cost of a step beyond its compute when several devices share the work: the term C.

C of a type and a number of devices is ``alpha + beta * parameters``, both at least 0. It must never
be negative: where more devices look faster than linear, C is 0 and says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRow:
    """How much longer a step of ``gpus`` devices takes than the same job's step at its base.

    Attributes:
        parameters: Parameters of the model.
        extra_s: Seconds of the step at ``gpus`` minus seconds at the base; may be negative.
        step_s: Seconds of the step at ``gpus``.
    """

    parameters: float
    extra_s: float
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncTerm:
    """The fitted term for one type and number of devices.

    Attributes:
        gpus: Devices.
        alpha_s: Seconds that every step pays.
        beta_s: Seconds per parameter.
        rows: Jobs that it was fitted on.
        superlinear: Jobs among them that were faster than at the base.
    """

    gpus: int
    alpha_s: float
    beta_s: float
    rows: int
    superlinear: int = 0

    def seconds(self, parameters: float) -> float:
        """C for a model."""
        return self.alpha_s + self.beta_s * parameters


def fit_sync(gpus: int, rows: Sequence[SyncRow], *, relative: bool = True) -> SyncTerm:
    """Non-negative least squares of C on the parameter count (derived).

    Args:
        gpus: Devices of the rows.
        rows: Jobs with both times.
        relative: Weigh each row by 1 / its step: long steps say no more of a link than short ones.

    Raises:
        ValueError: no rows.
    """
    from scipy.optimize import nnls  # imports are slow, and reading needs none of it

    if not rows:
        raise ValueError(f"no measured step on {gpus} devices to fit the term on")
    weights = np.array([1.0 / row.step_s if relative else 1.0 for row in rows])
    table = np.array([[1.0, row.parameters] for row in rows])
    scale = np.maximum(table.max(axis=0), 1e-300)
    extra = np.array([row.extra_s for row in rows])
    alpha, beta = nnls(table / scale * weights[:, None], extra * weights)[0] / scale
    return SyncTerm(
        gpus=gpus,
        alpha_s=float(alpha),
        beta_s=float(beta),
        rows=len(rows),
        superlinear=sum(row.extra_s < 0 for row in rows),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """A step carried over to another number of devices.

    Attributes:
        step_s: Seconds.
        superlinear: The measured steps fell with more devices, so C was taken as 0.
    """

    step_s: float
    superlinear: bool


def ring_scaled(*, low: tuple[int, float], high: tuple[int, float], gpus: int) -> Scaled:
    """A job's step on ``gpus`` devices from two measured counts and the ring's law (derived).

    Step = compute + c (k - 1) / k, with the same per-device batch; c is clipped at 0.

    Args:
        low: Devices and seconds per step.
        high: Devices and seconds per step, with more devices.
        gpus: Devices asked for.

    Raises:
        ValueError: counts or times are not increasing and positive.
    """
    (few, few_s), (many, many_s) = low, high
    if not 1 <= few < many or min(few_s, many_s) <= 0 or gpus < 1:
        raise ValueError("want two rising counts of devices and steps above 0 s")
    slope = (many_s - few_s) / (_ring(many) - _ring(few))
    step_s = many_s + max(0.0, slope) * (_ring(gpus) - _ring(many))
    return Scaled(step_s=max(step_s, math.ulp(0.0)), superlinear=slope < 0)


def _ring(gpus: int) -> float:
    return (gpus - 1) / gpus
