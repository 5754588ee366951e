# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Share and accelerators that a workload may be given within ``spec.gpu.share``.

A job that shrank for another is limited to its smaller share for a while: otherwise it would take
back, at its very restart, the room that it was restarted for. No job is restarted to grow again; an
expired limit only stops binding the next start. Replicas of a service get the share and the
accelerator that the operator chose for its objective.
"""

from __future__ import annotations

from collections.abc import Container

from ullage.api.gpurequest import Share
from ullage.cluster.records.status import MadeRoom
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.times import AGREEMENT_HOLD_S


def active_share_limit(job: WorkloadRecord, now: float, present: Container[str]) -> MadeRoom | None:
    """Share of a job that shrank for another, while that binds it.

    Args:
        job: The job.
        now: Seconds since the epoch.
        present: uids of the existing workloads; room for a deleted workload does not bind.
    """
    made = job.status.made_room
    if made is None or now >= made.time + AGREEMENT_HOLD_S or made.beneficiary_uid not in present:
        return None
    return made


def bounded(share: Share, made: MadeRoom | None) -> Share:
    """The share to request, never below its minimum."""
    if made is None or made.percent >= share.max_percent:
        return share
    return Share(min_percent=share.min_percent, max_percent=max(share.min_percent, made.percent))


def share_follows(service: WorkloadRecord) -> bool:
    """True when the operator may choose the share of a service's replicas.

    Its replicas may be restarted for another share, and their memory does not depend on it.
    """
    share = service.gpu.share
    if share is None or not accelerator_follows(service) or not service.gpu.memory_mib:
        return False
    return share.min_percent < share.max_percent


def accelerator_follows(service: WorkloadRecord) -> bool:
    """True when the operator may choose the accelerator of a service's replicas.

    It scales the service by its objective, and its replicas may be restarted.
    """
    scaled = service.scaling is not None and service.slo is not None
    return scaled and service.sharing.resizable


def accelerators_asked(workload: WorkloadRecord) -> tuple[str, ...]:
    """The accelerators to request now; empty = any."""
    record = workload.status.scaling
    chosen = record.share if record is not None else None
    if chosen is None or not chosen.percent or not accelerator_follows(workload):
        return workload.accelerators
    if workload.accelerators and chosen.accelerator not in workload.accelerators:
        return workload.accelerators
    return (chosen.accelerator,) if chosen.accelerator else workload.accelerators


def scaled_share(service: WorkloadRecord) -> Share | None:
    """The chosen share of a service's replicas; ``None`` = none."""
    record = service.status.scaling
    if record is None or record.share is None or not record.share.percent:
        return None
    share = service.gpu.share
    if share is None or not share_follows(service):
        return None
    percent = min(max(record.share.percent, share.min_percent), share.max_percent)
    return Share(min_percent=percent, max_percent=percent)


def share_asked(workload: WorkloadRecord, now: float, present: Container[str]) -> Share | None:
    """The share to request now; ``None`` = whole devices.

    Args:
        workload: The workload.
        now: Seconds since the epoch.
        present: uids of the existing workloads.
    """
    share = workload.gpu.share
    if share is None:
        return None
    if workload.status.made_room is not None:
        share = bounded(share, active_share_limit(workload, now, present))
    return scaled_share(workload) or share
