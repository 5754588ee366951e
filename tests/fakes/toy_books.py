# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A workload over hours and days, with prices of pools: its books as every cycle writes them."""

from __future__ import annotations

from dataclasses import replace

from builders import (
    MODEL,
    NOW,
    a_device_profile,
    a_gpu_node,
    a_job,
    a_node,
    a_service,
    a_slice,
    a_snapshot,
    gpu,
)
from ullage.cluster.codecs.status import status_from_wire, status_to_wire
from ullage.cluster.records.pool import CapacityType, PoolRecord, PoolStatus
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Account, Placement
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.scheduling.accounting.account import Accountant

HOUR = 3600.0


def a_pool(
    name: str, price: float | None, kind: CapacityType = CapacityType.SPOT, *, gpus: int = 2
) -> PoolRecord:
    return PoolRecord(
        name=name,
        instance_type="box",
        zone="z1",
        capacity_type=kind,
        accelerator=MODEL,
        gpus_per_instance=gpus,
        node_selector={"pool": name},
        status=PoolStatus(price=price),
    )


def cluster(*pools: PoolRecord, declared: float | None = None, **nodes: str) -> Snapshot:
    """Nodes by name, each with the pool that its label names, two devices a node."""
    snapshot = a_snapshot(
        *(a_node(name, labels={"pool": pool}) for name, pool in nodes.items()),
        *(a_gpu_node(name) for name in nodes),
        replace(a_device_profile(MODEL), price_per_hour=declared),
    )
    return replace(snapshot, pools={one.name: one for one in pools})


def on(node: str, *, percent: int = 100, device: int = 0, pod: str = "train-0") -> Placement:
    wanted = a_slice(f"uid-{pod}", device=gpu(node, device), percent=percent)
    return Placement(
        key=wanted.key,
        pod=pod,
        node=node,
        gpu=wanted.gpu,
        percent=percent,
        memory_mib=1,
        epoch=1,
    )


class Days:
    """A workload over time, every status stored and read back as the API would."""

    def __init__(self, snapshot: Snapshot, kind: WorkloadKind = WorkloadKind.TRAINING_JOB) -> None:
        self.snapshot, self.now, self.kind = snapshot, NOW, kind
        made = a_job() if kind is WorkloadKind.TRAINING_JOB else a_service()
        self.workload: WorkloadRecord = made.build()
        self.writes = 0

    def cycle(self, after_s: float = 0.0, **changes: object) -> Account | None:
        self.now += after_s
        before = self.workload.status
        wanted = replace(before, **changes) if changes else before  # type: ignore[arg-type]
        accountant = Accountant.of(self.snapshot, {}, self.now)
        status = accountant.booked(self.workload, wanted)
        if status is not before:
            self.writes += 1
            status = status_from_wire(self.kind, status_to_wire(self.kind, status))
            self.workload = replace(self.workload, status=status)
        return self.account

    @property
    def account(self) -> Account | None:
        spend = self.workload.status.spend
        return spend.account if spend is not None else None

    @property
    def known(self) -> Account:
        assert self.account is not None
        return self.account


def one_spot_node() -> Snapshot:
    pools = a_pool("spot", 2.0), a_pool("firm", 6.0, CapacityType.ON_DEMAND)
    return cluster(*pools, n1="spot")
