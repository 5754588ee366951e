# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Builds the records of a cluster from a fleet and a trace: nodes, agents, profiles, TrainingJobs.

A gang is as many workers of one device each; the speeds of the trace are in WorkloadProfiles, where
the operator reads them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ullage.api.devices import Backend, GPUMode, Health, ObservedDevice
from ullage.api.gpurequest import GPURequest, Share
from ullage.api.labels import SLOT_RESOURCE
from ullage.api.sharing import SharingRules
from ullage.cluster.records.node import GPUNodeRecord, NodeRecord
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod_shape import PodShape, Resources
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.profile import (
    DeviceProfileRecord,
    Method,
    ProfileRecord,
    ProfileStatus,
    SoloEntry,
    Source,
    ThroughputEntry,
)
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.cluster.values.names import HOSTNAME
from ullage.engines.allocation.policies import Objective
from ullage_simulate.policies import SimulatedPolicy
from ullage_simulate.trace import WHOLE, Fleet, JobTraceError, TraceJob

START: Final = 999_993_600.0
"""Seconds since the epoch when a trace begins: a midnight, so that rounds begin with it."""
NAMESPACE: Final = "trace"
MEMORY_MIB: Final = 16_384
_SLOTS: Final = 8
_WHOLE_PERCENT: Final = 100
_WINDOWS: Final = 9
_SURE: Final = _WINDOWS / (_WINDOWS + 1)
_GIB: Final = 2**30


def founded(fleet: Fleet, policy: SimulatedPolicy, rules: PolicyRecord) -> Snapshot:
    """A cluster without jobs, under a SchedulingPolicy with the objective of a policy.

    Raises:
        TraceError: SchedulingPolicy has no such objective.
    """
    nodes: dict[str, NodeRecord] = {}
    gpu_nodes: dict[str, GPUNodeRecord] = {}
    for kind, count in fleet.devices.items():
        for first in range(0, count, fleet.per_node):
            name = f"{kind}-{first // fleet.per_node:04d}"
            here = min(fleet.per_node, count - first)
            nodes[name] = _node(name, here)
            gpu_nodes[name] = GPUNodeRecord(
                name=name,
                uid=f"uid-gn-{name}",
                epoch=1,
                retire=False,
                desired=(),
                devices=tuple(_device(f"GPU-{name}-{at}", kind) for at in range(here)),
                heartbeat=START,
                slots=_SLOTS * here,
            )
    return Snapshot(
        version=1,
        taken_at=START,
        nodes=nodes,
        gpu_nodes=gpu_nodes,
        device_profiles=priced({}, fleet.prices) if policy.priced else {},
        policy=replace(
            rules,
            name="default",
            uid="uid-policy",
            generation=1,
            objective=objective_of(policy),
            # jobs of a trace have no namespaces: they belong to the named tenants
            tenants=tuple(replace(tenant, namespaces=frozenset()) for tenant in rules.tenants),
        ),
    )


def priced(
    known: Mapping[str, DeviceProfileRecord], prices: Mapping[str, float]
) -> dict[str, DeviceProfileRecord]:
    """DeviceProfiles by type, with these prices."""
    stated = {
        kind: replace(known.get(kind) or DeviceProfileRecord(name=kind), price_per_hour=price)
        for kind, price in prices.items()
    }
    return {**known, **stated}


def objective_of(policy: SimulatedPolicy) -> str:
    """SchedulingPolicy's name of a policy.

    Raises:
        TraceError: nothing.
    """
    if policy.name == "fifo":
        return Objective.FIFO.value
    if policy.name == "agnostic-las":
        return Objective.MAX_MIN_FAIRNESS.value
    if policy.objective is None or policy.objective is Objective.FIFO:
        raise JobTraceError(
            f"{policy.name}: SchedulingPolicy has no such objective: use --mode fast"
        )
    return policy.objective.value


