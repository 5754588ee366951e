# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the end of a start took: steps that were done, and work that has to be done again.

Exact for a job that says where it resumes: the last step that was seen, less the step that the next
start goes on from. Until then, and for a job that never says it, what a loss took is what was done
since the last checkpoint that the job told of: an upper bound. A job that is asked to stop
and can save its work loses none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ullage.api.reasons import ConditionType, Standing, standing_of
from ullage.api.slices import ObservedSlice
from ullage.cluster.records.snapshot import Snapshot, WorkloadKind, WorkloadRecord
from ullage.cluster.records.status import Account, Progress, WorkloadStatus
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.progress import gang_progress

_OVER: Final = (Phase.RESTARTING, Phase.SUSPENDING, Phase.SUSPENDED)
"""A start has ended, and the next has not begun: what is seen is still of the old one."""
_ON: Final = (Phase.PENDING, Phase.RESERVING, Phase.STARTING, Phase.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What the books gain when a start ends, and when the next one says where it goes on.

    Attributes:
        steps: That an ended start had done.
        lost_steps: What is done again; below 0 where less was lost than had been assumed.
        lost_seconds: The same as time of the whole gang.
        evicted: 1 = its devices were taken.
        first_step: To be added to the step that the job's own work begins at.
        reached: Step at which a start ended; 0 = that is settled now, ``None`` = nothing new.
        assumed: Steps and seconds of the losses that the next start may still correct.
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
        """Whether there is anything to enter."""
        return self != NONE


NONE: Final = Ending()


def ending_of(
    snapshot: Snapshot,
    workload: WorkloadRecord,
    status: WorkloadStatus,
    now: float,
    books: Account | None = None,
) -> Ending:
    """What ended, or went on, between the status of before and the one that is written now.

    Args:
        snapshot: The snapshot.
        workload: With the status of before.
        status: What is written now.
        now: The moment.
        books: What was entered so far.
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
    """Whether a failure that ended the last start of a job turns out to be none, just now."""
    phases = (Phase.RESTARTING, Phase.PENDING)
    return restarts < job.status.restarts and job.status.phase in phases


def _ended(
    snapshot: Snapshot,
    workload: WorkloadRecord,
    status: WorkloadStatus,
    now: float,
    books: Account | None,
) -> Ending:
    """A start is over."""
    before = workload.status
    admitted = status.condition(ConditionType.ADMITTED)
    standing = standing_of(admitted.reason if admitted is not None else None)
    evicted = int(status.phase == Phase.RESTARTING and Standing.TAKEN in standing)
    if before.phase != Phase.RUNNING:
        return Ending(evicted=evicted) if evicted else NONE
    progress = before.progress
    seen = _reports(snapshot, before)
    last = gang_progress(((part.key.pod_uid, part) for part in seen), progress)
    most = max(progress.steps if progress is not None else 0, last.steps if last else 0)
    lost_s = 0.0
    sudden = Standing.SUDDEN in standing or not workload.checkpoint
    if status.phase == Phase.RESTARTING and sudden:
        lost_s = _at_risk_s(seen, before, now)
    own = most - (last.resumed_at if last else _base(progress))
    lost = min(max(0, own), int(lost_s * _speed(progress)))
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
    """The first figures of a start, which may say where it resumed; or one that went back."""
    was = before.progress
    if now is None:
        return NONE
    reached = books.reached_steps if books is not None else 0
    if was is None and not reached:
        return Ending(first_step=now.resumed_at)
    was = was or Progress(steps=0)
    if not reached and now.steps >= was.steps and now.resumed_at == was.resumed_at:
        return NONE
    point = max(reached, was.steps)
    own = max(0, point - was.resumed_at)
    if not now.resumed_at and not was.resumed_at:
        return Ending(steps=own, reached=0)  # no one says where: what was assumed stands
    exact, speed = max(0, point - now.resumed_at), _speed(was)
    assumed_steps = books.assumed_steps if books is not None else 0
    assumed_s = books.assumed_seconds if books is not None else 0
    exact_s = int(exact / speed) if speed else min(exact, 1) * assumed_s
    # what it never was seen to do before its first restart was done by another job
    given = not reached and (books is None or not books.earlier_steps)
    return Ending(
        steps=own,
        lost_steps=exact - assumed_steps,
        lost_seconds=exact_s - assumed_s,
        first_step=max(0, now.resumed_at - point) if given else 0,
        reached=0,
    )


def _at_risk_s(seen: list[ObservedSlice], before: WorkloadStatus, now: float) -> float:
    """Seconds of work since the last checkpoint; 0 where no one counted steps."""
    if not any(one.steps for one in seen):
        return 0.0
    ready = before.condition(ConditionType.READY)
    ran_s = max(0.0, now - ready.since) if ready is not None and ready.since else 0.0
    ages = [part.checkpoint_age_s for part in seen if part.checkpoint_age_s]
    return min(ran_s, float(min(ages))) if ages else ran_s


def _reports(snapshot: Snapshot, before: WorkloadStatus) -> list[ObservedSlice]:
    """What the nodes last said of its members."""
    wanted = {placement.key: placement.node for placement in before.placement}
    return [
        seen
        for node in sorted(set(wanted.values()))
        if node in snapshot.gpu_nodes
        for seen in snapshot.gpu_nodes[node].observed
        if wanted.get(seen.key) == node
    ]


def _base(progress: Progress | None) -> int:
    return progress.resumed_at if progress is not None else 0


def _speed(progress: Progress | None) -> float:
    """Steps per second of the whole gang; 0 = not known."""
    said = progress.steps_per_second if progress is not None else ""
    return float(said) if said else 0.0
