# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lanes and residents as the table keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ullage.engines.lanes.records import JobDemand, LaneLease


class MemoryPlace(StrEnum):
    """Place of a job's memory; everywhere but away it is reserved on the device."""

    HERE = "Here"
    LEAVING = "Leaving"
    """The job is being suspended."""
    AWAY = "Away"
    """It is suspended: nothing of it is on the device."""
    COMING = "Coming"
    """It is being resumed."""
    STUCK = "Stuck"
    """It could not be resumed. What it holds is not known, and it runs no step again."""


@dataclass(slots=True, kw_only=True)
class LaneResident:
    """A job whose persistent memory is on the device.

    ``persistent_mib`` and ``ephemeral_mib`` are what is reserved for it, margins included.
    ``level_s`` and ``level_steps`` order it under FAIR and RR: what it ran, counted from where its
    lane stood when it came. ``needs_mib`` is above 0 while a step needs more than it has.

    ``came_s`` is when its memory came to the device the last time, ``quiet_s`` when it last stopped
    working, ``queued_s`` since when it waits in the queue. ``served`` says that it had a step since
    it came, ``leaves`` that it gets none before it is suspended; it is not suspended before
    ``spared_until_s``. ``order`` is what is being done with its memory.
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
        """Of the job."""
        return self.demand.name

    @property
    def whole_mib(self) -> int:
        """Memory that it reserves alone on a device."""
        return self.persistent_mib + self.ephemeral_mib

    @property
    def may_run(self) -> bool:
        """True if its memory is where a step needs it, and stays."""
        return self.memory is MemoryPlace.HERE and not self.leaves

    def wait_s(self, now_s: float) -> float:
        """Seconds that it has waited for its lane in all."""
        return self.waited_s + (0.0 if self.asked_s is None else max(0.0, now_s - self.asked_s))


@dataclass(slots=True, kw_only=True)
class LaneState:
    """Memory that its residents' steps use one at a time.

    ``size_mib`` holds now. ``target_mib``, the largest step of a resident, holds from the next
    boundary; ``least_mib`` is the smallest step. ``assigned`` is the number under which a scheduler
    assigned it, 0 where the table opened it. ``draining`` are jobs that released early.
    ``clock_s`` and ``clock_steps`` are the levels of the last job that was granted.
    """

    lane: int
    size_mib: int
    own: bool = False
    assigned: int = 0
    epoch: int = 1
    residents: dict[str, LaneResident] = field(default_factory=dict)
    holder: str | None = None
    draining: set[str] = field(default_factory=set)
    clock_s: float = 0.0
    clock_steps: int = 0

    target_mib: int = 0
    least_mib: int = 0
    persistent_mib: int = 0
    duty: float = 0.0

    @property
    def reserved_mib(self) -> int:
        """Memory that the lane takes of the device: until a boundary the larger of both sizes."""
        return max(self.size_mib, self.target_mib)

    @property
    def idle(self) -> bool:
        """True if it holds nothing, so that its size and residents may change."""
        return self.holder is None and not self.draining

    def add(self, resident: LaneResident, lead_s: float = 0.0, lead_steps: int = 0) -> None:
        """Take a resident in.

        Args:
            resident: Holds nothing of another lane.
            lead_s: Running time by which it is ahead of the lane's clock, seconds.
            lead_steps: Steps by which it is ahead.
        """
        self.residents[resident.name] = resident
        resident.lane = self.lane
        resident.level_s = self.clock_s + lead_s
        resident.level_steps = self.clock_steps + lead_steps
        self.measure()

    def remove(self, name: str) -> None:
        """Let a resident go."""
        del self.residents[name]
        self.measure()

    def measure(self) -> None:
        """Take sums and sizes from the residents again."""
        residents = self.residents.values()
        steps = [resident.ephemeral_mib for resident in residents]
        self.target_mib, self.least_mib = max(steps, default=0), min(steps, default=0)
        self.persistent_mib = sum(resident.persistent_mib for resident in residents)
        self.duty = sum(resident.demand.duty for resident in residents)
