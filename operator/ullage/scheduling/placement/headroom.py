# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Training in the headroom of services: which job makes way for which service.

A service whose replicas follow its load needs its devices back when the load does. Best-effort
training of its own namespace gives them back at equal priority, that of other namespaces only at
lower priority: containers report the load, so it must not stop the work of others.
"""

from __future__ import annotations

from ullage.cluster.records.snapshot import WorkloadKind, WorkloadRecord


def is_best_effort(job: WorkloadRecord) -> bool:
    """Whether a job has no objective and loses little when it is stopped.

    It has neither an objective nor an aim in time, and it saves its work. Pods of other controllers
    are left out: it is not known whether those start them again.

    Args:
        job: Any workload.
    """
    return (
        job.kind is WorkloadKind.TRAINING_JOB
        and job.checkpoint
        and not job.adopted
        and job.max_slowdown is None
        and job.min_throughput is None
        and (job.cost is None or (job.cost.deadline_s is None and job.cost.max_time_s is None))
    )


def lender(job: WorkloadRecord) -> str:
    """The namespace whose services take devices back from a job at equal priority; empty = none.

    Args:
        job: Any workload.
    """
    return job.ref.namespace if is_best_effort(job) else ""


def follows_load(workload: WorkloadRecord) -> bool:
    """Whether the operator scales a service, so that its replicas are needed when they come.

    Args:
        workload: Any workload.
    """
    return workload.scaling is not None and workload.slo is not None
