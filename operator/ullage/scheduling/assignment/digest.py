# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Fingerprints of the inputs of a decision, which distinguish decisions.

Kept cheap: versions and figures instead of whole records. The same inputs give the same bytes in
every process.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.limits import FIGURES
from ullage.scheduling.feasibility.occupancy import Occupancy
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.model.view import View


def occupancy_digest(occupancy: Occupancy) -> bytes:
    """Digest of the devices and their occupants: every figure that a hard limit reads."""
    inventory = occupancy.inventory
    digest = sha256(inventory.uuids)
    for names in (
        [node.name for node in inventory.nodes],
        inventory.model_names,
        # numbers of trust domains depend on earlier cycles
        occupancy.domains.names(occupancy.domain.tolist()),
    ):
        digest.update("\n".join(("", *names)).encode())
    digest.update(inventory.node_of.tobytes())
    for figure in FIGURES:
        if figure != "domain":
            digest.update(getattr(occupancy.facts, figure).tobytes())
    return digest.digest()


def cycle_digest(view: View, devices: bytes, waiting: Sequence[WorkloadRecord]) -> str:
    """Digest of the inputs of a cycle's placement: devices, policy, waiting workloads."""
    settings, policy = view.settings, view.snapshot.policy
    digest = sha256(devices)
    digest.update(f"{settings.epoch} {settings.seed} {view.now!r}\n".encode())
    digest.update(
        f"{policy.max_percent_sum} {policy.round_seconds} {policy.gang_skip_limit}"
        f" {policy.risk!r}\n".encode()
    )
    if policy.objective != "FIFO":
        digest.update(f"{policy.objective} {policy.tenants!r}\n".encode())
    models = view.snapshot.models
    digest.update(
        "\n".join(f"{model} {models[model].version}" for model in sorted(models)).encode()
    )
    lines = sorted(f"{workload.ref.uid} {workload.generation}" for workload in waiting)
    digest.update("\n".join(lines).encode())
    return digest.hexdigest()


def decision_digest(devices: bytes, workload: WorkloadRecord, asked: bytes) -> str:
    """Digest of the inputs of one workload's decision: devices, its spec, its requests."""
    digest = sha256(devices)
    digest.update(f"{workload.ref.uid} {workload.generation}".encode())
    digest.update(asked)
    return digest.hexdigest()


def in_bytes(request: ResourceRequest) -> bytes:
    """Requests as part of the digest of a decision."""
    return (
        f" {request.mode} {request.count} {request.min_percent} {request.max_percent}"
        f" {request.memory_mib} {request.percent_limit}"
        f" {request.known if request.judged else None!r}"
        + (f" {request.lane!r}" if request.lane is not None else "")
    ).encode()
