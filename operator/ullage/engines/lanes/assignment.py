# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lanes that a scheduler assigns before any program runs, and the memory that they promise.

The sum of :func:`counted_mib` is the left side of the safety condition: all persistent memory, and
for each lane its largest step. Rules 1 to 3 choose a lane; there is no rule 4: a job without a lane
waits for another device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ullage.api.slices import MAX_LANE
from ullage.engines.lanes.rules import LaneNeed, LaneRule, LaneSize, fit


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneAssignment:
    """A tenant of a device: its lane, 0 without a shared one, its memory in MiB and its share."""

    lane: int
    persistent_mib: int
    ephemeral_mib: int
    percent: int = 0


class LanePart(Protocol):
    """A slice of a device, requested or held."""

    @property
    def lane(self) -> int:
        """The lane of its turns; 0 = none."""
        ...

    @property
    def percent(self) -> int:
        """Its share."""
        ...

    @property
    def memory_mib(self) -> int:
        """All of its memory."""
        ...

    @property
    def ephemeral_mib(self) -> int:
        """The part of the memory that is needed only during a step."""
        ...

    @property
    def suspendable(self) -> bool:
        """True if all its memory may leave the device between steps."""
        ...


def assignment_of(part: LanePart) -> LaneAssignment:
    """A slice as input of lanes; without an assigned lane all its memory is persistent.

    A tenant that may be suspended has no persistent memory: while another of its lane runs a step,
    all its memory may be off the device.
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
    """MiB that each tenant adds to the promised memory of a device, in their order.

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
        tenants: All of the device; those without a shared lane are ignored.
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
    """The lane chosen by rules 2 and 3; ``None`` where rule 1 opens one, or no rule applies.

    Ties between lanes go to the one with the fewest residents.

    Args:
        need: Demand of the job.
        lanes: Lanes that it may share.
        free_mib: Unpromised memory of the device, MiB.
        may_open: True when another lane may run beside the existing ones.
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
    """The lowest free lane number of a device.

    Args:
        lanes: All lanes of the device.

    Raises:
        ValueError: all numbers are in use.
    """
    taken = {lane.lane for lane in lanes}
    for number in range(1, MAX_LANE + 1):
        if number not in taken:
            return number
    raise ValueError(f"a device has {MAX_LANE} lanes already")
