# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of inventory and use: nodes, devices, slices, waiting times of workloads.

Labels are types of devices and our own words: the number of series follows the types of a cluster,
not its nodes or workloads.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ullage.api.devices import Health
from ullage.api.reasons import ConditionType
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.lanes.assignment import LaneAssignment, assignment_of, counted_percent
from ullage.process.metric_families import gauge
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.status.workload_status import ENFORCED
from ullage.scheduling.times import HEARTBEAT_MAX_AGE_S

_BEFORE_RUNNING: Final = (Phase.PENDING, Phase.RESERVING, Phase.STARTING, Phase.RESTARTING)


class NodeState(StrEnum):
    """State of a GPUNode: usable for decisions, or not."""

    REPORTING = "Reporting"
    SILENT = "Silent"
    RETIRING = "Retiring"


class DeviceUse(StrEnum):
    """State of a device: how much of it is in use."""

    FREE = "Free"
    SHARED = "Shared"
    FULL = "Full"
    UNHEALTHY = "Unhealthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryFigures:
    """Figures of nodes, devices and slices."""

    nodes: Mapping[str, int] = gauge(
        "ullage_nodes", "GPUNodes, by whether their agent reports.", "state"
    )
    devices: Mapping[tuple[str, str], int] = gauge(
        "ullage_devices",
        "Devices by type and by how much of them is held; the sum of the states is all of them.",
        "accelerator",
        "state",
    )
    granted: Mapping[str, float] = gauge(
        "ullage_devices_granted",
        "Devices that are granted to workloads, half a device as 0.5.",
        "accelerator",
    )
    slices: Mapping[str, int] = gauge("ullage_slices", "Slices on nodes, by phase.", "phase")
    unproven: int = gauge(
        "ullage_slices_unproven",
        "Shares of devices that containers use and that the node could not verify.",
    )
    undesired: int = gauge(
        "ullage_slices_undesired", "Slices that nodes hold and that are no longer wanted."
    )
    oldest_s: Mapping[str, float] = gauge(
        "ullage_workload_oldest_seconds",
        "Longest time that a workload has been in a phase before Running.",
        "phase",
    )


def inventory_figures(snapshot: Snapshot) -> InventoryFigures:
    """The current figures."""
    now = snapshot.taken_at
    nodes: Counter[str] = Counter()
    devices: Counter[tuple[str, str]] = Counter()
    granted: defaultdict[str, float] = defaultdict(float)
    slices: Counter[str] = Counter()
    unproven = undesired = 0
    for node in snapshot.gpu_nodes.values():
        nodes[_node_state(node, now)] += 1
        held = {gpu: counted_percent(parts) for gpu, parts in _held(node).items()}
        for device in node.devices:
            percent = held.get(device.uuid, 0)
            devices[device.model, _device_state(device.health, percent)] += 1
            granted[device.model] += percent / WHOLE_PERCENT
        wanted = {desired.key for desired in node.desired}
        for seen in node.observed:
            slices[seen.phase] += 1
            shared = seen.phase in ENFORCED and seen.percent < WHOLE_PERCENT
            unproven += shared and seen.proof is None
            undesired += seen.phase.holds_capacity and seen.key not in wanted
    return InventoryFigures(
        nodes=nodes,
        devices=devices,
        granted=granted,
        slices=slices,
        unproven=unproven,
        undesired=undesired,
        oldest_s=_oldest_s(snapshot),
    )


def _node_state(node: GPUNodeRecord, now: float) -> NodeState:
    if node.retire:
        return NodeState.RETIRING
    silent = node.heartbeat <= 0 or now - node.heartbeat > HEARTBEAT_MAX_AGE_S
    return NodeState.SILENT if silent else NodeState.REPORTING


def _device_state(health: Health, percent: int) -> DeviceUse:
    if health is not Health.HEALTHY:
        return DeviceUse.UNHEALTHY
    if percent <= 0:
        return DeviceUse.FREE
    return DeviceUse.FULL if percent >= WHOLE_PERCENT else DeviceUse.SHARED


def _held(node: GPUNodeRecord) -> defaultdict[str, list[LaneAssignment]]:
    """By device: desired slices, and obsolete ones that are still reported."""
    held: defaultdict[str, list[LaneAssignment]] = defaultdict(list)
    wanted = {desired.key for desired in node.desired}
    for desired in node.desired:
        held[desired.gpu].append(assignment_of(desired))
    for seen in node.observed:
        if seen.phase.holds_capacity and seen.key not in wanted:
            held[seen.gpu].append(assignment_of(seen))
    return held


def _oldest_s(snapshot: Snapshot) -> dict[str, float]:
    """Longest time by phase: waiting since the refusal, starting since the placement."""
    oldest: dict[str, float] = dict.fromkeys(_BEFORE_RUNNING, 0.0)
    for workload in snapshot.workloads.values():
        phase = workload.status.phase or Phase.PENDING
        if phase not in oldest or workload.suspend:
            continue
        admitted = workload.status.condition(ConditionType.ADMITTED)
        since = workload.created if admitted is None else admitted.since
        oldest[phase] = max(oldest[phase], snapshot.taken_at - since)
    return oldest
