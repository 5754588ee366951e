# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs whose memory is not in place for a step: in transit, suspended, or lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ullage.engines.lanes.records import Order, Resume, Suspend
from ullage.engines.lanes.state import LaneResident, MemoryPlace


@dataclass(slots=True, kw_only=True)
class Away:
    """The suspended jobs of a device, by name, and the number of the last order."""

    jobs: dict[str, LaneResident] = field(default_factory=dict)
    orders: int = 0

    def suspend(self, resident: LaneResident) -> Suspend:
        """Begin to suspend a resident without a lease."""
        resident.memory, resident.leaves, resident.order = MemoryPlace.LEAVING, False, self._next()
        return Suspend(job=resident.name, order=resident.order)

    def resume(self, resident: LaneResident) -> Resume:
        """Begin to resume a suspended job that has a lane again."""
        self.jobs.pop(resident.name, None)
        resident.memory, resident.order = MemoryPlace.COMING, self._next()
        return _resume(resident)

    def again(self, residents: Iterable[LaneResident]) -> tuple[Order, ...]:
        """The pending orders, under new numbers: their executor is gone."""
        orders: list[Order] = []
        for resident in residents:
            if resident.memory is MemoryPlace.LEAVING:
                orders.append(self.suspend(resident))
            elif resident.memory is MemoryPlace.COMING:
                resident.order = self._next()
                orders.append(_resume(resident))
        return tuple(orders)

    def left(self, resident: LaneResident, holds_mib: int) -> None:
        """Record that all memory of a job is off the device.

        Memory it keeps beyond its declaration becomes persistent, and is missing for its steps: its
        total stays within the promise.

        Args:
            resident: Without a lane.
            holds_mib: Memory that it kept between steps, as far as known, MiB.
        """
        more = min(max(0, holds_mib - resident.persistent_mib), resident.ephemeral_mib)
        resident.persistent_mib += more
        resident.ephemeral_mib -= more
        resident.memory, resident.lane, resident.order = MemoryPlace.AWAY, 0, 0
        self.jobs[resident.name] = resident

    def _next(self) -> int:
        self.orders += 1
        return self.orders


def settled(resident: LaneResident, now_s: float) -> None:
    """Record that a job's memory is on the device again."""
    resident.memory, resident.order, resident.served = MemoryPlace.HERE, 0, False
    resident.came_s = resident.quiet_s = now_s


def _resume(resident: LaneResident) -> Resume:
    return Resume(
        job=resident.name,
        order=resident.order,
        lane=resident.lane,
        persistent_mib=resident.persistent_mib,
    )
