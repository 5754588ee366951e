# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Phase 5 of a cycle: consequences of the grants.

Services get the Deployment that there is room for, elastic gangs grow into free devices, running
work that no longer fits moves, and nodes are requested for unplaced workloads.
"""

from __future__ import annotations

from dataclasses import replace

from ullage.api.reasons import Reason
from ullage.cluster.records.snapshot import DeploymentRecord
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.scheduling.assignment.cycle_context import Assignments, CycleContext
from ullage.scheduling.assignment.moves import next_move
from ullage.scheduling.assignment.nominate import Nominations
from ullage.scheduling.assignment.pods import create_pods, give_up
from ullage.scheduling.assignment.reevaluation import Finding
from ullage.scheduling.assignment.replica_kinds import kinds_of
from ullage.scheduling.capacity.node_requests import order_nodes
from ullage.scheduling.elastic.sizing import Sizing
from ullage.scheduling.lifecycle import inference as lifecycle_inference
from ullage.scheduling.lifecycle.in_place import free_ranks
from ullage.scheduling.lifecycle.scaling import ReplicaContext, scale
from ullage.scheduling.lifecycle.surge import Leaving, Move, leave
from ullage.scheduling.model.faults import Blames
from ullage.scheduling.model.lifecycle_step import LifecycleStep, Passed, earliest
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.placement.attempt import Outcome, Refused, Requeue
from ullage.scheduling.placement.clearing import clearing_s
from ullage.scheduling.placement.preemption import present
from ullage.scheduling.placement.room import elsewhere
from ullage.scheduling.placement.spread import SpotPools


def reconcile(context: CycleContext, nominated: Nominations, result: Assignments) -> None:
    """Bring the objects of each workload in line with its grants."""
    lifecycles, blames = context.lifecycles, Blames(context.view.snapshot)
    for uid, service in context.view.index.those(context.view.index.services):
        if lifecycles[uid].needs_deployment:
            _deploy(context, service, result)
        elif not lifecycles[uid].silent:
            _leave(context, service, result, None, busy=False)
        if service.scaling is not None and not lifecycles[uid].silent:
            with blames.of(service.ref):
                _scale(context, service, result)
    blames.settle()
    _resize(context, nominated, result)
    result.warnings = _move(context, result)
    mover = next_move(context, result.entries.outcomes())
    result.moves_at = mover.wake_at
    if mover.finding is not None:
        job = context.view.snapshot.workloads[mover.uid]
        context.lifecycles[mover.uid] = _starts_again(job, mover.finding)
    outcomes = result.entries.outcomes()
    lacking = nominated.sizing.lacking()
    held = context.placer.occupancy.quota
    result.node_requests = order_nodes(
        context.view, context.capacity_choices, outcomes, lacking, held
    )


def _resize(context: CycleContext, nominated: Nominations, result: Assignments) -> None:
    """Grow or shrink running elastic gangs, unless a workload was left unserved."""
    sizing: Sizing = nominated.sizing
    if not result.entries.postponed():
        sizing.run(nominated.queue, nominated.attempts, result.entries.outcomes())
    for job, count in sizing.leaves:
        leaving = present(context.view, context.view.members_of(job))[-count:]
        pods = {member.pod.uid for member in leaving}
        give_up(context, job, pods, sizing.changes[job.ref.uid].record.message)
    for job, count, above in sizing.joins:
        create_pods(context, job, free_ranks(context.view, job, count, above), result)
    for uid, size in sizing.changes.items():
        result.entries.of(uid).size = size


def _deploy(context: CycleContext, service: WorkloadRecord, result: Assignments) -> None:
    """Keep the Deployment and the Service of an InferenceDeployment as wanted."""
    uid = service.ref.uid
    key = (service.ref.namespace, service.ref.name)
    deployment = context.view.snapshot.deployments.get(key)
    request = context.requests.of(service, service.shape)
    if deployment is None:
        infeasible = context.feasibility.judge(service, request)
        if infeasible is not None:
            result.entries.of(uid).outcome = Outcome(refused=Refused.for_good(infeasible))
            return
    members = context.view.members_of(service)
    changing = deployment is not None and (
        deployment.template_hash != service.template_hash
        or lifecycle_inference.is_rolling(service, members)
    )
    outcome = result.entries.outcome(uid)
    room = True
    if changing:
        newcomers = any(member.gated and not member.pod.deleting for member in members)
        refused_now = outcome is not None and outcome.refused is not None
        room = not refused_now if newcomers else context.placer.has_room(request)
    wanted = lifecycle_inference.rollout(service, deployment, members, room_for_one=room)
    result.entries.of(uid).rollout = wanted
    leaving = _leave(context, service, result, deployment, busy=changing)
    result.steps.extend(
        lifecycle_inference.children(context.view, service, wanted, extra=leaving.extra)
    )


def _scale(context: CycleContext, service: WorkloadRecord, result: Assignments) -> None:
    """Set the number of replicas by the objective, where the operator scales."""
    step = scale(context.view, service, _around(context, service))
    if step is None:
        return
    result.entries.of(service.ref.uid).scaling = step
    if step.action is not None:
        result.steps.append(step.action)
    result.scales_at = earliest(result.scales_at, step.wake_at)


def _around(context: CycleContext, service: WorkloadRecord) -> ReplicaContext:
    """Conditions that one more replica of a service would meet."""

    def clearing() -> float:
        if context.placer.has_room(context.requests.of(service, service.shape)):
            return 0.0
        return clearing_s(context.view, service) or 0.0

    def spare(needed: int, within_s: float) -> int:
        if not context.view.snapshot.pools:
            return 0
        pools = SpotPools(context.view.snapshot, context.inventory)
        return pools.spare(service, context.view.members_of(service), needed, within_s)

    return ReplicaContext(
        clearing_s=clearing, spare=spare, kinds=lambda: kinds_of(context, service)
    )


def _leave(
    context: CycleContext,
    service: WorkloadRecord,
    result: Assignments,
    deployment: DeploymentRecord | None,
    *,
    busy: bool,
) -> Leaving:
    """Move replicas off their device, beside their replacements if possible."""
    uid = service.ref.uid
    outcome = result.entries.outcome(uid)
    leaving = leave(
        Move(
            view=context.view,
            placer=context.placer,
            requests=context.requests,
            service=service,
            deployment=deployment,
            busy=busy,
            refused=outcome is not None and outcome.refused is not None,
            awaited=_is_awaited(outcome),
            placed=frozenset(outcome.sites if outcome is not None else ()),
        )
    )
    result.entries.of(uid).leaving = leaving
    result.steps.extend(leaving.steps)
    life = context.lifecycles[uid]
    if leaving.wake_at:
        context.lifecycles[uid] = replace(life, wake_at=earliest(life.wake_at, leaving.wake_at))
    return leaving


def _is_awaited(outcome: Outcome | None) -> bool:
    """True if other workloads are leaving a device for a waiting pod of a service."""
    refused = outcome.refused if outcome is not None else None
    return refused is not None and refused.requeue is Requeue.ROOM_COMING


def _move(context: CycleContext, result: Assignments) -> dict[str, tuple[Reason, str]]:
    """Restart jobs where they are predicted to fit.

    Runs after all waiting workloads were served, so that no job moves to a place that is granted in
    the same cycle.

    Returns:
        Warnings about work that stays, by uid.
    """
    warnings: dict[str, tuple[Reason, str]] = {}
    for uid, finding in sorted(context.findings.items()):
        workload = context.view.snapshot.workloads[uid]
        life = context.lifecycles[uid]
        if life.silent or life.phase.terminal:
            continue
        if workload.kind is not WorkloadKind.TRAINING_JOB:
            message = finding.stays or _replaced(result, workload)
            warnings[uid] = (finding.reason, f"{finding.text}; {message}")
        elif life.phase is Phase.RUNNING and not life.waiting:
            stays = _stays(context, workload, finding)
            if stays:
                warnings[uid] = (finding.reason, f"{finding.text}; {stays}")
                continue
            if finding.made_room is not None:
                result.entries.of(uid).made_room = finding.made_room
            context.lifecycles[uid] = _starts_again(workload, finding)
    return warnings


def _starts_again(job: WorkloadRecord, finding: Finding) -> LifecycleStep:
    text = f"{finding.text}; it restarts from its checkpoint"
    passed = None
    if finding.device is not None:
        passed = Passed(reason=finding.because, device=finding.device, message=finding.text)
    return LifecycleStep(
        phase=Phase.RESTARTING,
        reason=finding.because,
        message=text,
        restarts=job.status.restarts,
        passed_over=passed,
    )


def _replaced(result: Assignments, workload: WorkloadRecord) -> str:
    """Decisions about a service, or about adopted pods."""
    if workload.kind is WorkloadKind.POD:
        return "it stays, because only its own controller can start it again"
    entry = result.entries.get(workload.ref.uid)
    if entry is not None and entry.leaving is not None and entry.leaving.under_way:
        return "replicas are replaced one after the other"
    return "it stays until there is room for a replacement that fits"


def _stays(context: CycleContext, job: WorkloadRecord, finding: Finding) -> str:
    """The reason why a job is not moved; empty if it is."""
    if finding.stays:
        return finding.stays
    if not job.checkpoint:
        return "it stays, because without spec.checkpoint a restart would lose its work"
    if finding.waits or finding.made_room is not None:
        return ""
    members = context.view.members_of(job)
    if not elsewhere(context.placer, context.requests, job, members, here_too=finding.here_too):
        return "it stays, because no other place is predicted to keep it now"
    return ""