def job_record(job: TraceJob, now: float, *, packs: bool = False) -> WorkloadRecord:
    """A TrainingJob as a user would apply it; ``packs`` = it allows sharing its device."""
    packs = packs and job.gang == 1 and job.milli == WHOLE and job.checkpointable
    slot = Resources(cpu_milli=1000, memory_bytes=_GIB, pods=1, extended=((SLOT_RESOURCE, 1),))
    return WorkloadRecord(
        ref=ObjectRef(
            kind=WorkloadKind.TRAINING_JOB.value,
            namespace=NAMESPACE,
            name=f"job-{job.name}",
            uid=f"uid-{job.name}",
        ),
        kind=WorkloadKind.TRAINING_JOB,
        generation=1,
        resource_version="1",
        created=now,
        deleting=False,
        shape=PodShape(device_container="main", requests=slot),
        template_hash="0123456789ab",
        replicas=job.gang,
        gpu=GPURequest(memory_mib=MEMORY_MIB // 4) if packs else _request(job),
        sharing=SharingRules(allow_packing=packs),
        accelerators=tuple(kind for kind, speed in job.speeds.items() if speed > 0),
        trust_domain=f"namespace/{NAMESPACE}",
        workload_class=class_of(job),
        profile_ref=class_of(job),
        priority=job.priority,
        work_steps=job.steps,
        checkpoint=job.checkpointable,
        weight=max(1, round(job.weight)),
        tenant=job.tenant,
    )


def _request(job: TraceJob) -> GPURequest:
    """Convert a part of a device to a share in percent, rounded up."""
    if job.milli == WHOLE:
        return GPURequest()
    percent = -(-job.milli * _WHOLE_PERCENT // WHOLE)
    return GPURequest(
        mode=GPUMode.FRACTIONAL, share=Share(min_percent=percent, max_percent=percent)
    )


def profile_record(job: TraceJob, *, aware: bool) -> ProfileRecord:
    """Profile of a job's class; all types are equal where a policy must not distinguish them.

    The speeds count as measured: no estimate from other classes replaces them.
    """
    rows = tuple(
        SoloEntry(
            device=kind,
            share=_WHOLE_PERCENT,
            sm_util=1.0,
            steps_per_second=speed if aware else 1.0,
        )
        for kind, speed in sorted(job.speeds.items())
        if speed > 0
    )
    name = class_of(job)
    return ProfileRecord(
        namespace=NAMESPACE,
        name=name,
        workload_class=name,
        uid=f"uid-wp-{name}",
        generation=1,
        solo=rows,
        status=ProfileStatus(
            throughput=tuple(
                ThroughputEntry(
                    accelerator=row.device,
                    steps_per_second=row.steps_per_second,
                    source=Source.MEASURED,
                    method=Method.WINDOWS,
                    confidence=_SURE,
                    samples=_WINDOWS,
                )
                for row in rows
            )
        ),
    )


def class_of(job: TraceJob) -> str:
    """Key of a class of work: kind, gang and speeds."""
    description = f"{job.kind} {job.gang} {sorted(job.speeds.items())}"
    return f"class-{hashlib.sha256(description.encode()).hexdigest()[:12]}"


def _node(name: str, devices: int) -> NodeRecord:
    return NodeRecord(
        name=name,
        uid=f"uid-{name}",
        labels={HOSTNAME: name},
        taints=(),
        allocatable=Resources(
            cpu_milli=1_000_000,
            memory_bytes=4096 * _GIB,
            pods=1000,
            extended=((SLOT_RESOURCE, _SLOTS * devices),),
        ),
        ready=True,
        managed=True,
    )


def _device(uuid: str, kind: str) -> ObservedDevice:
    return ObservedDevice(
        uuid=uuid,
        model=kind,
        product_name=kind,
        memory_mib=MEMORY_MIB,
        contexts=_SLOTS,
        modes=(GPUMode.EXCLUSIVE, GPUMode.FRACTIONAL),
        health=Health.HEALTHY,
        backend=Backend.EMULATED,
    )
