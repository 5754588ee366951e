# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""From the desired state to actions: none for what already exists.

Deciding twice gives the same actions, and the difference of an executed plan is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace

from ullage.api.dataio import IoFairness
from ullage.api.labels import GATE
from ullage.api.lanes import IterationPolicy
from ullage.api.reasons import ConditionType, Reason
from ullage.api.slices import DesiredSlice
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Condition, WorkloadStatus
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.learning.loop import KIND
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import (
    Action,
    ApplyDeployment,
    ApplyGPUNode,
    ApplyService,
    CreatePod,
    CreateReservedPod,
    DeleteChild,
    DeletePod,
    DeleteWorkload,
    Emit,
    EvictPod,
    Plan,
    ScaleWorkload,
    SetStatus,
    TellPod,
    UngatePod,
)
from ullage.scheduling.status.workload_status import is_passing


def diff(plan: Plan, snapshot: Snapshot) -> tuple[Action, ...]:
    """The actions from the snapshot to the plan, in order of execution."""
    created = {step.name for step in plan.steps if isinstance(step, CreatePod)}
    pods = snapshot.pods.values() if created else ()
    names = {(pod.namespace, pod.name) for pod in pods if pod.name in created}
    names |= snapshot.creating
    steps = [step for step in plan.steps if _is_due(step, snapshot, names)]
    going = [step for step in steps if isinstance(step, (EvictPod, DeletePod))]
    coming = [step for step in steps if not isinstance(step, (EvictPod, DeletePod))]
    return (
        *going,
        *_gpu_nodes(plan, snapshot),
        *coming,
        *_statuses(plan, snapshot),
        *(_of_an_object(event, snapshot) for event in plan.events if _is_there(event, snapshot)),
    )


def _of_an_object(event: Emit, snapshot: Snapshot) -> Emit:
    """The Event; that of adopted pods refers to the oldest of them."""
    unit = snapshot.workloads.get(event.target.uid)
    if unit is None or not unit.adopted:
        return event
    return replace(event, target=unit.adopted[0].pod)


def _is_there(event: Emit, snapshot: Snapshot) -> bool:
    """True if the workload or profile of an Event still exists."""
    target = event.target
    if target.kind == KIND:
        return (target.namespace, target.name) in snapshot.profiles
    return target.uid in snapshot.workloads


def _gpu_nodes(plan: Plan, snapshot: Snapshot) -> Iterator[ApplyGPUNode]:
    for name in sorted(plan.slices):
        wanted = plan.slices[name]
        record = snapshot.gpu_nodes.get(name)
        held = record is not None and (record.desired is wanted or record.desired == wanted)
        before_read = record.observations_read if record is not None else ""
        read = plan.observations_read.get(name, before_read)
        written = record.lane_policy if record is not None else IterationPolicy.FAIR
        # not needed by a node without lanes
        lane_policy = snapshot.policy.lane_policy if any(part.lane for part in wanted) else written
        allowed = record.io_fairness if record is not None else IoFairness.OBSERVE
        io_fairness = snapshot.policy.io_fairness
        if held and (read, lane_policy, io_fairness) == (before_read, written, allowed):
            continue
        node = snapshot.nodes.get(name)
        if record is None and node is None:
            continue
        before = record.desired if record is not None else ()
        reason, text = _change(before, wanted)
        if held:
            reason, text = Reason.MEASURED, f"observations up to {read} are taken in"
        if lane_policy != written:
            text = f"{text}; lanes take turns by {lane_policy}"
        if io_fairness is not allowed:
            text = f"{text}; unfair use of volumes: {io_fairness}"
        yield ApplyGPUNode(
            name=name,
            uid=record.uid if record is not None else "",
            node_uid=node.uid if node is not None else "",
            epoch=plan.epoch,
            slices=wanted,
            observations_read=read,
            lane_policy=lane_policy,
            io_fairness=io_fairness,
            retire=record.retire if record is not None else False,
            reason=reason,
            text=text,
        )


