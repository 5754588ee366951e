# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Slow ranks of a job, by the time that their own part of a step takes.

In synchronous training every rank has the same step time, so that says nothing: a slow rank is the
one that waits least. Its own part, data and compute, is what differs (``derived``; TraceML detects
stragglers by the shortest blocked backward pass).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

SLOW: Final = 1.2
"""Own part over that of the others from which a rank counts as slow. Chosen."""


def relative_to_others(own: Sequence[float]) -> tuple[float, ...]:
    """Each rank's own part over the median of the other ranks' own parts.

    The others alone, because among two ranks a median of both would hide half of the difference.

    Args:
        own: Time of each rank's own part of a step, in any unit, at least 0; 0 = not known.

    Returns:
        A ratio for each rank; 1 where there is nothing to compare.
    """
    ratios: list[float] = []
    for at, mine in enumerate(own):
        others = [time for other, time in enumerate(own) if other != at and time > 0]
        ratios.append(mine / statistics.median(others) if others and mine > 0 else 1.0)
    return tuple(ratios)
