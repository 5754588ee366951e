# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The lane table of one device: who is resident, who waits, who may launch now."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Self

from ullage.engines.lanes.memory import DeviceMemory, need_of
from ullage.engines.lanes.policies import chosen
from ullage.engines.lanes.recorded import (
    RunningRecord,
    Shape,
    TableRecord,
    rebuilt,
    recorded,
    shape_of,
)
from ullage.engines.lanes.records import (
    Answer,
    Change,
    Changes,
    Enlarged,
    Exceeded,
    Granted,
    JobDemand,
    Joined,
    Lease,
    Opened,
    Queued,
    Refusal,
    Refused,
    Turn,
    Waits,
    mib,
)
from ullage.engines.lanes.rules import missing_mib
from ullage.engines.lanes.settings import LaneSettings
from ullage.engines.lanes.state import Lane, Resident

SMOOTHING = 0.2
"""Weight of the newest step in the expected step of a job."""


@dataclass(slots=True, kw_only=True)
class LaneTable:
    """One device's lanes; one caller at a time. Times never go back: an earlier one is the last.

    Every operation ends with `safety.check`, so an unsafe state is an error and never a grant.
    """

    settings: LaneSettings
    memory: DeviceMemory = field(init=False)
    queue: OrderedDict[str, Resident] = field(init=False, default_factory=OrderedDict)
    _now_s: float = field(init=False, default=-math.inf)
    _arrivals: int = field(init=False, default=0)
    _asks: int = field(init=False, default=0)
    _leases: int = field(init=False, default=0)
    _outgrown: set[str] = field(init=False, default_factory=set)
    """Residents whose next step needs more than they have."""

    def __post_init__(self) -> None:
        self.memory = DeviceMemory(usable_mib=self.settings.usable_mib, aim=self.settings.aim)

    def arrive(self, demand: JobDemand, now_s: float) -> tuple[Answer, Changes]:
        """A job wants to be resident; one that is queued is assigned in a later change.

        Args:
            demand: What it declares.
            now_s: The present.
        """
        self._clock(now_s)
        resident = self._newcomer(demand)
        whole = resident.whole_mib
        if self.knows(demand.name):
            return self._refused(demand.name, Refusal.KNOWN), ()
        if whole > self.memory.usable_mib:
            return self._refused(demand.name, Refusal.EXCEEDS_DEVICE, whole), ()
        if len(self.queue) >= max(1, self.settings.most_queued):
            return self._refused(demand.name, Refusal.QUEUE_FULL, whole), ()
        self._arrivals += 1
        self.queue[demand.name] = resident
        changes: list[Change] = []
        self._settle(changes)
        answer: Answer | None = None
        for one in changes:
            if isinstance(one, Opened | Joined | Enlarged) and one.job == demand.name:
                answer = one
        rest = tuple(one for one in changes if one is not answer)
        return answer or self.place(demand.name), rest

    def leave(self, job: str, now_s: float) -> Changes:
        """A job's process is gone, or it waits no longer; of one that is unknown nothing changes.

        Args:
            job: Its name.
            now_s: The present.
        """
        self._clock(now_s)
        changes: list[Change] = []
        resident = self.memory.residents.get(job)
        if resident is not None:
            self.memory.dismiss(resident, changes)
            self._outgrown.discard(job)
        elif self.queue.pop(job, None) is None:
            return ()
        self._settle(changes)
        return tuple(changes)

    def acquire(
        self, job: str, now_s: float, ephemeral_mib: int | None = None
    ) -> tuple[Turn, Changes]:
        """A job asks for its next step; one that waits is granted in a later change.

        Args:
            job: Its name.
            now_s: The present.
            ephemeral_mib: What the step needs, MiB, where it is more than declared.
        """
        self._clock(now_s)
        resident = self.memory.residents.get(job)
        if resident is None:
            return self._refused(job, Refusal.UNKNOWN), ()
        if resident.lease is not None:
            return self._refused(job, Refusal.HOLDS_LEASE), ()
        if ephemeral_mib is not None:
            self._need_more(resident, mib(ephemeral_mib, "ephemeral memory"))
        self._ask(resident)
        changes: list[Change] = []
        self._settle(changes)
        for one in changes:
            if isinstance(one, Granted | Refused) and one.job == job:
                return one, tuple(each for each in changes if each is not one)
        others = sum(one.asked_s is not None for one in self._lane_of(resident).residents.values())
        return Waits(job=job, lane=resident.lane, others=others - 1), tuple(changes)

    def withdraw(self, job: str, now_s: float) -> None:
        """A job asks no longer; a lease stays with it.

        Args:
            job: Its name.
            now_s: The present.
        """
        self._clock(now_s)
        resident = self.memory.residents.get(job)
        if resident is not None:
            resident.waited_s = resident.wait_s(self._now_s)
            resident.asked_s = None

    def release(
        self,
        lease: int,
        now_s: float,
        peak_mib: int = 0,
        *,
        slowdown: float = 1.0,
        again: bool = False,
    ) -> Changes:
        """A step ended and its memory is given back; of an unknown lease nothing changes.

        A peak above what was declared is the job's new demand.

        Args:
            lease: As granted.
            now_s: The present.
            peak_mib: What the step took of the lane at most, MiB.
            slowdown: How much slower steps are by the other lanes, where it is known.
            again: Whether the job asks for its next step at once. Without it a job that does
                nothing but steps comes after those that asked meanwhile, whatever the policy.

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
            self._end_step(resident, slowdown)
            lane.holder = None
        lane.draining.discard(resident.name)
        resident.lease = None
        changes: list[Change] = []
        self._learn_peak(resident, peak_mib, changes)
        if again:
            self._ask(resident)
        self._settle(changes)
        return tuple(changes)

    def release_early(self, lease: int, now_s: float, *, slowdown: float = 1.0) -> Changes:
        """A step gives its memory back and ends soon; the next one may start. `release` follows.

        Args:
            lease: As granted.
            now_s: The present.
            slowdown: As for `release`.

        Raises:
            ValueError: the setting does not permit it.
        """
        self._clock(now_s)
        if not self.settings.early_release:
            raise ValueError("lanes are released early only where the setting permits it")
        resident = self._holder(lease)
        if resident is None or self._lane_of(resident).holder != resident.name:
            return ()
        lane = self._lane_of(resident)
        self._end_step(resident, slowdown)
        lane.holder = None
        lane.draining.add(resident.name)
        changes: list[Change] = []
        self._settle(changes)
        return tuple(changes)

    def record(self) -> TableRecord:
        """The state to keep for `restored`; who asks is not part of it."""
        return TableRecord(
            lanes=tuple(recorded(one) for one in self.memory.lanes.values()),
            queue=tuple(one.demand for one in self.queue.values()),
            next_lane=self.memory.next_lane,
            arrivals=self._arrivals,
            leases=self._leases,
        )

    def running(self) -> RunningRecord:
        """The leases to keep beside an earlier record, while `shape` is the same."""
        lanes, residents = self.memory.lanes.values(), self.memory.residents.values()
        return RunningRecord(
            held=tuple(one.lease for one in residents if one.lease is not None),
            draining=tuple(name for lane in lanes for name in lane.draining),
            leases=self._leases,
        )

    @property
    def shape(self) -> Shape:
        """What of the record a step does not change."""
        return shape_of(self.memory.lanes.values(), self.queue.values())

    @classmethod
    def restored(cls, settings: LaneSettings, record: TableRecord, now_s: float) -> Self:
        """The table goes on where it was: the same lanes, and leases stay with their jobs.

        Jobs that ask must ask again; those that are gone must leave. A queued job that the device
        can no longer hold is left out, and refused when it arrives again.

        Args:
            settings: May differ from what they were.
            record: What `record` gave.
            now_s: The present, on the same clock.

        Raises:
            UnsafeLanes: what is recorded does not fit the device.
            ValueError: the record contradicts itself.
        """
        table = cls(settings=settings)
        table._clock(now_s)
        memory = table.memory
        for lane in map(rebuilt, record.lanes):
            if lane.lane in memory.lanes or memory.residents.keys() & lane.residents.keys():
                raise ValueError(f"lane {lane.lane} or a job of it is recorded twice")
            memory.lanes[lane.lane] = lane
            memory.residents.update(lane.residents)
        table._outgrown = {name for name, one in memory.residents.items() if one.needs_mib}
        memory.next_lane = max((record.next_lane, *(one + 1 for one in memory.lanes)))
        held = [one.lease.lease for one in memory.residents.values() if one.lease is not None]
        numbers = [one.number for one in memory.residents.values()]
        table._leases = max((record.leases, *held))
        table._arrivals = max((record.arrivals - len(record.queue), *numbers))
        memory.check()
        for demand in record.queue:
            resident = table._newcomer(demand)
            if not table.knows(demand.name) and resident.whole_mib <= memory.usable_mib:
                table._arrivals += 1
                table.queue[demand.name] = resident
        return table

    def overdue(self, now_s: float) -> tuple[Lease, ...]:
        """Leases past their deadline; they stay with their jobs."""
        self._clock(now_s)
        return tuple(
            one.lease
            for one in self.memory.residents.values()
            if one.lease is not None and one.lease.deadline_s < self._now_s
        )

    def place(self, job: str) -> Queued:
        """Where a queued job stands.

        Raises:
            KeyError: it is not queued.
        """
        need = need_of(self.queue[job])
        missing = missing_mib(need, self.memory.sizes(), self.memory.free_mib)
        place = list(self.queue).index(job) + 1
        return Queued(job=job, place=place, waiting=len(self.queue), missing_mib=missing)

    def knows(self, job: str) -> bool:
        """Whether a job of this name is resident or queued."""
        return job in self.memory.residents or job in self.queue

    def _newcomer(self, demand: JobDemand) -> Resident:
        margins = self.settings.margins
        return Resident(
            demand=demand,
            persistent_mib=margins.persistent_mib(demand.persistent_mib),
            ephemeral_mib=margins.ephemeral_mib(demand.persistent_mib, demand.ephemeral_mib),
            number=self._arrivals + 1,
            since_s=self._now_s,
            step_s=demand.step_s,
        )

    def _clock(self, now_s: float) -> None:
        if not math.isfinite(now_s):
            raise ValueError("the present is a number of seconds")
        self._now_s = max(self._now_s, now_s)

    def _refused(self, job: str, reason: Refusal, needs_mib: int = 0) -> Refused:
        usable = self.memory.usable_mib
        return Refused(job=job, reason=reason, needs_mib=needs_mib, usable_mib=usable)

    def _lane_of(self, resident: Resident) -> Lane:
        return self.memory.lanes[resident.lane]

    def _holder(self, lease: int) -> Resident | None:
        for one in self.memory.residents.values():
            if one.lease is not None and one.lease.lease == lease:
                return one
        return None

    def _ask(self, resident: Resident) -> None:
        """The job waits from now on; what it may catch up is bounded."""
        if resident.asked_s is not None:
            return
        lane, settings = self._lane_of(resident), self.settings
        self._asks += 1
        resident.asked, resident.asked_s = self._asks, self._now_s
        resident.level_s = max(resident.level_s, lane.clock_s - settings.credit_s)
        least = lane.clock_steps - settings.credit_steps
        resident.level_steps = max(resident.level_steps, least)

    def _end_step(self, resident: Resident, slowdown: float) -> None:
        """Count the step by our own clock; what the client says of its time could be wrong."""
        assert resident.lease is not None
        took_s = self._now_s - resident.lease.granted_s
        resident.steps += 1
        resident.level_steps += 1
        resident.ran_s += took_s / slowdown
        resident.level_s += took_s / slowdown
        known = resident.step_s
        resident.step_s = took_s if known is None else known + SMOOTHING * (took_s - known)

    def _learn_peak(self, resident: Resident, peak_mib: int, changes: list[Change]) -> None:
        resident.peak_mib = max(resident.peak_mib, peak_mib)
        if peak_mib > resident.ephemeral_mib:
            declared = resident.demand.ephemeral_mib
            name = resident.name
            changes.append(Exceeded(job=name, peak_mib=peak_mib, declared_mib=declared))
            self._need_more(resident, peak_mib)

    def _need_more(self, resident: Resident, ephemeral_mib: int) -> None:
        persistent = resident.demand.persistent_mib
        wanted = self.settings.margins.ephemeral_mib(persistent, ephemeral_mib)
        if wanted > resident.ephemeral_mib:
            resident.needs_mib = max(resident.needs_mib, wanted)
            self._outgrown.add(resident.name)

    def _settle(self, changes: list[Change]) -> None:
        """What a boundary permits: sizes, larger steps, newcomers, merges, splits, grants."""
        for lane in list(self.memory.lanes.values()):
            self.memory.resize(lane, changes)
        if self._grow(changes) and self._admit(changes):
            self.memory.part(changes)
        for lane in self.memory.lanes.values():
            self._grant(lane, changes)
        self.memory.check()

    def _grow(self, changes: list[Change]) -> bool:
        """Larger steps go before newcomers; whether none waits for lanes to merge."""
        done = True
        for one in [self.memory.residents[name] for name in sorted(self._outgrown)]:
            if one.lease is not None or one.asked_s is None:
                continue
            grown = self.memory.grow(one, one.needs_mib, changes)
            if grown:
                self._has_what_it_needs(one)
            elif grown is None:
                done = False
            else:
                needs = one.persistent_mib + one.needs_mib
                changes.append(self._refused(one.name, Refusal.CANNOT_GROW, needs))
                self.withdraw(one.name, self._now_s)
                self._has_what_it_needs(one)
                if one.peak_mib > one.ephemeral_mib:
                    self._need_more(one, one.peak_mib)
        return done

    def _has_what_it_needs(self, resident: Resident) -> None:
        resident.needs_mib = 0
        self._outgrown.discard(resident.name)

    def _admit(self, changes: list[Change]) -> bool:
        """Newcomers in their order, as long as the first one fits; whether none waits."""
        while self.queue:
            first = next(iter(self.queue.values()))
            assigned = self.memory.admit(first, changes)
            if assigned is None:
                return False
            del self.queue[first.name]
            first.since_s = self._now_s
            changes.append(assigned)
        return True

    def _grant(self, lane: Lane, changes: list[Change]) -> None:
        """The next step of a lane that nobody runs in, as the policy says."""
        if lane.holder is not None or (lane.draining and not self.settings.early_release):
            return
        able = [
            one
            for one in lane.residents.values()
            if not one.needs_mib and one.ephemeral_mib <= lane.size_mib
        ]
        resident = chosen(able, self.settings, self._now_s)
        if resident is None:
            return
        self._leases += 1
        known = self.settings.first_step_s if resident.step_s is None else resident.step_s
        resident.lease = Lease(
            lease=self._leases,
            job=resident.name,
            lane=lane.lane,
            granted_s=self._now_s,
            deadline_s=self._now_s + self.settings.deadline_factor * known,
        )
        resident.waited_s = resident.wait_s(self._now_s)
        resident.asked_s = None
        lane.holder = resident.name
        lane.clock_s = max(lane.clock_s, resident.level_s)
        lane.clock_steps = max(lane.clock_steps, resident.level_steps)
        changes.append(Granted(lease=resident.lease, size_mib=lane.size_mib, epoch=lane.epoch))
