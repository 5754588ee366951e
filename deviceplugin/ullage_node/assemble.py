# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Joins telemetry, guard and notices with the agent: windows to the guard, its rows to the status.

Wiring only.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from ullage.process.metric_families import FiguresCollector
from ullage_node.guard.client import FreezerClient
from ullage_node.guard.gather import subjects, tenants
from ullage_node.guard.guard import Guard, GuardDependencies
from ullage_node.guard.metrics import GuardMetrics
from ullage_node.guard.protocol import guard_socket
from ullage_node.guard.windows import StepWindows
from ullage_node.notices.watch import NoticeWatch
from ullage_node.settings import AgentSettings
from ullage_node.telemetry.metrics import sample_figures
from ullage_node.telemetry.station import Sources, Telemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchers:
    """Telemetry, guard and notices of one agent."""

    telemetry: Telemetry
    guard: Guard
    notices: NoticeWatch


def watchers_of(sources: Sources, settings: AgentSettings, registry: CollectorRegistry) -> Watchers:
    """Telemetry, guard and notices of one agent; their owner awaits ``run`` of each."""
    paths, containers = settings.paths, sources.containers
    table, pods = sources.around.table, sources.around.pods
    telemetry = Telemetry(sources, StepWindows.below(paths.steps_dir))

    def model_of(uuid: str) -> str:
        devices = sources.watch.observed
        return next((device.model for device in devices if device.uuid == uuid), "")

    guard = Guard(
        around=GuardDependencies(
            tenants=lambda: tenants(table.held, containers.attachments, pods.by_uid),
            subjects=lambda: subjects(table.held, containers.progress),
            windows=telemetry.windows,
            freezer=FreezerClient(guard_socket(paths.run_dir)),
            learn=telemetry.book.take,
            metrics=GuardMetrics(registry),
            model_of=model_of,
            say=sources.events.say,
        )
    )
    telemetry.frozen = lambda: guard.machine.frozen
    notices = NoticeWatch(settings.notices)
    registry.register(FiguresCollector(lambda: telemetry.memory))
    registry.register(FiguresCollector(lambda: sample_figures(telemetry.samples.newest)))
    registry.register(FiguresCollector(lambda: telemetry.figures))
    registry.register(FiguresCollector(lambda: notices.figures))
    return Watchers(telemetry=telemetry, guard=guard, notices=notices)
