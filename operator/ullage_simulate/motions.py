# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Applies to records the actions of healthy kubelets and node agents, one step per function.

Pure: a record in, the changed one out. The caller stores the records.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ullage.api.labels import GATE
from ullage.api.slices import DesiredSlice, ObservedSlice, SlicePhase
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.model.plan import CreatePod

_ENOUGH: Final = 9
"""Windows after which a tenant counts as observed."""


def reserved(wanted: DesiredSlice) -> ObservedSlice:
    """A desired slice as first reported by the agent."""
    return ObservedSlice(
        key=wanted.key,
        phase=SlicePhase.RESERVED,
        gpu=wanted.gpu,
        percent=wanted.percent,
        memory_mib=wanted.memory_mib,
        epoch=wanted.epoch,
        lane=wanted.lane,
        persistent_mib=wanted.persistent_mib if wanted.lane else 0,
        ephemeral_mib=wanted.ephemeral_mib if wanted.lane else 0,
        suspendable=wanted.suspendable and wanted.lane > 0,
    )


def created(action: CreatePod, job: WorkloadRecord, uid: str, now: float) -> PodRecord:
    """The gated pod of an action."""
    return PodRecord(
        uid=uid,
        namespace=job.ref.namespace,
        name=action.name,
        owner=job.ref,
        created=now,
        stage=PodStage.GATED,
        stage_since=now,
        shape=job.shape,
        rank=action.rank,
        gates=(GATE,),
        priority=job.priority,
        template_hash=action.template_hash,
        world_size=action.world_size,
    )


def bound(pod: PodRecord, node: str, now: float) -> PodRecord:
    """An ungated pod: bound to its node, where its containers are created."""
    return replace(
        pod,
        stage=PodStage.BOUND,
        stage_since=now,
        gates=(),
        node=node,
        waiting_reason="ContainerCreating",
    )


def running(pod: PodRecord, now: float) -> PodRecord:
    """A pod whose containers run, ready at once."""
    return replace(pod, stage=PodStage.RUNNING, stage_since=now, ready=True, waiting_reason="")


def ended(pod: PodRecord, stage: PodStage, code: int | None, now: float) -> PodRecord:
    """A finished pod."""
    return replace(pod, stage=stage, stage_since=now, exit_code=code, ready=False)


def attached(record: GPUNodeRecord, uid: str) -> GPUNodeRecord:
    """A node on which a pod's slices are in use, observed for a while."""
    observed = tuple(
        replace(part, phase=SlicePhase.ATTACHED, windows=_ENOUGH)
        if part.key.pod_uid == uid
        else part
        for part in record.observed
    )
    return replace(record, observed=observed)


def freed(record: GPUNodeRecord, uid: str) -> GPUNodeRecord:
    """A node whose agent released a pod's slices."""
    kept = tuple(part for part in record.observed if part.key.pod_uid != uid)
    return replace(record, observed=kept)
