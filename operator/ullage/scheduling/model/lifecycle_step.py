# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The step of a workload's life cycle, as a value.

Life cycles look at each workload alone; devices are then assigned for all of them together.
"""

from __future__ import annotations

from dataclasses import dataclass

from ullage.api.reasons import ConditionType, Reason, Standing, standing_of
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.device_ref import DeviceRef
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import Action, DeletePod, EvictPod
from ullage.scheduling.model.view import Member, View


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleStep:
    """Phase of a workload, and its needs in this cycle."""

    phase: Phase
    reason: Reason | None = None
    """The reason in force; ``None`` where placement decides."""
    message: str = ""
    restarts: int = 0
    retry_at: float = 0.0
    steps: tuple[Action, ...] = ()
    missing: tuple[int, ...] = ()
    """Ranks whose pods should be created, if the workload is feasible."""
    waiting: tuple[Member, ...] = ()
    """Members that need slices now."""
    joining: tuple[Member, ...] = ()
    """Members that need slices now beside running ones; each is placed or deleted again."""
    headcount: Headcount | None = None
    """True for a running gang whose members join and leave in place."""
    release: tuple[Member, ...] = ()
    """Members whose slices are revoked; none of them can have started."""
    preemptions: int = 0
    """Number of the consecutive preemption that ends it now; 0 = none does."""
    pull_again_at: float = 0.0
    """Time at which it may restart after a failed image pull just now; 0 = no such failure."""
    passed_over: Passed | None = None
    """A device or node that just failed it."""
    needs_deployment: bool = False
    """True for an InferenceDeployment whose Deployment and Service should be kept up to date."""
    wake_at: float = 0.0
    silent: bool = False
    """True when nothing is decided and no status is written: it is being deleted, or set aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headcount:
    """Members of a gang that changes in place: those that stay, and those that joined."""

    members: int
    """Members that were released and stay, or have succeeded."""
    text: str = ""
    """Reason of a difference from the number in the status."""
    settled: bool = False
    """True when all of them run and none is starting: more may join."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """A reservation that failed: its reason and its place."""

    reason: Reason
    device: DeviceRef | None
    """``None`` = no device is to be excluded for it."""
    message: str


def earliest(*moments: float) -> float:
    """The earliest of some times; 0 = never."""
    return min((moment for moment in moments if moment > 0), default=0.0)


def write_refused(view: View, kind: str, namespace: str, name: str) -> tuple[Reason, str] | None:
    """Refusal of an object by the API server, while the writer waits before it retries."""
    refused = view.snapshot.refused_writes.get((kind, namespace, name))
    return (refused.reason, refused.message) if refused is not None else None


def refusal_under_retry(workload: WorkloadRecord) -> tuple[Reason, str] | None:
    """Last answer of the API server to a write that is retried now, as the status records it.

    It stays visible until the retry has a result, or the object is edited.
    """
    for type_, status in ((ConditionType.ADMITTED, "False"), (ConditionType.DEGRADED, "True")):
        shown = workload.status.condition(type_)
        if (
            shown is not None
            and shown.status == status
            and Standing.OF_THE_API in standing_of(shown.reason)
            and shown.observed_generation == workload.generation
        ):
            return Reason(shown.reason), shown.message
    return None


def pod_ref(member: Member) -> ObjectRef:
    """Function from a member to the name of its pod."""
    pod = member.pod
    return ObjectRef(kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid)


def delete(
    workload: WorkloadRecord, member: Member, epoch: int, reason: Reason, text: str
) -> DeletePod:
    """Delete a member's pod."""
    return DeletePod(pod=pod_ref(member), owner=workload.ref, epoch=epoch, reason=reason, text=text)


def evict(
    workload: WorkloadRecord, member: Member, epoch: int, reason: Reason, text: str
) -> EvictPod:
    """Evict a member's pod: honours budgets, the container gets SIGTERM and its grace period."""
    return EvictPod(pod=pod_ref(member), owner=workload.ref, epoch=epoch, reason=reason, text=text)
