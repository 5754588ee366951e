# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Gains of findings as sets of device time, so that time explained by two of them counts once.

The device time of the windows that a workload is judged by lies on one axis, window after window;
within a window the used time comes first, the unused time after it. A finding explains intervals of
unused time, and the gain of several findings is the length of the union of their intervals, never
the sum of their lengths. Source: derived.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Interval: TypeAlias = tuple[int, int]
"""From the first to before the second, milliseconds of a whole device."""


def union(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """The same points as disjoint intervals in order; empty ones are left out."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if end <= begin:
            continue
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return tuple(merged)


def length(intervals: Iterable[Interval]) -> int:
    """Milliseconds in the union of intervals."""
    return sum(end - begin for begin, end in union(intervals))
