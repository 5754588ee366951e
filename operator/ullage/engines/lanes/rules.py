# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of lanes: the lane of a job, merges for a waiting job, and splits of a lane."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from ullage.engines.lanes.state import LaneResident, LaneState


class LaneRule(Enum):
    """Rule by which a job gets its lane, in order of precedence."""

    OPEN = auto()
    JOIN = auto()
    ENLARGE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFit:
    """The applicable rule, and the lane that it chooses; ``None`` where it opens one."""

    rule: LaneRule
    lane: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneNeed:
    """Needs of a job: persistent memory, a step, and the fraction of time in which it wants to run.

    ``own`` = it shares no lane, ``assigned`` = it needs the lane of this number. A resident whose
    step grows adds no duty.
    """

    persistent_mib: int
    ephemeral_mib: int
    own: bool = False
    assigned: int = 0
    duty: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSize:
    """A lane as input of the rules."""

    lane: int
    size_mib: int
    duty: float
    shared: bool
    assigned: int = 0

    def takes(self, need: LaneNeed) -> bool:
        """True if a job may share the lane."""
        return self.shared and not need.own and self.assigned == need.assigned


def sizes(lanes: Iterable[LaneState]) -> list[LaneSize]:
    """Lanes by reserved memory, the smallest first."""
    seen = [
        LaneSize(
            lane=lane.lane,
            size_mib=lane.reserved_mib,
            duty=lane.duty,
            shared=not lane.own,
            assigned=lane.assigned,
        )
        for lane in lanes
    ]
    return sorted(seen, key=lambda size: (size.size_mib, size.lane))


def fit(
    need: LaneNeed, lanes: Sequence[LaneSize], free_mib: int, *, may_open: bool = True
) -> LaneFit | None:
    """The first applicable rule (rules 1 to 3; recalled from Salus, MLSys 2020, section 4.2).

    Args:
        need: Demand of the job.
        lanes: All lanes, the smallest first.
        free_mib: Memory reserved by neither lanes nor persistent memory, MiB.
        may_open: True when one more lane may run beside the existing ones.
    """
    left = free_mib - need.persistent_mib
    shared = [lane for lane in lanes if lane.takes(need)]
    if left >= need.ephemeral_mib and may_open and not (need.assigned and shared):
        return LaneFit(rule=LaneRule.OPEN)
    if left < 0:
        return None
    for lane in shared:
        if lane.size_mib >= need.ephemeral_mib:
            return LaneFit(rule=LaneRule.JOIN, lane=lane.lane)
    for lane in shared:
        if left >= need.ephemeral_mib - lane.size_mib:
            return LaneFit(rule=LaneRule.ENLARGE, lane=lane.lane)
    return None


def missing_mib(need: LaneNeed, lanes: Sequence[LaneSize], free_mib: int) -> int:
    """Memory missing beyond ``free_mib`` for the job's lane; 0 where it fits.

    Args:
        need: Demand of the job.
        lanes: All lanes.
        free_mib: Memory reserved by neither lanes nor persistent memory, MiB.
    """
    largest = max((lane.size_mib for lane in lanes if lane.takes(need)), default=0)
    return max(0, need.persistent_mib + max(0, need.ephemeral_mib - largest) - free_mib)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneMerge:
    """Merge: the smaller lane's residents move into the larger one; the smaller one closes."""

    lane: int
    into: int


def merges(need: LaneNeed, lanes: Sequence[LaneSize], free_mib: int) -> tuple[LaneMerge, ...]:
    """Merges after which the job fits; none where it already fits, or cannot fit even in one lane.

    Each merge is the one that frees the most, up to the missing memory; ties go to the smallest
    loss of throughput (derived).

    Args:
        need: Demand of the first waiting job.
        lanes: All lanes, the smallest first.
        free_mib: Memory reserved by neither lanes nor persistent memory, MiB.
    """
    if need.assigned:
        return ()  # the operator already counts the memory of assigned lanes
    shared = [lane for lane in lanes if lane.shared and not lane.assigned]
    freed = sum(lane.size_mib for lane in shared[:-1])
    if missing_mib(need, shared, free_mib + freed):
        return ()
    merged = []
    while (missing := missing_mib(need, shared, free_mib)) and len(shared) > 1:
        small, large = min(
            ((a, b) for at, b in enumerate(shared) for a in shared[:at]),
            key=lambda pair: (-min(pair[0].size_mib, missing), _loss(*pair), -pair[1].size_mib),
        )
        shared = [lane for lane in shared if lane is not small]
        shared[shared.index(large)] = replace(large, duty=large.duty + small.duty)
        free_mib += small.size_mib
        merged.append(LaneMerge(lane=small.lane, into=large.lane))
    return tuple(merged)


def _loss(size: LaneSize, other: LaneSize) -> float:
    """Predicted loss of throughput by a merge, in lanes that always run (derived)."""
    return min(1.0, size.duty) + min(1.0, other.duty) - min(1.0, size.duty + other.duty)


def loses(
    need: LaneNeed, lanes: Sequence[LaneSize], free_mib: int, planned: Sequence[LaneMerge]
) -> bool:
    """True if merges cost more predicted throughput than the admitted job adds (derived).

    Args:
        need: Demand of that job.
        lanes: All lanes before the merges.
        free_mib: Memory reserved by neither lanes nor persistent memory before, MiB.
        planned: Merges of these lanes.
    """
    left = {lane.lane: lane for lane in lanes}
    for merge in planned:
        small, large = left.pop(merge.lane), left[merge.into]
        free_mib += small.size_mib
        left[merge.into] = replace(large, duty=large.duty + small.duty)
    before = sum(min(1.0, lane.duty) for lane in lanes)
    after = sum(min(1.0, lane.duty) for lane in left.values())
    ordered = sorted(left.values(), key=lambda lane: (lane.size_mib, lane.lane))
    place = fit(need, ordered, free_mib)
    home = None if place is None or place.lane is None else left[place.lane]
    has = 0.0 if home is None else home.duty
    after += min(1.0, has + need.duty) - min(1.0, has)
    return after < before - _LEAST_GAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSplit:
    """Split: these residents get a separate lane of this size; the rest stays."""

    names: tuple[str, ...]
    size_mib: int
    gain: float
    skew: int


def split(residents: Iterable[LaneResident], free_mib: int) -> LaneSplit | None:
    """The best split of a lane for throughput; ``None`` without a gain.

    The smaller steps move: a lane for the k smallest takes the memory of the k-th, and any other
    choice of k residents takes more. Ties go to the more even split (derived).

    Args:
        residents: Of an idle lane.
        free_mib: Memory reserved by neither lanes nor persistent memory, MiB.
    """
    order = sorted(residents, key=lambda resident: (resident.ephemeral_mib, resident.number))
    whole = sum(resident.demand.duty for resident in order)
    best: LaneSplit | None = None
    goes = 0.0
    for at, resident in enumerate(order[:-1], start=1):
        if resident.ephemeral_mib > free_mib:
            break
        goes += resident.demand.duty
        gain = min(1.0, goes) + min(1.0, whole - goes) - min(1.0, whole)
        skew = abs(len(order) - 2 * at)
        if gain > _LEAST_GAIN and (best is None or (-gain, skew) < (-best.gain, best.skew)):
            names = tuple(each.name for each in order[:at])
            best = LaneSplit(names=names, size_mib=resident.ephemeral_mib, gain=gain, skew=skew)
    return best


_LEAST_GAIN = 1e-9
