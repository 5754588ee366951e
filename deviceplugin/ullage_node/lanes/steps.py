# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Handles a program's messages: greeting, request for a step, end of a step.

After the greeting it joins a lane, waits for memory, or continues where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ullage.api import lanes as wire
from ullage.api.lanes import LaneRefusal
from ullage.engines.lanes import records
from ullage.engines.lanes.records import JobDemand
from ullage.engines.lanes.state import MemoryPlace
from ullage_node.lanes.members import ContainerPrograms, LaneMember
from ullage_node.lanes.programs import LanePrograms
from ullage_node.lanes.reports import STUCK_TEXT, StepFault
from ullage_node.lanes.suspending import report_wait
from ullage_node.times import TURN_PATIENCE_S

SESSION_MOST: Final = 64


def hello(
    programs: LanePrograms,
    known: ContainerPrograms,
    message: wire.Hello,
    now: float,
    *,
    lives: Callable[[str], bool],
) -> None:
    """Answer a greeting.

    Args:
        programs: The device's programs.
        known: The container of the program.
        message: As parsed.
        now: Current time, seconds.
        lives: True if the process of a job, as far as known, still lives.
    """
    job, member = known.member.job, known.member
    declared = message.persistent_mib + message.ephemeral_mib
    if message.version != wire.LANES_VERSION:
        text = f"this node speaks version {wire.LANES_VERSION}, not {message.version}"
        programs.refuse(job, LaneRefusal.VERSION, text)
    elif not member.shares or declared > member.memory_mib:
        text = f"{declared} MiB are more than the {member.memory_mib} MiB of the slice"
        if not member.shares:
            text = "the slice asks for no lane"
        programs.refuse(job, LaneRefusal.EXCEEDS_SLICE, text)
    elif member.lane and not _as_assigned(member, message):
        text = (
            f"{message.persistent_mib} MiB beside a step of {message.ephemeral_mib} MiB, lane "
            f"{member.lane} has {member.persistent_mib} and {member.ephemeral_mib} MiB for it"
        )
        programs.refuse(job, LaneRefusal.EXCEEDS_SLICE, text)
    elif not message.session or len(message.session) > SESSION_MOST:
        programs.refuse(job, LaneRefusal.UNREADABLE, "a session has 1 to 64 characters")
    elif known.session == message.session:
        _again(programs, known, message, now)
    elif known.session and lives(job):
        programs.refuse(job, LaneRefusal.BUSY, "another process of the container has the lane")
    else:
        _first(programs, known, message, now)