def _change(
    before: tuple[DesiredSlice, ...], after: tuple[DesiredSlice, ...]
) -> tuple[Reason, str]:
    stays = {*map(id, before)} & {*map(id, after)}  # most are the same objects
    old, new = ({part for part in side if id(part) not in stays} for side in (before, after))
    gone, come = len(old - new), len(new - old)
    reason = Reason.PLACED if come else Reason.COMPLETED
    return reason, f"{come} slices come, {gone} go, {len(after)} in all"


def _statuses(plan: Plan, snapshot: Snapshot) -> Iterator[SetStatus]:
    for uid in sorted(plan.statuses):
        workload, status = snapshot.workloads.get(uid), plan.statuses[uid]
        if workload is None or status == workload.status:
            continue
        decision = status.decision
        whole = SetStatus(
            owner=workload.ref,
            resource_version=workload.resource_version,
            status=status,
            epoch=plan.epoch,
            reason=decision.reason if decision else Reason.WAITING_FOR_DECISION,
            text=status.phase,
            passing=workload.is_gang and is_passing(workload.status, status),
        )
        yield from _in_each_pod(whole, workload) if workload.adopted else (whole,)


def _in_each_pod(whole: SetStatus, workload: WorkloadRecord) -> Iterator[TellPod]:
    """Write the status into each adopted pod that lacks it."""
    status = replace(workload.status, observed_generation=workload.generation)
    everyone = status != whole.status
    for member in workload.adopted:
        if not member.is_current or (everyone and not member.too_many):
            yield TellPod(
                owner=member.pod,
                unit=workload.ref.uid,
                resource_version="",
                status=_one_too_many(whole.status, workload) if member.too_many else whole.status,
                epoch=whole.epoch,
                reason=whole.reason,
                text=whole.text,
                passing=whole.passing,
            )


def _one_too_many(status: WorkloadStatus, workload: WorkloadRecord) -> WorkloadStatus:
    """Condition of a pod whose gang is complete without it."""
    since = max((condition.since for condition in status.conditions), default=0.0)
    waits = Condition(
        type=ConditionType.ADMITTED,
        status="False",
        reason=Reason.GANG_COMPLETE,
        message=(
            f"the gang {workload.ref.name} has its {workload.replicas} pods without this one, which"
            " waits until one of them ends"
        ),
        observed_generation=workload.generation,
        since=since,
    )
    return WorkloadStatus(
        observed_generation=workload.generation, phase=Phase.PENDING.value, conditions=(waits,)
    )


def _is_due(step: Action, snapshot: Snapshot, names: Set[tuple[str, str]]) -> bool:
    """True if a step still has an effect; ``names`` are those of pods, created or requested."""
    match step:
        case DeletePod() if step.at_once:
            return step.pod.uid in snapshot.pods
        case DeletePod() | EvictPod():
            pod = snapshot.pods.get(step.pod.uid)
            return pod is not None and not (pod.deleting or pod.planned)
        case UngatePod():
            pod = snapshot.pods.get(step.pod.uid)
            return pod is not None and GATE in pod.gates
        case CreateReservedPod():
            pod = snapshot.pods.get(step.reservation)
            return pod is not None and GATE in pod.gates
        case CreatePod():
            return (step.owner.namespace, step.name) not in names
        case DeleteChild():
            key = (step.child.namespace, step.child.name)
            return key in snapshot.deployments or key in snapshot.services
        case DeleteWorkload():
            workload = snapshot.workloads.get(step.owner.uid)
            return workload is not None and not workload.deleting
        case ApplyDeployment():
            deployment = snapshot.deployments.get((step.owner.namespace, step.name))
            return deployment is None or (
                deployment.replicas,
                deployment.max_surge,
                deployment.max_unavailable,
                deployment.template_hash,
            ) != (step.replicas, step.max_surge, step.max_unavailable, step.template_hash)
        case ScaleWorkload():
            workload = snapshot.workloads.get(step.owner.uid)
            return workload is not None and workload.replicas != step.replicas
        case ApplyService():
            # its ports follow the template, which only the Deployment's hash identifies
            return not step.headless or ((step.owner.namespace, step.name) not in snapshot.services)
        case _:
            return True
