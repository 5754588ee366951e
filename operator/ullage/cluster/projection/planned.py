# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The pod that a reservation stands for, as it will be when it is created with our gate."""

from __future__ import annotations

from ullage.api.labels import GATE
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.names import pod_name


def planned_pod(job: WorkloadRecord, rank: int, reservation: str, since: float) -> PodRecord:
    """The pod of a rank of a TrainingJob before it exists.

    Args:
        job: The job, whose template is plain: its pods are as the template says.
        rank: Rank of the member.
        reservation: Id of the reservation, which is its uid until it exists.
        since: Time of the reservation, seconds since the epoch.
    """
    return PodRecord(
        uid=reservation,
        namespace=job.ref.namespace,
        name=pod_name(job.ref.name, rank),
        owner=job.ref,
        created=since,
        stage=PodStage.GATED,
        stage_since=since,
        shape=job.shape,
        rank=rank,
        gates=(GATE,),
        priority=job.priority,
        template_hash=job.template_hash,
        reservation=reservation,
        planned=True,
    )
