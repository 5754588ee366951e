# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Adds data missing in the status of an adopted pod: its node, its share, its end.

A pod stores little of its status. Its node is in its spec, its slice and its observations in the
GPUNode, its end in the status of its containers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ullage.api.reasons import ConditionType, Reason
from ullage.api.slices import DesiredSlice, ObservedSlice
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Condition, Sharing, WorkloadStatus
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord


@dataclass(frozen=True, slots=True)
class _HeldSlice:
    """A slice of a pod, and its node's report."""

    wanted: DesiredSlice
    seen: ObservedSlice | None

    @property
    def slowdown(self) -> float:
        """As observed; 0 = unknown."""
        return 0.0 if self.seen is None else self.seen.slowdown


def with_pods(snapshot: Snapshot) -> Snapshot:
    """The snapshot with nodes, shares and ends of adopted pods, as far as available."""
    held = _held_by_pod(snapshot.gpu_nodes)
    by_unit: dict[ObjectRef, list[PodRecord]] = {}
    for pod in snapshot.pods.values():
        if pod.owner.kind == WorkloadKind.POD:
            by_unit.setdefault(pod.owner, []).append(pod)
    workloads = dict(snapshot.workloads)
    for owner, pods in by_unit.items():
        pods.sort(key=lambda pod: (pod.created, pod.name))
        unit = workloads.get(owner.uid)
        if unit is None and all(pod.stage.finished for pod in pods):
            workloads[owner.uid] = _ended(owner, pods)
        elif unit is not None:
            workloads[owner.uid] = _under_way(unit, pods, held)
    return replace(snapshot, workloads=workloads)


def _held_by_pod(nodes: Mapping[str, GPUNodeRecord]) -> dict[str, list[_HeldSlice]]:
    by_pod: dict[str, list[_HeldSlice]] = {}
    for node in nodes.values():
        seen = {observed.key: observed for observed in node.observed}
        for wanted in node.desired:
            held = _HeldSlice(wanted, seen.get(wanted.key))
            by_pod.setdefault(wanted.key.pod_uid, []).append(held)
    return by_pod


def _under_way(
    unit: WorkloadRecord, pods: Sequence[PodRecord], held: Mapping[str, list[_HeldSlice]]
) -> WorkloadRecord:
    live = [pod for pod in pods if not pod.stage.finished]
    slices = [entry for pod in live for entry in held.get(pod.uid, ())]
    nodes = ",".join(sorted({pod.node for pod in live if pod.node}))
    sharing = unit.status.sharing
    if slices:
        slowest = max(slices, key=lambda entry: entry.slowdown)
        known = sharing or Sharing(
            percent=slowest.wanted.percent, memory_mib=slowest.wanted.memory_mib
        )
        observed = f"{slowest.slowdown:.2f}" if slowest.slowdown else known.observed
        sharing = replace(known, observed=observed)
    status = replace(unit.status, nodes=nodes, gpus=len(slices), sharing=sharing)
    return replace(unit, status=status)


def _ended(owner: ObjectRef, pods: Sequence[PodRecord]) -> WorkloadRecord:
    """Finished pods, as a workload that has ended."""
    failed = next((pod for pod in pods if pod.stage is PodStage.FAILED), None)
    reason = Reason.COMPLETED if failed is None else Reason.EXIT_CODE
    message = (
        "every pod ended with exit code 0"
        if failed is None
        else f"{failed.name} failed with {failed.how_it_ended}"
    )
    last = ConditionType.COMPLETE if failed is None else ConditionType.FAILED
    return WorkloadRecord(
        ref=owner,
        kind=WorkloadKind.POD,
        generation=1,
        resource_version="",
        created=pods[0].created,
        deleting=False,
        shape=pods[0].shape,
        template_hash="",
        trust_domain="",
        priority=pods[0].priority,
        replicas=len(pods),
        status=WorkloadStatus(
            observed_generation=1,
            phase="Succeeded" if failed is None else "Failed",
            nodes=",".join(sorted({pod.node for pod in pods if pod.node})),
            conditions=tuple(
                Condition(
                    type=type_,
                    status="True",
                    reason=reason,
                    message=message,
                    observed_generation=1,
                    since=pods[-1].created,
                )
                for type_ in (ConditionType.FINISHED, last)
            ),
        ),
    )


def ends(snapshot: Snapshot, workload: WorkloadRecord) -> Iterator[PodRecord]:
    """Pods of a workload that failed, or whose container was restarted."""
    for pod in sorted(snapshot.pods.values(), key=lambda pod: (pod.rank, pod.name)):
        bad = pod.stage is PodStage.FAILED or pod.container_restarts or pod.waiting_reason
        if pod.owner.uid == workload.ref.uid and bad:
            yield pod
