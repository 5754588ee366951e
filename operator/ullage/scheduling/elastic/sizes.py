# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The size of every elastic gang as it stands, and as it is changed in this cycle.

The status remembers the size between two starts; once pods were let go, what they were made for is
the truth, so a status that was lost or overtaken never stops work. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.reasons import Reason, Standing, standing_of
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.snapshot import PodStage, Snapshot, WorkloadKind, WorkloadRecord
from ullage.cluster.records.status import SizeRecord
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
    """Work that had started goes on with another number of members."""


def with_sizes(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which every elastic job has the number of members that is wanted now."""
    elastic = [job for job in snapshot.workloads.values() if job.elasticity is not None]
    if not elastic:
        return snapshot
    made_for: dict[str, int] = {}
    for pod in snapshot.pods.values():
        if pod.world_size and pod.stage is not PodStage.GATED:
            known = made_for.get(pod.owner.uid, 0)
            made_for[pod.owner.uid] = max(known, pod.world_size)
    changed = {
        job.ref.uid: replace(job, replicas=wanted)
        for job in elastic
        if (wanted := _wanted(job, made_for.get(job.ref.uid, 0))) != job.replicas
    }
    if not changed:
        return snapshot
    return replace(snapshot, workloads={**snapshot.workloads, **changed})


def _wanted(job: WorkloadRecord, made_for: int) -> int:
    bounds = job.elasticity
    assert bounds is not None  # only elastic jobs come here
    if made_for and job.status.phase != Phase.RESTARTING:
        return made_for
    return bounds.within(job.status.replicas)


def resumes(job: WorkloadRecord, now: float) -> bool:
    """Whether a gang is between two starts, and goes on in places that are kept for it."""
    size = job.status.size
    if size is None or not size.resumes:
        return False
    return job.status.phase == Phase.RESTARTING or now < size.resumes + GANG_PLACES_KEPT_S


def told(
    job: WorkloadRecord,
    life: LifecycleStep,
    placements: Sequence[Placement],
    change: Size | None,
    now: float,
) -> tuple[int, SizeRecord | None]:
    """``status.replicas`` and ``status.size``; the very record of before if nothing is new."""
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
        moment = whole_second(now)  # its pods are gone: from now on the new ones are waited for
    room_since = record.room_since if life.phase is Phase.RUNNING else 0.0
    if (moment, room_since) != (record.resumes, record.room_since):
        record = replace(record, resumes=moment, room_since=room_since)
    return members, record


def news(job: WorkloadRecord, change: Size | None, epoch: int) -> Emit | None:
    """The Event of a change of size that matters to the user."""
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
