# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The programs of one device and their notifications on changes of its lanes.

Greetings, steps and suspends build on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ullage.api import lanes as wire
from ullage.api.lanes import LaneRefusal, Message
from ullage.engines.lanes import records
from ullage.engines.lanes.records import LaneLease, Order
from ullage.engines.lanes.state import MemoryPlace
from ullage.engines.lanes.table import LaneTable
from ullage_node.lanes.members import ContainerPrograms
from ullage_node.lanes.reports import StepFault, StepReport

REPORTS_MOST: Final = 64
TURNS_MOST: Final = 1024

Send = Callable[[str, Message], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A grant, seconds.

    ``switch_s`` is how long the lane was idle before it although the program waited; ``None`` if it
    did not wait when the last step ended.
    """

    waited_s: float
    switch_s: float | None


@dataclass(slots=True, kw_only=True)
class LanePrograms:
    """Programs by job, beside the table of their lanes; ``send`` collects messages to them."""

    table: LaneTable
    send: Send
    jobs: dict[str, ContainerPrograms] = field(default_factory=dict)
    reports: deque[StepReport] = field(default_factory=lambda: deque(maxlen=REPORTS_MOST))
    orders: deque[Order] = field(default_factory=deque)
    """Pending suspends and resumes."""
    turns: deque[Turn] = field(default_factory=lambda: deque(maxlen=TURNS_MOST))
    """The newest delivered grants."""
    ended: dict[int, float] = field(default_factory=dict)
    """End time of the last step of each lane."""

    def tell(self, changes: records.Changes, now: float) -> None:
        """Notify the affected programs of changes."""
        for change in changes:
            if isinstance(change, Order):
                self.orders.append(change)
            elif isinstance(change, records.Granted):
                known = self.jobs.get(change.job)
                if known is not None and known.session:
                    self.granted(known, change.lease)
            elif isinstance(change, records.Placed):
                known = self.jobs.get(change.job)
                if known is None:
                    continue
                if known.session:
                    self.say_lane(known)
                else:
                    self.tell(self.table.acquire(change.job, now)[1], now)
            elif isinstance(change, records.Moved):
                for name in change.jobs:
                    if name in self.jobs and self.jobs[name].session:
                        resident = self.table.memory.residents[name]
                        if resident.memory is MemoryPlace.HERE:
                            self.say_lane(self.jobs[name])
            elif isinstance(change, records.JobRefused):
                known = self.jobs.get(change.job)
                if known is not None and known.asks:
                    known.asks = False
                    text = f"the step needs {change.needs_mib} MiB of {change.usable_mib} MiB"
                    self.refuse(change.job, LaneRefusal.CANNOT_GROW, text)

    def granted(self, known: ContainerPrograms, lease: LaneLease) -> None:
        """Grant a program its turn: send it, or reserve it until the program requests a step."""
        if not known.asks:
            known.reserved = lease
            return
        known.asks, known.lease, known.kept = False, lease, False
        lane = self.table.memory.lanes[lease.lane]
        self.turns.append(
            Turn(
                waited_s=max(0.0, lease.granted_s - known.asked_s),
                switch_s=self._switched(lease, known.asked_s),
            )
        )
        self.send(
            known.member.job,
            wire.Grant(
                lease=lease.lease,
                lane=lane.lane,
                size_mib=lane.size_mib,
                epoch=lane.epoch,
                deadline_ms=round(min(3600.0, lease.deadline_s - lease.granted_s) * 1000),
            ),
        )

    def say_lane(self, known: ContainerPrograms) -> None:
        """Send a program its lane and its memory limit."""
        resident = self.table.memory.residents[known.member.job]
        lane = self.table.memory.lanes[resident.lane]
        lease = known.lease.lease if known.lease is not None and not known.kept else 0
        self.send(
            known.member.job,
            wire.InLane(
                lane=lane.lane,
                size_mib=lane.reserved_mib,
                limit_mib=resident.persistent_mib + lane.reserved_mib - known.member.context_mib,
                epoch=lane.epoch,
                lease=lease,
            ),
        )

    def refuse(self, job: str, reason: LaneRefusal, message: str) -> None:
        """Send a program the reason why its request is refused."""
        self.send(job, wire.Refused(reason=reason, message=message))

    def report(self, job: str, fault: StepFault, message: str) -> None:
        """Report a fault to the owner of a job."""
        self.reports.append(StepReport(job=job, fault=fault, message=message))

    def end(
        self,
        known: ContainerPrograms,
        lease: LaneLease,
        now: float,
        *,
        peak_mib: int = 0,
        again: bool = False,
    ) -> None:
        """End a step whose grant was delivered.

        Args:
            known: The program.
            lease: The step's lease.
            now: Current time, seconds.
            peak_mib: Peak memory of the step in the lane, MiB.
            again: True if the program is expected back at once.
        """
        known.lease, known.kept = None, False
        self.tell(self.table.release(lease.lease, now, peak_mib, again=again), now)

    def end_reserved(self, known: ContainerPrograms, now: float) -> None:
        """End a grant that was not delivered."""
        lease, known.reserved = known.reserved, None
        if lease is not None:
            self.tell(self.table.release(lease.lease, now), now)

    def want(self, lane: int) -> None:
        """Request the memory that a lane's job keeps between steps."""
        for known in self.jobs.values():
            if known.kept and known.lease is not None and known.lease.lane == lane:
                self.send(known.member.job, wire.Empty(lease=known.lease.lease))

    def is_wanted(self, known: ContainerPrograms) -> bool:
        """True if another job waits for the memory that this one keeps, in its lane or device.

        A job expected back counts as waiting: the lane would be granted to it.
        """
        residents = self.table.memory.residents
        mates = (residents[name] for name in self._lane_mates(known))
        return bool(self.table.queue) or any(mate.asked_s is not None for mate in mates)

    def others(self, known: ContainerPrograms) -> list[ContainerPrograms]:
        """Jobs of the same lane."""
        return [self.jobs[name] for name in self._lane_mates(known) if name in self.jobs]

    def _lane_mates(self, known: ContainerPrograms) -> set[str]:
        resident = self.table.memory.residents.get(known.member.job)
        if resident is None:
            return set()
        return self.table.memory.lanes[resident.lane].residents.keys() - {known.member.job}

    def _switched(self, lease: LaneLease, asked_s: float) -> float | None:
        ended = self.ended.get(lease.lane)
        if ended is None or not asked_s <= ended <= lease.granted_s:
            return None
        return lease.granted_s - ended
