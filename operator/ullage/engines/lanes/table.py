# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The lane table of one device: residents, queue, and permission to launch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from ullage.engines.lanes.admission import LaneQueue
from ullage.engines.lanes.away import Away, settled
from ullage.engines.lanes.larger_steps import LargerSteps
from ullage.engines.lanes.memory import DeviceMemory
from ullage.engines.lanes.recorded import (
    RunningRecord,
    Shape,
    TableRecord,
    rebuild,
    recorded,
    recorded_resident,
    shape_of,
)
from ullage.engines.lanes.records import (
    Answer,
    Change,
    Changes,
    Enlarged,
    Granted,
    JobDemand,
    JobRefused,
    Joined,
    LaneLease,
    Opened,
    Order,
    Queued,
    TableRefusal,
    Turn,
    Waits,
    mib,
)
from ullage.engines.lanes.settings import LaneSettings
from ullage.engines.lanes.state import LaneResident, LaneState, MemoryPlace
from ullage.engines.lanes.turns import Turns, count_step, stop_asking


@dataclass(slots=True, kw_only=True)
class LaneTable:
    """One device's lanes; one caller at a time. A time earlier than the last counts as the last.

    Every operation ends with `safety.check`, so an unsafe state is an error and never a grant.
    """

    settings: LaneSettings
    memory: DeviceMemory = field(init=False)
    away: Away = field(init=False, default_factory=Away)
    _now_s: float = field(init=False, default=-math.inf)
    _admission: LaneQueue = field(init=False)
    _larger: LargerSteps = field(init=False)
    _turns: Turns = field(init=False, default_factory=Turns)

    def __post_init__(self) -> None:
        self.memory = DeviceMemory(usable_mib=self.settings.usable_mib, aim=self.settings.aim)
        self._admission = LaneQueue(memory=self.memory, away=self.away)
        self._larger = LargerSteps(memory=self.memory)

    @property
    def queue(self) -> Mapping[str, LaneResident]:
        """Jobs queued for memory, in order."""
        return self._admission.queue

    def arrive(self, demand: JobDemand, now_s: float) -> tuple[Answer, Changes]:
        """Request residency for a job; a queued one is assigned in a later change.

        Args:
            demand: Its declared demand.
            now_s: The current time.
        """
        self._clock(now_s)
        resident = self._admission.newcomer(demand, self.settings.margins, self._now_s)
        whole = resident.whole_mib
        if self.knows(demand.name):
            return self._refused(demand.name, TableRefusal.KNOWN), ()
        if whole > self.memory.usable_mib:
            return self._refused(demand.name, TableRefusal.EXCEEDS_DEVICE, whole), ()
        if len(self.queue) >= max(1, self.settings.most_queued):
            return self._refused(demand.name, TableRefusal.QUEUE_FULL, whole), ()
        self._admission.add(resident)
        changes: list[Change] = []
        self._settle(changes)
        answer: Answer | None = None
        for change in changes:
            if isinstance(change, Opened | Joined | Enlarged) and change.job == demand.name:
                answer = change
        rest = tuple(change for change in changes if change is not answer)
        return answer or self.place(demand.name), rest

    def leave(self, job: str, now_s: float) -> Changes:
        """Remove a job whose process is gone, or that stopped waiting; unknown jobs are ignored.

        Args:
            job: Its name.
            now_s: The current time.
        """
        self._clock(now_s)
        changes: list[Change] = []
        resident = self.memory.residents.get(job)
        if resident is not None:
            self.memory.dismiss(resident, changes)
            self._larger.forget(job)
        elif (self._admission.queue.pop(job, None) or self.away.jobs.get(job)) is None:
            return ()
        self.away.jobs.pop(job, None)
        self._settle(changes)
        return tuple(changes)

    def acquire(
        self, job: str, now_s: float, ephemeral_mib: int | None = None
    ) -> tuple[Turn, Changes]:
        """Request the next step of a job; a waiting one is granted in a later change.

        Args:
            job: Its name.
            now_s: The current time.
            ephemeral_mib: Memory of the step, MiB, where it is more than declared.
        """
        self._clock(now_s)
        if job in self.away.jobs:
            return self._acquire_away(self.away.jobs[job], ephemeral_mib)
        resident = self.memory.residents.get(job)
        if resident is None:
            return self._refused(job, TableRefusal.UNKNOWN), ()
        if resident.memory is MemoryPlace.STUCK:
            return self._refused(job, TableRefusal.STUCK), ()
        if resident.lease is not None:
            return self._refused(job, TableRefusal.HOLDS_LEASE), ()
        if ephemeral_mib is not None:
            self._needs(resident, ephemeral_mib)
        self._ask(resident)
        changes: list[Change] = []
        self._settle(changes)
        for change in changes:
            if isinstance(change, Granted | JobRefused) and change.job == job:
                return change, tuple(each for each in changes if each is not change)
        others = sum(
            other.asked_s is not None for other in self._lane_of(resident).residents.values()
        )
        return Waits(job=job, lane=resident.lane, others=others - 1), tuple(changes)

    def withdraw(self, job: str, now_s: float) -> None:
        """Withdraw a job's request; its lease is kept.

        Args:
            job: Its name.
            now_s: The current time.
        """
        self._clock(now_s)
        resident = self.memory.residents.get(job) or self.away.jobs.get(job)
        if resident is not None:
            stop_asking(resident, self._now_s)
        if job in self.away.jobs:
            self._admission.queue.pop(job, None)

    def release(
        self,
        lease: int,
        now_s: float,
        peak_mib: int = 0,
        *,
        slowdown: float = 1.0,
        again: bool = False,
    ) -> Changes:
        """End a step, whose memory is freed; an unknown lease is ignored.

        A peak above the declaration is the job's new demand.

        Args:
            lease: The granted lease.
            now_s: The current time.
            peak_mib: Peak memory used of the lane, MiB.
            slowdown: Slowdown of steps by the other lanes, where known.
            again: The job requests its next step at once. Otherwise a job that only runs steps
                comes after requests made meanwhile, whatever the policy.

        Raises:
            ValueError: a figure is out of range.
        """
        self._clock(now_s)
        mib(peak_mib, "a peak")
        if not (math.isfinite(slowdown) and slowdown >= 1):
            raise ValueError("a slowdown is at least 1")
        resident = self._holder(lease)
        if resident is None:
            return ()
        lane = self._lane_of(resident)
        if lane.holder == resident.name:
            count_step(resident, slowdown, self._now_s)
            lane.holder = None
        resident.lease, resident.quiet_s = None, self._now_s
        changes: list[Change] = []
        self._larger.learn_peak(resident, peak_mib, self.settings.margins, changes)
        if again:
            self._ask(resident)
        self._settle(changes)
        return tuple(changes)

    def recall(self, job: str, now_s: float) -> Changes:
        """Request the memory of a suspended job; the request for a step follows.

        Args:
            job: Its name; ignored for a job that is not suspended.
            now_s: The current time.
        """
        self._clock(now_s)
        resident = self.away.jobs.get(job)
        changes: list[Change] = []
        if resident is not None:
            self._admission.enqueue(resident, self._now_s)
            self._settle(changes)
        return tuple(changes)

    def has_left(self, order: int, now_s: float, *, done: bool, holds_mib: int = 0) -> Changes:
        """Record the outcome of `records.Suspend`; an obsolete order is ignored.

        Args:
            order: Its number.
            now_s: The current time.
            done: No memory of the job is on the device; else all of it is, and it is spared for a
                while.
            holds_mib: Memory kept between steps, MiB, where it is more than declared.

        Raises:
            ValueError: the amount is out of range.
        """
        self._clock(now_s)
        mib(holds_mib, "what a job keeps")
        resident = self._ordered(order, MemoryPlace.LEAVING)
        if resident is None:
            return ()
        changes: list[Change] = []
        if done:
            self.memory.dismiss(resident, changes)
            self.away.left(resident, holds_mib)
            if resident.asked_s is not None:
                self._admission.enqueue(resident, self._now_s)
        else:
            resident.memory, resident.order = MemoryPlace.HERE, 0
            resident.spared_until_s = self._now_s + self.settings.spare_s
            self._larger.note(resident)
        self._settle(changes)
        return tuple(changes)

    def is_back(self, order: int, now_s: float, *, done: bool) -> Changes:
        """Record the outcome of `records.Resume`; an obsolete order is ignored.

        Args:
            order: Its number.
            now_s: The current time.
            done: The job's memory is on the device; else the job is stuck until its process ends.
        """
        self._clock(now_s)
        resident = self._ordered(order, MemoryPlace.COMING)
        if resident is None:
            return ()
        changes: list[Change] = []
        if done:
            settled(resident, self._now_s)
            self._larger.note(resident)
        else:
            resident.memory, resident.order, resident.asked_s = MemoryPlace.STUCK, 0, None
        self._settle(changes)
        return tuple(changes)

    def look(self, now_s: float) -> Changes:
        """Changes by time alone: suspensions of idle residents for the first queued job.

        Args:
            now_s: The current time.
        """
        self._clock(now_s)
        changes: list[Change] = []
        if self.queue:
            self._settle(changes)
        return tuple(changes)

    def orders_again(self) -> tuple[Order, ...]:
        """The orders pending when the last process of the table ended, under new numbers."""
        return self.away.again(self.memory.residents.values())

    def record(self) -> TableRecord:
        """The state to keep for `restored`; requests are not part of it."""
        return TableRecord(
            lanes=tuple(recorded(lane) for lane in self.memory.lanes.values()),
            queue=tuple(
                demand.demand for name, demand in self.queue.items() if name not in self.away.jobs
            ),
            away=tuple(recorded_resident(resident) for resident in self.away.jobs.values()),
            next_lane=self.memory.next_lane,
            arrivals=self._admission.arrivals,
            leases=self._turns.leases,
        )

    def running(self) -> RunningRecord:
        """The leases to keep beside an earlier record, while `shape` is the same."""
        residents = self.memory.residents.values()
        return RunningRecord(
            held=tuple(resident.lease for resident in residents if resident.lease is not None),
            leases=self._turns.leases,
        )

    @property
    def shape(self) -> Shape:
        """The part of the record that a step does not change."""
        queue = (demand for name, demand in self.queue.items() if name not in self.away.jobs)
        return shape_of(self.memory.lanes.values(), queue, self.away.jobs.values())

    @classmethod
    def restored(cls, settings: LaneSettings, record: TableRecord, now_s: float) -> Self:
        """Restore a table: the same lanes, and leases stay with their jobs.

        Jobs must repeat their requests; jobs that are gone must leave. A queued job that no longer
        fits the device is left out, and refused when it arrives again.

        Args:
            settings: May differ from the previous ones.
            record: Result of `record`.
            now_s: The current time, on the same clock.

        Raises:
            UnsafeLanes: the recorded state does not fit the device.
            ValueError: the record contradicts itself.
        """
        table = cls(settings=settings)
        table._clock(now_s)
        memory = table.memory
        rebuild(record, memory, table.away)
        for resident in memory.residents.values():
            table._larger.note(resident)
        held = [
            resident.lease.lease
            for resident in memory.residents.values()
            if resident.lease is not None
        ]
        known = (*memory.residents.values(), *table.away.jobs.values())
        numbers = [resident.number for resident in known]
        table._turns.leases = max((record.leases, *held))
        table._admission.arrivals = max((record.arrivals - len(record.queue), *numbers))
        memory.check()
        for demand in record.queue:
            resident = table._admission.newcomer(demand, settings.margins, table._now_s)
            if not table.knows(demand.name) and resident.whole_mib <= memory.usable_mib:
                table._admission.add(resident)
        return table

    def overdue(self, now_s: float) -> tuple[LaneLease, ...]:
        """Leases past their deadline; they stay with their jobs."""
        self._clock(now_s)
        return tuple(
            resident.lease
            for resident in self.memory.residents.values()
            if resident.lease is not None and resident.lease.deadline_s < self._now_s
        )

    def place(self, job: str) -> Queued:
        """Position of a queued job.

        Raises:
            KeyError: it is not queued.
        """
        return self._admission.place(job)

    def knows(self, job: str) -> bool:
        """True if a job of this name is resident or queued."""
        return job in self.memory.residents or job in self.queue or job in self.away.jobs

    def _acquire_away(
        self, resident: LaneResident, ephemeral_mib: int | None
    ) -> tuple[Turn, Changes]:
        """Queue a requesting suspended job for its memory, then for its lane."""
        if ephemeral_mib is not None:
            self._needs(resident, ephemeral_mib)
        self._turns.ask_away(resident, self._now_s)
        self._admission.enqueue(resident, self._now_s)
        changes: list[Change] = []
        self._settle(changes)
        return Waits(job=resident.name, lane=resident.lane, others=len(self.queue)), tuple(changes)

    def _ordered(self, order: int, memory: MemoryPlace) -> LaneResident | None:
        for resident in self.memory.residents.values():
            if resident.memory is memory and resident.order == order:
                return resident
        return None

    def _clock(self, now_s: float) -> None:
        if not math.isfinite(now_s):
            raise ValueError("the present is a number of seconds")
        self._now_s = max(self._now_s, now_s)

    def _refused(self, job: str, reason: TableRefusal, needs_mib: int = 0) -> JobRefused:
        usable = self.memory.usable_mib
        return JobRefused(job=job, reason=reason, needs_mib=needs_mib, usable_mib=usable)

    def _lane_of(self, resident: LaneResident) -> LaneState:
        return self.memory.lanes[resident.lane]

    def _holder(self, lease: int) -> LaneResident | None:
        for resident in self.memory.residents.values():
            if resident.lease is not None and resident.lease.lease == lease:
                return resident
        return None

    def _ask(self, resident: LaneResident) -> None:
        self._turns.ask(resident, self._lane_of(resident), self.settings, self._now_s)

    def _needs(self, resident: LaneResident, ephemeral_mib: int) -> None:
        needs = mib(ephemeral_mib, "ephemeral memory")
        self._larger.need(resident, needs, self.settings.margins)

    def _settle(self, changes: list[Change]) -> None:
        """Apply changes at a boundary: sizes, larger steps, newcomers, merges, splits, grants."""
        memory, settings, now_s = self.memory, self.settings, self._now_s
        for lane in list(memory.lanes.values()):
            memory.resize(lane, changes)
        grown = self._larger.grow(settings.margins, now_s, changes)
        if grown and self._admission.admit(now_s, changes):
            memory.part(changes)
        for resident in self._admission.make_room(settings, now_s, changes):
            self._larger.note(resident)
        for lane in memory.lanes.values():
            granted = self._turns.grant(lane, settings, now_s)
            if granted is not None:
                changes.append(granted)
        memory.check()
