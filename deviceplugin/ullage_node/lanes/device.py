# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The lanes of one device: the effect of each message, and the answers and notifications.

No sockets and no clock. A job is one container. A container that shares no lane has its memory in
its own lane as soon as the slice is held, because it uses it without notice. A container that
requested a lane must greet (``Hello``) before it uses the device; it leaves when its process has
ended, not when its connection ends.

A job that ended a step is expected back for ``TURN_PATIENCE_S`` if it was that quick before: else a
job that only runs steps would be queued behind all requests made meanwhile. A grant not delivered
within that time expires.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ullage.api import lanes as wire
from ullage.api.lanes import LaneRefusal, Message
from ullage.api.slices import MAX_LANE, ObservedLane
from ullage.engines.lanes.explain import wait_fraction
from ullage.engines.lanes.recorded import TableRecord
from ullage.engines.lanes.records import JobDemand, Order
from ullage.engines.lanes.settings import EXACT, IterationPolicy, LaneSettings
from ullage.engines.lanes.state import MemoryPlace
from ullage.engines.lanes.table import LaneTable
from ullage_node.lanes import steps, suspending
from ullage_node.lanes.members import ContainerPrograms, LaneMember
from ullage_node.lanes.programs import LanePrograms, Send, Turn
from ullage_node.lanes.reports import StepFault, StepReport
from ullage_node.model.slices import LaneReading
from ullage_node.model.switching import ProcessId
from ullage_node.times import STALL_LEAST_S, TURN_PATIENCE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleLimits:
    """Times after which programs are suspended for waiting ones, seconds.

    Programs idle for ``idle_s``; once another has waited for ``busy_s``, working ones too; none
    resident for less than ``least_resident_s``.
    """

    idle_s: float = 5.0
    busy_s: float = 60.0
    least_resident_s: float = 10.0


