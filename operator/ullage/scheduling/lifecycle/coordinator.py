# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The coordinator of a job in tiers: created before any member starts, deleted at the end.

It holds a copy of the state in memory, so it outlives restarts of the members; when it is lost
itself, all start again from a checkpoint. The steps of members are decided elsewhere and only
delayed here. Jobs without tiers skip all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ullage.api.labels import LABEL_POOL
from ullage.api.reasons import Reason
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.names import coordinator_name
from ullage.scheduling.inventory.pool_membership import PoolMembership
from ullage.scheduling.inventory.reliable_machines import is_reliable, staying, terms_of
from ullage.scheduling.lifecycle.notice_periods import refused, shortest_notice_s
from ullage.scheduling.lifecycle.termination import Termination, close
from ullage.scheduling.model.lifecycle_step import LifecycleStep, earliest, write_refused
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import (
    Action,
    ApplyService,
    CoordinatorStart,
    CreatePod,
    DeletePod,
    Labels,
    UngatePod,
)
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.times import COORDINATOR_ENDS_S

STATE_LOST: Final = 75
"""Exit code of a coordinator whose members lost more than the copy holds."""
NEVER_JOINED: Final = 3
STATE_TOO_LARGE: Final = 4
KILLED: Final = 137
ENDED: Final = 143
"""Exit code of a coordinator that was stopped."""
_STOPPED: Final = (Phase.SUSPENDING, Phase.SUSPENDED)
_COMING_UP: Final = (Phase.PENDING, Phase.RESERVING, Phase.STARTING)
_NOT_ITS_FAULT: Final = (STATE_LOST, ENDED, None)
"""Exit codes that count as a loss from outside, not as a failure of the job."""


def with_coordinator(view: View, job: WorkloadRecord, life: LifecycleStep) -> LifecycleStep:
    """The step of a job with its coordinator: members start after it and restart with it.

    Args:
        view: The cycle's snapshot.
        job: A TrainingJob.
        life: The step of its members alone.
    """
    if terms_of(job) is None or life.silent:
        return life
    coordinator = view.coordinators.get(job.ref.uid)
    members = view.members_of(job)
    begun = any(member.live and not member.gated for member in members)
    if life.phase in _COMING_UP and not (begun or job.status.start_time):
        invalid = life.reason is Reason.INVALID_OBJECT
        text = "" if invalid else refused(view.snapshot.pools, job)
        if text:
            return _not_started(view, job, coordinator, life, text)
    if _is_over(view, job, coordinator, members, life):
        return _begin_again(view, job, coordinator, members, life)
    if life.phase.terminal or life.phase in _STOPPED:
        return _stop(view, job, coordinator, life)
    if coordinator is not None and (coordinator.stage.finished or coordinator.deleting):
        ends = begun and life.phase is not Phase.RESTARTING  # its members end soon as well
        steps = () if ends else _delete(view, job, coordinator, life)
        return _waiting(view, job, life, steps, "that of the last start is still there")
    if coordinator is None:
        wanted = any(isinstance(step, UngatePod) for step in life.steps)
        return _waiting(view, job, life, _start(view, job), "") if wanted else life
    steps = _service(view, job)
    if coordinator.stage is PodStage.RUNNING:
        return replace(life, steps=(*life.steps, *steps)) if steps else life
    return _waiting(view, job, life, steps, _obstacle(coordinator))


def on_their_machines(steps: Sequence[Action], snapshot: Snapshot) -> tuple[Action, ...]:
    """The steps, where members of jobs in tiers get the affinity and label of their machines."""
    tied: list[Action] = []
    stay: tuple[Labels, ...] | None = None
    pools: PoolMembership | None = None
    for step in steps:
        if (
            isinstance(step, CreatePod)
            and step.order is None
            and _needs_reliable_machine(step, snapshot)
        ):
            stay = staying(snapshot.pools) if stay is None else stay
            step = replace(step, on=stay)
        elif isinstance(step, UngatePod) and _is_in_tiers(step, snapshot):
            pools = pools or PoolMembership.of(snapshot.pools)
            node = snapshot.nodes.get(step.node)
            pool = pools.pool_of(node.labels) if node is not None else None
            if pool is not None:
                step = replace(step, labels=((LABEL_POOL, pool.name),))
        tied.append(step)
    return tuple(tied)


