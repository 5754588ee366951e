# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Losses at the end of a start: the steps done, and the work to repeat.

Exact for a job that reports its resume step: the last observed step, minus the step that the next
start resumes from. Until then, and for other jobs, a loss is all work since the last reported
checkpoint: an upper bound. A job that is asked to stop and can save its work loses none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ullage.api.reasons import ConditionType, Standing, standing_of
from ullage.api.slices import ObservedSlice
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Account, Progress, WorkloadStatus
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.progress import gang_progress

_OVER: Final = (Phase.RESTARTING, Phase.SUSPENDING, Phase.SUSPENDED)
"""A start has ended and the next has not begun: reports are still from the old one."""
_ON: Final = (Phase.PENDING, Phase.RESERVING, Phase.STARTING, Phase.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Entry for the end of a start, or for the reported resume step of the next one.

    Attributes:
        steps: Steps of the ended start.
        lost_steps: Steps to repeat; below 0 where less was lost than assumed.
        lost_seconds: The same as time of the whole gang.
        evicted: 1 = it was evicted.
        first_step: Added to the step at which the job's own work begins.
        reached: Step at which a start ended; 0 = settled now, ``None`` = no change.
        assumed: Steps and seconds of the losses that the next start may correct.
    """

    steps: int = 0
    lost_steps: int = 0
    lost_seconds: int = 0
    evicted: int = 0
    first_step: int = 0
    reached: int | None = None
    assumed: tuple[int, int] = (0, 0)

    @property
    def matters(self) -> bool:
        """True when there is a figure to book."""
        return self != NONE


NONE: Final = Ending()


def ending_of(
    snapshot: Snapshot,
    workload: WorkloadRecord,
    status: WorkloadStatus,
    now: float,
    books: Account | None = None,
) -> Ending:
    """The end of a start, or its progress, between the last status and the new one.

    Args:
        snapshot: The snapshot.
        workload: The workload with the last status.
        status: The new status.
        now: Seconds since the epoch.
        books: The account so far.
    """
    before = workload.status
    if workload.kind is not WorkloadKind.TRAINING_JOB or status is before:
        return NONE
    if was_given_back(workload, status.restarts):
        return Ending(evicted=1)
    if before.phase != status.phase and status.phase in _OVER:
        return _ended(snapshot, workload, status, now, books)
    if status.phase in _ON and status.progress is not before.progress:
        return _went_on(before, status.progress, books)
    return NONE


def was_given_back(job: WorkloadRecord, restarts: int) -> bool:
    """True when a failure of the job's last start is found to be none."""
    phases = (Phase.RESTARTING, Phase.PENDING)
    return restarts < job.status.restarts and job.status.phase in phases


def _ended(
    snapshot: Snapshot,
    workload: WorkloadRecord,
    status: WorkloadStatus,
    now: float,
    books: Account | None,
) -> Ending:
    """True when a start is over."""
    before = workload.status
    admitted = status.condition(ConditionType.ADMITTED)
    standing = standing_of(admitted.reason if admitted is not None else None)
    evicted = int(status.phase == Phase.RESTARTING and Standing.TAKEN in standing)
    if before.phase != Phase.RUNNING:
        return Ending(evicted=evicted) if evicted else NONE
    progress = before.progress
    parts = _reports(snapshot, before)
    last = gang_progress(((part.key.pod_uid, part) for part in parts), progress)
    most = max(progress.steps if progress is not None else 0, last.steps if last else 0)
    lost_s = 0.0
    sudden = Standing.SUDDEN in standing or not workload.checkpoint
    if status.phase == Phase.RESTARTING and sudden:
        lost_s = _at_risk_s(parts, before, now)
    resumed_at = progress.resumed_at if progress is not None else 0
    done = most - (last.resumed_at if last else resumed_at)
    lost = min(max(0, done), int(lost_s * _speed(progress)))
    pending = books is not None and bool(books.reached_steps)
    open_steps = books.assumed_steps if books is not None and pending else 0
    open_s = books.assumed_seconds if books is not None and pending else 0
    return Ending(
        lost_steps=lost,
        lost_seconds=int(lost_s),
        evicted=evicted,
        reached=max(most, books.reached_steps if books is not None else 0) or None,
        assumed=(open_steps + lost, open_s + int(lost_s)),
    )


def _went_on(before: WorkloadStatus, now: Progress | None, books: Account | None) -> Ending:
    """The first figures of a start, with its resume step if reported; or figures that went back."""
    earlier = before.progress
    if now is None:
        return NONE
    reached = books.reached_steps if books is not None else 0
    if earlier is None and not reached:
        return Ending(first_step=now.resumed_at)
    earlier = earlier or Progress(steps=0)
    if not reached and now.steps >= earlier.steps and now.resumed_at == earlier.resumed_at:
        return NONE
    last_step = max(reached, earlier.steps)
    done = max(0, last_step - earlier.resumed_at)
    if not now.resumed_at and not earlier.resumed_at:
        return Ending(steps=done, reached=0)  # unknown resume step: the assumption stands
    exact, speed = max(0, last_step - now.resumed_at), _speed(earlier)
    assumed_steps = books.assumed_steps if books is not None else 0
    assumed_s = books.assumed_seconds if books is not None else 0
    exact_s = int(exact / speed) if speed else min(exact, 1) * assumed_s
    # steps before its first observed restart belong to another job
    foreign = not reached and (books is None or not books.earlier_steps)
    return Ending(
        steps=done,
        lost_steps=exact - assumed_steps,
        lost_seconds=exact_s - assumed_s,
        first_step=max(0, now.resumed_at - last_step) if foreign else 0,
        reached=0,
    )


def _at_risk_s(parts: list[ObservedSlice], before: WorkloadStatus, now: float) -> float:
    """Seconds of work since the last checkpoint; 0 where no steps were counted."""
    if not any(part.steps for part in parts):
        return 0.0
    ready = before.condition(ConditionType.READY)
    ran_s = max(0.0, now - ready.since) if ready is not None and ready.since else 0.0
    ages = [part.checkpoint_age_s for part in parts if part.checkpoint_age_s]
    return min(ran_s, float(min(ages))) if ages else ran_s


def _reports(snapshot: Snapshot, before: WorkloadStatus) -> list[ObservedSlice]:
    """The nodes' last reports on its members."""
    wanted = {placement.key: placement.node for placement in before.placement}
    return [
        part
        for node in sorted(set(wanted.values()))
        if node in snapshot.gpu_nodes
        for part in snapshot.gpu_nodes[node].observed
        if wanted.get(part.key) == node
    ]


def _speed(progress: Progress | None) -> float:
    """Steps per second of the whole gang; 0 = unknown."""
    rate = progress.steps_per_second if progress is not None else ""
    return float(rate) if rate else 0.0
