# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The end of a gang's run and what follows: a restart, or the end of the job.

Causes outside of the job are checked first; they never count as a failure of the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ullage.api.reasons import Reason, Standing
from ullage.api.slices import ObservedSlice
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.device_ref import DeviceRef
from ullage.cluster.values.names import pod_name
from ullage.scheduling.inventory import timeouts
from ullage.scheduling.lifecycle.backoff import (
    after_failure_s,
    after_pull_failure_s,
    after_refusals_s,
)
from ullage.scheduling.lifecycle.drain import interruption_of
from ullage.scheduling.model.lifecycle_step import LifecycleStep, Passed
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.progress import gang_progress
from ullage.scheduling.model.view import Member, View


@dataclass(frozen=True, slots=True)
class Termination:
    """Cause of the end of a gang's run; ``code`` is the relevant exit code, if any."""

    reason: Reason
    message: str
    counted: bool = False
    code: int | None = None
    at: float = 0.0
    device: DeviceRef | None = None
    """Device that the gang must leave and avoid for a while."""


def completion(view: View, job: WorkloadRecord, members: Sequence[Member]) -> str:
    """Message for a gang whose work is done; empty = not done.

    Exit code 0 of a member that was stopped is no success: programs save on SIGTERM and exit with
    0. It counts when all steps are done, or when all others had succeeded before.

    Args:
        view: The cycle's snapshot.
        job: A TrainingJob.
        members: All of the gang.
    """
    ended = [member for member in members if member.pod.stage is PodStage.SUCCEEDED]
    stopped = [member for member in members if member.pod.stage is PodStage.STOPPED]
    if not members or len(ended) + len(stopped) < len(members):
        return ""
    if not stopped:
        return "every member ended with exit code 0"
    if job.work_steps and counted_steps(view, job, members) >= job.work_steps:
        return f"all {job.work_steps} steps are done, and every member ended with exit code 0"
    stop_asked = stopped[0].pod.stop_asked
    if (
        ended
        and len(stopped) == 1
        and all(0 < member.pod.ended_at < stop_asked for member in ended)
    ):
        return (
            f"every member ended with exit code 0, {stopped[0].pod.name} when it was stopped after"
            " all others had ended"
        )
    return ""


def counted_steps(view: View, job: WorkloadRecord, members: Sequence[Member]) -> int:
    """Steps since the start of training that the slowest member has counted.

    Args:
        view: The cycle's snapshot.
        job: A TrainingJob.
        members: All of the gang, with those that have ended.
    """
    before = job.status.progress
    reports: list[tuple[str, ObservedSlice | None]] = []
    for member in members:
        uid, node = member.pod.uid, member.pod.node
        seen = [part for where, part in view.observed.get(uid, ()) if where == node]
        reports.extend((uid, part) for part in seen or (None,))
    now = gang_progress(reports, before)
    if now is not None:
        return now.steps
    return before.steps if before is not None else 0


def last_at_work(members: Sequence[Member]) -> Member | None:
    """The single member that has not ended when all others succeeded."""
    live = [member for member in members if member.live]
    if len(live) != 1 or len(members) < 2:
        return None
    ended = all(
        member.pod.stage is PodStage.SUCCEEDED for member in members if member is not live[0]
    )
    return live[0] if ended else None


def find_ending(view: View, job: WorkloadRecord, members: Sequence[Member]) -> Termination | None:
    """The cause for which a started gang cannot continue; ``None`` = it can.

    Outside causes come first: when a member is removed, the others fail, too, which is no failure
    of the job.
    """
    if all(member.gated for member in members):
        return None
    for member in members:
        if member.pod.lost_race:
            return Termination(Reason.LOST_RACE, f"{member.pod.name} lost its place at admission")
    lost = _lost_member(view, job, members) or cut_off(view, job, members)
    if lost:
        return Termination(_loss_reason(job), lost)
    interruption = interruption_of(view, members)
    if interruption is not None:
        return Termination(interruption.reason, interruption.message)
    for member in members:
        if member.pod.stage is PodStage.FAILED:
            return failure_of(member.pod)
    for member in members:
        trouble = timeouts.trouble(view, member)
        if trouble is not None:
            return Termination(trouble.reason, trouble.message, device=trouble.device)
    return _half_started(view, members)


def failure_of(pod: PodRecord) -> Termination:
    """The end of a run by a failed pod, which counts as a failure of the job."""
    return Termination(
        Reason.EXIT_CODE,
        f"{pod.name} failed with {pod.how_it_ended}",
        counted=True,
        code=pod.exit_code,
        at=pod.stage_since,
    )


def stopped_text(pod: PodRecord) -> str:
    """Message about a pod that was ended externally."""
    if pod.stage is PodStage.STOPPED:
        return (
            f"{pod.name} ended with exit code 0 because it was stopped (deleted or evicted), so its"
            " work goes on"
        )
    return f"{pod.name} was disrupted (evicted, or its node was lost)"


