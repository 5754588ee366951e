# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The lane table of one device: who is resident, who waits, who may launch now."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Self

from ullage.engines.lanes.away import Away, settled
from ullage.engines.lanes.memory import DeviceMemory, need_of
from ullage.engines.lanes.policies import chosen
from ullage.engines.lanes.recorded import (
    RunningRecord,
    Shape,
    TableRecord,
    rebuilt,
    rebuilt_resident,
    recorded,
    recorded_resident,
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
    Order,
    Queued,
    Refusal,
    Refused,
    Turn,
    Waits,
    mib,
)
from ullage.engines.lanes.rules import missing_mib
from ullage.engines.lanes.settings import LaneSettings
from ullage.engines.lanes.state import Lane, Memory, Resident
from ullage.engines.lanes.suspension import Moment, leavers

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
    away: Away = field(init=False, default_factory=Away)
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
        elif (self.queue.pop(job, None) or self.away.jobs.get(job)) is None:
            return ()
        self.away.jobs.pop(job, None)
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
        if job in self.away.jobs:
            return self._acquire_away(self.away.jobs[job], ephemeral_mib)
        resident = self.memory.residents.get(job)
        if resident is None:
            return self._refused(job, Refusal.UNKNOWN), ()
        if resident.memory is Memory.STUCK:
            return self._refused(job, Refusal.STUCK), ()
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
        resident = self.memory.residents.get(job) or self.away.jobs.get(job)
        if resident is not None:
            resident.waited_s = resident.wait_s(self._now_s)
            resident.asked_s, resident.quiet_s = None, self._now_s
        if job in self.away.jobs:
            self.queue.pop(job, None)

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
        resident.lease, resident.quiet_s = None, self._now_s
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

    def recall(self, job: str, now_s: float) -> Changes:
        """A suspended job wants its memory back, and says later what for.

        Args:
            job: Its name; of one that is not suspended nothing changes.
            now_s: The present.
        """
        self._clock(now_s)
        resident = self.away.jobs.get(job)
        changes: list[Change] = []
        if resident is not None:
            self._enqueue(resident)
            self._settle(changes)
        return tuple(changes)

    def has_left(self, order: int, now_s: float, *, done: bool, holds_mib: int = 0) -> Changes:
        """The outcome of `records.Suspend`; of an order that counts no longer nothing changes.

        Args:
            order: Its number.
            now_s: The present.
            done: Nothing of the job is on the device; else all of it is, and it is spared a while.
            holds_mib: What it kept between steps, MiB, where that is more than declared.

        Raises:
            ValueError: the amount is out of range.
        """
        self._clock(now_s)
        mib(holds_mib, "what a job keeps")
        resident = self._ordered(order, Memory.LEAVING)
        if resident is None:
            return ()
        changes: list[Change] = []
        if done:
            self.memory.dismiss(resident, changes)
            self.away.left(resident, holds_mib)
            if resident.asked_s is not None:
                self._enqueue(resident)
        else:
            resident.memory, resident.order = Memory.HERE, 0
            resident.spared_until_s = self._now_s + self.settings.spare_s
            self._outgrows(resident)
        self._settle(changes)
        return tuple(changes)

    def is_back(self, order: int, now_s: float, *, done: bool) -> Changes:
        """The outcome of `records.Resume`; of an order that counts no longer nothing changes.

        Args:
            order: Its number.
            now_s: The present.
            done: The job's memory is on the device; else the job is stuck until its process ends.
        """
        self._clock(now_s)
        resident = self._ordered(order, Memory.COMING)
        if resident is None:
            return ()
        changes: list[Change] = []
        if done:
            settled(resident, self._now_s)
            self._outgrows(resident)
        else:
            resident.memory, resident.order, resident.asked_s = Memory.STUCK, 0, None
        self._settle(changes)
        return tuple(changes)

    def look(self, now_s: float) -> Changes:
        """What time alone changes: idle residents make room for the first job of the queue.

        Args:
            now_s: The present.
        """
        self._clock(now_s)
        changes: list[Change] = []
        if self.queue:
            self._settle(changes)
        return tuple(changes)

    def orders_again(self) -> tuple[Order, ...]:
        """The orders under way when the last keeper of the table ended, under new numbers."""
        return self.away.again(self.memory.residents.values())

    def record(self) -> TableRecord:
        """The state to keep for `restored`; who asks is not part of it."""
        return TableRecord(
            lanes=tuple(recorded(one) for one in self.memory.lanes.values()),
            queue=tuple(
                one.demand for name, one in self.queue.items() if name not in self.away.jobs
            ),
            away=tuple(recorded_resident(one) for one in self.away.jobs.values()),
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
        queue = (one for name, one in self.queue.items() if name not in self.away.jobs)
        return shape_of(self.memory.lanes.values(), queue, self.away.jobs.values())

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
        for one in map(rebuilt_resident, record.away):
            if table.knows(one.name) or one.memory is not Memory.AWAY or one.lease is not None:
                raise ValueError(f"{one.name!r} is recorded as away and is not")
            table.away.jobs[one.name] = one
        for one in memory.residents.values():
            table._outgrows(one)
        memory.next_lane = max((record.next_lane, *(one + 1 for one in memory.lanes)))
        held = [one.lease.lease for one in memory.residents.values() if one.lease is not None]
        known = (*memory.residents.values(), *table.away.jobs.values())
        numbers = [one.number for one in known]
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
        return job in self.memory.residents or job in self.queue or job in self.away.jobs

    def _acquire_away(self, resident: Resident, ephemeral_mib: int | None) -> tuple[Turn, Changes]:
        """A suspended job asks: it waits in the queue for its memory, then for its lane."""
        if ephemeral_mib is not None:
            self._need_more(resident, mib(ephemeral_mib, "ephemeral memory"))
        if resident.asked_s is None:
            self._asks += 1
            resident.asked, resident.asked_s = self._asks, self._now_s
        self._enqueue(resident)
        changes: list[Change] = []
        self._settle(changes)
        return Waits(job=resident.name, lane=resident.lane, others=len(self.queue)), tuple(changes)

    def _enqueue(self, resident: Resident) -> None:
        if resident.name not in self.queue:
            resident.queued_s = self._now_s
            self.queue[resident.name] = resident

    def _ordered(self, order: int, memory: Memory) -> Resident | None:
        for one in self.memory.residents.values():
            if one.memory is memory and one.order == order:
                return one
        return None

    def _outgrows(self, resident: Resident) -> None:
        """Note whether a step needs more than its job has, of jobs whose memory is here."""
        if resident.needs_mib and resident.memory is Memory.HERE:
            self._outgrown.add(resident.name)
        else:
            self._outgrown.discard(resident.name)

    def _newcomer(self, demand: JobDemand) -> Resident:
        margins = self.settings.margins
        return Resident(
            demand=demand,
            persistent_mib=margins.persistent_mib(demand.persistent_mib),
            ephemeral_mib=margins.ephemeral_mib(demand.persistent_mib, demand.ephemeral_mib),
            number=self._arrivals + 1,
            since_s=self._now_s,
            queued_s=self._now_s,
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
            self._outgrows(resident)

    def _settle(self, changes: list[Change]) -> None:
        """What a boundary permits: sizes, larger steps, newcomers, merges, splits, grants."""
        for lane in list(self.memory.lanes.values()):
            self.memory.resize(lane, changes)
        if self._grow(changes) and self._admit(changes):
            self.memory.part(changes)
        self._make_room(changes)
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
            if first.memory is Memory.AWAY:
                changes.append(self.away.resume(first))
                continue
            first.since_s = self._now_s
            settled(first, self._now_s)
            changes.append(assigned)
        return True

    def _make_room(self, changes: list[Change]) -> None:
        """Residents leave for the first job of the queue; those in a step when it has ended."""
        for one in self.memory.residents.values():
            one.leaves = False
        if not self.queue:
            return
        first = next(iter(self.queue.values()))
        moment = Moment(now_s=self._now_s, waits_since_s=first.queued_s)
        memory = self.memory
        for one in leavers(
            need_of(first), memory.lanes.values(), memory.usable_mib, self.settings, moment
        ):
            if one.lease is not None:
                one.leaves = True
                continue
            changes.append(self.away.suspend(one))
            self._outgrows(one)

    def _grant(self, lane: Lane, changes: list[Change]) -> None:
        """The next step of a lane that nobody runs in, as the policy says."""
        if lane.holder is not None or (lane.draining and not self.settings.early_release):
            return
        able = [
            one
            for one in lane.residents.values()
            if one.may_run and not one.needs_mib and one.ephemeral_mib <= lane.size_mib
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
        resident.asked_s, resident.served = None, True
        lane.holder = resident.name
        lane.clock_s = max(lane.clock_s, resident.level_s)
        lane.clock_steps = max(lane.clock_steps, resident.level_steps)
        changes.append(Granted(lease=resident.lease, size_mib=lane.size_mib, epoch=lane.epoch))
