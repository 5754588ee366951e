# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pods of the job of a ProfileRequest, and the choice of those to trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ullage.api.traces import MAX_RANK
from ullage.api.words import TracedKind
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.trace import MOST_PODS, ProfileRequestRecord
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.scheduling.model.phases import OVER

MOST_OF_SAMPLE: Final = 4
_STARTS: Final = (PodStage.GATED, PodStage.UNSCHEDULED, PodStage.BOUND)
_INDEX: Final = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOfJob:
    """A pod of the traced job.

    Attributes:
        rank: Its place among the pods of the job, from 0; ``None`` = its labels do not say.
        devices: Devices of its container, as many as torchrun starts ranks.
        running: Its container runs and is not being stopped.
        starting: It has not started yet.
    """

    uid: str
    name: str
    node: str
    rank: int | None
    devices: int
    running: bool
    starting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedTarget:
    """The traced job as it is now.

    Attributes:
        exists: The job, or a pod of it, exists.
        ended: It has ended or is being deleted.
        pods: Its pods.
        instrumented: Its program has the step hook; ``None`` = the operator does not know.
    """

    exists: bool
    ended: bool = False
    pods: tuple[PodOfJob, ...] = ()
    instrumented: bool | None = None


def target_of(
    request: ProfileRequestRecord,
    snapshot: Snapshot,
    pods: Sequence[PodRecord],
    injected: Callable[[str], bool | None],
) -> TracedTarget:
    """The job of a request.

    Args:
        request: The request.
        snapshot: The snapshot.
        pods: Pods in the namespace of the request.
        injected: By uid of a TrainingJob, whether its pods get the step hook; ``None`` = unknown.
    """
    space = request.ref.namespace
    if request.job_kind == TracedKind.TRAINING_JOB:
        job = _training_job(snapshot.workloads.values(), space, request.job_name)
        if job is None:
            return TracedTarget(exists=False)
        members = [pod for pod in pods if pod.owner.uid == job.ref.uid and not pod.lead]
        return TracedTarget(
            exists=True,
            ended=job.status.phase in OVER or job.deleting,
            pods=_views(
                (pod for pod in members if not pod.order), snapshot.workloads, with_index=False
            ),
            instrumented=_hooked(members, snapshot) or injected(job.ref.uid),
        )
    wanted = set(request.labels)
    alike = [pod for pod in pods if wanted <= set(pod.labels) and not (pod.order or pod.lead)]
    return TracedTarget(
        exists=bool(alike),
        ended=bool(alike) and all(pod.stage.finished for pod in alike),
        pods=_views(alike, snapshot.workloads, with_index=request.job_kind == TracedKind.JOB),
        instrumented=_hooked(alike, snapshot),
    )


def _training_job(
    workloads: Iterable[WorkloadRecord], namespace: str, name: str
) -> WorkloadRecord | None:
    return next(
        (
            job
            for job in workloads
            if job.kind is WorkloadKind.TRAINING_JOB
            and (job.ref.namespace, job.ref.name) == (namespace, name)
        ),
        None,
    )


def _views(
    pods: Iterable[PodRecord], workloads: Mapping[str, WorkloadRecord], *, with_index: bool
) -> tuple[PodOfJob, ...]:
    """Pods in the order of their ranks; those without a rank by name."""
    views = [
        PodOfJob(
            uid=pod.uid,
            name=pod.name,
            node=pod.node,
            rank=_rank(pod, with_index=with_index),
            devices=_devices(pod, workloads),
            running=pod.stage is PodStage.RUNNING and not pod.deleting and bool(pod.node),
            starting=pod.stage in _STARTS and not pod.deleting,
        )
        for pod in pods
    ]
    views.sort(key=lambda pod: (pod.rank is None, pod.rank or 0, pod.name))
    return tuple(views)


def _hooked(pods: Sequence[PodRecord], snapshot: Snapshot) -> bool | None:
    """True when the slice of a pod brings the step hook, by its label or by the policy.

    ``None`` = no pod has a slice.
    """
    uids = {pod.uid for pod in pods}
    brings = {
        part.inject
        for name in {pod.node for pod in pods}
        if (node := snapshot.gpu_nodes.get(name)) is not None
        for part in node.desired
        if part.key.pod_uid in uids
    }
    return any(brings) if brings else None


def _devices(pod: PodRecord, workloads: Mapping[str, WorkloadRecord]) -> int:
    workload = workloads.get(pod.owner.uid)
    return max(1, workload.gpu.count) if workload is not None else 1


def _rank(pod: PodRecord, *, with_index: bool) -> int | None:
    if 0 <= pod.rank <= MAX_RANK:
        return pod.rank
    index = dict(pod.labels).get(_INDEX, "") if with_index else ""
    return int(index) if index.isascii() and index.isdigit() and len(index) <= 5 else None


def chosen_pods(request: ProfileRequestRecord, pods: Sequence[PodOfJob]) -> tuple[PodOfJob, ...]:
    """The pods that a request traces, of those that run.

    Listed ranks choose pods by their place in the job, with one rank for each device of a pod, as
    torchrun numbers them. If a pod's labels state no index, all pods are asked, and the programs
    select the ranks themselves.
    """
    if request.ranks is not None and all(pod.rank is not None for pod in pods):
        wanted = set(request.ranks)
        pods = [pod for pod in pods if any(rank // pod.devices == pod.rank for rank in wanted)]
    return spread(pods, MOST_OF_SAMPLE if request.sample else MOST_PODS)


def spread(pods: Sequence[PodOfJob], most: int) -> tuple[PodOfJob, ...]:
    """At most ``most`` pods (2 or more), evenly spread, with the first and the last."""
    if len(pods) <= most:
        return tuple(pods)
    return tuple(pods[round(at * (len(pods) - 1) / (most - 1))] for at in range(most))
