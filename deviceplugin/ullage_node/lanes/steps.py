# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A program asks for a step and ends it."""

from __future__ import annotations

from ullage.api import lanes as wire
from ullage.api.lanes import LaneRefusal
from ullage.engines.lanes import records
from ullage_node.lanes.members import PATIENCE_S, Job
from ullage_node.lanes.programs import Programs
from ullage_node.lanes.reports import STUCK_TEXT, Fault
from ullage_node.lanes.suspending import report_wait


def acquire(programs: Programs, known: Job, message: wire.Acquire, now: float) -> None:
    """Answer a program that asks for its next step.

    Args:
        programs: Of the device.
        known: The container of the program, which has greeted.
        message: As read.
        now: The present, seconds.
    """
    job, member = known.member.job, known.member
    known.quick = 0 <= now - known.ended_s <= PATIENCE_S
    if known.asks or (known.lease is not None and not known.kept):
        programs.refuse(job, LaneRefusal.HOLDS_LEASE, "the last step has not ended")
        return
    away = programs.table.away.jobs.get(job)
    resident = away or programs.table.memory.residents[job]
    keeps = resident.demand.persistent_mib - member.context_mib
    if message.ephemeral_mib + keeps > member.memory_mib:
        said = f"{message.ephemeral_mib} MiB beside {keeps} MiB exceed the slice"
        programs.refuse(job, LaneRefusal.EXCEEDS_SLICE, said)
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


def _ask(programs: Programs, known: Job, ephemeral_mib: int | None, now: float) -> None:
    job, memory = known.member.job, programs.table.memory
    had_mib = memory.lanes[memory.residents[job].lane].reserved_mib
    turn, changes = programs.table.acquire(job, now, ephemeral_mib)
    lane = memory.lanes[memory.residents[job].lane]
    if lane.reserved_mib > had_mib:
        number, has_mib = lane.assigned or lane.lane, lane.reserved_mib
        text = f"lane {number} has {has_mib} MiB for steps, {had_mib} MiB before"
        programs.report(job, Fault.RESIZED, text)
    programs.tell((*changes, turn) if isinstance(turn, records.Granted) else changes, now)
    if isinstance(turn, records.JobRefused):
        known.asks = False
        if turn.reason is records.TableRefusal.STUCK:
            programs.refuse(job, LaneRefusal.STUCK, STUCK_TEXT)
            return
        said = f"the step needs {turn.needs_mib} MiB of {turn.usable_mib} MiB"
        programs.refuse(known.member.job, LaneRefusal.CANNOT_GROW, said)
    elif isinstance(turn, records.Waits):
        programs.want(turn.lane)


def release(
    programs: Programs, known: Job, message: wire.Release, now: float, *, enforce: bool
) -> None:
    """Take the end of a step from a program.

    Args:
        programs: Of the device.
        known: The container of the program, which has greeted.
        message: As read.
        now: The present, seconds.
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
        # what is suspended comes back with all it holds, so it may hold no step's memory
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
            job, Fault.EXCEEDED, f"keeps {message.persistent_mib} MiB, declared {keeps} MiB"
        )
    if message.peak_mib > needs:
        programs.report(
            job, Fault.EXCEEDED, f"a step took {message.peak_mib} MiB, declared {needs} MiB"
        )
    asked, beyond = known.asks, message.peak_mib > lane.size_mib
    said = f"a step took {message.peak_mib} MiB, its lane has {lane.size_mib} MiB"
    if known.member.lane and message.persistent_mib > known.member.persistent_mib:
        beyond = True  # what it keeps is counted as the lane's, and others will use that
        said = (
            f"{message.persistent_mib} MiB stay after the step, "
            f"{known.member.persistent_mib} MiB are its own"
        )
    peak = min(message.peak_mib, known.member.memory_mib - keeps)
    programs.end(known, lease, now, peak_mib=peak, again=known.quick and not asked)
    lane = programs.table.memory.lanes[resident.lane]
    if beyond and enforce:
        programs.refuse(job, LaneRefusal.EXCEEDS_LANE, said)
    elif not asked:
        programs.send(job, wire.Done(size_mib=lane.size_mib, epoch=lane.epoch))
    if asked and known.asks:
        _ask(programs, known, None, now)
