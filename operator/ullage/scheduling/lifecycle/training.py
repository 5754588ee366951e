# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The lifecycle of a TrainingJob: pods are created, run, fail, restart and end.

The next step follows from the pods and the phase in the status. A restart is written into the
status before a pod is deleted, so that every failure is counted exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import compress, repeat
from operator import is_not
from typing import Final

from ullage.api.reasons import ConditionType, Reason, Standing
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.names import pod_name, workers_service
from ullage.scheduling.inventory import timeouts
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.lifecycle.drain import with_evictions
from ullage.scheduling.lifecycle.gang import advance, deadline
from ullage.scheduling.lifecycle.in_place import life_in_place
from ullage.scheduling.lifecycle.node_losses import without_node_losses
from ullage.scheduling.lifecycle.termination import close, completion, find_ending, last_at_work
from ullage.scheduling.model.lifecycle_step import (
    LifecycleStep,
    delete,
    evict,
    refusal_under_retry,
    write_refused,
)
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import Action, DeleteWorkload
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.times import POD_WRITTEN_OFF_S

_PHASES: Final = {phase.value: phase for phase in Phase}
_COMING: Final = (Reason.WAITING_FOR_DECISION, "its pods are being created")


def training_step(view: View, inventory: Inventory, job: WorkloadRecord) -> LifecycleStep:
    """The next step of the job."""
    job = without_node_losses(view, job)
    everyone = view.members_of(job)
    if job.status.phase == Phase.RUNNING and _runs_well(view, job, everyone):
        return running(job.status.restarts)
    members = [member for member in everyone if 0 <= member.pod.rank < job.replicas]
    phase = _phase(job)
    if job.deleting:
        return LifecycleStep(phase=phase, silent=True)
    if phase.terminal:
        return _after_the_end(view, job, everyone)
    if not job.shape.device_container:
        return LifecycleStep(phase=phase, reason=Reason.INVALID_OBJECT, message=job.invalid)
    done = completion(view, job, members) if len(members) == job.replicas else ""
    if done:
        return _kept(job, Phase.SUCCEEDED, Reason.COMPLETED, done)
    if job.suspend:
        return _suspend(view, job, everyone)
    if phase is Phase.RESTARTING:
        return _tear_down(view, job, everyone)
    if job.in_place:
        life = life_in_place(view, inventory, job, everyone)
        if life is not None:
            return life
    ending = find_ending(view, job, members)
    if ending is not None:
        return with_evictions(view, job, members, close(view, job, members, ending))
    surplus = len(everyone) > len(members)
    unstarted = all(member.gated for member in members)
    outdated = unstarted and any(_is_outdated(job, member) for member in members)
    if surplus or len(members) < job.replicas or outdated:
        return _grow(view, job, members)
    leaving = next((member for member in members if member.gated and member.pod.deleting), None)
    if leaving is not None:
        message = f"{leaving.pod.name} is being deleted and is created again when it is gone"
        return _kept(job, Phase.PENDING, Reason.WAITING_FOR_DECISION, message)
    return advance(view, inventory, job, members)


def _runs_well(view: View, job: WorkloadRecord, members: Sequence[Member]) -> bool:
    """True when all members run, no slice failed, and no action is needed."""
    if len(members) != job.replicas or job.deleting or job.suspend:
        return False
    if job.in_place and (view.snapshot.creating or job.status.retry_at > view.now):
        return False
    for member in members:
        pod = member.pod
        if pod.stage is not PodStage.RUNNING or pod.deleting:
            return False
        if pod.rank >= job.replicas and not job.in_place:
            return False
        if pod.uid in view.evictions:
            return False
        for held in member.held:
            if held.seen is not None and held.seen.phase is SlicePhase.FAILED:
                return False
    return bool(job.shape.device_container)


@lru_cache(maxsize=256)
def running(restarts: int) -> LifecycleStep:
    """The step of a healthy running job: nothing to do."""
    return LifecycleStep(phase=Phase.RUNNING, restarts=restarts)


def busy(lifecycles: Mapping[str, LifecycleStep]) -> list[str]:
    """Uids of all workloads but healthy running jobs, in order: nothing is due for those.

    Most jobs of a large cluster run, and are skipped without a look at each. A job that was
    restarted before may be among the others.
    """
    plain = repeat(running(0))
    return list(compress(lifecycles, map(is_not, lifecycles.values(), plain)))


