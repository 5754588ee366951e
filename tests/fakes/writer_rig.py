# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The writer under test with everything around it in memory, and actions in one word each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from builders_raw import raw_template
from fakes.cluster_port import FakeCluster
from fakes.virtual_time import LoopClock
from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice
from ullage.cluster.projection.pod_template import Blueprint, Seen, canonical_json
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod_shape import NodeAffinity
from ullage.cluster.records.status import Condition, WorkloadStatus
from ullage.cluster.records.workload import WorkloadKind
from ullage.kube.writer.limits import WriteLimits
from ullage.kube.writer.writer import Writer, WriterStats
from ullage.ports import ApiError
from ullage.scheduling.model.plan import (
    Action,
    ApplyDeployment,
    ApplyGPUNode,
    ApplyService,
    CreatePod,
    DeletePod,
    DeleteWorkload,
    Emit,
    EvictPod,
    SetConditions,
    SetStatus,
    UngatePod,
)

HASH = "0123456789ab"
WHY: dict[str, Any] = {"epoch": 7, "reason": Reason.PLACED, "text": "because"}


def job(name: str = "train") -> ObjectRef:
    return ObjectRef(kind="TrainingJob", namespace="default", name=name, uid=f"uid-{name}")


def service(name: str = "serve") -> ObjectRef:
    kind = WorkloadKind.INFERENCE_DEPLOYMENT.value
    return ObjectRef(kind=kind, namespace="default", name=name, uid=f"uid-{name}")


def pod_ref(name: str) -> ObjectRef:
    return ObjectRef(kind="Pod", namespace="default", name=name, uid=f"uid-{name}")


def node(name: str = "node-1", *slices: DesiredSlice, uid: str = "") -> ApplyGPUNode:
    return ApplyGPUNode(name=name, uid=uid, node_uid="uid-node", slices=slices, **WHY)


def create(name: str = "train-0", template_hash: str = HASH) -> CreatePod:
    owner = job(name.rpartition("-")[0])
    return CreatePod(owner=owner, name=name, rank=0, template_hash=template_hash, **WHY)


def delete(name: str = "train-0") -> DeletePod:
    return DeletePod(pod=pod_ref(name), owner=job(), **WHY)


def evict(name: str = "train-0") -> EvictPod:
    return EvictPod(pod=pod_ref(name), owner=job(), **WHY)


def ungate(name: str = "train-0", affinity: NodeAffinity | None = None) -> UngatePod:
    return UngatePod(
        pod=pod_ref(name),
        owner=job(),
        node="node-1",
        gate_index=0,
        affinity=affinity or NodeAffinity(),
        **WHY,
    )


def status(phase: str = "Running", name: str = "train", version: str = "") -> SetStatus:
    return SetStatus(
        owner=job(name), resource_version=version, status=WorkloadStatus(phase=phase), **WHY
    )


def policy(status_: str = "True") -> SetConditions:
    return SetConditions(
        target=ObjectRef(kind="SchedulingPolicy", namespace="", name="default", uid="uid-default"),
        generation=1,
        conditions=(Condition(type="SolverDegraded", status=status_, reason="SolverTimeout"),),
        **WHY,
    )


def kube_service(name: str = "train-workers") -> ApplyService:
    return ApplyService(owner=job(), name=name, headless=True, **WHY)


def deployment(replicas: int = 1) -> ApplyDeployment:
    return ApplyDeployment(
        owner=service(),
        name="serve",
        replicas=replicas,
        max_surge=0,
        max_unavailable=1,
        template_hash=HASH,
        **WHY,
    )


def finish(name: str = "train") -> DeleteWorkload:
    return DeleteWorkload(owner=job(name), **WHY)


def emit(text: str = "placed", reason: Reason = Reason.PLACED, name: str = "train") -> Emit:
    return Emit(target=job(name), warning=False, epoch=7, reason=reason, text=text)


class Source:
    """Blueprints for every workload, and what the watch shows of children."""

    def __init__(self) -> None:
        self.template = raw_template()
        self.template_hash = HASH
        self.gone: set[str] = set()
        self.shown: dict[tuple[str, str, str], Seen] = {}

    def blueprint(self, uid: str) -> Blueprint | None:
        if uid in self.gone:
            return None
        return Blueprint(
            template_json=canonical_json(self.template),
            template_hash=self.template_hash,
            replicas=1,
            slots=1,
        )

    def seen(self, kind: str, namespace: str, name: str) -> Seen | None:
        return self.shown.get((kind, namespace, name))


LIMITS = WriteLimits(per_second=1000.0, in_flight=4)


@dataclass
class Rig:
    """The writer and its surroundings."""

    limits: WriteLimits = LIMITS
    cluster: FakeCluster = field(default_factory=FakeCluster)
    source: Source = field(default_factory=Source)
    stats: WriterStats = field(default_factory=WriterStats)
    results: list[tuple[Action, ApiError | None]] = field(default_factory=list)
    held: bool = True
    lost: int = 0
    writer: Writer = field(init=False)

    def __post_init__(self) -> None:
        self.writer = Writer(
            self.cluster,
            self.source,
            fence=lambda: self.held,
            on_result=lambda action, error: self.results.append((action, error)),
            on_lost=self._lost,
            clock=LoopClock(),
            limits=self.limits,
            stats=self.stats,
        )

    def _lost(self) -> None:
        self.lost += 1

    @property
    def errors(self) -> list[ApiError]:
        return [error for _, error in self.results if error is not None]

    async def settle(self, seconds: float = 5.0) -> None:
        """Let the writer work for some virtual seconds."""
        await asyncio.sleep(seconds)

    async def write(self, *actions: Action, seconds: float = 5.0) -> None:
        """Submit and let the writer work."""
        self.writer.submit(actions)
        await self.settle(seconds)


@asynccontextmanager
async def a_rig(**limits: Any) -> AsyncIterator[Rig]:
    """A running writer; stopped at the end."""
    rig = Rig(limits=replace(LIMITS, **limits))
    running = asyncio.create_task(rig.writer.run())
    yield rig
    await rig.writer.stop()
    await running
