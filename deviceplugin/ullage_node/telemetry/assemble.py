# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Joins telemetry and guard with the agent: windows go to the guard, its rows to the status.

Wiring only.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from ullage_node.guard.assemble import GuardParts, guard_of, step_windows
from ullage_node.guard.guard import Guard
from ullage_node.settings import PathSettings
from ullage_node.telemetry.metrics import DeviceCollector, MemoryCollector, TelemetryCollector
from ullage_node.telemetry.station import Sources, Telemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchers:
    """Who looks at the containers, and who acts on it."""

    telemetry: Telemetry
    guard: Guard


def watchers_of(sources: Sources, paths: PathSettings, registry: CollectorRegistry) -> Watchers:
    """Telemetry and guard of one agent; their owner awaits ``run`` of both."""
    telemetry = Telemetry(sources, step_windows(paths.steps_dir))
    guard = guard_of(
        GuardParts(
            paths=paths,
            table=sources.around.table,
            containers=sources.containers,
            pods=sources.around.pods,
            watch=sources.watch,
            events=sources.events,
            registry=registry,
            windows=telemetry.windows,
            sink=telemetry.book,
        )
    )
    telemetry.frozen = lambda: guard.machine.frozen
    registry.register(MemoryCollector(lambda: telemetry.memory))
    registry.register(DeviceCollector(lambda: telemetry.samples.newest))
    registry.register(TelemetryCollector(lambda: telemetry.figures))
    return Watchers(telemetry=telemetry, guard=guard)
