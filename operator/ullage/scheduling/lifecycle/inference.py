# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The lifecycle of an InferenceDeployment: a Deployment whose pods get slices one by one.

Kubernetes replaces pods, the operator places them. A rolling update starts a new pod first only
when there is a slice for one more; otherwise it stops an old pod first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ullage.api.reasons import Reason
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.snapshot import DeploymentRecord, ServiceRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.inventory import timeouts
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.lifecycle.backoff import after_pull_failure_s
from ullage.scheduling.lifecycle.gang import deadline, expiry_of, gates_text, refusal_of, ungate
from ullage.scheduling.lifecycle.routing import leads_to_router, router_steps
from ullage.scheduling.lifecycle.surge import leaves_by_surge
from ullage.scheduling.model.lifecycle_step import (
    LifecycleStep,
    Passed,
    delete,
    earliest,
    evict,
    refusal_under_retry,
    write_refused,
)
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import (
    Action,
    ApplyDeployment,
    ApplyRoutedService,
    ApplyService,
    DeletePod,
)
from ullage.scheduling.model.view import Member, View

SURGE_FIRST = (1, 0)
"""Start a new pod before an old one stops."""
STOP_FIRST = (0, 1)
"""Stop an old pod before a new one starts."""
MOST_WAITING: Final = 64
"""Pods of a service that wait for a place at the same time."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """Update strategy of the Deployment; ``waits`` when it cannot proceed without a slice."""

    max_surge: int
    max_unavailable: int
    waits: bool = False


def inference_step(view: View, inventory: Inventory, service: WorkloadRecord) -> LifecycleStep:
    """The next step of the service."""
    members = view.members_of(service)
    if service.deleting:
        return LifecycleStep(phase=Phase.PENDING, silent=True)
    if not service.shape.device_container:
        return LifecycleStep(
            phase=Phase.PENDING, reason=Reason.INVALID_OBJECT, message=service.invalid
        )
    obstacle = _obstacle(view, service)
    life = _pods(view, inventory, service, members)
    shown = obstacle or _under_retry(view, service) or (life.reason, life.message)
    return LifecycleStep(
        phase=_phase(service, members),
        reason=shown[0],
        message=shown[1],
        steps=life.steps,
        waiting=life.waiting,
        release=life.release,
        pull_again_at=life.pull_again_at,
        passed_over=life.passed_over,
        needs_deployment=obstacle is None,
        wake_at=life.wake_at,
    )


def rollout(
    service: WorkloadRecord,
    deployment: DeploymentRecord | None,
    members: Sequence[Member],
    *,
    room_for_one: bool,
) -> Rollout:
    """Surge where a slice is free, else stop first; a single replica waits instead.

    Args:
        service: The service.
        deployment: Its Deployment, if there is one.
        members: The pods.
        room_for_one: True when one more pod would find a slice, or the newest has one.
    """
    if deployment is None:
        return Rollout(*SURGE_FIRST)
    current = (deployment.max_surge, deployment.max_unavailable)
    starts = deployment.template_hash != service.template_hash
    if not starts and not is_rolling(service, members):
        return Rollout(*(current if current in (SURGE_FIRST, STOP_FIRST) else SURGE_FIRST))
    if service.replicas <= 1:
        return Rollout(*SURGE_FIRST, waits=not room_for_one)
    if starts:
        return Rollout(*(SURGE_FIRST if room_for_one else STOP_FIRST))
    return Rollout(*(STOP_FIRST if current == STOP_FIRST or not room_for_one else SURGE_FIRST))


def is_rolling(service: WorkloadRecord, members: Sequence[Member]) -> bool:
    """True while pods of an older template exist."""
    return any(
        member.live
        and not member.pod.deleting
        and member.pod.template_hash
        and member.pod.template_hash != service.template_hash
        for member in members
    )


def children(
    view: View, service: WorkloadRecord, wanted: Rollout, *, extra: int = 0
) -> tuple[Action, ...]:
    """Steps that bring the Service, the Deployment and the router in line with the spec.

    Args:
        view: The cycle's snapshot.
        service: The service.
        wanted: The update strategy.
        extra: Replicas beyond those wanted, while one moves to another device.
    """
    epoch, ref = view.settings.epoch, service.ref
    key = (ref.namespace, ref.name)
    deployment = view.snapshot.deployments.get(key)
    new_template = deployment is None or deployment.template_hash != service.template_hash
    front = view.snapshot.services.get(key)
    routed = leads_to_router(view, service)
    steps: list[Action] = [*router_steps(view, service, new_template=new_template)]
    if new_template or front is None or front.routed != routed or _other_ports(service, front):
        steps.append(_front(service, epoch, routed=routed))
    replicas = _made(view, service, deployment) + extra
    apply = ApplyDeployment(
        owner=ref,
        name=ref.name,
        replicas=replicas,
        max_surge=wanted.max_surge,
        max_unavailable=wanted.max_unavailable,
        template_hash=service.template_hash,
        epoch=epoch,
        reason=Reason.STARTING,
        text=f"{replicas} replicas, surge {wanted.max_surge}",
    )
    if deployment is None or _differs(deployment, apply):
        steps.append(apply)
    return tuple(steps)


def _made(view: View, service: WorkloadRecord, deployment: DeploymentRecord | None) -> int:
    """Number of replicas for the Deployment: those with a place and ``MOST_WAITING`` more.

    Waiting pods make every decision slower; the others are created as these get places.
    """
    if service.replicas <= MOST_WAITING:
        return service.replicas
    placed = sum(
        member.live and not member.pod.deleting and (bool(member.held) or not member.gated)
        for member in view.members_of(service)
    )
    stands = deployment.replicas if deployment is not None else 0
    return min(service.replicas, max(stands, placed + MOST_WAITING))


def _front(service: WorkloadRecord, epoch: int, *, routed: bool) -> ApplyService:
    """The Service that clients use."""
    ref, batching = service.ref, service.batching
    if routed and batching is not None:
        return ApplyRoutedService(
            owner=ref,
            name=ref.name,
            headless=False,
            grpc_port=batching.grpc_port,
            epoch=epoch,
            reason=Reason.STARTING,
            text="leads to the router",
        )
    return ApplyService(
        owner=ref,
        name=ref.name,
        headless=False,
        epoch=epoch,
        reason=Reason.STARTING,
        text="serves the ports of the device container",
    )


def _other_ports(service: WorkloadRecord, front: ServiceRecord) -> bool:
    """True when a Service that leads to the router has another gRPC port than the spec."""
    if not front.routed or service.batching is None:
        return False
    wanted = service.batching.grpc_port
    return wanted not in front.ports if wanted else len(front.ports) > 1


def _differs(deployment: DeploymentRecord, apply: ApplyDeployment) -> bool:
    return (
        deployment.replicas,
        deployment.max_surge,
        deployment.max_unavailable,
        deployment.template_hash,
    ) != (apply.replicas, apply.max_surge, apply.max_unavailable, apply.template_hash)


def _obstacle(view: View, service: WorkloadRecord) -> tuple[Reason, str] | None:
    """The reason for which the Deployment or the Service cannot be written."""
    key = (service.ref.namespace, service.ref.name)
    if not service.has_port:
        return Reason.NO_PORT, "the first container of the template names no port to serve"
    deployment = view.snapshot.deployments.get(key)
    if deployment is not None and deployment.owner_uid != service.ref.uid:
        message = f"the Deployment {key[1]} exists and belongs to another owner"
        return Reason.NAME_CONFLICT, message
    child = view.snapshot.services.get(key)
    if child is not None and child.owner_uid != service.ref.uid:
        return Reason.NAME_CONFLICT, f"the Service {key[1]} exists and belongs to another owner"
    return write_refused(view, "Deployment", *key) or write_refused(view, "Service", *key)


def _under_retry(view: View, service: WorkloadRecord) -> tuple[Reason, str] | None:
    """The API's last error about a child that does not exist yet and is tried again."""
    key = (service.ref.namespace, service.ref.name)
    deployment = view.snapshot.deployments.get(key)
    made = deployment is not None and deployment.template_hash == service.template_hash
    if made and key in view.snapshot.services:
        return None
    return refusal_under_retry(service)


