# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Creation of gang pods, and deletion of some while the others run.

The callers decide; this module only records it.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from ullage.api.reasons import Reason
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.cluster.values.names import pod_name, workers_service
from ullage.scheduling.assignment.cycle_context import Assignments, CycleContext
from ullage.scheduling.model.lifecycle_step import delete, evict
from ullage.scheduling.model.plan import ApplyService, CreatePod, UngatePod
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.model.view import Member


def create_pods(
    context: CycleContext, job: WorkloadRecord, ranks: Sequence[int], result: Assignments
) -> None:
    """Create the pods of these members, and their Service for DNS names."""
    bounds = job.elasticity
    in_place = (bounds.min_replicas, bounds.max_replicas) if bounds and bounds.in_place else None
    most = in_place[1] if in_place else job.replicas
    name_members(context, job, result)
    result.steps.extend(
        CreatePod(
            owner=job.ref,
            name=pod_name(job.ref.name, rank),
            rank=rank,
            template_hash=job.template_hash,
            hold=job.ref.uid in context.capacity_choices.choices,
            world_size=job.replicas if bounds is not None and in_place is None else 0,
            bounds=in_place,
            epoch=context.view.settings.epoch,
            reason=Reason.WAITING_FOR_DECISION,
            text=f"member {rank} of {most}",
        )
        for rank in ranks
    )


def name_members(context: CycleContext, job: WorkloadRecord, result: Assignments) -> None:
    """Create the headless Service of a gang if it is missing.

    Its creation may be lost when the process dies, or it may be deleted externally.
    """
    service = workers_service(job.ref.name)
    if not has_names(job) or (job.ref.namespace, service) in context.view.snapshot.services:
        return
    result.steps.append(
        ApplyService(
            owner=job.ref,
            name=service,
            headless=True,
            epoch=context.view.settings.epoch,
            reason=Reason.WAITING_FOR_DECISION,
            text="gives every member its name",
        )
    )


def has_names(job: WorkloadRecord) -> bool:
    """True if members of a workload address each other by name."""
    return (job.replicas > 1 or job.in_place) and job.kind is WorkloadKind.TRAINING_JOB


def release(ledger: Ledger, member: Member) -> None:
    """Remove a member's slices from the spec."""
    for held in member.held:
        ledger.drop(held.node, held.slice.key)


def give_up(context: CycleContext, job: WorkloadRecord, pods: Set[str], message: str) -> None:
    """Evict some members of a gang in place; the others are unaffected."""
    life, epoch = context.lifecycles[job.ref.uid], context.view.settings.epoch
    steps = [
        step for step in life.steps if not (isinstance(step, UngatePod) and step.pod.uid in pods)
    ]
    for member in context.view.members_of(job):
        if member.pod.uid not in pods or member.pod.deleting:
            continue
        if member.gated:
            release(context.ledger, member)
        act = delete if member.gated else evict
        steps.append(act(job, member, epoch, Reason.RESIZING, message))
    context.lifecycles[job.ref.uid] = replace(life, steps=tuple(steps))
