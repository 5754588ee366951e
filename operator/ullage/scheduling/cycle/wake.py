# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Time of the next cycle if nothing changes before."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import WorkloadStatus
from ullage.cluster.records.workload import WorkloadKind
from ullage.scheduling.inventory.exclusions import next_end
from ullage.scheduling.lifecycle.training import busy
from ullage.scheduling.model.lifecycle_step import LifecycleStep, earliest
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.view import View
from ullage.scheduling.times import RECHECK_S

_IN_TURN_S: Final = 1.0
"""Time if only postponed workloads with known reasons were left out."""


def resumed_at(snapshot: Snapshot, now: float, postponed: Collection[str]) -> float:
    """Time of the next cycle for postponed workloads: at once if some never had a decision."""
    if not postponed:
        return 0.0
    decided = all(snapshot.workloads[uid].status.decision is not None for uid in postponed)
    return now + (_IN_TURN_S if decided else RECHECK_S)


def follows(view: View, statuses: Mapping[str, WorkloadStatus]) -> float:
    """Time of the next cycle for steps that wait for a status of this cycle; 0 = none does.

    Reading back our own status starts no cycle, and nothing else may happen before pods of an ended
    start are deleted, or those of the next start or size are created.
    """
    for uid, status in statuses.items():
        job = view.snapshot.workloads[uid]
        before = job.status
        if status is before or job.kind is not WorkloadKind.TRAINING_JOB:
            continue
        turns = status.phase != before.phase and Phase.RESTARTING in (status.phase, before.phase)
        if turns or status.replicas != before.replicas:
            return view.now + RECHECK_S
    return 0.0


def timeouts_end(view: View, lifecycles: Mapping[str, LifecycleStep]) -> float:
    """Time at which the next timeout, back-off or exclusion ends; 0 = none is active."""
    moments = [lifecycles[uid].wake_at for uid in busy(lifecycles)]
    # the others have no device that may be retried later
    excluding = lifecycles.keys() if view.snapshot.node_refusals else view.index.excluding
    for uid in excluding:
        if lifecycles[uid].waiting:
            workload = view.snapshot.workloads[uid]
            moments.append(next_end(view, workload, view.members_of(workload)))
    return earliest(*(moment for moment in moments if moment > view.now))
