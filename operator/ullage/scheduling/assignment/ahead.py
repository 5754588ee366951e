# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Places of jobs whose pods do not exist yet: slices first, then pods in their place.

Where there is room now, slices are reserved for planned pods, and once the nodes acknowledged them,
the pods are created without a gate. All others are created with one and wait.
"""

from __future__ import annotations

from ullage.api.reasons import Reason
from ullage.api.slices import RESERVING_VERSION
from ullage.cluster.projection.planned import planned_pod
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.names import pod_name
from ullage.cluster.values.reservations import reservation_id
from ullage.scheduling.assignment.cycle_context import CycleContext
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.view import Member


def may_reserve(context: CycleContext, job: WorkloadRecord, life: LifecycleStep) -> bool:
    """True if a job's slices may be reserved before its pods exist.

    Pods keep a gate where the job changes its size, has a place of its own to wait for (a turn, a
    pool), compares types by ``spec.cost`` first, or was just refused by a device or the API server,
    and while pods have rules about others.
    """
    return (
        context.view.settings.reserve_first
        and job.plain
        and job.elasticity is None
        and life.missing == tuple(range(job.replicas))
        and life.reason is Reason.WAITING_FOR_DECISION
        and context.rounds is None
        and (job.cost is None or bool(job.status.recommendation_basis))
        and job.ref.uid not in context.capacity_choices.choices
        and not job.status.scheduling.exclusions
        and context.placer.occupancy.rules is None
    )


def planned_members(context: CycleContext, job: WorkloadRecord) -> tuple[Member, ...]:
    """The members of a job that has none, each with a reservation of its own."""
    now = context.view.now
    return tuple(
        Member(
            planned_pod(
                job,
                rank,
                reservation_id(job.ref.uid, job.template_hash, pod_name(job.ref.name, rank), now),
                now,
            ),
            (),
        )
        for rank in range(job.replicas)
    )


def older_agents(context: CycleContext) -> frozenset[int]:
    """Devices of nodes whose agent does not find slices by a reservation."""
    records, inventory = context.view.snapshot.gpu_nodes, context.inventory
    return frozenset(
        site
        for node, sites in zip(inventory.nodes, inventory.sites_on, strict=True)
        if records[node.name].contract < RESERVING_VERSION
        for site in sites
    )
