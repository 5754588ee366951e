# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lanes that a scheduler assigns before any program runs, and the memory that they promise.

The sum of what :func:`counted_mib` says is the left side of the safety condition: all persistent
memory, and for each lane its largest step. Rules 1 to 3 choose a lane; there is no rule 4, a job
without a lane waits for another device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ullage.api.slices import MAX_LANE
from ullage.engines.lanes.rules import LaneNeed, LaneRule, LaneSize, fit


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneAssignment:
    """A tenant of a device: its lane, 0 where it shares none, its memory in MiB and its share."""

    lane: int
    persistent_mib: int
    ephemeral_mib: int
    percent: int = 0


class LanePart(Protocol):
    """A slice of a device, wanted or held."""

    @property
    def lane(self) -> int:
        """The lane that it takes turns in; 0 = none."""
        ...

    @property
    def percent(self) -> int:
        """Its share."""
        ...

    @property
    def memory_mib(self) -> int:
        """All memory that it may have."""
        ...

    @property
    def ephemeral_mib(self) -> int:
        """The part of it that is needed during a step alone."""
        ...

    @property
    def suspendable(self) -> bool:
        """True if all its memory may leave the device between steps."""
        ...


def assignment_of(part: LanePart) -> LaneAssignment:
    """A slice as far as lanes matter; one that was assigned none has all its memory for good.

    One that may be suspended has none for good: while another of its lane runs a step, all its
    memory may be off the device.
    """
    step_mib = part.memory_mib if part.suspendable else part.ephemeral_mib
    shared = min(step_mib, part.memory_mib) if part.lane else 0
    return LaneAssignment(
        lane=part.lane,
        persistent_mib=part.memory_mib - shared,
        ephemeral_mib=shared,
        percent=part.percent,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedLane:
    """A lane with tenants: the largest of their steps, in MiB, and of their shares, in percent."""

    lane: int
    size_mib: int
    percent: int
    residents: int


def counted_mib(tenants: Sequence[LaneAssignment]) -> tuple[int, ...]:
    """MiB that each tenant adds to the memory that a device promises, in their order.

    A lane counts once, with the first of its tenants that has the largest step.

    Args:
        tenants: All of one device.
    """
    largest: dict[int, int] = {}
    for at, tenant in enumerate(tenants):
        before = largest.get(tenant.lane)
        if tenant.lane and (before is None or tenant.ephemeral_mib > tenants[before].ephemeral_mib):
            largest[tenant.lane] = at
    counts = set(largest.values())
    return tuple(
        tenant.persistent_mib + (tenant.ephemeral_mib if not tenant.lane or at in counts else 0)
        for at, tenant in enumerate(tenants)
    )


def counted_percent(tenants: Sequence[LaneAssignment]) -> int:
    """The sum of shares of a device, where a lane holds one share.

    Args:
        tenants: All of one device.
    """
    alone = sum(tenant.percent for tenant in tenants if not tenant.lane)
    return alone + sum(lane.percent for lane in assigned_lanes(tenants))


def assigned_lanes(tenants: Iterable[LaneAssignment]) -> tuple[AssignedLane, ...]:
    """The lanes of a device, by number.

    Args:
        tenants: All of the device; those that share no lane count for nothing here.
    """
    by_number: dict[int, AssignedLane] = {}
    for tenant in tenants:
        if not tenant.lane:
            continue
        lane = by_number.get(tenant.lane)
        by_number[tenant.lane] = AssignedLane(
            lane=tenant.lane,
            size_mib=max(tenant.ephemeral_mib, lane.size_mib if lane else 0),
            percent=max(tenant.percent, lane.percent if lane else 0),
            residents=1 + (lane.residents if lane else 0),
        )
    return tuple(by_number[number] for number in sorted(by_number))


def choose_lane(
    need: LaneNeed, lanes: Sequence[AssignedLane], free_mib: int, *, may_open: bool
) -> AssignedLane | None:
    """The lane that rules 2 and 3 name; ``None`` where rule 1 opens one, or no rule holds.

    Of lanes of one size, that with the fewest residents.

    Args:
        need: What the job adds.
        lanes: Lanes that it may share.
        free_mib: What the device has not promised, MiB.
        may_open: Whether another lane may run beside those that there are.
    """
    order = sorted(lanes, key=lambda lane: (lane.size_mib, lane.residents, lane.lane))
    sizes = [
        LaneSize(lane=lane.lane, size_mib=lane.size_mib, duty=0.0, shared=True) for lane in order
    ]
    place = fit(need, sizes, free_mib, may_open=may_open)
    if place is None or place.rule is LaneRule.OPEN:
        return None
    return next(lane for lane in lanes if lane.lane == place.lane)


def next_lane(lanes: Iterable[AssignedLane]) -> int:
    """The least number that no lane of a device has.

    Args:
        lanes: All lanes of the device.

    Raises:
        ValueError: all numbers are taken.
    """
    taken = {lane.lane for lane in lanes}
    for number in range(1, MAX_LANE + 1):
        if number not in taken:
            return number
    raise ValueError(f"a device has {MAX_LANE} lanes already")
