# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lanes and residents as the table stores them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ullage.engines.lanes.records import JobDemand, LaneLease


class MemoryPlace(StrEnum):
    """Place of a job's memory; it is reserved on the device unless suspended."""

    HERE = "Here"
    LEAVING = "Leaving"
    """The job is being suspended."""
    AWAY = "Away"
    """It is suspended: none of its memory is on the device."""
    COMING = "Coming"
    """It is being resumed."""
    STUCK = "Stuck"
    """It could not be resumed. Its memory use is unknown, and it never runs a step again."""


@dataclass(slots=True, kw_only=True)
class LaneResident:
    """A job whose persistent memory is on the device.

    ``persistent_mib`` and ``ephemeral_mib`` are its reservations, margins included. ``level_s`` and
    ``level_steps`` order it under FAIR and RR: time and steps run, counted from the lane's level at
    its arrival. ``needs_mib`` is above 0 while a step needs more than reserved.

    ``came_s`` is the last time its memory came to the device, ``quiet_s`` the last time it stopped
    working, ``queued_s`` the start of its wait in the queue. ``served`` = it had a step since it
    came, ``leaves`` = it gets none before it is suspended; it is not suspended before
    ``spared_until_s``. ``order`` is the pending order for its memory.
    """

    demand: JobDemand
    persistent_mib: int
    ephemeral_mib: int
    number: int
    since_s: float
    lane: int = 0
    lease: LaneLease | None = None
    asked_s: float | None = None
    asked: int = 0
    waited_s: float = 0.0
    ran_s: float = 0.0
    steps: int = 0
    step_s: float | None = None
    level_s: float = 0.0
    level_steps: int = 0
    needs_mib: int = 0
    peak_mib: int = 0
    memory: MemoryPlace = MemoryPlace.HERE
    order: int = 0
    came_s: float = 0.0
    quiet_s: float = 0.0
    queued_s: float = 0.0
    spared_until_s: float = 0.0
    served: bool = False
    leaves: bool = False

    @property
    def name(self) -> str:
        """Name of the job."""
        return self.demand.name

    @property
    def whole_mib(self) -> int:
        """Memory that it would reserve alone on a device."""
        return self.persistent_mib + self.ephemeral_mib

    @property
    def may_run(self) -> bool:
        """True if its memory is in place for a step, and stays."""
        return self.memory is MemoryPlace.HERE and not self.leaves

    def wait_s(self, now_s: float) -> float:
        """Total seconds for which it has waited for its lane."""
        return self.waited_s + (0.0 if self.asked_s is None else max(0.0, now_s - self.asked_s))


@dataclass(slots=True, kw_only=True)
class LaneState:
    """Memory that its residents' steps use one at a time.

    ``size_mib`` is current. ``target_mib``, the largest step of a resident, applies from the next
    boundary; ``least_mib`` is the smallest step. ``assigned`` is the number assigned by a
    scheduler, 0 where the table opened it. ``clock_s`` and ``clock_steps`` are the levels of the
    last granted job.
    """

    lane: int
    size_mib: int
    own: bool = False
    assigned: int = 0
    epoch: int = 1
    residents: dict[str, LaneResident] = field(default_factory=dict)
    holder: str | None = None
    clock_s: float = 0.0
    clock_steps: int = 0

    target_mib: int = 0
    least_mib: int = 0
    persistent_mib: int = 0
    duty: float = 0.0

    @property
    def reserved_mib(self) -> int:
        """Reserved memory of the lane on the device: until a boundary the larger of both sizes."""
        return max(self.size_mib, self.target_mib)

    @property
    def idle(self) -> bool:
        """True without a lease, so that its size and residents may change."""
        return self.holder is None

    def add(self, resident: LaneResident, lead_s: float = 0.0, lead_steps: int = 0) -> None:
        """Add a resident.

        Args:
            resident: Without a lease in another lane.
            lead_s: Running time by which it is ahead of the lane's clock, seconds.
            lead_steps: Steps by which it is ahead.
        """
        self.residents[resident.name] = resident
        resident.lane = self.lane
        resident.level_s = self.clock_s + lead_s
        resident.level_steps = self.clock_steps + lead_steps
        self.measure()

    def remove(self, name: str) -> None:
        """Remove a resident."""
        del self.residents[name]
        self.measure()

    def measure(self) -> None:
        """Recompute sums and sizes from the residents."""
        residents = self.residents.values()
        steps = [resident.ephemeral_mib for resident in residents]
        self.target_mib, self.least_mib = max(steps, default=0), min(steps, default=0)
        self.persistent_mib = sum(resident.persistent_mib for resident in residents)
        self.duty = sum(resident.demand.duty for resident in residents)
