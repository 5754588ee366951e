# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Nodes, devices and slices are counted by state; the oldest wait is told by phase."""

from __future__ import annotations

from dataclasses import replace

from builders import NOW, a_device, a_gpu_node, a_job, a_snapshot
from ullage.api.devices import Health
from ullage.api.reasons import ConditionType
from ullage.api.slices import DesiredSlice, ObservedSlice, Proof, SliceKey, SlicePhase
from ullage.cluster.records.status import Condition, WorkloadStatus
from ullage.metrics.inventory import inventory_figures


def wanted(pod: str, gpu: str, percent: int) -> DesiredSlice:
    return DesiredSlice(
        key=SliceKey(pod_uid=pod, container="main", index=0), pod_namespace="default",
        pod_name=pod, gpu=gpu, percent=percent, memory_mib=1, epoch=1,
    )  # fmt: skip


def seen(
    pod: str, gpu: str, percent: int, phase: SlicePhase, proof: Proof | None = None
) -> ObservedSlice:
    return ObservedSlice(
        key=SliceKey(pod_uid=pod, container="main", index=0), gpu=gpu, percent=percent,
        memory_mib=1, epoch=1, phase=phase, proof=proof,
    )  # fmt: skip


def test_devices_are_free_shared_full_or_unhealthy() -> None:
    node = replace(
        a_gpu_node("node-1"),
        devices=(
            *(a_device(f"GPU-{n}") for n in range(3)),
            replace(a_device("GPU-3"), health=Health.UNHEALTHY),
        ),
        desired=(wanted("a", "GPU-1", 40), wanted("b", "GPU-2", 60), wanted("c", "GPU-2", 40)),
        observed=(
            seen("a", "GPU-1", 40, SlicePhase.ATTACHED),
            seen("b", "GPU-2", 60, SlicePhase.ATTACHED, Proof.CGROUP),
            seen("c", "GPU-2", 40, SlicePhase.PREPARED),
            seen("gone", "GPU-1", 30, SlicePhase.ATTACHED, Proof.CGROUP),
        ),
    )
    found = inventory_figures(a_snapshot(node))
    assert found.devices == {
        ("emulated", "Free"): 1,
        ("emulated", "Shared"): 1,
        ("emulated", "Full"): 1,
        ("emulated", "Unhealthy"): 1,
    }
    assert found.granted == {"emulated": 1.7}, "what lingers is not free yet"
    assert found.slices == {"Attached": 3, "Prepared": 1}
    assert (found.unproven, found.undesired) == (1, 1)


def test_nodes_report_are_silent_or_retire() -> None:
    nodes = (
        a_gpu_node("node-1"),
        replace(a_gpu_node("node-2"), heartbeat=NOW - 181),
        replace(a_gpu_node("node-3"), heartbeat=0.0),
        replace(a_gpu_node("node-4"), heartbeat=0.0, retire=True),
    )
    found = inventory_figures(a_snapshot(*nodes))
    assert found.nodes == {"Reporting": 1, "Silent": 2, "Retiring": 1}


def test_the_oldest_wait_is_told_and_a_phase_without_one_is_zero() -> None:
    def refused(since: float) -> WorkloadStatus:
        said = Condition(
            type=ConditionType.ADMITTED, status="False", reason="NoCapacity", since=since
        )
        return WorkloadStatus(phase="Pending", conditions=(said,))

    base = a_job("base").record
    jobs = {
        "a": replace(base, status=refused(NOW - 50)),
        "b": replace(base, status=refused(NOW - 700)),
        "stopped": replace(base, status=refused(NOW - 9000), suspend=True),
        "done": replace(base, status=WorkloadStatus(phase="Succeeded")),
    }
    found = inventory_figures(replace(a_snapshot(), workloads=jobs))
    assert found.oldest_s["Pending"] == 700.0
    assert found.oldest_s["Starting"] == 0.0
    assert "Succeeded" not in found.oldest_s
