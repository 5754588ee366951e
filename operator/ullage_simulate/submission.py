# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The operator's decision about a job that is not submitted yet.

Simulates the operator's own decisions on a snapshot: first without the job, until they settle, then
with it. Nodes answer at once and no running job ends meanwhile. Nothing is sent to a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.model.plan import DecideSettings, DeletePod, EvictPod
from ullage_simulate.cycle import carried_out, is_at_rest
from ullage_simulate.times import DECISIONS_REST_S
from ullage_simulate.trace import JobTraceError
from ullage_simulate.world import World

_MOST_CYCLES: Final = 400
_SOON_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionOutcome:
    """Outcome of a job that is not submitted yet.

    Attributes:
        job: The job with its resulting status.
        starts_in_s: Seconds until all its members have their devices; ``None`` = it waits.
        disturbed: Other work that would stop or lose members for it, each with the reason.
    """

    job: WorkloadRecord
    starts_in_s: float | None
    disturbed: Mapping[ObjectRef, str] = field(default_factory=dict)


def submitted(
    snapshot: Snapshot, job: WorkloadRecord, now: float, settings: DecideSettings
) -> SubmissionOutcome:
    """The operator's decision if a job were created now.

    Args:
        snapshot: The cluster.
        job: The job as read from the API.
        now: Seconds since the epoch.
        settings: Of the operator's decisions.

    Raises:
        TraceError: a job with this name exists, or decisions never settle.
    """
    for known in snapshot.workloads.values():
        if (known.kind, *_name(known.ref)) == (job.kind, *_name(job.ref)):
            raise JobTraceError(f"{job.ref.namespace}/{job.ref.name} exists: give it another name")
    trial = SubmissionTrial(World(base=snapshot, now=now), settings)
    trial.run("")
    trial.disturbed.clear()  # changes that happen without it
    began, uid = trial.world.now, job.ref.uid
    trial.world.workloads[uid] = replace(job, created=began)
    trial.run(uid)
    bound = trial.world.bound(uid)
    return SubmissionOutcome(
        job=trial.world.workloads[uid],
        starts_in_s=trial.world.now - began if bound else None,
        disturbed=trial.disturbed,
    )


@dataclass(slots=True)
class SubmissionTrial:
    """Decisions on a world, one after the other."""

    world: World
    settings: DecideSettings
    cache: CycleCache = field(default_factory=CycleCache)
    disturbed: dict[ObjectRef, str] = field(default_factory=dict)

    def run(self, uid: str) -> None:
        """Decide until nothing is left to do; time advances to the times named by guards."""
        until = self.world.now + DECISIONS_REST_S
        for _ in range(_MOST_CYCLES):
            wake_at = self._cycle(uid)
            if wake_at is None:
                continue
            if not wake_at or wake_at > until or (uid and self.world.bound(uid)):
                return
            self.world.now = max(wake_at, self.world.now + _SOON_S)
        raise JobTraceError("the operator's decisions on this cluster never come to rest")

    def _cycle(self, uid: str) -> float | None:
        """Execute one decision; returns the time of the next, ``None`` = at once."""
        plan, actions = carried_out(self.world, self.settings, self.cache)
        for action in actions:
            if isinstance(action, EvictPod | DeletePod) and action.owner.uid != uid:
                self.disturbed.setdefault(action.owner, f"{action.reason}: {action.text}")
        return plan.wake_at if is_at_rest(actions) else None


def _name(ref: ObjectRef) -> tuple[str, str]:
    return ref.namespace, ref.name
