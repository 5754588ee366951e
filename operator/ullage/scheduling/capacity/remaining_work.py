# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Work of a job, total and done, in seconds of uninterrupted running.

Seconds are of the capacity that the deadline falls back to, so that they compare with the time
left. Work that a restart would have to repeat more than once must never count as done: restarts are
charged at the policy's cost of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ullage.api.slices import ObservedSlice
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.capacity.deadline import ProgressLine
from ullage.engines.capacity.decide import Due
from ullage.engines.capacity.records import CapacityType
from ullage.scheduling.capacity.market import SuitedPools
from ullage.scheduling.model.progress import gang_progress
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.times import DEADLINE_LOOK_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Work at speed 1, and the finished part of it."""

    total_s: float
    done: float

    @property
    def left_h(self) -> float:
        """Hours of work left at speed 1."""
        return self.total_s * (1 - self.done) / 3600


def done_part(job: WorkloadRecord, members: Sequence[Member]) -> float:
    """Fraction of steps done: as reported by the slowest member now, else by the status.

    Steps of a start with a reported resume step count from there.
    """
    total, before = job.work_steps, job.status.progress
    if not total:
        return 0.0
    reports: list[tuple[str, ObservedSlice | None]] = []
    for member in members:
        if member.live:
            reports.extend((member.pod.uid, held.seen) for held in member.held)
            reports.extend([] if member.held else [(member.pod.uid, None)])
    now = gang_progress(reports, before)
    if now is not None:
        return min(now.steps, total) / total
    return min(before.steps, total) / total if before is not None else 0.0


def work_of(job: WorkloadRecord, suited: SuitedPools, members: Sequence[Member]) -> Work | None:
    """The work of a job; ``None`` = its length is unknown.

    The longer of an estimate and a measured or declared speed counts.
    """
    estimate = job.cost.estimated_work_s if job.cost is not None else None
    by_steps = job.work_steps / suited.steps_per_second if suited.steps_per_second else None
    if estimate is None and by_steps is None:
        return None
    total_s = max(estimate or 0.0, by_steps or 0.0)
    return Work(total_s=total_s, done=done_part(job, members))


def due_of(
    view: View, job: WorkloadRecord, work: Work, suited: SuitedPools, *, committed: bool
) -> Due | None:
    """A job on the line to its deadline; ``None`` = it has none."""
    if job.cost is None or job.cost.deadline_s is None:
        return None
    work_s = max(1, round(work.total_s / fallback_speed(suited)))
    line = ProgressLine(
        work_s=work_s,
        deadline_s=max(1, int(job.cost.deadline_s)),
        changeover_s=view.snapshot.policy.spot.restart_cost_s,
        tick_s=DEADLINE_LOOK_S,
    )
    return Due(
        line=line,
        elapsed_s=max(0, int(view.now - job.created)),
        # the last step may still be missing, so there is always some work left
        done_s=min(work_s - 1, int(work.done * work_s)),
        committed=committed,
    )


def fallback_speed(suited: SuitedPools) -> float:
    """Speed of the slowest capacity that a job may fall back to; 1 without one."""
    speeds = [
        candidate.pool.speed
        for candidate in suited.by_name.values()
        if candidate.pool.capacity_type is not CapacityType.SPOT and candidate.pool.speed > 0
    ]
    return min(speeds, default=1.0)


def spare_s(due: Due) -> int:
    """Seconds left beyond those that the work needs."""
    return due.line.deadline_s - due.elapsed_s - (due.line.work_s - due.done_s)


def turns_at(created: float, due: Due) -> float:
    """Time at which an idle job's verdict changes: behind the line, or at the safety net."""
    line = due.line
    crossing_s = due.done_s * line.deadline_s // line.work_s + 1
    net_s = line.deadline_s - (line.work_s - due.done_s) - line.reserve_s + 1
    return created + min(crossing_s, net_s)
