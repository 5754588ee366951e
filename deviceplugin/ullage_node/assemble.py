# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Joins telemetry, guard and notices with the agent: windows to the guard, its rows to the status.

Wiring only.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from ullage.metric_families import FiguresCollector
from ullage_node.guard.assemble import GuardParts, guard_of, step_windows
from ullage_node.guard.guard import Guard
from ullage_node.notices.watch import NoticeWatch
from ullage_node.settings import Settings
from ullage_node.telemetry.metrics import sample_figures
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
    notices = NoticeWatch(settings.notices)
    registry.register(FiguresCollector(lambda: telemetry.memory))
    registry.register(FiguresCollector(lambda: sample_figures(telemetry.samples.newest)))
    registry.register(FiguresCollector(lambda: telemetry.figures))
    registry.register(FiguresCollector(lambda: notices.figures))
    return Watchers(telemetry=telemetry, guard=guard, notices=notices)