@dataclass(slots=True, kw_only=True)
class DeviceLanes:
    """Lanes of one device; one caller at a time, which delivers the messages of ``send``.

    ``enforce`` = the device counts memory and does not limit it: a step beyond its lane fails here,
    as it would run out of memory on a device that does.
    """

    capacity_mib: int
    send: Send
    lives: Callable[[str], bool] = lambda _: False
    """True if the process of a job, as far as known, still lives."""
    policy: IterationPolicy = IterationPolicy.FAIR
    enforce: bool = False
    idle: IdleLimits = IdleLimits()
    _programs: LanePrograms = field(init=False)

    def __post_init__(self) -> None:
        self._programs = LanePrograms(table=LaneTable(settings=self._settings), send=self.send)

    @property
    def table(self) -> LaneTable:
        """The jobs whose memory is in each lane."""
        return self._programs.table

    @property
    def jobs(self) -> dict[str, ContainerPrograms]:
        """Containers that hold part of the device, by job."""
        return self._programs.jobs

    @property
    def reports(self) -> deque[StepReport]:
        """Reports to owners, the newest."""
        return self._programs.reports

    @property
    def orders(self) -> deque[Order]:
        """Pending suspends and resumes; :meth:`carried_out` takes the outcome."""
        return self._programs.orders

    @property
    def turns(self) -> deque[Turn]:
        """The newest delivered grants."""
        return self._programs.turns

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
        """Set the policy of the next turns; running steps are not affected.

        Args:
            policy: Selects the next step.
        """
        if policy is not self.policy:
            self.policy = policy
            self.table.settings = self._settings

    # -- across a restart ------------------------------------------------------------------------

    @property
    def sessions(self) -> dict[str, str]:
        """Processes that greeted, by job."""
        return {name: job.session for name, job in self.jobs.items() if job.session}

    @property
    def processes(self) -> dict[str, tuple[ProcessId, ...]]:
        """Processes of suspended jobs, by job."""
        return {name: job.processes for name, job in self.jobs.items() if job.processes}

    @property
    def members(self) -> tuple[LaneMember, ...]:
        """Holders of parts of the device."""
        return tuple(job.member for job in self.jobs.values())

    def restore(
        self,
        record: TableRecord,
        members: Sequence[LaneMember],
        sessions: Mapping[str, str],
        now: float,
    ) -> None:
        """Continue with the lanes and leases of an earlier agent.

        Args:
            record: Its table.
            members: Its members.
            sessions: Its sessions; each process greets again, or has ended.
            now: Current time on the same clock, seconds.

        Raises:
            ValueError, UnsafeLanes: the record contradicts itself or the device; nothing changed.
        """
        table = LaneTable.restored(self._settings, record, now)
        jobs = {
            member.job: ContainerPrograms(member=member, session=sessions.get(member.job, ""))
            for member in members
        }
        for name, resident in table.memory.residents.items():
            if name not in jobs:
                raise ValueError(f"{name!r} is resident and no member")
            jobs[name].lease = resident.lease if jobs[name].session else None
        for name in table.away.jobs:
            if name not in jobs:
                raise ValueError(f"{name!r} is suspended and no member")
        self._programs.table, self._programs.jobs = table, jobs
        self.orders.extend(table.orders_again())

    # -- containers on the device -----------------------------------------------------------------

    def hold(self, member: LaneMember, now: float) -> None:
        """Add a container that may use the device from now on, with or without a connection.

        Args:
            member: Its limits.
            now: Current time, seconds.
        """
        known = self.jobs.get(member.job)
        if known is not None and known.member == member.beside(known.member):
            return
        changes = self.table.leave(member.job, now)
        self.jobs[member.job] = ContainerPrograms(member=member)
        self._programs.tell(changes, now)
        if not member.shares:
            self._alone(member, now)

    def drop(self, job: str, now: float) -> None:
        """Remove a container that no longer holds any part of the device.

        Args:
            job: Its name.
            now: Current time, seconds.
        """
        self.jobs.pop(job, None)
        self._programs.tell(self.table.leave(job, now), now)

    def gone(self, job: str, now: float) -> None:
        """Handle the end of a job's process: its memory is free; the container may start another.

        Args:
            job: Its name.
            now: Current time, seconds.
        """
        known = self.jobs.get(job)
        if known is None or not known.session:
            return
        self.jobs[job] = ContainerPrograms(member=known.member)
        self._programs.tell(self.table.leave(job, now), now)

    def _alone(self, member: LaneMember, now: float) -> None:
        """Give a member its own lane, held permanently."""
        demand = JobDemand(
            name=member.job,
            persistent_mib=member.context_mib,
            ephemeral_mib=member.memory_mib,
            own_lane=True,
        )
        _, changes = self.table.arrive(demand, now)
        self._programs.tell(changes, now)
        self._programs.tell(self.table.acquire(member.job, now)[1], now)

    # -- messages of programs --------------------------------------------------------------------

    def hear(self, job: str, message: Message, now: float) -> None:
        """Handle a program's message.

        Args:
            job: The job of the socket.
            message: As parsed.
            now: Current time, seconds.
        """
        known = self.jobs.get(job)
        if known is None:
            self._programs.refuse(job, LaneRefusal.NO_HELLO, "the container holds no slice")
        elif isinstance(message, wire.Hello):
            steps.hello(self._programs, known, message, now, lives=self.lives)
        elif not known.session or (job in self.table.queue and job not in self.table.away.jobs):
            self._programs.refuse(job, LaneRefusal.NO_HELLO, "the job is in no lane yet")
        elif isinstance(message, wire.Acquire):
            steps.acquire(self._programs, known, message, now)
        elif isinstance(message, wire.Release):
            steps.release(self._programs, known, message, now, enforce=self.enforce)
        else:
            self._programs.refuse(job, LaneRefusal.UNREADABLE, "only a node says this")

    def closed(self, job: str, now: float) -> None:
        """Handle the end of a connection; the process may live, so it keeps its resources.

        Args:
            job: The job of the connection.
            now: Current time, seconds.
        """
        known = self.jobs.get(job)
        if known is None or not known.session:
            return
        known.connected = False
        if known.asks or job in self.table.away.jobs:
            known.asks = False
            self.table.withdraw(job, now)
        if known.reserved is not None:
            self._programs.end_reserved(known, now)

    # -- suspending ------------------------------------------------------------------------------

    def counts(self, order: Order) -> bool:
        """True if an order is still to be carried out: its job may have ended meanwhile."""
        return suspending.counts(self._programs, order)

    def carried_out(self, order: Order, problem: str, now: float) -> None:
        """Handle the outcome of an order.

        Args:
            order: An order from ``orders``.
            problem: Reason of failure; empty = success.
            now: Current time, seconds.
        """
        suspending.carried_out(self._programs, order, problem, now)

    def is_away(self, job: str) -> bool:
        """True if no memory of a job is on the device, or only moving there."""
        return suspending.is_away(self.table, job)

    def has_room(self, job: str) -> bool:
        """True if a container that shares no lane has its memory, so that it may start."""
        return suspending.has_room(self._programs, job)

    # -- time ------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Apply the passage of time; call it at ``wake_s`` and about once a second.

        Args:
            now: Current time, seconds.
        """
        programs = self._programs
        programs.tell(self.table.look(now), now)
        lanes = self.table.memory.lanes
        programs.ended = {lane: at for lane, at in programs.ended.items() if lane in lanes}
        for known in tuple(self.jobs.values()):
            if known.reserved is not None and now - known.ended_s >= TURN_PATIENCE_S:
                known.quick = False
                programs.end_reserved(known, now)
        for lease in self.table.overdue(now):
            holder, held_s = self.jobs.get(lease.job), now - lease.granted_s
            if holder is None or not holder.session or held_s < STALL_LEAST_S:
                continue
            if holder.stalled == lease.lease or (holder.kept and not programs.is_wanted(holder)):
                continue
            holder.stalled = lease.lease
            waiting = sum(other.asks for other in programs.others(holder))
            text = f"a step holds lane {lease.lane} for {held_s:.1f} s, {waiting} jobs wait"
            programs.report(lease.job, StepFault.STALLED, text)

    @property
    def wake_s(self) -> float | None:
        """The latest time at which ``tick`` has something to do, beside stalls."""
        ends = [
            job.ended_s + TURN_PATIENCE_S for job in self.jobs.values() if job.reserved is not None
        ]
        return min(ends, default=None)

    # -- reports -------------------------------------------------------------------------------

    def readings(self, now: float) -> dict[str, LaneReading]:
        """Readings of the jobs that take turns, by name.

        Args:
            now: Current time, seconds.
        """
        known = {**self.table.memory.residents, **self.table.away.jobs}
        return {
            name: LaneReading(
                suspended=resident.memory in (MemoryPlace.AWAY, MemoryPlace.COMING),
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
        away = Counter(resident.demand.assigned for resident in self.table.away.jobs.values())
        lanes = [
            ObservedLane(
                gpu=gpu,
                lane=lane.assigned or MAX_LANE + lane.lane,
                size_mib=lane.reserved_mib,
                residents=len(lane.residents),
                waiting=sum(resident.asked_s is not None for resident in lane.residents.values()),
                suspended=away.pop(lane.assigned, 0) if lane.assigned else 0,
            )
            for lane in self.table.memory.lanes.values()
            if not lane.own and lane.residents
        ]
        lanes += [
            ObservedLane(gpu=gpu, lane=number, suspended=count)
            for number, count in away.items()
            if number
        ]
        return tuple(sorted(lanes, key=lambda lane: lane.lane))
