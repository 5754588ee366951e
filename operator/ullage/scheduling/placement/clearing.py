# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs that leave a device when a replica needs it, and the time that this takes."""

from __future__ import annotations

from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.view import View
from ullage.scheduling.placement.preemption import follows_load, lender, priority_of
from ullage.scheduling.times import CLEARING_MOST_S


def makes_way(job: WorkloadRecord, priority: int, service: WorkloadRecord, rank: int) -> bool:
    """True when a job yields its devices to a replica of a service.

    Args:
        job: Training that saves its work.
        priority: Priority of the job's pods.
        service: Any service.
        rank: Priority of the service's pods.
    """
    if priority < rank:
        return True
    return priority == rank and follows_load(service) and lender(job) == service.ref.namespace


def clearing_s(view: View, service: WorkloadRecord) -> float | None:
    """Seconds until training that yields to a service has left, if it is stopped now.

    The longest grace period of the jobs that may be stopped, because the victim is chosen only when
    a replica needs a device.

    Args:
        view: The cycle's snapshot.
        service: The service that may need one more device.

    Returns:
        Seconds; ``None`` = no job yields.
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