def _needs_reliable_machine(step: CreatePod, snapshot: Snapshot) -> bool:
    job = snapshot.workloads.get(step.owner.uid)
    return job is not None and (step.lead is not None or is_reliable(job, step.rank))


def _is_in_tiers(step: UngatePod, snapshot: Snapshot) -> bool:
    job = snapshot.workloads.get(step.owner.uid)
    return job is not None and terms_of(job) is not None


def _is_over(
    view: View,
    job: WorkloadRecord,
    coordinator: PodRecord | None,
    members: Sequence[Member],
    life: LifecycleStep,
) -> bool:
    """True when running members cannot go on because the coordinator or its copy is lost.

    Members notice before the coordinator has ended, and fail; that is not counted as a failure.
    """
    before, now = job.status.phase, life.phase
    if before == Phase.RESTARTING or before in _STOPPED or all(member.gated for member in members):
        return False
    blamed = now is Phase.FAILED or life.restarts > job.status.restarts
    if (now.terminal or now in (*_STOPPED, Phase.RESTARTING)) and not blamed:
        return False
    if view.snapshot.leads.get(job.ref.uid) is not None and _lost_state(members):
        return True
    if coordinator is None:
        return (job.ref.namespace, coordinator_name(job.ref.name)) not in view.snapshot.creating
    # a coordinator that succeeded has done all steps, and its members are about to end
    return coordinator.stage in (PodStage.FAILED, PodStage.STOPPED) or (
        coordinator.deleting and not coordinator.stage.finished
    )


def _lost_state(members: Sequence[Member]) -> bool:
    """True when a member reports the loss of the state; the coordinator ends later."""
    return any(
        member.pod.stage is PodStage.FAILED and member.pod.exit_code == STATE_LOST
        for member in members
    )


def _begin_again(
    view: View,
    job: WorkloadRecord,
    coordinator: PodRecord | None,
    members: Sequence[Member],
    life: LifecycleStep,
) -> LifecycleStep:
    """Restart every member; a coordinator that failed by itself counts as a failure of the job."""
    name = coordinator_name(job.ref.name)
    code = coordinator.exit_code if coordinator is not None else None
    if coordinator is not None and not coordinator.stage.finished and _lost_state(members):
        code = STATE_LOST
    failed = (
        coordinator is not None
        and coordinator.stage is PodStage.FAILED
        and not coordinator.disrupted
    )
    counted = failed and code not in _NOT_ITS_FAULT
    ending = Termination(
        Reason.LEAD_LOST,
        _what_happened(name, coordinator, code),
        counted=counted,
        code=code,
        at=coordinator.stage_since if coordinator is not None else view.now,
    )
    again = close(view, job, members, ending)
    return replace(
        again, steps=tuple(step for step in life.steps if not isinstance(step, UngatePod))
    )


def _what_happened(name: str, coordinator: PodRecord | None, code: int | None) -> str:
    if coordinator is None or coordinator.deleting or coordinator.disrupted:
        return f"{name}, which led the job and held the copy of its state, is gone"
    if code == STATE_LOST:
        return f"{name}: more members were lost than the copy of the state makes up for"
    if code == NEVER_JOINED:
        return (
            f"{name}: too few members joined, or they begin at different steps; does the program"
            " use ullage_run.group, and do all members see one folder of checkpoints?"
        )
    if code == STATE_TOO_LARGE:
        return f"{name}: the state is larger than elasticity.backup.stateBytes; raise it"
    if code == KILLED:
        return (
            f"{name} was killed, as happens without memory left: give elasticity.backup.stateBytes "
            "what the state really takes"
        )
    return f"{name}, which led the job, failed with exit code {code}"


def _stop(
    view: View, job: WorkloadRecord, coordinator: PodRecord | None, life: LifecycleStep
) -> LifecycleStep:
    """Stop the coordinator of a job that is over; one that has ended stays for its log."""
    if coordinator is None or (coordinator.stage.finished and life.phase.terminal):
        return life
    stops = life.phase is Phase.SUSPENDING and not coordinator.deleting
    if stops and any(member.live and not member.gated for member in view.members_of(job)):
        return life  # members finish their step with it, and save
    if life.phase is Phase.SUCCEEDED and not coordinator.deleting:
        ends = (job.status.completion_time or view.now) + COORDINATOR_ENDS_S
        if view.now < ends:
            return replace(life, wake_at=earliest(life.wake_at, ends))
    steps = _delete(view, job, coordinator, life)
    return replace(life, steps=(*life.steps, *steps)) if steps else life


