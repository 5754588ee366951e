# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Joins telemetry, guard and notices with the agent: windows to the guard, its rows to the status.

Wiring only.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from ullage_node.guard.assemble import GuardParts, guard_of, step_windows
from ullage_node.guard.guard import Guard
from ullage_node.notices.metrics import NoticeCollector
from ullage_node.notices.watch import NoticeWatch
from ullage_node.settings import Settings
from ullage_node.telemetry.metrics import DeviceCollector, MemoryCollector, TelemetryCollector
from ullage_node.telemetry.station import Sources, Telemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchers:
    """Telemetry, guard and notices of one agent."""

    telemetry: Telemetry
    guard: Guard
    notices: NoticeWatch


def watchers_of(sources: Sources, settings: Settings, registry: CollectorRegistry) -> Watchers:
    """Telemetry, guard and notices of one agent; their owner awaits ``run`` of each."""
    paths = settings.paths
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
    notices = NoticeWatch(settings.notices)
    registry.register(NoticeCollector(notices))
    return Watchers(telemetry=telemetry, guard=guard, notices=notices)
