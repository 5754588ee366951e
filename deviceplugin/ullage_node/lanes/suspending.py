# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Suspends and resumes of programs: their validity and their outcome."""

from __future__ import annotations

from ullage.api.lanes import LaneRefusal
from ullage.engines.lanes.records import Order, Suspend
from ullage.engines.lanes.state import MemoryPlace
from ullage.engines.lanes.table import LaneTable
from ullage_node.lanes.programs import LanePrograms
from ullage_node.lanes.reports import STUCK_TEXT, StepFault


def counts(programs: LanePrograms, order: Order) -> bool:
    """True if an order is still to be carried out: its job may have ended meanwhile."""
    resident = programs.table.memory.residents.get(order.job)
    return order.job in programs.jobs and resident is not None and resident.order == order.order


def carried_out(programs: LanePrograms, order: Order, problem: str, now: float) -> None:
    """Handle the outcome of an order.

    Args:
        programs: The device's programs.
        order: An order from ``orders``.
        problem: Reason of failure; empty = success.
        now: Current time, seconds.
    """
    if not counts(programs, order):
        return
    known, done = programs.jobs[order.job], not problem
    moved = programs.table.memory.residents[order.job]
    if done is not isinstance(order, Suspend):
        known.processes = ()
    if isinstance(order, Suspend):
        kept = known.persistent_peak_mib + known.member.context_mib
        changes = programs.table.has_left(order.order, now, done=done, holds_mib=kept)
        if not done and known.session:
            programs.say_lane(known)
    else:
        changes = programs.table.is_back(order.order, now, done=done)
        if done and known.session:
            programs.say_lane(known)
        elif known.asks:
            known.asks = False
            programs.refuse(order.job, LaneRefusal.STUCK, STUCK_TEXT)
    fault, text = _outcome(order, problem, moved.persistent_mib, programs.table.settings.spare_s)
    programs.report(order.job, fault, text)
    programs.tell(changes, now)
    if isinstance(order, Suspend) and done and known.asks:
        report_wait(programs, order.job)


def is_away(table: LaneTable, job: str) -> bool:
    """True if no memory of a job is on the device, or only moving there."""
    resident = table.memory.residents.get(job)
    coming = resident is not None and resident.memory is MemoryPlace.COMING
    return coming or job in table.away.jobs


def has_room(programs: LanePrograms, job: str) -> bool:
    """True if a container that shares no lane has its memory, so that it may start."""
    known = programs.jobs.get(job)
    if known is None:
        return not any(resident.member.suspendable for resident in programs.jobs.values())
    return known.member.shares or job in programs.table.memory.residents


def report_wait(programs: LanePrograms, job: str) -> None:
    """Report to the owner of a suspended job that its memory is not free yet."""
    if job not in programs.table.queue:
        return
    place = programs.table.place(job)
    text = (
        f"is suspended and waits for memory of the device: place {place.place} of "
        f"{place.waiting}, {max(0, place.missing_mib)} MiB are missing"
    )
    programs.report(job, StepFault.RESTORE_REFUSED, text)


def _outcome(order: Order, problem: str, mib: int, spare_s: float) -> tuple[StepFault, str]:
    """The report to the owner of a job on an order that succeeded or failed."""
    if isinstance(order, Suspend):
        if problem:
            text = f"stays on the device, tried again after {spare_s:.0f} s: {problem}"
            return StepFault.SUSPEND_FAILED, text
        return StepFault.SUSPENDED, f"its {mib} MiB left the device for another program"
    if problem:
        return StepFault.RESTORE_FAILED, f"{STUCK_TEXT}: {problem}"
    return StepFault.RESUMED, f"its {mib} MiB are on the device again"
