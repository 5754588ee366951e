# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The time of a batch: ``c0 + c1(k) * longest member``, and its effect on a histogram."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ullage.engines.batching.histogram import TimeHistogram


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCosts:
    """Time of a batch on one device at one share.

    ``fixed_s`` is c0 in seconds, ``factors`` is c1 by batch size, without a unit.

    Raises:
        ValueError: a figure is not finite, c0 is negative or a factor is not positive.
    """

    fixed_s: float
    factors: Mapping[int, float]

    def __post_init__(self) -> None:
        figures = (self.fixed_s, *self.factors.values())
        if not np.isfinite(figures).all() or self.fixed_s < 0:
            raise ValueError("costs of a batch are finite and not negative")
        if any(size < 1 or factor <= 0 for size, factor in self.factors.items()):
            raise ValueError("sizes begin with 1 and factors are positive")
        if 1 not in self.factors:
            raise ValueError("a request alone is a batch, too: size 1 is missing")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Batch sizes in increasing order."""
        return tuple(sorted(self.factors))

    def batch_s(self, size: int, longest_s: float) -> float:
        """Seconds of a batch, from the seconds of its longest member.

        A batch between two sizes is padded to the larger one.

        Raises:
            ValueError: the batch is larger than every size.
        """
        factor = self.factors.get(size)
        if factor is None:
            padded = min((known for known in self.factors if known >= size), default=None)
            if padded is None:
                raise ValueError(f"a batch of {size} is larger than every size")
            factor = self.factors[padded]
        return self.fixed_s + factor * longest_s

    def batch(self, size: int, single: TimeHistogram) -> TimeHistogram:
        """The distribution of the time of a batch of independent members."""
        return single.longest_of(size).moved(self.fixed_s, self.factors[size])
