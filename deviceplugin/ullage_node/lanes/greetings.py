# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A program greets: whether it gets into a lane, waits for memory, or goes on where it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ullage.api import lanes as wire
from ullage.api.lanes import LaneRefusal
from ullage.engines.lanes import records
from ullage.engines.lanes.records import JobDemand
from ullage.engines.lanes.state import MemoryPlace
from ullage_node.lanes.members import Job, Member
from ullage_node.lanes.programs import Programs
from ullage_node.lanes.reports import STUCK_TEXT, Fault

SESSION_MOST: Final = 64


def hello(
    programs: Programs,
    known: Job,
    message: wire.Hello,
    now: float,
    *,
    lives: Callable[[str], bool],
) -> None:
    """Answer a greeting.

    Args:
        programs: Of the device.
        known: The container of the program.
        message: As read.
        now: The present, seconds.
        lives: Whether the process of a job, by all that is known, still lives.
    """
    job, member = known.member.job, known.member
    declared = message.persistent_mib + message.ephemeral_mib
    if message.version != wire.LANES_VERSION:
        said = f"this node speaks version {wire.LANES_VERSION}, not {message.version}"
        programs.refuse(job, LaneRefusal.VERSION, said)
    elif not member.shares or declared > member.memory_mib:
        said = f"{declared} MiB are more than the {member.memory_mib} MiB of the slice"
        if not member.shares:
            said = "the slice asks for no lane"
        programs.refuse(job, LaneRefusal.EXCEEDS_SLICE, said)
    elif member.lane and not _as_assigned(member, message):
        said = (
            f"{message.persistent_mib} MiB beside a step of {message.ephemeral_mib} MiB, lane "
            f"{member.lane} has {member.persistent_mib} and {member.ephemeral_mib} MiB for it"
        )
        programs.refuse(job, LaneRefusal.EXCEEDS_SLICE, said)
    elif not message.session or len(message.session) > SESSION_MOST:
        programs.refuse(job, LaneRefusal.UNREADABLE, "a session has 1 to 64 characters")
    elif known.session == message.session:
        _again(programs, known, message, now)
    elif known.session and lives(job):
        programs.refuse(job, LaneRefusal.BUSY, "another process of the container has the lane")
    else:
        _first(programs, known, message, now)


def _first(programs: Programs, known: Job, message: wire.Hello, now: float) -> None:
    """A process that we do not know; an earlier one of its container has ended."""
    job = known.member.job
    changes = programs.table.leave(job, now)
    programs.jobs[job] = known = Job(
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
        programs.jobs[job] = Job(member=known.member)
        programs.refuse(job, LaneRefusal.QUEUE_FULL, f"{answer.reason.value} on this device")
    elif isinstance(answer, records.Queued):
        programs.send(job, _queued(answer))
        text = (
            f"waits for memory of the device: place {answer.place} of {answer.waiting}, "
            f"{max(0, answer.missing_mib)} MiB are missing"
        )
        programs.report(job, Fault.QUEUED, text)
    else:
        programs.say_lane(known)
    programs.tell((*changes, *more), now)


def _again(programs: Programs, known: Job, message: wire.Hello, now: float) -> None:
    """A process that we know, on a new connection."""
    known.connected, known.caches = True, message.caches
    told = known.lease
    if told is not None and told.lease != message.lease:
        # The process never heard the grant, or ended the step and we did not hear it.
        programs.end(known, told, now)
    _greets_again(programs, known, now)


def _greets_again(programs: Programs, known: Job, now: float) -> None:
    """Answer a process that greets because it wants a step, wherever its memory is.

    What it is told of its lane may make it call the device, which waits while it is suspended.
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


def _as_assigned(member: Member, message: wire.Hello) -> bool:
    """Whether a program declares no more than others of its lane were told."""
    stays, step = message.persistent_mib, message.ephemeral_mib
    return stays <= member.persistent_mib and step <= member.ephemeral_mib


def _queued(answer: records.Queued) -> wire.InQueue:
    return wire.InQueue(
        position=answer.place, waiting=answer.waiting, missing_mib=max(0, answer.missing_mib)
    )
