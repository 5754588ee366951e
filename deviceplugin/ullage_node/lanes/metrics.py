# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of lanes; labels name devices, never pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Histogram

from ullage.process.metric_families import gauge
from ullage_node.lanes.device import DeviceLanes
from ullage_node.lanes.programs import Turn
from ullage_node.model.device_labels import DEVICE

WAIT_BUCKETS: Final = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0)
SWITCH_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 1.0)
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFigures:
    """Current lanes; devices without lanes have no series."""

    lanes: Mapping[str, int] = gauge("ullage_lanes", "Lanes of a device.", DEVICE)
    residents: Mapping[str, int] = gauge(
        "ullage_lane_residents", "Programs that take turns on a device.", DEVICE
    )
    queued: Mapping[str, int] = gauge(
        "ullage_lane_queue_length", "Programs that wait for memory of a device.", DEVICE
    )
    suspended: Mapping[str, int] = gauge(
        "ullage_lane_suspended", "Programs whose memory was taken off a device.", DEVICE
    )
    memory: Mapping[tuple[str, str], int] = gauge(
        "ullage_gpu_lane_memory_bytes",
        "Memory of a device by use: persistent, lane (shared by steps in turn), free.",
        DEVICE,
        "kind",
    )


def lane_figures(devices: Mapping[str, DeviceLanes]) -> LaneFigures:
    """The current figures.

    Args:
        devices: By UUID.
    """
    memory: dict[tuple[str, str], int] = {}
    for gpu, lanes in devices.items():
        held = lanes.table.memory
        kept = sum(lane.persistent_mib for lane in held.lanes.values())
        shared = sum(lane.reserved_mib for lane in held.lanes.values())
        for kind, mib in (("persistent", kept), ("lane", shared), ("free", held.free_mib)):
            memory[gpu, kind] = mib * _MIB
    return LaneFigures(
        lanes={gpu: len(lanes.observed(gpu)) for gpu, lanes in devices.items()},
        residents={
            gpu: sum(lane.residents for lane in lanes.observed(gpu))
            for gpu, lanes in devices.items()
        },
        queued={gpu: len(lanes.table.queue) for gpu, lanes in devices.items()},
        suspended={gpu: len(lanes.table.away.jobs) for gpu, lanes in devices.items()},
        memory=memory,
    )


class LaneTurns:
    """Waiting times of programs for their turns, and idle times of lanes between turns."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._wait = Histogram(
            "ullage_lane_wait_seconds",
            "Time from asking for a step until it was granted.",
            buckets=WAIT_BUCKETS,
            registry=registry,
        )
        self._switch = Histogram(
            "ullage_lane_switch_seconds",
            "Time from the end of a step until the next one of a program that waited.",
            buckets=SWITCH_BUCKETS,
            registry=registry,
        )

    def take(self, turn: Turn) -> None:
        """Count a grant."""
        self._wait.observe(turn.waited_s)
        if turn.switch_s is not None:
            self._switch.observe(turn.switch_s)
