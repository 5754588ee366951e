# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the end of a start took: steps that were done, and work that has to be done again.

A start counts its steps from 0, so where it resumed is not seen. What a loss took is what was done
since the last checkpoint that the job told of: an upper bound. Whoever is asked to stop and can
save its work loses none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ullage.api.contract import ObservedSlice, Reason
from ullage.api.reasons import ConditionType
from ullage.decide.phases import Phase
from ullage.state.records import Snapshot, WorkloadKind, WorkloadRecord
from ullage.state.status.records import WorkloadStatus

SUDDEN: Final = frozenset(
    {Reason.MEMBER_LOST, Reason.EXIT_CODE, Reason.DEVICE_LOST, Reason.NODE_UNHEALTHY}
)
"""Endings that nobody asked the job to prepare for."""
TAKEN: Final = frozenset(
    {
        Reason.MEMBER_LOST,
        Reason.DEVICE_LOST,
        Reason.NODE_UNHEALTHY,
        Reason.SPOT_INTERRUPTED,
        Reason.PREEMPTED,
        Reason.INTERFERING,
        Reason.PROBATION_ROLLED_BACK,
    }
)
"""Endings that take devices from a job that neither failed nor asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a start that ended leaves behind; all 0 = none ended.

    Attributes:
        steps: That it had done.
        lost_steps: Of them, what is done again; 0 where the speed is not known.
        lost_seconds: The same as time.
        evicted: 1 = its devices were taken.
    """

    steps: int = 0
    lost_steps: int = 0
    lost_seconds: int = 0
    evicted: int = 0

    @property
    def matters(self) -> bool:
        """Whether there is anything to enter."""
        return bool(self.steps or self.lost_seconds or self.evicted)


NONE: Final = Ending()


def ending_of(
    snapshot: Snapshot, workload: WorkloadRecord, status: WorkloadStatus, now: float
) -> Ending:
    """What ended between the status of before and the one that is written now."""
    before = workload.status
    if workload.kind is not WorkloadKind.TRAINING_JOB or status is before:
        return NONE
    steps = _steps_of_a_start(before, status)
    if before.phase == status.phase or status.phase != Phase.RESTARTING:
        return Ending(steps=steps) if steps else NONE
    admitted = status.condition(ConditionType.ADMITTED)
    reason = admitted.reason if admitted is not None else ""
    lost_s = 0.0
    if before.phase == Phase.RUNNING and (reason in SUDDEN or not workload.checkpoint):
        lost_s = _at_risk_s(snapshot, before, now)
    most = before.progress.steps if before.progress is not None else 0
    return Ending(
        steps=steps,
        lost_steps=min(most, int(lost_s * _speed(before))),
        lost_seconds=int(lost_s),
        evicted=int(reason in TAKEN),
    )


def _steps_of_a_start(before: WorkloadStatus, status: WorkloadStatus) -> int:
    """Steps of the start of before, once the next one counts from 0 again."""
    was, now = before.progress, status.progress
    if was is None or now is None or now.steps >= was.steps:
        return 0
    return was.steps


def _at_risk_s(snapshot: Snapshot, before: WorkloadStatus, now: float) -> float:
    """Seconds of work since the last checkpoint; 0 where nobody counted steps."""
    seen = _reports(snapshot, before)
    if not any(one.steps for one in seen):
        return 0.0
    ready = before.condition(ConditionType.READY)
    ran_s = max(0.0, now - ready.since) if ready is not None and ready.since else 0.0
    ages = [one.checkpoint_age_s for one in seen if one.checkpoint_age_s]
    return min(ran_s, float(min(ages))) if ages else ran_s


def _reports(snapshot: Snapshot, before: WorkloadStatus) -> list[ObservedSlice]:
    """What the nodes last said of its members."""
    wanted = {one.key: one.node for one in before.placement}
    return [
        seen
        for node in sorted(set(wanted.values()))
        if node in snapshot.gpu_nodes
        for seen in snapshot.gpu_nodes[node].observed
        if wanted.get(seen.key) == node
    ]


def _speed(before: WorkloadStatus) -> float:
    """Steps per second of the whole gang; 0 = not known."""
    said = before.progress.steps_per_second if before.progress is not None else ""
    return float(said) if said else 0.0
