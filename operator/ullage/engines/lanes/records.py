# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Demands of jobs on a device's lanes, and the answers to them. Memory in MiB, times in s."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ullage.api.slices import MAX_LANE

MOST_MIB: Final = 2**40
"""Upper bound for devices and jobs; larger figures are mistakes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDemand:
    """Demand declared by a job.

    ``ephemeral_mib`` is the peak of one step above ``persistent_mib``. ``own_lane`` = the lane is
    not shared: for jobs with a latency objective, or without the runtime. ``assigned`` is the
    number of the lane assigned by a scheduler, which only jobs of that number share, 0 where the
    table chooses. ``suspendable`` permits moving all its memory off the device between steps.
    ``duty`` is the fraction of its time in which the job wants to run, ``step_s`` the expected
    length of a step, ``total_s`` that of all its steps, ``total_steps`` their number; each ``None``
    where unknown.

    Raises:
        ValueError: a figure is out of range or not a number.
    """

    name: str
    persistent_mib: int
    ephemeral_mib: int
    own_lane: bool = False
    assigned: int = 0
    suspendable: bool = False
    duty: float = 1.0
    step_s: float | None = None
    total_s: float | None = None
    total_steps: int | None = None

    def __post_init__(self) -> None:
        mib(self.persistent_mib, "persistent memory")
        mib(self.ephemeral_mib, "ephemeral memory")
        if self.assigned and self.own_lane:
            raise ValueError("a job with a lane of its own is assigned none")
        if self.suspendable and self.own_lane:
            raise ValueError("a job with a lane of its own says nothing of its steps")
        if not 0 <= self.assigned <= MAX_LANE:
            raise ValueError(f"lanes are assigned by numbers from 1 to {MAX_LANE}")
        if not 0 < self.duty <= 1:
            raise ValueError("the duty is a part of time above 0, at most 1")
        if self.total_steps is not None and self.total_steps < 1:
            raise ValueError("a job of known length has at least one step")
        for given in (self.step_s, self.total_s):
            if given is not None and not (math.isfinite(given) and given > 0):
                raise ValueError("an expected time is a positive number of seconds")


def mib(amount: int, what: str) -> int:
    """A whole number of MiB in range.

    Args:
        amount: MiB.
        what: Names it in the error.

    Raises:
        ValueError: it is not a whole number in range.
    """
    if isinstance(amount, bool) or not isinstance(amount, int) or not 0 <= amount <= MOST_MIB:
        raise ValueError(f"{what} is a whole number of MiB from 0 to {MOST_MIB}")
    return amount


class TableRefusal(StrEnum):
    """Reason to refuse a job."""

    EXCEEDS_DEVICE = "ExceedsDevice"
    """Its memory never fits, even alone."""
    KNOWN = "Known"
    """A job with this name is resident or queued."""
    QUEUE_FULL = "QueueFull"
    """The queue is full."""
    UNKNOWN = "Unknown"
    """No job with this name is resident."""
    HOLDS_LEASE = "HoldsLease"
    """It requests a step while the last one runs."""
    CANNOT_GROW = "CannotGrow"
    """Its step needs more than declared, and no lane can provide it beside the others."""
    STUCK = "Stuck"
    """It was suspended and could not be resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A job is resident in a lane; ``size_mib`` holds from the lane's next boundary at the latest.

    The job may hold ``persistent_mib`` all the time and the lane's memory during its steps.
    """

    job: str
    lane: int
    size_mib: int
    epoch: int
    persistent_mib: int

    @property
    def limit_mib(self) -> int:
        """Maximum memory of its process."""
        return self.persistent_mib + self.size_mib


class Opened(Assigned):
    """In a new lane (rule 1)."""

    __slots__ = ()


class Joined(Assigned):
    """In an existing lane that is large enough (rule 2)."""

    __slots__ = ()


class Enlarged(Assigned):
    """In a lane that grows for it (rule 3)."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """A job is queued at this place, counted from 1; the first one lacks this much memory."""

    job: str
    place: int
    waiting: int
    missing_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRefused:
    """A job is refused; ``needs_mib`` compares with ``usable_mib`` of the device."""

    job: str
    reason: TableRefusal
    needs_mib: int = 0
    usable_mib: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLease:
    """The right of a job to launch in its lane until its step ends."""

    lease: int
    job: str
    lane: int
    granted_s: float
    deadline_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """A job may launch now; its lane has this size."""

    lease: LaneLease
    size_mib: int
    epoch: int

    @property
    def job(self) -> str:
        """The job of the step."""
        return self.lease.job


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """A job waits for its lane, as do this many others."""

    job: str
    lane: int
    others: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resized:
    """A lane has a new size, at a boundary; 0 = it closed."""

    lane: int
    size_mib: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Residents moved to another lane, by a merge, a split or a larger step."""

    jobs: tuple[str, ...]
    lane: int
    into: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exceeded:
    """A job's step took more memory than declared."""

    job: str
    peak_mib: int
    declared_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend:
    """Order to move all memory of a job off the device; meanwhile it has no lease.

    The outcome must be reported with ``order`` (`LaneTable.has_left`).
    """

    job: str
    order: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Order to restore a job's memory: ``persistent_mib`` and its lane are reserved (`safety`).

    The outcome must be reported with ``order`` (`LaneTable.is_back`).
    """

    job: str
    order: int
    lane: int
    persistent_mib: int


Placed = Opened | Joined | Enlarged
Answer = Opened | Joined | Enlarged | Queued | JobRefused
Turn = Granted | Waits | JobRefused
Order = Suspend | Resume
Change = Answer | Granted | Resized | Moved | Exceeded | Order
Changes = tuple[Change, ...]
