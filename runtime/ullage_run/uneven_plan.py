# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Divides a global batch among ranks so that all finish at the same time.

Pure functions; all ranks compute the same from the same numbers.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

GAIN_LEAST: Final = 0.03
"""Part of the step time that a new division must save, as predicted. Chosen: less is noise."""
GAIN_SURE: Final = 0.2
"""Predicted gain that needs no second look. Chosen."""
GROWTH_MOST: Final = Fraction(5, 4)
"""Largest batch of a rank over its even one: memory of activations grows with it. Chosen."""


def most_samples(even: int) -> int:
    """Samples that a rank may get at most, of an even share of so many."""
    return int(even * GROWTH_MOST)


def divide(unit_times: Sequence[float], even: int) -> tuple[int, ...]:
    """Samples of each rank, so that the slowest rank finishes as early as whole samples allow.

    Args:
        unit_times: Time that each rank takes for a sample, in any unit, above 0.
        even: Samples of each rank where all have the same.

    Returns:
        A number for each rank: at least 1, at most :func:`most_samples`, ``even`` on average. The
        longest time is the least possible (``derived``: adding each sample where it ends first is
        optimal, as time grows with every sample).
    """
    world, most = len(unit_times), most_samples(even)
    left = even * world
    # All below this time is given in any best division, up to rounding.
    level = left / sum(1 / unit for unit in unit_times)
    sizes = [min(max(int(level / unit) - 1, 1), most) for unit in unit_times]
    left -= sum(sizes)
    # Of equal times the smaller batch comes first, so as little as possible moves.
    heap = [
        (unit * (size + 1), size, rank)
        for rank, (unit, size) in enumerate(zip(unit_times, sizes, strict=True))
    ]
    heapq.heapify(heap)
    while left > 0 and heap:
        _, size, rank = heapq.heappop(heap)
        if size < most:
            sizes[rank] = size + 1
            left -= 1
            heapq.heappush(heap, (unit_times[rank] * (size + 2), size + 1, rank))
    return tuple(sizes)


def gain(unit_times: Sequence[float], now: Sequence[int], new: Sequence[int]) -> float:
    """Part of the slowest rank's own time that another division saves; below 0 if it costs.

    Args:
        unit_times: Time of each rank for a sample, in any unit, above 0.
        now: Samples of each rank.
        new: Samples of each rank afterwards.
    """
    return 1 - _longest(unit_times, new) / _longest(unit_times, now)


def _longest(unit_times: Sequence[float], sizes: Sequence[int]) -> float:
    return max(unit * size for unit, size in zip(unit_times, sizes, strict=True))


def places(sizes: Sequence[int], rank: int) -> list[tuple[int, int]]:
    """Samples of a global batch that a rank gets, in its order.

    Ranks with fewer samples keep the first ones of their even batch; the rest goes to those with
    more, in order.

    Args:
        sizes: Samples of each rank; their mean is a whole number.
        rank: Number of the rank.

    Returns:
        For each sample the rank whose even batch it is in, and its place there. Those of all ranks
        are disjoint and cover the batch.
    """
    even = sum(sizes) // len(sizes)
    own = [(rank, at) for at in range(min(even, sizes[rank]))]
    if sizes[rank] <= even:
        return own
    skip = sum(max(size - even, 0) for size in sizes[:rank])
    freed = [(other, at) for other, size in enumerate(sizes) for at in range(size, even)]
    return own + freed[skip : skip + sizes[rank] - even]
