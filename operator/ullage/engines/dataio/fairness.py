# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Shares of one volume among the containers of a node, and the containers that get too little.

What a container wants is derived from what it got and from the part of the time that it waited: a
reader that waits 3/4 of the time would read four times as much if storage cost no time. A reader
that fills queues ahead of its need therefore counts as wanting what it reads.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from ullage.api.dataio import StarvationCause

STARVED_BELOW: Final = 0.8
"""Part of its fair share below which a container is short. Chosen."""
STALLED: Final = 0.1
"""Part of the time waited for storage, or of a step for data, below which no one starves. Chosen.
"""
STALL_MOST: Final = 0.95
"""Stall above which the derived wish no longer grows: it would divide by nearly nothing."""
HOG_LEAST: Final = 0.1
"""Least part of the volume that a hog takes above its fair share. Chosen."""
IDLE: Final = 0.01
"""Part of the volume's traffic below which a container that does not wait is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeUse:
    """Use of a volume by one container in one window.

    Attributes:
        key: The container.
        bytes_per_s: Bytes read and written per second.
        requests_per_s: Requests per second.
        stalled: Part of the window in which it waited for this volume, 0 to 1.
        throttled: Part of the window in which its CPU quota stopped it, 0 to 1.
        data_wait: Part of a step that its program waits for data, 0 to 1; ``None`` = not known.
        wanted_before: Bytes per second that it was last seen to want; counts while it gets
            next to nothing.
    """

    key: Hashable
    bytes_per_s: float
    requests_per_s: float
    stalled: float
    throttled: float = 0.0
    data_wait: float | None = None
    wanted_before: float = 0.0

    @property
    def wanted(self) -> float:
        """Bytes per second that it would move if storage cost no time (``derived``)."""
        wanted = self.bytes_per_s / (1 - min(self.stalled, STALL_MOST))
        return max(wanted, self.wanted_before) if self.waits else wanted

    @property
    def waits(self) -> bool:
        """True when storage, and not its CPU quota, is what it waits for."""
        wait = self.stalled if self.data_wait is None else min(self.stalled, self.data_wait)
        return wait > STALLED and self.stalled > self.throttled


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """A container that gets too little of a volume in one window, and the one that takes too much.

    Attributes:
        victim: The container.
        hog: The container that takes most above its fair share.
        got: Bytes per second of the victim.
        wanted: Bytes per second that it wants, at most what the volume moved.
        fair: Bytes per second that are its fair share.
        hog_part: Part of the traffic (or of the requests, by cause) that the hog takes, 0 to 1.
        cause: What the hog takes too much of.
    """

    victim: Hashable
    hog: Hashable
    got: float
    wanted: float
    fair: float
    hog_part: float
    cause: StarvationCause


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeJudgement:
    """One window of one volume.

    Attributes:
        moved: Bytes per second of all containers.
        jain: Jain's index of what active containers got against their fair shares; 1 = fair.
        fair: Fair share of each active container, bytes per second.
        short: Containers that get too little because of another.
    """

    moved: float
    jain: float
    fair: dict[Hashable, float]
    short: tuple[Shortfall, ...]


def max_min_shares(capacity: float, wanted: Sequence[float]) -> tuple[float, ...]:
    """Max-min fair shares (Bertsekas and Gallager, Data Networks, section 6.5).

    Args:
        capacity: What there is, at least 0.
        wanted: What each wants, at least 0, in the same unit.

    Returns:
        A share for each, at most what it wants; together at most the capacity.
    """
    shares = [0.0] * len(wanted)
    left = capacity
    order = sorted(range(len(wanted)), key=lambda at: wanted[at])
    for served, at in enumerate(order):
        shares[at] = min(wanted[at], left / (len(order) - served))
        left -= shares[at]
    return tuple(shares)


def jain_index(ratios: Sequence[float]) -> float:
    """Fairness of ratios, from 1/n to 1 (Jain, Chiu and Hawe, DEC-TR-301, 1984, equation 1).

    Args:
        ratios: What each got, over what would be fair, at least 0.

    Returns:
        1 where all are equal, or nothing is there to compare.
    """
    largest = max(ratios, default=0.0)
    if largest <= 0:
        return 1.0
    scaled = [ratio / largest for ratio in ratios]
    return sum(scaled) ** 2 / (len(scaled) * sum(ratio * ratio for ratio in scaled))


def judge(uses: Sequence[VolumeUse]) -> VolumeJudgement:
    """Judge one window of a volume.

    A container is short if it gets less than :data:`STARVED_BELOW` of its max-min fair share of
    what the volume moved, waits for it, and another takes clearly more than its own.

    Args:
        uses: Containers of all tenants that used the volume, each once.
    """
    moved = sum(use.bytes_per_s for use in uses)
    active = [use for use in uses if use.waits or use.bytes_per_s > IDLE * moved]
    shares = max_min_shares(moved, [use.wanted for use in active])
    fair = {use.key: share for use, share in zip(active, shares, strict=True)}
    ratios = [use.bytes_per_s / fair[use.key] for use in active if fair[use.key] > 0]
    requests = sum(use.requests_per_s for use in active)
    short: list[Shortfall] = []
    for use in active:
        if not use.waits or use.bytes_per_s >= STARVED_BELOW * fair[use.key]:
            continue
        takes = [
            (excess, part, cause, other)
            for other in active
            if other is not use
            for excess, part, cause in _excesses(other, fair[other.key], moved, requests, active)
        ]
        excess, part, cause, hog = max(
            takes,
            key=lambda take: (
                round(take[0], 2),
                take[2] is StarvationCause.BANDWIDTH,
                str(take[3].key),
            ),
            default=(0.0, 0.0, StarvationCause.BANDWIDTH, use),
        )
        if excess >= HOG_LEAST:
            short.append(
                Shortfall(
                    victim=use.key,
                    hog=hog.key,
                    got=use.bytes_per_s,
                    wanted=min(use.wanted, moved),
                    fair=fair[use.key],
                    hog_part=part,
                    cause=cause,
                )
            )
    return VolumeJudgement(moved=moved, jain=jain_index(ratios), fair=fair, short=tuple(short))


def _excesses(
    use: VolumeUse, fair: float, moved: float, requests: float, active: Sequence[VolumeUse]
) -> list[tuple[float, float, StarvationCause]]:
    """Parts of the volume that a container takes above its fair share: of bytes, of requests."""
    excesses: list[tuple[float, float, StarvationCause]] = []
    if moved > 0:
        part = use.bytes_per_s / moved
        excesses.append((part - fair / moved, part, StarvationCause.BANDWIDTH))
    if requests > 0:
        part = use.requests_per_s / requests
        excesses.append((part - 1 / len(active), part, StarvationCause.REQUESTS))
    return excesses
