# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The step of a workload's life cycle, as a value.

Life cycles look at each workload alone; devices are assigned afterwards for all of them together.
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
    """What binds; ``None`` where placing has the last word."""
    message: str = ""
    restarts: int = 0
    retry_at: float = 0.0
    steps: tuple[Action, ...] = ()
    missing: tuple[int, ...] = ()
    """Ranks whose pods are to be created, if the workload is feasible."""
    waiting: tuple[Member, ...] = ()
    """Members that need slices now."""
    joining: tuple[Member, ...] = ()
    """Members that need slices now beside others that run; each finds a place or goes again."""
    headcount: Headcount | None = None
    """Of a gang that runs and whose members come and go in place."""
    release: tuple[Member, ...] = ()
    """Members whose slices are taken back; none of them can have started."""
    preemptions: int = 0
    """Which preemption in a row ends it now; 0 = none does."""
    pull_again_at: float = 0.0
    """When it may start again after an image that could not be pulled just now; 0 = none could
    not."""
    passed_over: Passed | None = None
    """A device or node that just failed to serve it."""
    needs_deployment: bool = False
    """An InferenceDeployment whose Deployment and Service are to be kept as wanted."""
    wake_at: float = 0.0
    silent: bool = False
    """Nothing is decided and no status is written: it is being deleted, or set aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headcount:
    """Members of a gang that changes in place: those that stay, and those that joined."""

    members: int
    """Those that were let go and stay, or have ended well."""
    text: str = ""
    """Why they are more or fewer than the status says."""
    settled: bool = False
    """All of them run and no one is on the way: more may join."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """A reservation that failed: its reason and its place."""

    reason: Reason
    device: DeviceRef | None
    """``None`` = no device is to be left out for it."""
    message: str


def earliest(*moments: float) -> float:
    """The first of some moments; 0 stands for never."""
    return min((moment for moment in moments if moment > 0), default=0.0)


def write_refused(view: View, kind: str, namespace: str, name: str) -> tuple[Reason, str] | None:
    """Refusal of an object by the API server, while the writer waits before it retries."""
    refused = view.snapshot.refused_writes.get((kind, namespace, name))
    return (refused.reason, refused.message) if refused is not None else None


def refusal_under_retry(workload: WorkloadRecord) -> tuple[Reason, str] | None:
    """Last answer of the API server to a write that is retried now, as the status records it.

    It stays visible until the retry has a result, or the user changes the object.
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
    """Names the pod of a member."""
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
    """Evict a member's pod: budgets are honoured, the container gets SIGTERM and its grace."""
    return EvictPod(pod=pod_ref(member), owner=workload.ref, epoch=epoch, reason=reason, text=text)