def _delete(
    view: View, job: WorkloadRecord, coordinator: PodRecord, life: LifecycleStep
) -> tuple[Action, ...]:
    """Delete a coordinator; without grace on a node that is not Ready."""
    node = view.snapshot.nodes.get(coordinator.node)
    silent = bool(coordinator.node) and (node is None or not node.ready)
    if coordinator.deleting and not silent:
        return ()
    return (
        DeletePod(
            pod=ObjectRef(
                kind="Pod",
                namespace=coordinator.namespace,
                name=coordinator.name,
                uid=coordinator.uid,
            ),
            owner=job.ref,
            at_once=coordinator.deleting,
            epoch=view.settings.epoch,
            reason=life.reason or Reason.LEAD_LOST,
            text=f"{coordinator.name} is not needed any more",
        ),
    )


def _start(view: View, job: WorkloadRecord) -> tuple[Action, ...]:
    name = coordinator_name(job.ref.name)
    if (job.ref.namespace, name) in view.snapshot.creating:
        return ()
    notice_s = shortest_notice_s(view.snapshot.pools, job)
    pod = CreatePod(
        owner=job.ref,
        name=name,
        rank=-1,
        template_hash=job.template_hash,
        lead=CoordinatorStart(members=job.replicas, notice_s=notice_s),
        epoch=view.settings.epoch,
        reason=Reason.WAITS_FOR_LEAD,
        text=f"leads the {job.replicas} members",
    )
    return (*_service(view, job), pod)


def _service(view: View, job: WorkloadRecord) -> tuple[Action, ...]:
    """Create the headless Service that names the coordinator, unless it exists."""
    name = coordinator_name(job.ref.name)
    if (job.ref.namespace, name) in view.snapshot.services:
        return ()
    return (
        ApplyService(
            owner=job.ref,
            name=name,
            headless=True,
            lead=True,
            epoch=view.settings.epoch,
            reason=Reason.WAITS_FOR_LEAD,
            text="names the lead of the job",
        ),
    )


def _not_started(
    view: View,
    job: WorkloadRecord,
    coordinator: PodRecord | None,
    life: LifecycleStep,
    text: str,
) -> LifecycleStep:
    """Release everything; the job waits for other pools or for an edit of its spec."""
    away = () if coordinator is None else _delete(view, job, coordinator, life)
    return replace(
        life,
        phase=Phase.PENDING,
        reason=Reason.NOTICE_TOO_SHORT,
        message=text,
        steps=(*(step for step in life.steps if not isinstance(step, UngatePod)), *away),
        missing=(),
        waiting=(),
        release=tuple(member for member in view.members_of(job) if member.gated and member.held),
    )


def _waiting(
    view: View, job: WorkloadRecord, life: LifecycleStep, steps: tuple[Action, ...], why: str
) -> LifecycleStep:
    """The step without ungating any member, and the reason if a member was about to be."""
    steps_kept = tuple(step for step in life.steps if not isinstance(step, UngatePod))
    if len(steps_kept) == len(life.steps):
        return replace(life, steps=(*steps_kept, *steps)) if steps else life
    namespace, name = job.ref.namespace, coordinator_name(job.ref.name)
    obstacle = write_refused(view, "Service", namespace, name) or write_refused(
        view, "Pod", namespace, name
    )
    text = f"waits for {name}, which leads it" + (f": {why}" if why else "")
    reason, message = obstacle or (Reason.WAITS_FOR_LEAD, text)
    begun = any(member.live and not member.gated for member in view.members_of(job))
    phase = life.phase if begun else Phase.RESERVING
    return replace(life, phase=phase, reason=reason, message=message, steps=(*steps_kept, *steps))


def _obstacle(coordinator: PodRecord) -> str:
    if coordinator.stage is PodStage.GATED:
        return f"another controller has to remove {', '.join(coordinator.gates)}"
    if coordinator.stage is PodStage.UNSCHEDULED:
        return coordinator.scheduling_message or "it has no node yet"
    waits_for = ": ".join(
        text for text in (coordinator.waiting_reason, coordinator.waiting_message) if text
    )
    return waits_for or "it starts"
