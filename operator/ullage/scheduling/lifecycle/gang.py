# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""All-or-nothing start of a gang: reserve, wait for every node, ungate in one pass.

No member is ungated before every member has a slice that its node acknowledged. Another leader can
resume the pass, because the gates that are left are its progress.
"""

from __future__ import annotations

from collections.abc import Sequence

from ullage.api.labels import GATE
from ullage.api.reasons import Reason
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.inventory import timeouts
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.model.lifecycle_step import (
    LifecycleStep,
    Passed,
    earliest,
    pod_ref,
    write_refused,
)
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import CreateReservedPod, UngatePod
from ullage.scheduling.model.view import Held, Member, View


def advance(
    view: View, inventory: Inventory, job: WorkloadRecord, members: Sequence[Member]
) -> LifecycleStep:
    """The next step of a gang whose pods all exist and none of which has failed."""
    gated = [member for member in members if member.gated]
    restarts = job.status.restarts
    if not gated:
        return _under_way(view, members, restarts)
    blocked = blocked_by_others(gated)
    if blocked:
        return LifecycleStep(
            phase=Phase.PENDING if len(gated) == len(members) else Phase.STARTING,
            reason=Reason.WAITING_FOR_GATE,
            message=gates_text(blocked, len(members)),
            restarts=restarts,
            retry_at=job.status.retry_at,
            release=tuple(member for member in gated if member.held),
        )
    late = [(member, held) for member in gated if (held := timeouts.overdue(view, member))]
    if late and len(gated) == len(members):
        expiry = expiry_of(late[0][1])
        return LifecycleStep(
            phase=Phase.PENDING,
            reason=expiry.reason,
            message=expiry.message,
            restarts=restarts,
            retry_at=job.status.retry_at,
            release=tuple(member for member in gated if member.held),
            passed_over=expiry,
        )
    silent = {member.pod.uid for member, _ in late}
    release = [
        member
        for member in gated
        if member.held and (member.pod.uid in silent or must_move(view, inventory, member))
    ]
    lost = {member.pod.uid for member in release}
    waiting = [member for member in gated if not member.held or member.pod.uid in lost]
    reserved = len(gated) - len(waiting)
    if waiting:
        return LifecycleStep(
            phase=Phase.RESERVING if reserved else Phase.PENDING,
            restarts=restarts,
            retry_at=job.status.retry_at,
            waiting=tuple(waiting),
            release=tuple(release),
            passed_over=refusal_of(release),
        )
    if all(member.reserved for member in gated):
        return _ungate_all(view, job, gated)
    answered = sum(member.reserved for member in gated)
    return LifecycleStep(
        phase=Phase.RESERVING,
        message=f"{answered} of {len(gated)} members are reserved by their nodes",
        restarts=restarts,
        retry_at=job.status.retry_at,
        wake_at=deadline(view, gated),
    )


def blocked_by_others(members: Sequence[Member]) -> list[Member]:
    """Members with a gate of another controller; ours is removed last."""
    return [member for member in members if member.foreign_gates]


def gates_text(blocked: Sequence[Member], members: int) -> str:
    """Message that names the gates of other controllers.

    Args:
        blocked: Members with such a gate, at least one.
        members: Number of all members.
    """
    first = blocked[0]
    gates = ", ".join(first.foreign_gates)
    others = f", and so do {len(blocked) - 1} more of {members} members" if len(blocked) > 1 else ""
    return (
        f"{first.pod.name} waits for another controller to remove {gates}{others}; nothing is"
        " reserved before"
    )


def ungate(view: View, workload: WorkloadRecord, member: Member) -> UngatePod | CreateReservedPod:
    """Remove our gate from a member and pin it to the node of its slices.

    A planned member is created without a gate.
    """
    pod, node = member.pod, member.held[0].node
    if pod.planned:
        return CreateReservedPod(
            owner=workload.ref,
            name=pod.name,
            rank=pod.rank,
            template_hash=pod.template_hash,
            reservation=pod.reservation,
            node=node,
            epoch=view.settings.epoch,
            reason=Reason.PLACED,
            text=f"member {pod.rank} of {workload.replicas} is reserved; it goes to {node}",
        )
    return UngatePod(
        pod=pod_ref(member),
        owner=workload.ref,
        node=node,
        gate_index=pod.gates.index(GATE),
        affinity=pod.shape.affinity,
        epoch=view.settings.epoch,
        reason=Reason.PLACED,
        text=f"every member is reserved; {pod.name} goes to {node}",
    )


def deadline(view: View, gated: Sequence[Member]) -> float:
    """Time at which the first unanswered reservation expires; 0 = all are answered."""
    return earliest(
        *(
            timeouts.reserve_ends(view, held)
            for member in gated
            for held in member.held
            if held.seen is None
        )
    )


def _ungate_all(view: View, job: WorkloadRecord, gated: Sequence[Member]) -> LifecycleStep:
    """Ungate every member; the status shows why the API refuses the patch of one."""
    refused: list[tuple[Reason, str]] = []
    ready: list[Member] = []
    for member in gated:
        refusal = write_refused(view, "Pod", member.pod.namespace, member.pod.name)
        if refusal:
            refused.append(refusal)
        else:
            ready.append(member)
    together = len(gated) == len(view.members_of(job))
    planned = tuple(member for member in gated if member.pod.planned)
    if refused and together:
        ready = []
    if refused and planned and not together:  # the others wait for a member that may never come
        return LifecycleStep(
            phase=Phase.RESTARTING,
            reason=refused[0][0],
            message=refused[0][1],
            restarts=job.status.restarts,
            release=planned,
        )
    return LifecycleStep(
        phase=Phase.STARTING if ready else Phase.RESERVING,
        reason=refused[0][0] if refused else None,
        message=refused[0][1] if refused else "",
        restarts=job.status.restarts,
        steps=tuple(ungate(view, job, member) for member in ready),
        release=planned if refused else (),  # what cannot be created keeps no device from others
    )


def must_move(view: View, inventory: Inventory, member: Member) -> bool:
    """True when a gated member cannot use its place any more."""
    if any(held.refused for held in member.held) or member.pod.uid in view.evictions:
        return True
    return timeouts.node_is_lost(inventory, member) is not None


def refusal_of(release: Sequence[Member]) -> Passed | None:
    """The first refusal by a node among these members."""
    for member in release:
        for held in member.held:
            if held.refused:
                return Passed(
                    reason=Reason.RESERVATION_REFUSED,
                    device=held.device,
                    message=timeouts.node_says(held),
                )
    return None


def expiry_of(late: Held) -> Passed:
    """The expiry of a reservation that its node did not answer."""
    return Passed(
        reason=Reason.RESERVATION_EXPIRED,
        device=late.device,
        message=f"{late.node} did not answer to the reservation in time; placed again",
    )


def _under_way(view: View, members: Sequence[Member], restarts: int) -> LifecycleStep:
    if all(member.runs for member in members):
        return LifecycleStep(phase=Phase.RUNNING, restarts=restarts)
    return LifecycleStep(
        phase=Phase.STARTING,
        restarts=restarts,
        wake_at=earliest(*(timeouts.next_look(view, member) for member in members)),
    )
