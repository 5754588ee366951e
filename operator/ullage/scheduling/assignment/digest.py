# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Fingerprints of what a decision looked at, so that two decisions can be told apart.

Cheap on purpose: versions and figures instead of whole records. The same inputs give the same
bytes in every process.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.scheduling.feasibility.occupancy import Occupancy
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.model.view import View


def occupancy_digest(occupancy: Occupancy) -> bytes:
    """The devices and what is taken of them."""
    inventory = occupancy.inventory
    found = sha256("\n".join(site.uuid for site in inventory.sites).encode())
    for column in (
        inventory.health,
        inventory.memory_mib,
        occupancy.percent_used,
        occupancy.memory_used_mib,
        occupancy.sharers,
    ):
        found.update(column.tobytes())
    return found.digest()


def cycle_digest(view: View, devices: bytes, waiting: Sequence[WorkloadRecord]) -> str:
    """What the placing of one cycle rests on: devices, policy, and who waits for them."""
    settings, policy = view.settings, view.snapshot.policy
    found = sha256(devices)
    found.update(f"{settings.epoch} {settings.seed} {view.now!r}\n".encode())
    found.update(
        f"{policy.max_percent_sum} {policy.round_seconds} {policy.gang_skip_limit}"
        f" {policy.risk!r}\n".encode()
    )
    if policy.objective != "FIFO":
        found.update(f"{policy.objective} {policy.tenants!r}\n".encode())
    models = view.snapshot.models
    found.update("\n".join(f"{model} {models[model].version}" for model in sorted(models)).encode())
    lines = sorted(f"{workload.ref.uid} {workload.generation}" for workload in waiting)
    found.update("\n".join(lines).encode())
    return found.hexdigest()


def decision_digest(devices: bytes, workload: WorkloadRecord, asked: bytes) -> str:
    """What one workload's decision rests on: the devices, its spec, and what it asks for."""
    found = sha256(devices)
    found.update(f"{workload.ref.uid} {workload.generation}".encode())
    found.update(asked)
    return found.hexdigest()


def in_bytes(request: ResourceRequest) -> bytes:
    """What is asked for, as it enters the digest of a decision."""
    return (
        f" {request.mode} {request.count} {request.min_percent} {request.max_percent}"
        f" {request.memory_mib} {request.percent_limit}"
        f" {request.known if request.judged else None!r}"
        + (f" {request.lane!r}" if request.lane is not None else "")
    ).encode()
