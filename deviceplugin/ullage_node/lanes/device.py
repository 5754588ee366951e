# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The lanes of one device as its programs see them: what each message changes, who is told what.

No sockets and no clock. A job is one container. One that shares no lane has its memory in a lane of
its own from the moment the slice is held, because it uses it without a word to us. One that asked
for a lane promised to greet (``Hello``) before it uses the device; it leaves when its process is
gone, not when its connection ends.

A job that ended a step is expected back for ``PATIENCE_S`` where it came back as quickly before:
else a job that does nothing but steps would come after all that asked meanwhile. A grant that
no program heard of ends with that time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from ullage.api import lanes as wire
from ullage.api.contract import MAX_LANE, ObservedLane
from ullage.api.lanes import LaneRefusal, Message
from ullage.engines.lanes import records
from ullage.engines.lanes.explain import wait_fraction
from ullage.engines.lanes.recorded import TableRecord
from ullage.engines.lanes.records import JobDemand, Lease, Order, Suspend
from ullage.engines.lanes.settings import EXACT, IterationPolicy, LaneSettings
from ullage.engines.lanes.state import Memory
from ullage.engines.lanes.table import LaneTable
from ullage_node.model.lanes import LaneReading

PATIENCE_S: Final = 0.005
"""How long a lane waits for the job whose turn it is; a loop over batches is back sooner."""
STALL_LEAST_S: Final = 1.0
"""No step is called stalled before."""
REPORTS_MOST: Final = 64
TURNS_MOST: Final = 1024
SESSION_MOST: Final = 64
STUCK_TEXT: Final = "it was suspended and could not be resumed; restart the container"


class Fault(StrEnum):
    """What the owner of a pod is told of its steps; reasons of Events."""

    EXCEEDED = "MemoryContractExceeded"
    STALLED = "LaneStalled"
    QUEUED = "LaneQueued"
    RESIZED = "LaneResized"
    SUSPENDED = "LaneSuspended"
    RESUMED = "LaneResumed"
    SUSPEND_FAILED = "SuspendFailed"
    RESTORE_REFUSED = "RestoreRefused"
    RESTORE_FAILED = "RestoreFailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Something that the owner of a job should know."""

    job: str
    fault: Fault
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """When programs are suspended for others that wait, seconds.

    Those that did nothing for ``idle_s``; once another one has waited for ``busy_s``, those that
    work as well; none that came less than ``least_resident_s`` ago.
    """

    idle_s: float = 5.0
    busy_s: float = 60.0
    least_resident_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A grant, seconds.

    ``switch_s`` is how long the lane stood still before it although the program waited; ``None``
    where it did not wait when the last step ended.
    """

    waited_s: float
    switch_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A container that holds part of the device.

    ``persistent_mib`` and ``ephemeral_mib`` are what its owner asked for, 0 where the container
    shares no lane; ``memory_mib`` is all it may have. ``lane`` is the one that it was assigned, 0
    where the table chooses. ``steps`` are those of the whole work, 0 where it does not say.
    ``suspendable`` = it may be suspended between steps, for memory that another one needs.
    ``context_mib`` is what its context takes of the device beside its memory.
    """

    job: str
    memory_mib: int
    persistent_mib: int = 0
    ephemeral_mib: int = 0
    lane: int = 0
    steps: int = 0
    suspendable: bool = False
    context_mib: int = 0

    @property
    def shares(self) -> bool:
        """Whether it may greet."""
        return self.ephemeral_mib > 0

    def beside(self, known: Member) -> Member:
        """This one, with what counts from the start of its container on as it was known then."""
        return replace(self, context_mib=known.context_mib, suspendable=known.suspendable)


@dataclass(slots=True, kw_only=True)
class _Job:
    member: Member
    session: str = ""
    """Of the process that greeted; "" = none did."""
    connected: bool = False
    caches: bool = False
    asks: bool = False
    """It waits for the answer to ``Acquire``."""
    asked_s: float = 0.0
    lease: Lease | None = None
    """The grant that it was told."""
    reserved: Lease | None = None
    """A grant that it was not told yet."""
    kept: bool = False
    """Its step has ended, and the memory of it was not given back."""
    ended_s: float = 0.0
    quick: bool = False
    """It came back within ``PATIENCE_S`` the last time."""
    stalled: int = 0
    """Lease that was reported."""
    persistent_peak_mib: int = 0
    ephemeral_peak_mib: int = 0
    """What it reported at most; no more than the device has."""
    pids: tuple[int, ...] = ()
    """Its processes that held memory when it was suspended, by the host's numbers."""


