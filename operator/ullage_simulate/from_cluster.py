# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Starts a simulation from a live cluster: its devices, and the remaining work of its jobs.

Values missing in a snapshot are filled by the operator's own rules and named in a note. Nothing is
ever sent to the cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from ullage.api.devices import GPUMode, Health
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.scheduling.inventory.tenant_bindings import tenant_of
from ullage.scheduling.learning.device_prices import prices_of
from ullage.scheduling.learning.throughput import Throughputs
from ullage.scheduling.model.phases import Phase
from ullage_simulate.trace import Fleet, JobTrace, JobTraceError, TraceJob, in_order

_MOST_SERVED: Final = 50
"""Percent of a device in use by services above which training excludes it (unmeasured)."""


def fleet_of(snapshot: Snapshot, prices: Mapping[str, float]) -> Fleet:
    """The healthy devices available to training, by type.

    Args:
        snapshot: The cluster.
        prices: Price of one device-hour by type, instead of the cluster's.

    Raises:
        TraceError: there is none.
    """
    serving = _serving(snapshot)
    devices: Counter[str] = Counter()
    per_node = 1
    for record in snapshot.gpu_nodes.values():
        free = [
            device
            for device in record.devices
            if device.health is Health.HEALTHY and not record.retire and device.uuid not in serving
        ]
        devices.update(device.model for device in free)
        per_node = max(per_node, len(record.devices))
    if not devices:
        raise JobTraceError(
            "the cluster has no healthy device that training may use"
            + (f"; services hold {len(serving)} of them" if serving else "")
        )
    ordered = dict(sorted(devices.items()))
    known = {kind: price for kind, price in prices_of(snapshot).items() if kind in ordered}
    return Fleet(devices=ordered, prices={**known, **prices}, per_node=per_node)


def _serving(snapshot: Snapshot) -> frozenset[str]:
    """Devices mostly in use by services, by uuid."""
    held: Counter[str] = Counter()
    for workload in snapshot.workloads.values():
        if workload.kind is WorkloadKind.INFERENCE_DEPLOYMENT:
            for placed in workload.status.placement:
                held[placed.gpu] += placed.percent
    return frozenset(gpu for gpu, percent in held.items() if percent > _MOST_SERVED)


def trace_of(snapshot: Snapshot, fleet: Fleet, round_s: float) -> JobTrace:
    """Every unfinished TrainingJob, with its remaining steps; all are present at the start.

    Without ``spec.work`` a job is assumed to need as many steps as it has done, one round's at
    least.

    Raises:
        TraceError: there is no such job.
    """
    speeds = Throughputs(snapshot)
    counts: Counter[str] = Counter()
    jobs = []
    for job in sorted(
        snapshot.workloads.values(), key=lambda workload: (workload.created, workload.ref.uid)
    ):
        if _over(job):
            continue
        if job.invalid and not job.status.placement:
            counts["cannot be read and are left out"] += 1
            continue
        rates = _rates(speeds, job, fleet, counts)
        done = job.status.progress.steps if job.status.progress is not None else 0
        left = job.work_steps - done
        if not job.work_steps:
            left = max(done, round(round_s * max(rates.values())))
            counts["do not say their steps: they are taken to need as many as they have done"] += 1
        if job.gpu.mode is GPUMode.FRACTIONAL:
            counts["ask for a part of a device and are counted with a whole one"] += 1
        jobs.append(
            TraceJob(
                name=f"{job.ref.namespace}/{job.ref.name}",
                gang=job.replicas * max(1, job.gpu.count),
                steps=max(1, left),
                arrival_s=0.0,
                speeds=rates,
                kind=job.workload_class,
                checkpointable=job.checkpoint,
                weight=float(job.weight),
                tenant=tenant_of(snapshot.policy, job),
                priority=job.priority,
            )
        )
    notes = [f"{count} jobs {what}." for what, count in sorted(counts.items())]
    serving = len(_serving(snapshot))
    if serving:
        notes.append(f"{serving} devices serve and are left to their services.")
    coming = sum(
        workload.kind is WorkloadKind.INFERENCE_DEPLOYMENT
        and workload.status.ready_replicas < workload.replicas
        for workload in snapshot.workloads.values()
    )
    if coming:
        notes.append(f"{coming} services have replicas that do not run: none are kept devices for.")
    return in_order(f"snapshot {snapshot.version}", jobs, notes)


def _over(job: WorkloadRecord) -> bool:
    phase = job.status.phase
    return (
        job.kind is not WorkloadKind.TRAINING_JOB
        or job.deleting
        or job.suspend
        or phase in (Phase.SUCCEEDED, Phase.FAILED)
    )


def _rates(
    speeds: Throughputs, job: WorkloadRecord, fleet: Fleet, counts: Counter[str]
) -> dict[str, float]:
    """Steps/s on every type that it accepts; unknown ones count as the mean of the others."""
    able = [kind for kind in fleet.devices if not job.accelerators or kind in job.accelerators]
    known = {
        kind: speed.steps_per_second
        for kind, speed in speeds.of(job).items()
        if kind in able and speed.steps_per_second > 0
    }
    if not known and able:
        counts["have no known speed at all: one step a second counts on every type"] += 1
    elif len(known) < len(able):
        counts["have types without a known speed: the mean of the known ones counts there"] += 1
    mean = sum(known.values()) / len(known) if known else 1.0
    return {kind: known.get(kind, mean) if kind in able else 0.0 for kind in fleet.devices}