def _tear_down(view: View, job: WorkloadRecord, members: Sequence[Member]) -> LifecycleStep:
    """Delete every pod of the last run before the first of the next is created."""
    reason, message = _present_reason(job)
    if not members and not _creating(view, job):
        return _kept(job, Phase.PENDING, reason, message)
    epoch, whole = view.settings.epoch, _is_whole(job, members)
    steps: list[Action] = []
    last = last_at_work(members)  # succeeded members stay until its exit code is known
    for member in members if last is None else (last,):
        if member.pod.deleting:
            if _is_written_off(view, job, member):
                text = (
                    f"{member.pod.node} does not answer; the others go on without {member.pod.name}"
                )
                gone = delete(job, member, epoch, reason, text)
                steps.append(replace(gone, at_once=True))
            continue
        if Standing.OURS in reason.standing and whole and member.live and not member.gated:
            steps.append(evict(job, member, epoch, reason, message))
        else:
            steps.append(delete(job, member, epoch, reason, message))
    return LifecycleStep(
        phase=Phase.RESTARTING,
        reason=reason,
        message=message,
        restarts=job.status.restarts,
        retry_at=job.status.retry_at,
        steps=tuple(steps),
        release=tuple(member for member in members if member.gated and member.held),
        wake_at=_written_off_at(view, job, members),
    )


def _is_whole(job: WorkloadRecord, members: Sequence[Member]) -> bool:
    """True when the run still has all its members, so that disruption budgets are respected.

    An incomplete gang cannot continue: a budget that protects it would block the next run for ever.
    """
    wanted = max((member.pod.world_size for member in members), default=0) or job.replicas
    return len(members) >= wanted and all(
        member.live and not member.pod.deleting for member in members
    )


def _is_written_off(view: View, job: WorkloadRecord, member: Member) -> bool:
    """True when an elastic gang continues without noticing that this pod has ended.

    Only when a member needs the others for every step: one that can train alone behind a network
    partition could overwrite the checkpoints of the new members.
    """
    size, pod = job.status.size, member.pod
    node = view.snapshot.nodes.get(pod.node)
    bounds = job.elasticity
    in_place = bounds is not None and bounds.in_place
    fewest = bounds.min_replicas if bounds is not None and in_place else pod.world_size
    return (
        size is not None
        and bool(size.resumes)
        and fewest > 1
        and bool(pod.node)
        and (node is None or not node.ready)
        and view.now >= size.resumes + POD_WRITTEN_OFF_S
    )


def _written_off_at(view: View, job: WorkloadRecord, members: Sequence[Member]) -> float:
    """Time at which pods on a silent node are considered lost; 0 = there are none."""
    size = job.status.size
    if size is None or not size.resumes or all(not member.pod.deleting for member in members):
        return 0.0
    at = size.resumes + POD_WRITTEN_OFF_S
    return at if at > view.now else 0.0


def _suspend(view: View, job: WorkloadRecord, members: Sequence[Member]) -> LifecycleStep:
    message = "spec.suspend is true"
    if not members and not _creating(view, job):
        return _kept(job, Phase.SUSPENDED, Reason.SUSPENDED, message)
    epoch, whole = view.settings.epoch, _is_whole(job, members)
    steps: list[Action] = []
    last = last_at_work(members)
    for member in members if last is None else (last,):
        if member.pod.deleting:
            continue
        act = evict if whole and member.live and not member.gated else delete
        steps.append(act(job, member, epoch, Reason.SUSPENDED, message))
    return LifecycleStep(
        phase=Phase.SUSPENDING,
        reason=Reason.SUSPENDED,
        message=message,
        restarts=job.status.restarts,
        steps=tuple(steps),
        release=tuple(member for member in members if member.gated and member.held),
    )


def _after_the_end(view: View, job: WorkloadRecord, members: Sequence[Member]) -> LifecycleStep:
    """Delete pods that still run, and the job after its TTL; finished pods stay for their logs."""
    epoch = view.settings.epoch
    finished = job.status.condition(ConditionType.FINISHED)
    reason = _reason(finished.reason if finished else "", Reason.COMPLETED)
    steps: list[Action] = [
        delete(job, member, epoch, reason, "the job has ended")
        for member in members
        if member.live and not member.pod.deleting
    ]
    wake_at = 0.0
    if job.ttl_seconds_after_finished is not None and job.status.completion_time > 0:
        wake_at = job.status.completion_time + job.ttl_seconds_after_finished
        if view.now >= wake_at:
            text = f"ended {view.now - job.status.completion_time:.0f} s ago"
            steps.append(DeleteWorkload(owner=job.ref, epoch=epoch, reason=reason, text=text))
            wake_at = 0.0
    return LifecycleStep(
        phase=_phase(job),
        reason=reason,
        message=finished.message if finished else "",
        restarts=job.status.restarts,
        steps=tuple(steps),
        release=tuple(member for member in members if member.gated and member.held),
        wake_at=wake_at,
    )


