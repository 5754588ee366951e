# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The kernel of the process over (victim, aggressor) rows, and its parts.

Arrays in, arrays out; it must never see the observation of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TERMS: Final = 7
VICTIM_SCALE, AGGRESSOR_SCALE, NOISE = 7, 8, 9
_STRIP: Final = 50
"""Rows at a time: intermediate results fit the cache, four times as fast at 2,000 rows."""
THETA_START: Final = np.log(np.array([0.05] * 5 + [0.02] * 2 + [1.0] * 2 + [0.01]))
"""Log amplitudes of the terms, log length scales of victim and aggressor, log noise variance."""


class KernelShape(StrEnum):
    """The decrease of similarity with the distance r of two classes, in length scales.

    ``Gaussian``, exp(-r^2/2), assumes that effects change smoothly between classes; ``Matern``,
    (1 + sqrt(3) r) exp(-sqrt(3) r), lets them change faster (Rasmussen and Williams, 4.2).
    """

    GAUSSIAN = "Gaussian"
    MATERN = "Matern"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Directional rows: class numbers and standardised features of both sides, row by row."""

    victim: Ints
    aggressor: Ints
    victim_features: Floats
    aggressor_features: Floats

    def __post_init__(self) -> None:
        count = len(self.victim)
        sides = (self.aggressor, self.victim_features, self.aggressor_features)
        if any(len(side) != count for side in sides):
            raise ValueError("every row needs a class and features on both sides")
        if not all(np.isfinite(side).all() for side in sides[1:]):
            raise ValueError("a feature is not a finite number; leave what is not measured out")

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.victim)

    def take(self, index: Ints | NDArray[np.bool_]) -> Rows:
        """The rows of an index or mask."""
        return Rows(
            victim=self.victim[index],
            aggressor=self.aggressor[index],
            victim_features=self.victim_features[index],
            aggressor_features=self.aggressor_features[index],
        )


def _likeness(squared: Floats, log_scale: float, shape: KernelShape) -> Floats:
    """Similarity, 0..1, at squared distances."""
    if shape is KernelShape.GAUSSIAN:
        smooth: Floats = np.exp(-0.5 * np.exp(-2.0 * log_scale) * squared)
        return smooth
    reach = np.sqrt(squared)
    reach *= np.sqrt(3.0) * np.exp(-log_scale)
    rough: Floats = np.exp(-reach)
    rough *= 1.0 + reach
    return rough


def _steepness(squared: Floats, log_scale: float, shape: KernelShape) -> Floats:
    """D log similarity / d log length scale (derived)."""
    scaled: Floats = np.exp(-2.0 * log_scale) * squared
    return scaled if shape is KernelShape.GAUSSIAN else 3.0 * scaled / (1.0 + np.sqrt(3.0 * scaled))


def _squared(left: Floats, right: Floats) -> Floats:
    if not left.shape[1]:
        return np.zeros((len(left), len(right)))
    cross = left @ right.T
    sums = (left**2).sum(1)[:, None] + (right**2).sum(1)[None]
    out: Floats = np.maximum(sums - 2.0 * cross, 0.0) / left.shape[1]
    return out


@dataclass(frozen=True, slots=True)
class Distances:
    """Distances of two sets of rows, independent of the hyper-parameters."""

    victim: Floats
    aggressor: Floats
    same_victim: Floats
    same_aggressor: Floats

    @classmethod
    def between(cls, left: Rows, right: Rows) -> Distances:
        """Distances of every left row to every right row.

        Args:
            left: n rows.
            right: m rows.

        Returns:
            Mean squared distances of features and equality of classes, each of shape (n, m).
        """
        return cls(
            _squared(left.victim_features, right.victim_features),
            _squared(left.aggressor_features, right.aggressor_features),
            (left.victim[:, None] == right.victim).astype(float),
            (left.aggressor[:, None] == right.aggressor).astype(float),
        )

    def take(self, index: Ints) -> Distances:
        """Among the rows of an index."""
        grid = np.ix_(index, index)
        return Distances(
            self.victim[grid],
            self.aggressor[grid],
            self.same_victim[grid],
            self.same_aggressor[grid],
        )

    def sides(self, theta: Floats, shape: KernelShape) -> tuple[Floats, Floats]:
        """Similarity of the victims, and of the aggressors.

        Args:
            theta: Log hyper-parameters in the order of ``THETA_START``, shape (10,).
            shape: Shape of the kernel.

        Returns:
            Similarity 0..1 of victims and of aggressors, each of shape (n, m).
        """
        return (
            _likeness(self.victim, float(theta[VICTIM_SCALE]), shape),
            _likeness(self.aggressor, float(theta[AGGRESSOR_SCALE]), shape),
        )

    def steepness(self, theta: Floats, shape: KernelShape) -> tuple[Floats, Floats]:
        """Derivatives of :meth:`sides` by the length scale of their side (derived).

        Args:
            theta: Log hyper-parameters in the order of ``THETA_START``, shape (10,).
            shape: Shape of the kernel.

        Returns:
            d log similarity / d log length scale of victims and aggressors, each of shape (n, m).
        """
        return (
            _steepness(self.victim, float(theta[VICTIM_SCALE]), shape),
            _steepness(self.aggressor, float(theta[AGGRESSOR_SCALE]), shape),
        )

    def kernel(self, theta: Floats, shape: KernelShape = KernelShape.GAUSSIAN) -> Floats:
        """Prior covariance, without noise: a sum of seven terms of both sides (derived).

        Args:
            theta: Log hyper-parameters in the order of ``THETA_START``, shape (10,).
            shape: Shape of the kernel.

        Returns:
            Covariance of log residuals, shape (n, m).
        """
        amplitude = np.exp(theta[:TERMS]).tolist()
        victim, aggressor = self.sides(theta, shape)
        of_victim = amplitude[0] * aggressor + amplitude[1] + amplitude[6] * self.same_aggressor
        of_aggressor = amplitude[2] + amplitude[5] * self.same_victim
        same = amplitude[3] * self.same_victim + amplitude[4] * self.same_aggressor
        total: Floats = victim * of_victim + aggressor * of_aggressor + same
        return total


def kernel(
    theta: Sequence[float], left: Rows, right: Rows, shape: KernelShape = KernelShape.GAUSSIAN
) -> Floats:
    """Prior covariance between two sets of rows, without noise; as :meth:`Distances.kernel`.

    Args:
        theta: Log hyper-parameters in the order of ``THETA_START``, shape (10,).
        left: n rows.
        right: m rows.
        shape: Shape of the kernel.

    Returns:
        Covariance of log residuals, shape (n, m).
    """
    out = np.empty((len(left), len(right)))
    values = np.asarray(theta)
    for start in range(0, len(left), _STRIP):
        strip = left.take(np.arange(start, min(start + _STRIP, len(left))))
        out[start : start + _STRIP] = Distances.between(strip, right).kernel(values, shape)
    return out


def class_folds(rows: Rows, count: int) -> list[Ints]:
    """Folds of classes: the rows in which any class of the fold takes part.

    Args:
        rows: Directional rows.
        count: Number of folds; fewer where there are fewer classes.

    Returns:
        Row indices of each fold; a row may be in two.
    """
    classes = np.unique(np.concatenate([rows.victim, rows.aggressor]))
    parts = [classes[start::count] for start in range(min(count, len(classes)))]
    return [
        np.flatnonzero(np.isin(rows.victim, part) | np.isin(rows.aggressor, part)) for part in parts
    ]
