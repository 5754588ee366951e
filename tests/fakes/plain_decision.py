# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The least decision that places workloads: level-triggered, first fit, no shares to weigh.

Stands in for the product's decision where a test is about the picture and the writer alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from ullage.api.devices import GPUMode
from ullage.api.labels import GATE
from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, SliceKey, SlicePhase
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Condition, Placement, WorkloadStatus
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.cluster.values.names import pod_name, workers_service
from ullage.scheduling.model.plan import (
    Action,
    ApplyDeployment,
    ApplyGPUNode,
    ApplyService,
    CreatePod,
    Emit,
    SetStatus,
    UngatePod,
)

Book = dict[str, tuple[DesiredSlice, ...]]


class PlainDecision:
    """One decision on one snapshot."""

    def __init__(self, snapshot: Snapshot, now: float, epoch: int) -> None:
        self.snapshot = snapshot
        self.now = now
        self.why = {"epoch": epoch, "reason": Reason.PLACED, "text": "first fit"}
        self.epoch = epoch
        self.book: Book = {name: node.desired for name, node in snapshot.gpu_nodes.items()}

    def actions(self) -> tuple[Action, ...]:
        steps: list[Action] = []
        told: list[Action] = []
        for _, workload in sorted(self.snapshot.workloads.items()):
            steps += self._children(workload)
            members = self._members(workload)
            self._allot(workload, members)
            steps += self._ungate(workload, members)
            told += self._tell(workload, members)
        return (*self._nodes(), *steps, *told)

    def _nodes(self) -> Iterator[Action]:
        for name, node in sorted(self.snapshot.nodes.items()):
            record = self.snapshot.gpu_nodes.get(name)
            wanted = self.book.get(name, ())
            if record is None or record.desired != wanted:
                yield ApplyGPUNode(
                    name=name,
                    uid=record.uid if record else "",
                    node_uid=node.uid,
                    slices=wanted,
                    **self.why,  # type: ignore[arg-type]
                )

    def _children(self, workload: WorkloadRecord) -> Iterator[Action]:
        owner, namespace = workload.ref, workload.ref.namespace
        serving = workload.kind is WorkloadKind.INFERENCE_DEPLOYMENT
        name = owner.name if serving else workers_service(owner.name)
        if (serving or workload.replicas > 1) and (namespace, name) not in self.snapshot.services:
            yield ApplyService(owner=owner, name=name, headless=not serving, **self.why)  # type: ignore[arg-type]
        if serving:
            if (namespace, name) not in self.snapshot.deployments:
                yield ApplyDeployment(
                    owner=owner,
                    name=name,
                    replicas=workload.replicas,
                    max_surge=0,
                    max_unavailable=1,
                    template_hash=workload.template_hash,
                    **self.why,  # type: ignore[arg-type]
                )
            return
        there = {(pod.namespace, pod.name) for pod in self.snapshot.pods.values()}
        for rank in range(workload.replicas):
            key = (namespace, pod_name(owner.name, rank))
            if key not in there | self.snapshot.creating:
                yield CreatePod(
                    owner=owner,
                    name=key[1],
                    rank=rank,
                    template_hash=workload.template_hash,
                    **self.why,  # type: ignore[arg-type]
                )

    def _members(self, workload: WorkloadRecord) -> list[PodRecord]:
        uid = workload.ref.uid
        mine = [pod for pod in self.snapshot.pods.values() if pod.owner.uid == uid]
        return sorted(mine, key=lambda pod: pod.name)

    def _slice_of(self, pod: PodRecord) -> tuple[str, DesiredSlice] | None:
        for name, slices in self.book.items():
            for piece in slices:
                if piece.key.pod_uid == pod.uid:
                    return name, piece
        return None

    def _allot(self, workload: WorkloadRecord, members: list[PodRecord]) -> None:
        if len(members) < workload.replicas:
            return
        share = workload.gpu.share
        percent = share.min_percent if share and workload.gpu.mode is GPUMode.FRACTIONAL else 100
        for pod in members:
            if self._slice_of(pod) is None:
                self._first_fit(pod, percent)

    def _first_fit(self, pod: PodRecord, percent: int) -> None:
        for name, record in sorted(self.snapshot.gpu_nodes.items()):
            for device in record.devices:
                used = [p.percent for p in self.book[name] if p.gpu == device.uuid]
                if sum(used) + percent > 100:
                    continue
                piece = DesiredSlice(
                    key=SliceKey(pod_uid=pod.uid, container=pod.shape.device_container),
                    pod_namespace=pod.namespace,
                    pod_name=pod.name,
                    gpu=device.uuid,
                    percent=percent,
                    memory_mib=1024,
                    epoch=self.epoch,
                )
                merged = (*self.book[name], piece)
                self.book[name] = tuple(sorted(merged, key=lambda item: item.key))
                return

    def _ungate(self, workload: WorkloadRecord, members: list[PodRecord]) -> Iterator[Action]:
        places = [(pod, self._slice_of(pod)) for pod in members]
        if len(members) < workload.replicas or not all(
            place is not None and self._reserved(*place) for _, place in places
        ):
            return
        for pod, place in places:
            if GATE in pod.gates and place is not None:
                yield UngatePod(
                    pod=ObjectRef(kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid),
                    owner=workload.ref,
                    node=place[0],
                    gate_index=pod.gates.index(GATE),
                    affinity=pod.shape.affinity,
                    **self.why,  # type: ignore[arg-type]
                )

    def _reserved(self, node: str, wanted: DesiredSlice) -> bool:
        return any(
            seen.key == wanted.key
            and seen.epoch == wanted.epoch
            and seen.phase is not SlicePhase.REFUSED
            for seen in self.snapshot.gpu_nodes[node].observed
        )

    def _tell(self, workload: WorkloadRecord, members: list[PodRecord]) -> Iterator[Action]:
        done = len(members) == workload.replicas and all(
            pod.stage is PodStage.RUNNING for pod in members
        )
        serving = workload.kind is WorkloadKind.INFERENCE_DEPLOYMENT
        phase = ("Ready" if serving else "Running") if done else "Pending"
        before = workload.status
        ready = before.condition("Ready")
        value = "True" if done else "False"
        same = ready is not None and ready.status == value
        placement = self._placement(members) if done else ()
        status = WorkloadStatus(
            phase=phase,
            placement=placement,
            template_hash=workload.template_hash,
            replicas=len(members) if serving else 0,
            conditions=(
                Condition(
                    type="Ready",
                    status=value,
                    reason="Running" if done else "Starting",
                    since=ready.since if ready is not None and same else float(int(self.now)),
                ),
            ),
        )
        if status != before:
            yield SetStatus(
                owner=workload.ref,
                resource_version=workload.resource_version,
                status=status,
                **self.why,  # type: ignore[arg-type]
            )
            yield Emit(
                target=workload.ref,
                warning=False,
                epoch=self.epoch,
                reason=Reason.RUNNING if done else Reason.STARTING,
                text=phase,
            )

    def _placement(self, members: list[PodRecord]) -> tuple[Placement, ...]:
        places = [(pod, self._slice_of(pod)) for pod in members]
        return tuple(
            Placement(
                key=place[1].key,
                pod=pod.name,
                node=place[0],
                gpu=place[1].gpu,
                percent=place[1].percent,
                memory_mib=place[1].memory_mib,
                epoch=place[1].epoch,
            )
            for pod, place in places
            if place is not None
        )


def plain_decision(snapshot: Snapshot, now: float, epoch: int) -> tuple[Action, ...]:
    return PlainDecision(snapshot, now, epoch).actions()
