# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Unions of intervals of time. Busy time is the length of a union, never a sum of lengths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Intervals:
    """Disjoint intervals in order: ``starts`` and ``ends``, in one unit of time."""

    starts: Floats
    ends: Floats

    @classmethod
    def union(cls, starts: Floats, ends: Floats) -> Intervals:
        """The union of intervals that may overlap; each ends at its start or later."""
        if not len(starts):
            return cls(np.empty(0), np.empty(0))
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], np.maximum.accumulate(ends[order])
        first = np.concatenate(([True], starts[1:] > ends[:-1]))
        last = np.concatenate((first[1:], [True]))
        return cls(starts[first], ends[last])

    def __or__(self, other: Intervals) -> Intervals:
        """The union of both."""
        return Intervals.union(
            np.concatenate((self.starts, other.starts)), np.concatenate((self.ends, other.ends))
        )

    def __sub__(self, other: Intervals) -> Intervals:
        """The time in the first and not in the second."""
        if not len(self.starts) or not len(other.starts):
            return self
        edges = np.unique(np.concatenate((self.starts, self.ends, other.starts, other.ends)))
        middles = (edges[:-1] + edges[1:]) / 2
        kept = self.holds(middles) & ~other.holds(middles)
        return Intervals.union(edges[:-1][kept], edges[1:][kept])

    def holds(self, times: Floats) -> npt.NDArray[np.bool_]:
        """True for each time that lies within one of them."""
        at = np.searchsorted(self.starts, times, side="right") - 1
        return (at >= 0) & (times < self.ends[np.maximum(at, 0)]) if len(self.starts) else at >= 0

    @property
    def length(self) -> float:
        """Sum of their lengths."""
        return float((self.ends - self.starts).sum())

    def before(self, times: Floats) -> Floats:
        """Length of the part before each time."""
        if not len(self.starts):
            return np.zeros(len(times))
        lengths = np.concatenate(([0.0], np.cumsum(self.ends - self.starts)))
        at = np.searchsorted(self.starts, times, side="right")
        inner = (
            np.minimum(times, self.ends[np.maximum(at - 1, 0)]) - self.starts[np.maximum(at - 1, 0)]
        )
        return np.where(at > 0, lengths[np.maximum(at - 1, 0)] + inner, 0.0)

    def between(self, edges: Floats) -> Floats:
        """Length within each stretch between two following edges."""
        return np.diff(self.before(edges))