def _pods(
    view: View, inventory: Inventory, service: WorkloadRecord, members: Sequence[Member]
) -> LifecycleStep:
    """The steps for each pod on its own."""
    epoch = view.settings.epoch
    steps: list[Action] = []
    waiting: list[Member] = []
    release: list[Member] = []
    blocked: list[Member] = []
    passed: Passed | None = None
    unpulled: DeletePod | None = None
    for member in members:
        if member.pod.deleting:
            continue
        if not member.gated:
            step = _cure(view, service, member, epoch)
            steps.extend((step,) if step else ())
            if isinstance(step, DeletePod) and step.reason is Reason.IMAGE_PULL_FAILED:
                unpulled = step
            eviction = view.evictions.get(member.pod.uid)
            if eviction is not None:
                passed = passed or Passed(
                    reason=eviction.reason, device=eviction.device, message=eviction.message
                )
            stuck = timeouts.trouble(view, member)
            if stuck is not None and stuck.reason is Reason.STUCK_UNSCHEDULED:
                passed = passed or Passed(
                    reason=stuck.reason, device=stuck.device, message=stuck.message
                )
            continue
        if member.foreign_gates:
            blocked.append(member)
            release.extend((member,) if member.held else ())
            continue
        failed = _reservation_failed(view, inventory, member) if member.held else None
        if failed is not None:
            passed = passed or failed
            release.append(member)
            if failed.reason is not Reason.RESERVATION_EXPIRED:
                waiting.append(member)
        elif not member.held:
            waiting.append(member)
        elif member.reserved and not write_refused(
            view, "Pod", member.pod.namespace, member.pod.name
        ):
            steps.append(ungate(view, service, member))
    moments = [timeouts.next_look(view, member) for member in members]
    again = service.status.scheduling.pull_again_at
    if unpulled is not None:
        again = view.now + after_pull_failure_s(view, service)
    tried = service.status.template_hash  # its image could not be pulled
    unchanged = all(member.pod.template_hash == tried for member in waiting)
    held_back = bool(waiting) and again > view.now and unchanged
    reason, message = _why_none_waits(service, blocked, unpulled, held_back, len(members))
    return LifecycleStep(
        phase=Phase.PENDING,
        reason=reason,
        message=message,
        steps=tuple(steps),
        waiting=() if held_back else tuple(waiting),
        pull_again_at=again if unpulled is not None else 0.0,
        release=tuple(release),
        passed_over=passed,
        wake_at=earliest(
            *moments,
            deadline(view, [member for member in members if member.gated]),
            again if held_back else 0.0,
        ),
    )


