# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Learns c0 and c1(k) while batches run, separately for each device and share.

Least squares with forgetting: batch time against the estimated time of its longest member, one
slope for each size and one intercept for all. It starts from the profile's costs, which weigh less
than one batch, so that sizes that never ran keep theirs and no other size is biased.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ullage.engines.batching.batch_time import BatchCosts
from ullage.engines.batching.histogram import Floats

FORGETTING: Final = 0.998
"""Weight of a batch after each later one; the memory is about 500 batches."""
PRIOR_BATCHES: Final = 0.1
"""Weight of the profile, in batches of each size."""
WARM_UP: Final = 5
"""First batches on a device at a share, which are ignored: they load, compile and page."""
LEAST_FACTOR: Final = 1e-3


@dataclass(slots=True, kw_only=True)
class CostFit:
    """The fit of one device at one share.

    The prior weighs as ``prior_batches`` of each size. With ``fixed_known`` its c0 is kept: where
    all batches have about the same longest member, c0 and c1(k) cannot be separated.
    """

    prior: BatchCosts
    prior_batches: float = PRIOR_BATCHES
    fixed_known: bool = False
    seen: int = field(init=False, default=0)
    _gram: Floats = field(init=False)
    _right: Floats = field(init=False)
    _scale_s: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        count = len(self.prior.factors) + 1
        self._gram, self._right = np.zeros((count, count)), np.zeros(count)

    def add(self, size: int, longest_s: float, batch_s: float) -> None:
        """Add a batch; a time that is not positive and finite, or an unknown size, is ignored."""
        if size not in self.prior.factors or not (longest_s > 0 and batch_s > 0):
            return
        if not (math.isfinite(longest_s) and math.isfinite(batch_s)):
            return
        self.seen += 1
        if self.seen <= WARM_UP:
            return
        row = np.zeros(self._right.size)
        row[0], row[1 + self.prior.sizes.index(size)] = 1.0, longest_s
        self._gram = FORGETTING * self._gram + np.outer(row, row)
        self._right = FORGETTING * self._right + batch_s * row
        self._scale_s = max(self._scale_s * FORGETTING, longest_s)

    def costs(self) -> BatchCosts:
        """The current costs."""
        if self._scale_s == 0:
            return self.prior
        sizes = self.prior.sizes
        prior = np.array([self.prior.fixed_s, *(self.prior.factors[k] for k in sizes)])
        weight = self.prior_batches * np.array([1.0, *(self._scale_s**2 for _ in sizes)])
        gram, right = self._gram + np.diag(weight), self._right + weight * prior
        coefficients = prior.copy()
        if self.fixed_known:
            coefficients[1:] = np.linalg.solve(gram[1:, 1:], right[1:] - gram[1:, 0] * prior[0])
        else:
            coefficients = np.linalg.solve(gram, right)
        factors = {k: max(float(coefficients[1 + at]), LEAST_FACTOR) for at, k in enumerate(sizes)}
        return BatchCosts(fixed_s=max(float(coefficients[0]), 0.0), factors=factors)
