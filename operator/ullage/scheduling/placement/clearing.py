# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which jobs leave a device when a replica needs it, and how long that takes."""

from __future__ import annotations

from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.view import View
from ullage.scheduling.placement.headroom import follows_load, lender
from ullage.scheduling.placement.preemption import priority_of
from ullage.scheduling.times import CLEARING_MOST_S


def makes_way(job: WorkloadRecord, priority: int, service: WorkloadRecord, rank: int) -> bool:
    """Whether a job leaves its devices when a replica of a service needs them.

    Args:
        job: Training that saves its work.
        priority: Of its pods.
        service: Any service.
        rank: Priority of the service's pods.
    """
    if priority < rank:
        return True
    return priority == rank and follows_load(service) and lender(job) == service.ref.namespace


def clearing_s(view: View, service: WorkloadRecord) -> float | None:
    """Seconds until training that makes way for a service has left, if it is asked now.

    The longest grace among those who might be asked: who leaves is not known before a replica
    asks.

    Args:
        view: The cycle's snapshot.
        service: The service that may need one more device.

    Returns:
        Seconds; ``None`` = no job makes way.
    """
    rank = priority_of(service, view.members_of(service))
    longest: float | None = None
    for _, job in view.index.those(view.index.evictable):
        if job.status.phase != Phase.RUNNING:
            continue
        members = view.members_of(job)
        if makes_way(job, priority_of(job, members), service, rank):
            grace_s = max((float(member.pod.grace_s) for member in members), default=0.0)
            longest = max(grace_s, longest or 0.0)
    return None if longest is None else min(longest, CLEARING_MOST_S)
