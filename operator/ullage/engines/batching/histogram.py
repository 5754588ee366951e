# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Histograms of the times of single requests: geometric bins, sliding windows and mixtures.

Half of the precision of a batch lies in the tail, because a batch runs as long as its longest
member; the bins are therefore denser above the 90th percentile.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BODY_BINS: Final = 38
TAIL_BINS: Final = 22
"""Bins below and above the 90th percentile; equal-mass bins starve the tail."""
LEAST_WIDTH: Final = 1e-6
"""Width of a bin relative to its edge where all samples are equal."""
WINDOW: Final = 4096
"""Samples in a sliding window."""
LEAST_SAMPLES: Final = 50
"""Samples before a window is used."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimeHistogram:
    """A distribution of positive times, uniform inside each bin.

    ``edges`` are in seconds and strictly increasing, ``cdf`` is the fraction of samples up to each
    edge: it begins with 0 and ends with 1.
    """

    edges: Floats
    cdf: Floats

    def __post_init__(self) -> None:
        if self.edges.shape != self.cdf.shape or self.edges.size < 2:
            raise ValueError("a histogram has an edge more than bins, and a bin at least")
        if not (np.isfinite(self.edges).all() and (np.diff(self.edges) > 0).all()):
            raise ValueError("edges are finite and strictly increasing")
        if self.edges[0] <= 0 or self.cdf[0] != 0 or self.cdf[-1] != 1:
            raise ValueError("times are positive and the distribution goes from 0 to 1")
        if not (np.diff(self.cdf) >= 0).all():
            raise ValueError("a distribution never falls")

    @classmethod
    def of(cls, samples: Sequence[float] | Floats) -> Self:
        """The histogram of samples in seconds.

        Raises:
            ValueError: there is no sample, or one is not finite or not positive.
        """
        times = np.sort(np.asarray(samples, dtype=np.float64))
        if times.size == 0 or not np.isfinite(times).all() or times[0] <= 0:
            raise ValueError("samples are positive finite times, and there is one at least")
        low, high = times[0] * (1 - LEAST_WIDTH), times[-1] * (1 + LEAST_WIDTH)
        knee = min(max(float(np.quantile(times, 0.9)), low), high)
        body, tail = np.geomspace(low, knee, BODY_BINS + 1), np.geomspace(knee, high, TAIL_BINS + 1)
        edges = np.concatenate([body[:-1], tail])
        edges = edges[np.concatenate([[True], np.diff(edges) > low * LEAST_WIDTH / TAIL_BINS])]
        edges[-1] = high
        cdf = np.searchsorted(times, edges, side="right") / times.size
        cdf[0], cdf[-1] = 0.0, 1.0
        return cls(edges=edges, cdf=cdf)

    @property
    def least_s(self) -> float:
        """Shortest time, seconds."""
        return float(self.edges[0])

    @property
    def mean_s(self) -> float:
        """Mean time, seconds."""
        return float(np.dot(np.diff(self.cdf), (self.edges[1:] + self.edges[:-1]) / 2))

    def below(self, times_s: Floats | float) -> Floats:
        """Probability that a time is at most this long."""
        return np.asarray(np.interp(times_s, self.edges, self.cdf), dtype=np.float64)

    def quantile_s(self, part: float) -> float:
        """The time, seconds, that a fraction (0..1) of requests does not exceed."""
        at = min(max(int(np.searchsorted(self.cdf, part)), 1), self.cdf.size - 1)
        low, high = self.cdf[at - 1], self.cdf[at]
        share = (part - low) / (high - low) if high > low else 0.0
        return float(self.edges[at - 1] + share * (self.edges[at] - self.edges[at - 1]))

    def longest_of(self, count: int) -> TimeHistogram:
        """The maximum of independent times: F^k on the same edges."""
        return TimeHistogram(edges=self.edges, cdf=self.cdf**count)

    def moved(self, offset_s: float, factor: float) -> TimeHistogram:
        """The distribution of ``offset + factor * time``."""
        return TimeHistogram(edges=offset_s + factor * self.edges, cdf=self.cdf)


def mixture(parts: Mapping[str, TimeHistogram], weights: Mapping[str, float]) -> TimeHistogram:
    """The mixture of applications, weighted by the composition of the queue.

    Raises:
        ValueError: no application has a weight.
    """
    used = {name: weight for name, weight in weights.items() if weight > 0}
    if not used:
        raise ValueError("a mixture has a part at least")
    if len(used) == 1:
        return parts[next(iter(used))]
    total = sum(used.values())
    edges = np.unique(np.concatenate([parts[name].edges for name in used]))
    cdf = sum((parts[name].below(edges) * (used[name] / total) for name in used), np.zeros(1))
    cdf = np.maximum.accumulate(np.clip(cdf, 0.0, 1.0))
    cdf[0], cdf[-1] = 0.0, 1.0
    return TimeHistogram(edges=edges, cdf=cdf)


@dataclass(slots=True, kw_only=True)
class SlidingWindow:
    """The newest times of one application, seconds."""

    size: int = WINDOW
    samples: deque[float] = field(init=False)

    def __post_init__(self) -> None:
        self.samples = deque(maxlen=self.size)

    def add(self, time_s: float) -> None:
        """Add a time; values that are not positive and finite are ignored."""
        if 0 < time_s < math.inf:
            self.samples.append(time_s)

    def histogram(self, *, least: int = LEAST_SAMPLES) -> TimeHistogram | None:
        """The window's histogram; ``None`` with too few samples."""
        return TimeHistogram.of(list(self.samples)) if len(self.samples) >= least else None
