# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The size of every elastic gang, and its change in this cycle.

The status has the size between two runs. Once pods were ungated, the size for which they were
created counts, so that a lost or outdated status never stops work. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.reasons import Reason, Standing, standing_of
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import SizeRecord
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import Emit
from ullage.scheduling.placement.placement import Placement
from ullage.scheduling.times import GANG_PLACES_KEPT_S

_BETWEEN: Final = (Phase.RESTARTING, Phase.PENDING)


@dataclass(frozen=True, slots=True)
class Size:
    """A change of size that this cycle decided."""

    replicas: int
    record: SizeRecord
    is_news: bool = False
    """True when started work continues with another number of members."""


def with_sizes(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the present size of every elastic job as its ``replicas``."""
    elastic = [job for job in snapshot.workloads.values() if job.elasticity is not None]
    if not elastic:
        return snapshot
    made_for: dict[str, int] = {}
    for pod in snapshot.pods.values():
        if pod.world_size and pod.stage is not PodStage.GATED:
            most = made_for.get(pod.owner.uid, 0)
            made_for[pod.owner.uid] = max(most, pod.world_size)
    changed: dict[str, WorkloadRecord] = {}
    for job in elastic:
        assert job.elasticity is not None
        wanted = made_for.get(job.ref.uid, 0)
        if not wanted or job.status.phase == Phase.RESTARTING:
            wanted = job.elasticity.within(job.status.replicas)
        if wanted != job.replicas:
            changed[job.ref.uid] = replace(job, replicas=wanted)
    if not changed:
        return snapshot
    return replace(snapshot, workloads={**snapshot.workloads, **changed})


def resumes(job: WorkloadRecord, now: float) -> bool:
    """True when a gang is between two runs and its places are reserved."""
    size = job.status.size
    if size is None or not size.resumes:
        return False
    return job.status.phase == Phase.RESTARTING or now < size.resumes + GANG_PLACES_KEPT_S


def size_status(
    job: WorkloadRecord,
    life: LifecycleStep,
    placements: Sequence[Placement],
    change: Size | None,
    now: float,
) -> tuple[int, SizeRecord | None]:
    """``status.replicas`` and ``status.size``; the previous record if nothing changed."""
    if job.elasticity is None:
        service = job.kind is WorkloadKind.INFERENCE_DEPLOYMENT
        return job.status.replicas if service else 0, None
    before = job.status.size
    record = change.record if change is not None else before
    members = change.replicas if change is not None else job.replicas
    if record is None:
        if life.phase in _BETWEEN and not life.waiting:
            return job.status.replicas, None
        text = f"{members} members, as its pods were made"
        record = SizeRecord(since=whole_second(now), reason=Reason.SIZED, message=text)
    sent_away = Standing.LEAVES_DEVICES in standing_of(life.reason)
    waits = life.phase in _BETWEEN and not placements and not sent_away
    moment = record.resumes if waits else 0.0
    if (
        moment
        and change is None
        and (job.status.phase, life.phase) == (Phase.RESTARTING, Phase.PENDING)
    ):
        moment = whole_second(now)  # its pods are deleted: the wait for the new ones begins
    room_since = record.room_since if life.phase is Phase.RUNNING else 0.0
    if (moment, room_since) != (record.resumes, record.room_since):
        record = replace(record, resumes=moment, room_since=room_since)
    return members, record


def news(job: WorkloadRecord, change: Size | None, epoch: int) -> Emit | None:
    """The Event for a change of size that matters to the user."""
    if change is None or not change.is_news:
        return None
    record = change.record
    return Emit(
        target=job.ref,
        warning=record.reason is Reason.SHRUNK,
        epoch=epoch,
        reason=record.reason,
        text=record.message,
    )