def _lost_member(view: View, job: WorkloadRecord, members: Sequence[Member]) -> str:
    last = last_at_work(members)  # its exit code decides about the success of the job
    for member in members:
        pod = member.pod
        if pod.stopped:
            return stopped_text(pod)
        if pod.deleting and member.live and member is not last:
            return f"{pod.name} is being deleted"
    if len(members) < job.replicas:
        present = {member.pod.rank for member in members}
        for rank in range(job.replicas):
            name = pod_name(job.ref.name, rank)
            if rank not in present and (job.ref.namespace, name) not in view.snapshot.creating:
                return f"{name} is gone"
    return ""


def cut_off(view: View, job: WorkloadRecord, members: Sequence[Member]) -> str:
    """Message when members failed because the node of another does not answer; empty = other cause.

    They fail before Kubernetes deletes the pods of that node, and it is no failure of the job.
    """
    if all(member.pod.stage is not PodStage.FAILED for member in members):
        return ""
    for member in members:
        node = view.snapshot.nodes.get(member.pod.node) if member.live and member.pod.node else None
        if node is not None and not node.ready:
            return f"{member.pod.node}, where {member.pod.name} ran, does not answer"
    return ""


def _loss_reason(job: WorkloadRecord) -> Reason:
    """The reason for a lost member: preemption if we evicted it."""
    decision = job.status.decision
    if decision is not None and Standing.PREEMPTION in decision.reason.standing:
        return decision.reason
    return Reason.MEMBER_LOST


def _half_started(view: View, members: Sequence[Member]) -> Termination | None:
    """Restart a gang of which some members started and the rest found no place in time.

    Members cannot be gated again.
    """
    homeless = [
        member
        for member in members
        if member.gated and not member.reserved and not member.foreign_gates
    ]
    if not homeless:
        return None
    first = min(member.pod.stage_since for member in members if not member.gated)
    if view.now - timeouts.counted_from(view, first) < view.settings.schedule_timeout_s:
        return None
    return Termination(
        Reason.GANG_INCOMPLETE, f"{homeless[0].pod.name} found no place after others had started"
    )


def _is_counted_already(view: View, job: WorkloadRecord) -> bool:
    """True when a failure belongs to the last counted one.

    Members of a gang in place fail one after the other for one cause. None of them has restarted
    before the shortest back-off is over, so none can have failed again.
    """
    last = job.status.last_failure
    return (
        last is not None
        and job.in_place
        and 0 <= view.now - last.time < view.settings.restart_backoff_s
    )


def close(
    view: View, job: WorkloadRecord, members: Sequence[Member], ending: Termination
) -> LifecycleStep:
    """Restart the gang or fail the job; pods are deleted once that is in the status."""
    release = tuple(member for member in members if member.gated and member.held)
    if ending.counted:
        return _failed(view, job, ending, release)
    refused = ending.reason is Reason.RESERVATION_REFUSED
    unpulled = ending.reason is Reason.IMAGE_PULL_FAILED
    wait_s = after_refusals_s(view, members) if refused else 0.0
    wait_s = after_pull_failure_s(view, job) if unpulled else wait_s
    soon = f" in {wait_s:g} s" if wait_s else ""
    return LifecycleStep(
        phase=Phase.RESTARTING,
        reason=ending.reason,
        message=(
            f"{ending.message}; every member starts again{soon} (not counted as a failure)"
            if job.elasticity is None
            else ending.message  # the rest follows when its size is known
        ),
        restarts=job.status.restarts,
        retry_at=view.now + wait_s if wait_s else 0.0,
        pull_again_at=view.now + wait_s if unpulled else 0.0,
        release=release,
        passed_over=(
            Passed(reason=ending.reason, device=ending.device, message=ending.message)
            if ending.device is not None
            else None
        ),
    )


def _failed(
    view: View, job: WorkloadRecord, ending: Termination, release: tuple[Member, ...]
) -> LifecycleStep:
    """Restart while the job's failure policy allows it, else fail the job."""
    restarts, policy = job.status.restarts, job.failure
    codes = policy.retry_exit_codes
    if codes and ending.code not in codes:
        listed = ", ".join(str(code) for code in sorted(codes))
        message = f"{ending.message}; failurePolicy retries only {listed}"
        return LifecycleStep(
            phase=Phase.FAILED,
            reason=Reason.EXIT_CODE,
            message=message,
            restarts=restarts,
            release=release,
        )
    if _is_counted_already(view, job):
        return LifecycleStep(
            phase=Phase.RESTARTING,
            reason=ending.reason,
            message=f"{ending.message}, so shortly after another that it is the same failure",
            restarts=restarts,
            retry_at=job.status.retry_at,
            release=release,
        )
    if restarts >= policy.max_restarts:
        message = f"{ending.message}, after {restarts} of {policy.max_restarts} restarts"
        return LifecycleStep(
            phase=Phase.FAILED,
            reason=Reason.RESTART_LIMIT,
            message=message,
            restarts=restarts,
            release=release,
        )
    wait_s = after_failure_s(view, restarts)
    return LifecycleStep(
        phase=Phase.RESTARTING,
        reason=ending.reason,
        message=(
            f"{ending.message}; restart {restarts + 1} of {policy.max_restarts} in {wait_s:g} s"
        ),
        restarts=restarts + 1,
        retry_at=ending.at + wait_s,
        release=release,
    )
