# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The bias model: a sensitivity and an aggressiveness for each class.

The simplest learned model; it beats richer ones on families without observations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PULL: Final = 2.0
"""Number of pseudo-observations of a zero effect (our default)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasModel:
    """Residual of (victim, aggressor) = mean + sensitivity + aggressiveness, by class number.

    ``sd`` is that of a new row; a class without rows has zero effect.
    """

    mean: float
    sensitivity: Floats
    aggressiveness: Floats
    sd: float

    def predict(self, victim: Ints, aggressor: Ints) -> Floats:
        """Residual of each row.

        Args:
            victim: Class number of each row's victim, shape (n,).
            aggressor: Class number of each row's aggressor, shape (n,).

        Returns:
            Log residual over the base forecast, shape (n,).
        """
        out: Floats = self.mean + self.sensitivity[victim] + self.aggressiveness[aggressor]
        return out


def fit_bias(victim: Ints, aggressor: Ints, target: Floats, classes: int) -> BiasModel:
    """Ridge regression on the two effects (derived).

    Args:
        victim: Class number of each row's victim, below ``classes``, shape (n,).
        aggressor: Class number of each row's aggressor, shape (n,).
        target: Log residual of each row, shape (n,).
        classes: Number of classes.

    Raises:
        ValueError: there is no row, or a target is not a finite number.
    """
    if not len(target) or not np.isfinite(target).all():
        raise ValueError("sensitivity needs at least one row, and finite targets")
    design = np.zeros((len(target), 2 * classes))
    design[np.arange(len(target)), victim] = 1.0
    design[np.arange(len(target)), classes + aggressor] = 1.0
    mean = float(target.mean())
    gram: Floats = design.T @ design + PULL * np.eye(2 * classes)
    effects: Floats = np.asarray(np.linalg.solve(gram, design.T @ (target - mean)), np.float64)
    error = target - mean - design @ effects
    sd = float(np.sqrt(np.mean(error**2))) if len(target) > 1 else 1.0
    return BiasModel(
        mean=mean,
        sensitivity=effects[:classes],
        aggressiveness=effects[classes:],
        sd=max(sd, 1e-3),
    )
