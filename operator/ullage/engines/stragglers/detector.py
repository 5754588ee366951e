# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Slow ranks and slow stages of a job, by the time that their own part of a step takes.

In synchronous training every rank has the same step time, so that says nothing: a slow rank is the
one that waits least. Its own part, data and compute, is what differs (``derived``; TraceML detects
stragglers by the shortest blocked backward pass).

Ranks are compared with their peers first, those of the same stage of a pipeline, and then stages
with each other: an uneven cut of the model makes all ranks of a stage slow, and none of them is at
fault (ByteDance's analysis of stragglers, OSDI'25).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SLOW: Final = 1.2
"""Own part over that of the others from which a rank counts as slow. Chosen."""
STANDS_OUT: Final = 1.08
STANDS_OUT_SPREADS: Final = 6
STANDS_OUT_PEERS: Final = 7
"""Of so many peers and more a rank is also slow at the first ratio, if it is so many median
deviations of theirs behind them. Chosen on job 3 of Alibaba's traces."""
THROTTLED_LEAST: Final = 10
"""Percent of its time that a container must be stopped at its CPU limit to be slow for it, above
what its peers are. Chosen."""


class SlowCause(StrEnum):
    """Causes of a slow rank."""

    COMPUTE = "Compute"
    THROTTLED = "Throttled"
    NEIGHBOUR = "Neighbour"
    DATA = "Data"
    LINK = "Link"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTimes:
    """Means of one rank over some steps; times in any unit, the same for all ranks.

    Attributes:
        compute: Its own work; 0 = not known.
        data: Its wait for batches.
        link: Time of its communication that is not spent in waiting for slower ranks.
        throttled_percent: Part of the time in which it was stopped at its CPU limit.
        neighbours: Others on its device.
        stage: Its stage of a pipeline.
    """

    compute: float
    data: float = 0.0
    link: float = 0.0
    throttled_percent: int = 0
    neighbours: int = 0
    stage: int = 0

    @property
    def own(self) -> float:
        """Its own part of a step."""
        return self.compute + self.data + self.link


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRank:
    """A rank that its peers wait for."""

    at: int
    """Its place among the ranks that were compared."""
    ratio: float
    """Its own part over that of its peers."""
    cause: SlowCause


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRanks:
    """Slow ranks, the slowest first, and slow stages with their ratios."""

    stragglers: tuple[SlowRank, ...] = ()
    stages: tuple[tuple[int, float], ...] = ()


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


def find_stragglers(ranks: Sequence[RankTimes], slow: float = SLOW) -> SlowRanks:
    """Ranks that are slower than the peers of their stage, and stages slower than the others.

    Args:
        ranks: Figures of each rank.
        slow: Ratio from which one is slow.

    Returns:
        Slow ranks with their cause, the slowest first; slow stages, of two and more.
    """
    by_stage: defaultdict[int, list[int]] = defaultdict(list)
    for at, rank in enumerate(ranks):
        by_stage[rank.stage].append(at)
    stragglers: list[SlowRank] = []
    for members in by_stage.values():
        ratios = relative_to_others([ranks[at].own for at in members])
        peers = [ranks[at] for at in members]
        stragglers += [
            SlowRank(at=at, ratio=ratio, cause=cause_of(ranks[at], peers))
            for at, ratio in zip(members, ratios, strict=True)
            if ratio >= slow
            or _stands_out(at, ratio, [(peer, ranks[peer].own) for peer in members])
        ]
    stragglers.sort(key=lambda straggler: (-straggler.ratio, straggler.at))
    names = sorted(by_stage)
    medians = [statistics.median(ranks[at].own for at in by_stage[stage]) for stage in names]
    stages = zip(names, relative_to_others(medians), strict=True)
    return SlowRanks(
        stragglers=tuple(stragglers),
        stages=tuple((stage, ratio) for stage, ratio in stages if ratio >= slow),
    )


def _stands_out(at: int, ratio: float, own: Sequence[tuple[int, float]]) -> bool:
    """True if a rank is far behind its peers for how much they differ."""
    others = [time for peer, time in own if peer != at and time > 0]
    if ratio < STANDS_OUT or len(others) < STANDS_OUT_PEERS:
        return False
    middle = statistics.median(others)
    spread = statistics.median(abs(time - middle) for time in others)
    return dict(own)[at] - middle >= STANDS_OUT_SPREADS * spread


def cause_of(slow: RankTimes, peers: Sequence[RankTimes]) -> SlowCause:
    """The cause that makes a rank slower than its peers.

    The longest excess says which part of the step it is; a longer computation is then the fault of
    a CPU limit or of neighbours where those distinguish it from most of its peers.

    Args:
        slow: The rank.
        peers: The ranks of its stage; it may be among them.
    """
    others = [peer for peer in peers if peer is not slow] or [slow]

    def excess(own: float, of_others: list[float]) -> float:
        return own - statistics.median(of_others)

    compute = excess(slow.compute, [peer.compute for peer in others])
    data = excess(slow.data, [peer.data for peer in others])
    link = excess(slow.link, [peer.link for peer in others])
    if link > max(compute, data):
        return SlowCause.LINK
    throttled = statistics.median(peer.throttled_percent for peer in others)
    if slow.throttled_percent >= throttled + THROTTLED_LEAST:
        return SlowCause.THROTTLED  # a loader's workers share the limit
    if data > compute:
        return SlowCause.DATA
    if slow.neighbours > statistics.median(peer.neighbours for peer in others):
        return SlowCause.NEIGHBOUR
    return SlowCause.COMPUTE
