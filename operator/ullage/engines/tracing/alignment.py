# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Clocks of nodes compared by the collectives that their ranks share.

No rank leaves a symmetric collective before the last one has entered it, whatever the load: so a
node's clock is ahead of another's by at most an end here less a start there. These bounds hold of
every collective and chain over nodes; where they meet lies the offset (derived; the bounds of
Marzullo and Owicki, 1983, with collectives for messages). Ends of one collective differ by
milliseconds on busy hosts, so they only choose a value within the bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

FEWEST_COLLECTIVES: Final = 8
"""Minimum number of shared collectives to align a node: a single one may be matched wrongly."""
DRIFT: Final = 1e-4
"""Largest drift between two clocks, seconds per second."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Passage:
    """Start and end of a collective in one rank, microseconds by the clock of its node."""

    rank: int
    node: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """A node's clock less that of the reference, in microseconds."""

    micros: float
    uncertainty: float
    """Proven bound of its error."""
    spread: float
    """Likely error: half of the collectives agree to within it."""


def clock_offsets(
    collectives: Sequence[Sequence[Passage]], nodes: Sequence[str]
) -> Mapping[str, ClockOffset] | None:
    """Offsets of all nodes.

    Args:
        collectives: Symmetric collectives that were matched.
        nodes: All nodes; the first one is the reference.

    Returns:
        By node; ``None`` = they cannot be compared: too few collectives lead to a node, or what
        the nodes report contradicts itself.
    """
    place = {node: at for at, node in enumerate(nodes)}
    count = len(nodes)
    bounds = np.full((count, count), np.inf)
    np.fill_diagonal(bounds, 0.0)
    shared = np.zeros((count, count), np.int64)
    differences: list[Floats] = []
    for passages in collectives:
        first_end, last_start = np.full(count, np.nan), np.full(count, np.nan)
        for passage in passages:
            at = place[passage.node]
            first_end[at] = np.fmin(first_end[at], passage.end)
            last_start[at] = np.fmax(last_start[at], passage.start)
        bounds = np.fmin(bounds, first_end[:, None] - last_start[None, :])
        there = ~np.isnan(first_end)
        shared += there[:, None] & there[None, :]
        differences.append(first_end - first_end[0])
    np.fill_diagonal(bounds, 0.0)
    bounds[shared < FEWEST_COLLECTIVES] = np.inf
    np.fill_diagonal(bounds, 0.0)
    drift = DRIFT * _length(collectives)
    for middle in range(count):
        bounds = np.minimum(bounds, bounds[:, middle, None] + bounds[None, middle, :])
    highest, lowest = bounds[:, 0] + drift, -bounds[0, :] - drift
    if not np.isfinite(highest).all() or (highest < lowest).any():
        return None
    if (np.diagonal(bounds) < -2 * drift).any():
        return None
    columns = np.array(differences)
    offsets = {}
    for at, node in enumerate(nodes):
        known = columns[:, at][~np.isnan(columns[:, at])]
        guess = float(np.median(known)) if len(known) else (lowest[at] + highest[at]) / 2
        offset = float(np.clip(guess, lowest[at], highest[at])) if at else 0.0
        wrong = max(highest[at] - offset, offset - lowest[at]) if at else 0.0
        spread = float(np.median(np.abs(known - offset))) if len(known) else float(wrong)
        offsets[node] = ClockOffset(offset, float(wrong), min(spread, float(wrong)))
    return offsets


def _length(collectives: Sequence[Sequence[Passage]]) -> float:
    """Microseconds from the first collective to the last, by one rank's clock at a time."""
    ends: dict[int, tuple[float, float]] = {}
    for passages in collectives:
        for passage in passages:
            first, last = ends.get(passage.rank, (passage.start, passage.end))
            ends[passage.rank] = min(first, passage.start), max(last, passage.end)
    return max((last - first for first, last in ends.values()), default=0.0)