def _first(
    programs: LanePrograms, known: ContainerPrograms, message: wire.Hello, now: float
) -> None:
    """Handle an unknown process; an earlier one of its container has ended."""
    job = known.member.job
    changes = programs.table.leave(job, now)
    programs.jobs[job] = known = ContainerPrograms(
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
    answer, more = programs.table.arrive(demand, now)
    if isinstance(answer, records.JobRefused):
        programs.jobs[job] = ContainerPrograms(member=known.member)
        programs.refuse(job, LaneRefusal.QUEUE_FULL, f"{answer.reason.value} on this device")
    elif isinstance(answer, records.Queued):
        programs.send(job, _queued(answer))
        text = (
            f"waits for memory of the device: place {answer.place} of {answer.waiting}, "
            f"{max(0, answer.missing_mib)} MiB are missing"
        )
        programs.report(job, StepFault.QUEUED, text)
    else:
        programs.say_lane(known)
    programs.tell((*changes, *more), now)


def _again(
    programs: LanePrograms, known: ContainerPrograms, message: wire.Hello, now: float
) -> None:
    """Handle a known process on a new connection."""
    known.connected, known.caches = True, message.caches
    lease = known.lease
    if lease is not None and lease.lease != message.lease:
        # The process never received the grant, or its end of the step was lost.
        programs.end(known, lease, now)
    _greets_again(programs, known, now)


def _greets_again(programs: LanePrograms, known: ContainerPrograms, now: float) -> None:
    """Answer a process that greets for its next step, wherever its memory is.

    The lane message may make it call the device, which blocks while it is suspended.
    """
    job, table = known.member.job, programs.table
    if job in table.away.jobs:
        programs.tell(table.recall(job, now), now)
    elif job not in table.queue and table.memory.residents[job].memory is MemoryPlace.LEAVING:
        programs.tell(table.acquire(job, now)[1], now)
    if job in table.queue:
        programs.send(job, _queued(table.place(job)))
        return
    memory = table.memory.residents[job].memory
    if memory is MemoryPlace.STUCK:
        programs.refuse(job, LaneRefusal.STUCK, STUCK_TEXT)
    elif memory is MemoryPlace.HERE:
        programs.say_lane(known)
    else:
        programs.send(job, wire.InQueue(position=1, waiting=1))


def _as_assigned(member: LaneMember, message: wire.Hello) -> bool:
    """True if a program declares no more than was announced to others of its lane."""
    stays, step = message.persistent_mib, message.ephemeral_mib
    return stays <= member.persistent_mib and step <= member.ephemeral_mib


def _queued(answer: records.Queued) -> wire.InQueue:
    return wire.InQueue(
        position=answer.place, waiting=answer.waiting, missing_mib=max(0, answer.missing_mib)
    )


def acquire(
    programs: LanePrograms, known: ContainerPrograms, message: wire.Acquire, now: float
) -> None:
    """Answer a program's request for its next step.

    Args:
        programs: The device's programs.
        known: The container of the program, which has greeted.
        message: As parsed.
        now: Current time, seconds.
    """
    job, member = known.member.job, known.member
    known.quick = 0 <= now - known.ended_s <= TURN_PATIENCE_S
    if known.asks or (known.lease is not None and not known.kept):
        programs.refuse(job, LaneRefusal.HOLDS_LEASE, "the last step has not ended")
        return
    away = programs.table.away.jobs.get(job)
    resident = away or programs.table.memory.residents[job]
    keeps = resident.demand.persistent_mib - member.context_mib
    if message.ephemeral_mib + keeps > member.memory_mib:
        text = f"{message.ephemeral_mib} MiB beside {keeps} MiB exceed the slice"
        programs.refuse(job, LaneRefusal.EXCEEDS_SLICE, text)
        return
    known.asks, known.asked_s = True, now
    if away is not None:
        _, changes = programs.table.acquire(job, now, message.ephemeral_mib or None)
        programs.tell(changes, now)
        report_wait(programs, job)
        return
    if known.reserved is not None:
        lease, known.reserved = known.reserved, None
        programs.granted(known, lease)
        return
    if known.lease is not None:
        if programs.is_wanted(known):
            programs.send(job, wire.Empty(lease=known.lease.lease))
            return
        programs.end(known, known.lease, now)
    _ask(programs, known, message.ephemeral_mib or None, now)


def _ask(
    programs: LanePrograms, known: ContainerPrograms, ephemeral_mib: int | None, now: float
) -> None:
    job, memory = known.member.job, programs.table.memory
    had_mib = memory.lanes[memory.residents[job].lane].reserved_mib
    turn, changes = programs.table.acquire(job, now, ephemeral_mib)
    lane = memory.lanes[memory.residents[job].lane]
    if lane.reserved_mib > had_mib:
        number, has_mib = lane.assigned or lane.lane, lane.reserved_mib
        text = f"lane {number} has {has_mib} MiB for steps, {had_mib} MiB before"
        programs.report(job, StepFault.RESIZED, text)
    programs.tell((*changes, turn) if isinstance(turn, records.Granted) else changes, now)
    if isinstance(turn, records.JobRefused):
        known.asks = False
        if turn.reason is records.TableRefusal.STUCK:
            programs.refuse(job, LaneRefusal.STUCK, STUCK_TEXT)
            return
        text = f"the step needs {turn.needs_mib} MiB of {turn.usable_mib} MiB"
        programs.refuse(known.member.job, LaneRefusal.CANNOT_GROW, text)
    elif isinstance(turn, records.Waits):
        programs.want(turn.lane)


def release(
    programs: LanePrograms,
    known: ContainerPrograms,
    message: wire.Release,
    now: float,
    *,
    enforce: bool,
) -> None:
    """Process the end of a program's step.

    Args:
        programs: The device's programs.
        known: The container of the program, which has greeted.
        message: As parsed.
        now: Current time, seconds.
        enforce: The device does not limit memory, so a step beyond its lane is refused here.
    """
    job, lease = known.member.job, known.lease
    if lease is None or lease.lease != message.lease:
        programs.refuse(job, LaneRefusal.LEASE_UNKNOWN, f"lease {message.lease} is not the job's")
        return
    resident = programs.table.memory.residents[job]
    lane = programs.table.memory.lanes[resident.lane]
    keeps = resident.demand.persistent_mib - known.member.context_mib
    needs = resident.demand.ephemeral_mib
    known.ended_s = now
    if not (known.caches and message.emptied):
        programs.ended[resident.lane] = now
    if known.caches and not message.emptied:
        # a resume restores all memory, so a suspended program may hold no step's memory
        if known.member.suspendable or programs.is_wanted(known):
            programs.send(job, wire.Empty(lease=lease.lease))
            return
        known.kept = True
        programs.send(job, wire.Done(size_mib=lane.size_mib, epoch=lane.epoch, kept=True))
        return
    most = programs.table.settings.capacity_mib
    known.persistent_peak_mib = max(known.persistent_peak_mib, min(message.persistent_mib, most))
    known.ephemeral_peak_mib = max(known.ephemeral_peak_mib, min(message.peak_mib, most))
    if message.persistent_mib > keeps:
        programs.report(
            job, StepFault.EXCEEDED, f"keeps {message.persistent_mib} MiB, declared {keeps} MiB"
        )
    if message.peak_mib > needs:
        programs.report(
            job, StepFault.EXCEEDED, f"a step took {message.peak_mib} MiB, declared {needs} MiB"
        )
    asked, beyond = known.asks, message.peak_mib > lane.size_mib
    text = f"a step took {message.peak_mib} MiB, its lane has {lane.size_mib} MiB"
    if known.member.lane and message.persistent_mib > known.member.persistent_mib:
        beyond = True  # kept memory is counted as the lane's, which others use too
        text = (
            f"{message.persistent_mib} MiB stay after the step, "
            f"{known.member.persistent_mib} MiB are its own"
        )
    peak = min(message.peak_mib, known.member.memory_mib - keeps)
    programs.end(known, lease, now, peak_mib=peak, again=known.quick and not asked)
    lane = programs.table.memory.lanes[resident.lane]
    if beyond and enforce:
        programs.refuse(job, LaneRefusal.EXCEEDS_LANE, text)
    elif not asked:
        programs.send(job, wire.Done(size_mib=lane.size_mib, epoch=lane.epoch))
    if asked and known.asks:
        _ask(programs, known, None, now)