Send = Callable[[str, Message], None]


@dataclass(slots=True, kw_only=True)
class DeviceLanes:
    """Lanes of one device; one caller at a time, which hands what ``send`` gets to the programs.

    ``enforce`` = the device counts memory and does not limit it: a step beyond its lane fails here,
    as it would for want of memory on a device that does.
    """

    capacity_mib: int
    send: Send
    lives: Callable[[str], bool] = lambda _: False
    """Whether the process of a job, by all that is known, still lives."""
    policy: IterationPolicy = IterationPolicy.FAIR
    enforce: bool = False
    idle: Idle = Idle()
    table: LaneTable = field(init=False)
    jobs: dict[str, _Job] = field(init=False, default_factory=dict)
    reports: deque[Report] = field(init=False, default_factory=lambda: deque(maxlen=REPORTS_MOST))
    orders: deque[Order] = field(init=False, default_factory=deque)
    """What is to be suspended and resumed; :meth:`carried_out` takes the outcome."""
    turns: deque[Turn] = field(init=False, default_factory=lambda: deque(maxlen=TURNS_MOST))
    """Grants that were told, the newest."""
    _ended: dict[int, float] = field(init=False, default_factory=dict)
    """When the last step of each lane ended."""

    def __post_init__(self) -> None:
        self.table = LaneTable(settings=self._settings)

    @property
    def _settings(self) -> LaneSettings:
        return LaneSettings(
            capacity_mib=self.capacity_mib,
            policy=self.policy,
            margins=EXACT,
            idle_s=self.idle.idle_s,
            busy_s=self.idle.busy_s,
            least_resident_s=self.idle.least_resident_s,
        )

    def order_by(self, policy: IterationPolicy) -> None:
        """From now on turns follow another policy; steps that run end as they are.

        Args:
            policy: Whose step is next.
        """
        if policy is not self.policy:
            self.policy = policy
            self.table.settings = self._settings

    # -- across a restart ------------------------------------------------------------------------

    @property
    def sessions(self) -> dict[str, str]:
        """Processes that greeted, by job."""
        return {job: one.session for job, one in self.jobs.items() if one.session}

    @property
    def pids(self) -> dict[str, tuple[int, ...]]:
        """Processes of those that were suspended, by job."""
        return {job: one.pids for job, one in self.jobs.items() if one.pids}

    @property
    def members(self) -> tuple[Member, ...]:
        """Who holds part of the device."""
        return tuple(one.member for one in self.jobs.values())

    def restore(
        self,
        record: TableRecord,
        members: Sequence[Member],
        sessions: Mapping[str, str],
        now: float,
    ) -> None:
        """Go on with the lanes and leases of an earlier agent.

        Args:
            record: Its table.
            members: Its members.
            sessions: Its processes; each greets again, or is gone.
            now: The present on the same clock, seconds.

        Raises:
            ValueError, UnsafeLanes: the record contradicts itself or the device; nothing changed.
        """
        table = LaneTable.restored(self._settings, record, now)
        jobs = {one.job: _Job(member=one, session=sessions.get(one.job, "")) for one in members}
        for name, resident in table.memory.residents.items():
            if name not in jobs:
                raise ValueError(f"{name!r} is resident and no member")
            jobs[name].lease = resident.lease if jobs[name].session else None
        for name in table.away.jobs:
            if name not in jobs:
                raise ValueError(f"{name!r} is suspended and no member")
        self.table, self.jobs = table, jobs
        self.orders.extend(table.orders_again())

    # -- who is on the device --------------------------------------------------------------------

    def hold(self, member: Member, now: float) -> None:
        """A container may use the device from now on, whether or not it speaks to us.

        Args:
            member: What it may have.
            now: The present, seconds.
        """
        known = self.jobs.get(member.job)
        if known is not None and known.member == member.beside(known.member):
            return
        changes = self.table.leave(member.job, now)
        self.jobs[member.job] = _Job(member=member)
        self._tell(changes, now)
        if not member.shares:
            self._alone(member, now)

    def drop(self, job: str, now: float) -> None:
        """A container holds nothing of the device any more.

        Args:
            job: Its name.
            now: The present, seconds.
        """
        self.jobs.pop(job, None)
        self._tell(self.table.leave(job, now), now)

    def gone(self, job: str, now: float) -> None:
        """The process of a job has ended, and its memory with it; the container may start another.

        Args:
            job: Its name.
            now: The present, seconds.
        """
        known = self.jobs.get(job)
        if known is None or not known.session:
            return
        self.jobs[job] = _Job(member=known.member)
        self._tell(self.table.leave(job, now), now)

    def _alone(self, member: Member, now: float) -> None:
        """A lane of its own, held for good."""
        demand = JobDemand(
            name=member.job,
            persistent_mib=member.context_mib,
            ephemeral_mib=member.memory_mib,
            own_lane=True,
        )
        _, changes = self.table.arrive(demand, now)
        self._tell(changes, now)
        self._tell(self.table.acquire(member.job, now)[1], now)

    # -- what a program says ---------------------------------------------------------------------

    def hear(self, job: str, message: Message, now: float) -> None:
        """A program's message.

        Args:
            job: Whose socket it came by.
            message: As read.
            now: The present, seconds.
        """
        known = self.jobs.get(job)
        if known is None:
            self._refuse(job, LaneRefusal.NO_HELLO, "the container holds no slice")
        elif isinstance(message, wire.Hello):
            self._hello(known, message, now)
        elif not known.session or (job in self.table.queue and job not in self.table.away.jobs):
            self._refuse(job, LaneRefusal.NO_HELLO, "the job is in no lane yet")
        elif isinstance(message, wire.Acquire):
            self._acquire(known, message, now)
        elif isinstance(message, wire.Release):
            self._release(known, message, now)
        else:
            self._refuse(job, LaneRefusal.UNREADABLE, "only a node says this")

    def closed(self, job: str, now: float) -> None:
        """The connection ended; the process may live, so what it holds stays with it.

        Args:
            job: Whose.
            now: The present, seconds.
        """
        known = self.jobs.get(job)
        if known is None or not known.session:
            return
        known.connected = False
        if known.asks or job in self.table.away.jobs:
            known.asks = False
            self.table.withdraw(job, now)
        if known.reserved is not None:
            self._end_reserved(known, now)

    def _hello(self, known: _Job, message: wire.Hello, now: float) -> None:
        job, member = known.member.job, known.member
        declared = message.persistent_mib + message.ephemeral_mib
        if message.version != wire.LANES_VERSION:
            said = f"this node speaks version {wire.LANES_VERSION}, not {message.version}"
            self._refuse(job, LaneRefusal.VERSION, said)
        elif not member.shares or declared > member.memory_mib:
            said = f"{declared} MiB are more than the {member.memory_mib} MiB of the slice"
            if not member.shares:
                said = "the slice asks for no lane"
            self._refuse(job, LaneRefusal.EXCEEDS_SLICE, said)
        elif member.lane and not _as_assigned(member, message):
            said = (
                f"{message.persistent_mib} MiB beside a step of {message.ephemeral_mib} MiB, lane "
                f"{member.lane} has {member.persistent_mib} and {member.ephemeral_mib} MiB for it"
            )
            self._refuse(job, LaneRefusal.EXCEEDS_SLICE, said)
        elif not message.session or len(message.session) > SESSION_MOST:
            self._refuse(job, LaneRefusal.UNREADABLE, "a session has 1 to 64 characters")
        elif known.session == message.session:
            self._again(known, message, now)
        elif known.session and self.lives(job):
            self._refuse(job, LaneRefusal.BUSY, "another process of the container has the lane")
        else:
            self._first(known, message, now)

    def _first(self, known: _Job, message: wire.Hello, now: float) -> None:
        """A process that we do not know; an earlier one of its container has ended."""
        job = known.member.job
        changes = self.table.leave(job, now)
        self.jobs[job] = known = _Job(
            member=known.member, session=message.session, connected=True, caches=message.caches
        )
        demand = JobDemand(
            name=job,
            persistent_mib=message.persistent_mib + known.member.context_mib,
            ephemeral_mib=message.ephemeral_mib,
            assigned=known.member.lane,
            suspendable=known.member.suspendable,
            total_steps=known.member.steps or None,
        )
        answer, more = self.table.arrive(demand, now)
        if isinstance(answer, records.Refused):
            self.jobs[job] = _Job(member=known.member)
            self._refuse(job, LaneRefusal.QUEUE_FULL, f"{answer.reason.value} on this device")
        elif isinstance(answer, records.Queued):
            self.send(job, _queued(answer))
            text = (
                f"waits for memory of the device: place {answer.place} of {answer.waiting}, "
                f"{max(0, answer.missing_mib)} MiB are missing"
            )
            self.reports.append(Report(job=job, fault=Fault.QUEUED, message=text))
        else:
            self._say_lane(known)
        self._tell((*changes, *more), now)

    def _again(self, known: _Job, message: wire.Hello, now: float) -> None:
        """A process that we know, on a new connection."""
        known.connected, known.caches = True, message.caches
        told = known.lease
        if told is not None and told.lease != message.lease:
            # The process never heard the grant, or ended the step and we did not hear it.
            self._end(known, told, now)
        self._greets_again(known, now)

    def _greets_again(self, known: _Job, now: float) -> None:
        """Answer a process that greets because it wants a step, wherever its memory is.

        What it is told of its lane may make it call the device, which waits while it is suspended.
        """
        job, table = known.member.job, self.table
        if job in table.away.jobs:
            self._tell(table.recall(job, now), now)
        elif job not in table.queue and table.memory.residents[job].memory is Memory.LEAVING:
            self._tell(table.acquire(job, now)[1], now)
        if job in table.queue:
            self.send(job, _queued(table.place(job)))
            return
        memory = table.memory.residents[job].memory
        if memory is Memory.STUCK:
            self._refuse(job, LaneRefusal.STUCK, STUCK_TEXT)
        elif memory is Memory.HERE:
            self._say_lane(known)
        else:
            self.send(job, wire.InQueue(position=1, waiting=1))

    def _acquire(self, known: _Job, message: wire.Acquire, now: float) -> None:
        job, member = known.member.job, known.member
        known.quick = 0 <= now - known.ended_s <= PATIENCE_S
        if known.asks or (known.lease is not None and not known.kept):
            self._refuse(job, LaneRefusal.HOLDS_LEASE, "the last step has not ended")
            return
        away = self.table.away.jobs.get(job)
        resident = away or self.table.memory.residents[job]
        keeps = resident.demand.persistent_mib - member.context_mib
        if message.ephemeral_mib + keeps > member.memory_mib:
            said = f"{message.ephemeral_mib} MiB beside {keeps} MiB exceed the slice"
            self._refuse(job, LaneRefusal.EXCEEDS_SLICE, said)
            return
        known.asks, known.asked_s = True, now
        if away is not None:
            _, changes = self.table.acquire(job, now, message.ephemeral_mib or None)
            self._tell(changes, now)
            self._report_wait(job)
            return
        if known.reserved is not None:
            lease, known.reserved = known.reserved, None
            self._granted(known, lease)
            return
        if known.lease is not None:
            if self._wanted(known):
                self.send(job, wire.Empty(lease=known.lease.lease))
                return
            self._end(known, known.lease, now)
        self._ask(known, message.ephemeral_mib or None, now)

    def _ask(self, known: _Job, ephemeral_mib: int | None, now: float) -> None:
        job, memory = known.member.job, self.table.memory
        had_mib = memory.lanes[memory.residents[job].lane].reserved_mib
        turn, changes = self.table.acquire(job, now, ephemeral_mib)
        lane = memory.lanes[memory.residents[job].lane]
        if lane.reserved_mib > had_mib:
            number, has_mib = lane.assigned or lane.lane, lane.reserved_mib
            text = f"lane {number} has {has_mib} MiB for steps, {had_mib} MiB before"
            self.reports.append(Report(job=job, fault=Fault.RESIZED, message=text))
        self._tell((*changes, turn) if isinstance(turn, records.Granted) else changes, now)
        if isinstance(turn, records.Refused):
            known.asks = False
            if turn.reason is records.Refusal.STUCK:
                self._refuse(job, LaneRefusal.STUCK, STUCK_TEXT)
                return
            said = f"the step needs {turn.needs_mib} MiB of {turn.usable_mib} MiB"
            self._refuse(known.member.job, LaneRefusal.CANNOT_GROW, said)
        elif isinstance(turn, records.Waits):
            self._want(turn.lane)

    def _release(self, known: _Job, message: wire.Release, now: float) -> None:
        job, lease = known.member.job, known.lease
        if lease is None or lease.lease != message.lease:
            self._refuse(job, LaneRefusal.LEASE_UNKNOWN, f"lease {message.lease} is not the job's")
            return
        resident = self.table.memory.residents[job]
        lane = self.table.memory.lanes[resident.lane]
        keeps = resident.demand.persistent_mib - known.member.context_mib
        needs = resident.demand.ephemeral_mib
        known.ended_s = now
        if not (known.caches and message.emptied):
            self._ended[resident.lane] = now
        if known.caches and not message.emptied:
            # what is suspended comes back with all it holds, so it may hold no step's memory
            if known.member.suspendable or self._wanted(known):
                self.send(job, wire.Empty(lease=lease.lease))
                return
            known.kept = True
            self.send(job, wire.Done(size_mib=lane.size_mib, epoch=lane.epoch, kept=True))
            return
        most = self.capacity_mib
        known.persistent_peak_mib = max(
            known.persistent_peak_mib, min(message.persistent_mib, most)
        )
        known.ephemeral_peak_mib = max(known.ephemeral_peak_mib, min(message.peak_mib, most))
        if message.persistent_mib > keeps:
            self._exceeds(job, f"keeps {message.persistent_mib} MiB, declared {keeps} MiB")
        if message.peak_mib > needs:
            self._exceeds(job, f"a step took {message.peak_mib} MiB, declared {needs} MiB")
        asked, beyond = known.asks, message.peak_mib > lane.size_mib
        said = f"a step took {message.peak_mib} MiB, its lane has {lane.size_mib} MiB"
        if known.member.lane and message.persistent_mib > known.member.persistent_mib:
            beyond = True  # what it keeps is counted as the lane's, and others will use that
            said = (
                f"{message.persistent_mib} MiB stay after the step, "
                f"{known.member.persistent_mib} MiB are its own"
            )
        peak = min(message.peak_mib, known.member.memory_mib - keeps)
        self._end(known, lease, now, peak_mib=peak, again=known.quick and not asked)
        lane = self.table.memory.lanes[resident.lane]
        if beyond and self.enforce:
            self._refuse(job, LaneRefusal.EXCEEDS_LANE, said)
        elif not asked:
            self.send(job, wire.Done(size_mib=lane.size_mib, epoch=lane.epoch))
        if asked and known.asks:
            self._ask(known, None, now)

    # -- suspending ------------------------------------------------------------------------------

    def counts(self, order: Order) -> bool:
        """Whether an order is still to be carried out: its job may have ended meanwhile."""
        resident = self.table.memory.residents.get(order.job)
        return order.job in self.jobs and resident is not None and resident.order == order.order

    def carried_out(self, order: Order, problem: str, now: float) -> None:
        """The outcome of an order.

        Args:
            order: From ``orders``.
            problem: Why it failed; empty where it did not.
            now: The present, seconds.
        """
        if not self.counts(order):
            return
        known, done = self.jobs[order.job], not problem
        moved = self.table.memory.residents[order.job]
        if done is not isinstance(order, Suspend):
            known.pids = ()
        if isinstance(order, Suspend):
            kept = known.persistent_peak_mib + known.member.context_mib
            changes = self.table.has_left(order.order, now, done=done, holds_mib=kept)
            if not done and known.session:
                self._say_lane(known)
        else:
            changes = self.table.is_back(order.order, now, done=done)
            if done and known.session:
                self._say_lane(known)
            elif known.asks:
                known.asks = False
                self._refuse(order.job, LaneRefusal.STUCK, STUCK_TEXT)
        fault, text = _outcome(order, problem, moved.persistent_mib, self.table.settings.spare_s)
        self.reports.append(Report(job=order.job, fault=fault, message=text))
        self._tell(changes, now)
        if isinstance(order, Suspend) and done and known.asks:
            self._report_wait(order.job)

    def is_away(self, job: str) -> bool:
        """Whether nothing of a job is on the device, or only on its way there."""
        resident = self.table.memory.residents.get(job)
        coming = resident is not None and resident.memory is Memory.COMING
        return coming or job in self.table.away.jobs

    def has_room(self, job: str) -> bool:
        """Whether a container that shares no lane has its memory, so that it may start."""
        known = self.jobs.get(job)
        if known is None:
            return not any(one.member.suspendable for one in self.jobs.values())
        return known.member.shares or job in self.table.memory.residents

    def _report_wait(self, job: str) -> None:
        """Tell the owner of a suspended job that its memory is not free yet."""
        if job not in self.table.queue:
            return
        place = self.table.place(job)
        text = (
            f"is suspended and waits for memory of the device: place {place.place} of "
            f"{place.waiting}, {max(0, place.missing_mib)} MiB are missing"
        )
        self.reports.append(Report(job=job, fault=Fault.RESTORE_REFUSED, message=text))

    # -- time ------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """What time alone changes; call it at ``wake_s`` and about once a second.

        Args:
            now: The present, seconds.
        """
        self._tell(self.table.look(now), now)
        lanes = self.table.memory.lanes
        self._ended = {lane: at for lane, at in self._ended.items() if lane in lanes}
        for known in tuple(self.jobs.values()):
            if known.reserved is not None and now - known.ended_s >= PATIENCE_S:
                known.quick = False
                self._end_reserved(known, now)
        for lease in self.table.overdue(now):
            holder, held_s = self.jobs.get(lease.job), now - lease.granted_s
            if holder is None or not holder.session or held_s < STALL_LEAST_S:
                continue
            if holder.stalled == lease.lease or (holder.kept and not self._wanted(holder)):
                continue
            holder.stalled = lease.lease
            waiting = sum(one.asks for one in self._others(holder))
            text = f"a step holds lane {lease.lane} for {held_s:.1f} s, {waiting} jobs wait"
            self.reports.append(Report(job=lease.job, fault=Fault.STALLED, message=text))

    @property
    def wake_s(self) -> float | None:
        """When ``tick`` has something to do at the latest, beside stalls."""
        ends = [one.ended_s + PATIENCE_S for one in self.jobs.values() if one.reserved is not None]
        return min(ends, default=None)

    # -- what is told --------------------------------------------------------------------------

    def readings(self, now: float) -> dict[str, LaneReading]:
        """What is known of the jobs that take turns, by name.

        Args:
            now: The present, seconds.
        """
        known = {**self.table.memory.residents, **self.table.away.jobs}
        return {
            name: LaneReading(
                suspended=resident.memory in (Memory.AWAY, Memory.COMING),
                wait_percent=round(100 * wait_fraction(resident, now)),
                persistent_peak_mib=self.jobs[name].persistent_peak_mib,
                ephemeral_peak_mib=self.jobs[name].ephemeral_peak_mib,
            )
            for name, resident in known.items()
            if name in self.jobs and self.jobs[name].member.shares
        }

    def observed(self, gpu: str) -> tuple[ObservedLane, ...]:
        """Lanes in which programs take turns, by number.

        Args:
            gpu: UUID of the device.
        """
        away = Counter(one.demand.assigned for one in self.table.away.jobs.values())
        found = [
            ObservedLane(
                gpu=gpu,
                lane=lane.assigned or MAX_LANE + lane.lane,
                size_mib=lane.reserved_mib,
                residents=len(lane.residents),
                waiting=sum(one.asked_s is not None for one in lane.residents.values()),
                suspended=away.pop(lane.assigned, 0) if lane.assigned else 0,
            )
            for lane in self.table.memory.lanes.values()
            if not lane.own and lane.residents
        ]
        found += [
            ObservedLane(gpu=gpu, lane=number, suspended=count)
            for number, count in away.items()
            if number
        ]
        return tuple(sorted(found, key=lambda one: one.lane))

    # -- inside ----------------------------------------------------------------------------------

    def _end(
        self, known: _Job, lease: Lease, now: float, *, peak_mib: int = 0, again: bool = False
    ) -> None:
        known.lease, known.kept = None, False
        self._tell(self.table.release(lease.lease, now, peak_mib, again=again), now)

    def _end_reserved(self, known: _Job, now: float) -> None:
        lease, known.reserved = known.reserved, None
        if lease is not None:
            self._tell(self.table.release(lease.lease, now), now)

    def _granted(self, known: _Job, lease: Lease) -> None:
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

    def _tell(self, changes: records.Changes, now: float) -> None:
        """Hand changes to those whom they are about."""
        for one in changes:
            if isinstance(one, Order):
                self.orders.append(one)
            elif isinstance(one, records.Granted):
                known = self.jobs.get(one.job)
                if known is not None and known.session:
                    self._granted(known, one.lease)
            elif isinstance(one, records.Placed):
                known = self.jobs.get(one.job)
                if known is None:
                    continue
                if known.session:
                    self._say_lane(known)
                else:
                    self._tell(self.table.acquire(one.job, now)[1], now)
            elif isinstance(one, records.Moved):
                for name in one.jobs:
                    if name in self.jobs and self.jobs[name].session:
                        resident = self.table.memory.residents[name]
                        if resident.memory is Memory.HERE:
                            self._say_lane(self.jobs[name])
            elif isinstance(one, records.Refused):
                known = self.jobs.get(one.job)
                if known is not None and known.asks:
                    known.asks = False
                    said = f"the step needs {one.needs_mib} MiB of {one.usable_mib} MiB"
                    self._refuse(one.job, LaneRefusal.CANNOT_GROW, said)

    def _say_lane(self, known: _Job) -> None:
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

    def _switched(self, lease: Lease, asked_s: float) -> float | None:
        ended = self._ended.get(lease.lane)
        if ended is None or not asked_s <= ended <= lease.granted_s:
            return None
        return lease.granted_s - ended

    def _others(self, known: _Job) -> list[_Job]:
        """Jobs of the same lane."""
        return [self.jobs[name] for name in self._lane_mates(known) if name in self.jobs]

    def _lane_mates(self, known: _Job) -> set[str]:
        resident = self.table.memory.residents.get(known.member.job)
        if resident is None:
            return set()
        return self.table.memory.lanes[resident.lane].residents.keys() - {known.member.job}

    def _wanted(self, known: _Job) -> bool:
        """Whether someone waits for the memory that a job keeps: in its lane, or for the device.

        One that is expected back waits, too: the lane would be granted to it.
        """
        residents = self.table.memory.residents
        mates = (residents[name] for name in self._lane_mates(known))
        return bool(self.table.queue) or any(one.asked_s is not None for one in mates)

    def _want(self, lane: int) -> None:
        """Ask the job that keeps a lane's memory between steps to give it back."""
        for known in self.jobs.values():
            if known.kept and known.lease is not None and known.lease.lane == lane:
                self.send(known.member.job, wire.Empty(lease=known.lease.lease))

    def _exceeds(self, job: str, text: str) -> None:
        self.reports.append(Report(job=job, fault=Fault.EXCEEDED, message=text))

    def _refuse(self, job: str, reason: LaneRefusal, message: str) -> None:
        self.send(job, wire.Refused(reason=reason, message=message))


def _as_assigned(member: Member, message: wire.Hello) -> bool:
    """Whether a program declares no more than others of its lane were told."""
    stays, step = message.persistent_mib, message.ephemeral_mib
    return stays <= member.persistent_mib and step <= member.ephemeral_mib


def _outcome(order: Order, problem: str, mib: int, spare_s: float) -> tuple[Fault, str]:
    """What the owner of a job is told of an order that was carried out, or could not be."""
    if isinstance(order, Suspend):
        if problem:
            text = f"stays on the device, tried again after {spare_s:.0f} s: {problem}"
            return Fault.SUSPEND_FAILED, text
        return Fault.SUSPENDED, f"its {mib} MiB left the device for another program"
    if problem:
        return Fault.RESTORE_FAILED, f"{STUCK_TEXT}: {problem}"
    return Fault.RESUMED, f"its {mib} MiB are on the device again"


def _queued(answer: records.Queued) -> wire.InQueue:
    return wire.InQueue(
        position=answer.place, waiting=answer.waiting, missing_mib=max(0, answer.missing_mib)
    )
