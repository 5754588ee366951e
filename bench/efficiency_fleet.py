# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A cluster with many jobs whose nodes report device time, for ``bench.efficiency``."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from ullage.api.devices import Backend, GPUMode, Health, ObservedDevice
from ullage.api.gpurequest import GPURequest
from ullage.api.slices import DesiredSlice, ObservedSlice, SliceKey, SlicePhase
from ullage.api.usage import DeviceTime, ObservedUsage, RecentUsage
from ullage.cluster.records.efficiency import EfficiencyRecord
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod_shape import PodShape
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Placement, WorkloadStatus
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.engines.efficiency.ledger import UsageMark

NOW: Final = 1_767_600_000.0
DEVICES: Final = 8
NAMESPACES: Final = 50
MODEL: Final = "h100-80gb-hbm3"


def fleet_of(jobs: int, seed: int = 1) -> tuple[Snapshot, float]:
    """A snapshot with so many running jobs, each on one whole device, and its time."""
    draw = random.Random(seed)
    workloads: dict[str, WorkloadRecord] = {}
    nodes: dict[str, GPUNodeRecord] = {}
    for first in range(0, jobs, DEVICES):
        name = f"node-{first // DEVICES}"
        numbers = range(first, min(first + DEVICES, jobs))
        desired = tuple(_slice(name, number) for number in numbers)
        nodes[name] = GPUNodeRecord(
            name=name,
            uid=f"uid-{name}",
            epoch=1,
            retire=False,
            desired=desired,
            devices=tuple(_device(part.gpu) for part in desired),
            observed=tuple(_observed(part, draw) for part in desired),
            heartbeat=NOW,
        )
        for part in desired:
            job = _job(name, part)
            workloads[job.ref.uid] = job
    snapshot = Snapshot(
        version=1, taken_at=NOW, nodes={}, gpu_nodes=nodes, pods={}, workloads=workloads
    )
    return snapshot, NOW


def _slice(node: str, number: int) -> DesiredSlice:
    return DesiredSlice(
        key=SliceKey(pod_uid=f"uid-job-{number}-0", container="main"),
        pod_namespace=f"team-{number % NAMESPACES}",
        pod_name=f"job-{number}-0",
        gpu=f"GPU-{node}-{number % DEVICES}",
        percent=100,
        memory_mib=81_559,
        epoch=1,
    )


def _device(uuid: str) -> ObservedDevice:
    return ObservedDevice(
        uuid=uuid,
        model=MODEL,
        product_name="NVIDIA H100 80GB HBM3",
        memory_mib=81_559,
        contexts=8,
        modes=(GPUMode.EXCLUSIVE, GPUMode.FRACTIONAL),
        health=Health.HEALTHY,
        backend=Backend.EXCLUSIVE,
    )


def _observed(part: DesiredSlice, draw: random.Random) -> ObservedSlice:
    used = draw.random() ** 2
    recent = RecentUsage(
        allocated_ms=1_800_000,
        used_ms=int(1_800_000 * used),
        needed_percent=min(100, int(used * 120)),
        duty_percent=draw.randrange(101),
        kernel_idle_percent=draw.randrange(101),
        memory_mib=draw.randrange(81_559),
    )
    return ObservedSlice(
        key=part.key,
        phase=SlicePhase.ATTACHED,
        gpu=part.gpu,
        percent=100,
        memory_mib=part.memory_mib,
        epoch=1,
        usage=ObservedUsage(allocated_ms=7_200_000, used_ms=int(7_200_000 * used), recent=recent),
    )


def placed_job(node: str, pod: str) -> WorkloadRecord:
    """A running job of one pod on a whole device."""
    key = SliceKey(pod_uid=pod, container="main")
    return _job(node, replace(_slice(node, 0), key=key, pod_name=pod))


def _job(node: str, part: DesiredSlice) -> WorkloadRecord:
    name = part.pod_name.removesuffix("-0")
    placement = Placement(
        key=part.key,
        pod=part.pod_name,
        node=node,
        gpu=part.gpu,
        percent=100,
        memory_mib=part.memory_mib,
        epoch=1,
    )
    row = EfficiencyRecord(
        since=NOW - 3600,
        as_of=NOW - 3600,
        row=DeviceTime(allocated_ms=3_600_000, used_ms=1_000_000),
        mark=UsageMark(slices=1, allocated_ms=3_600_000),
        per_device_hour="2.48",
    )
    return WorkloadRecord(
        ref=ObjectRef(
            kind="TrainingJob", namespace=part.pod_namespace, name=name, uid=f"uid-{name}"
        ),
        kind=WorkloadKind.TRAINING_JOB,
        generation=1,
        resource_version="1",
        created=NOW - 7200,
        deleting=False,
        shape=PodShape(device_container="main"),
        template_hash="",
        trust_domain=f"namespace/{part.pod_namespace}",
        gpu=GPURequest(),
        status=WorkloadStatus(phase="Running", placement=(placement,), efficiency=row),
    )