def _grow(view: View, job: WorkloadRecord, members: Sequence[Member]) -> LifecycleStep:
    """Create missing pods and delete outdated ones before the gang starts."""
    if view.now < job.status.retry_at:
        reason, message = _present_reason(job)
        return LifecycleStep(
            phase=Phase.PENDING,
            reason=reason,
            message=message,
            restarts=job.status.restarts,
            retry_at=job.status.retry_at,
            wake_at=job.status.retry_at,
        )
    stale = [
        member
        for member in view.members_of(job)
        if not member.pod.deleting and (member not in members or _is_outdated(job, member))
    ]
    if stale:
        text = "the template or the number of replicas changed before the start"
        return LifecycleStep(
            phase=Phase.PENDING,
            reason=Reason.WAITING_FOR_DECISION,
            message=text,
            restarts=job.status.restarts,
            steps=tuple(
                delete(job, member, view.settings.epoch, Reason.WAITING_FOR_DECISION, text)
                for member in stale
            ),
            release=tuple(member for member in stale if member.held),
        )
    return _missing(view, job, members)


def _missing(view: View, job: WorkloadRecord, members: Sequence[Member]) -> LifecycleStep:
    namespace = job.ref.namespace
    obstacle = _obstacle(view, job)
    present = {member.pod.rank for member in members}
    missing: list[int] = []
    for rank in range(job.replicas):
        name = (namespace, pod_name(job.ref.name, rank))
        if rank in present or name in view.snapshot.creating:
            continue
        holder = view.names.get(name)
        if holder is not None and not holder.deleting and holder.owner.uid != job.ref.uid:
            owner = view.snapshot.workloads.get(holder.owner.uid)
            if owner is not None or not holder.owner.uid:
                obstacle = obstacle or (
                    Reason.NAME_CONFLICT,
                    f"the pod {name[1]} exists and belongs to {holder.owner.name or 'no one'}",
                )
        elif holder is None:
            missing.append(rank)
        obstacle = obstacle or write_refused(view, "Pod", *name)
    late = [member for member in members if member.held and timeouts.overdue(view, member)]
    reason, message = obstacle or refusal_under_retry(job) or _COMING
    if not members and (reason, message) == _COMING:
        return _coming(job.status.restarts, job.status.retry_at, tuple(missing))
    return LifecycleStep(
        phase=Phase.PENDING,
        reason=reason,
        message=message,
        restarts=job.status.restarts,
        retry_at=job.status.retry_at,
        missing=() if obstacle else tuple(missing),
        release=tuple(late),
        wake_at=deadline(view, members),
    )


@lru_cache(maxsize=256)
def _coming(restarts: int, retry_at: float, missing: tuple[int, ...]) -> LifecycleStep:
    """The step of a job without pods or obstacles; cached because thousands may be equal."""
    reason, message = _COMING
    return LifecycleStep(
        phase=Phase.PENDING,
        reason=reason,
        message=message,
        restarts=restarts,
        retry_at=retry_at,
        missing=missing,
    )


def _obstacle(view: View, job: WorkloadRecord) -> tuple[Reason, str] | None:
    """The reason for which the gang's Service cannot be created, if it needs one."""
    if job.replicas == 1 and not job.in_place:
        return None
    name = workers_service(job.ref.name)
    service = view.snapshot.services.get((job.ref.namespace, name))
    if service is not None and service.owner_uid != job.ref.uid:
        return Reason.NAME_CONFLICT, f"the Service {name} exists and belongs to another owner"
    return write_refused(view, "Service", job.ref.namespace, name)


def _kept(job: WorkloadRecord, phase: Phase, reason: Reason, message: str) -> LifecycleStep:
    return LifecycleStep(
        phase=phase,
        reason=reason,
        message=message,
        restarts=job.status.restarts,
        retry_at=job.status.retry_at,
    )


def _phase(job: WorkloadRecord) -> Phase:
    return _PHASES.get(job.status.phase, Phase.PENDING)


def _present_reason(job: WorkloadRecord) -> tuple[Reason, str]:
    """Reason and message of the end of the last run, from the status."""
    admitted = job.status.condition(ConditionType.ADMITTED)
    if admitted is None:
        return Reason.MEMBER_LOST, ""
    return _reason(admitted.reason, Reason.MEMBER_LOST), admitted.message


def _reason(word: str, default: Reason) -> Reason:
    try:
        return Reason(word)
    except ValueError:
        return default


def _creating(view: View, job: WorkloadRecord) -> bool:
    if not view.snapshot.creating:
        return False
    namespace = job.ref.namespace
    return any(
        (namespace, pod_name(job.ref.name, rank)) in view.snapshot.creating
        for rank in range(job.replicas)
    )


def _is_outdated(job: WorkloadRecord, member: Member) -> bool:
    if member.pod.world_size and member.pod.world_size != job.replicas:
        return True
    made_from = member.pod.template_hash
    return bool(made_from) and bool(job.template_hash) and made_from != job.template_hash