def _why_none_waits(
    service: WorkloadRecord,
    blocked: Sequence[Member],
    unpulled: DeletePod | None,
    held_back: bool,
    members: int,
) -> tuple[Reason | None, str]:
    """The reason and message for pods that may not be placed now."""
    if unpulled is not None:
        return unpulled.reason, unpulled.text
    if held_back:
        before = service.status.decision
        pull_failed = before is not None and before.reason is Reason.IMAGE_PULL_FAILED
        again = "its image could not be pulled; it is placed again after a while"
        return Reason.IMAGE_PULL_FAILED, before.message if before and pull_failed else again
    if blocked:
        return Reason.WAITING_FOR_GATE, gates_text(blocked, members)
    return None, ""


def _cure(view: View, service: WorkloadRecord, member: Member, epoch: int) -> Action | None:
    """Delete a pod that is stuck; its ReplicaSet creates another.

    A replica that serves and has to leave is replaced first, where that is possible.
    """
    if member.pod.lost_race:
        text = "lost its place at admission"
        return delete(service, member, epoch, Reason.LOST_RACE, text)
    trouble = timeouts.trouble(view, member)
    runs = member.pod.stage is PodStage.RUNNING
    if trouble is None or (runs and leaves_by_surge(trouble.reason)):
        return None
    act = evict if runs else delete
    return act(service, member, epoch, trouble.reason, trouble.message)


def _reservation_failed(view: View, inventory: Inventory, member: Member) -> Passed | None:
    refusal = refusal_of([member])
    if refusal is not None:
        return refusal
    late = timeouts.overdue(view, member)
    if late is not None:
        return expiry_of(late)
    lost = timeouts.node_is_lost(inventory, member)
    if lost is None:
        return None
    return Passed(reason=lost.reason, device=member.held[0].device, message=lost.text)


def _phase(service: WorkloadRecord, members: Sequence[Member]) -> Phase:
    ready = sum(member.pod.ready and member.live and not member.pod.deleting for member in members)
    if ready >= service.replicas:
        return Phase.READY
    served_before = service.status.phase in (Phase.READY, Phase.DEGRADED)
    return Phase.DEGRADED if ready or served_before else Phase.PENDING
