# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Joins telemetry, guard, volumes and notices with the agent.

Wiring only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from ullage.process.metric_families import FiguresCollector
from ullage_node.dataio.watch import IoSources, IoWatch
from ullage_node.dataio.windows import IoReader
from ullage_node.devices.cgroup_io import WaitSampler
from ullage_node.guard.client import FreezerClient
from ullage_node.guard.gather import subjects, tenants
from ullage_node.guard.guard import Guard, GuardDependencies
from ullage_node.guard.metrics import GuardMetrics
from ullage_node.guard.protocol import guard_socket
from ullage_node.guard.windows import StepWindows
from ullage_node.model.devices import ContainerKey, StepProgress
from ullage_node.notices.watch import NoticeWatch
from ullage_node.settings import AgentSettings
from ullage_node.telemetry.metrics import sample_figures
from ullage_node.telemetry.station import Sources, Telemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchers:
    """Parts that watch the node for one agent."""

    telemetry: Telemetry
    guard: Guard
    notices: NoticeWatch
    volumes: IoWatch


def watchers_of(sources: Sources, settings: AgentSettings, registry: CollectorRegistry) -> Watchers:
    """Telemetry, guard and notices of one agent; their owner awaits ``run`` of each."""
    paths, containers = settings.paths, sources.containers
    table, pods = sources.around.table, sources.around.pods
    telemetry = Telemetry(
        sources, StepWindows.below(paths.steps_dir), settings.periods.usage_window_seconds
    )

    def model_of(uuid: str) -> str:
        devices = sources.watch.observed
        return next((device.model for device in devices if device.uuid == uuid), "")

    freezer = FreezerClient(guard_socket(paths.run_dir))
    guard = Guard(
        around=GuardDependencies(
            tenants=lambda: tenants(table.held, containers.attachments, pods.by_uid),
            subjects=lambda: subjects(table.held, containers.progress),
            windows=telemetry.windows,
            freezer=freezer,
            learn=telemetry.book.take,
            metrics=GuardMetrics(registry),
            model_of=model_of,
            say=sources.events.say,
        )
    )
    telemetry.frozen = lambda: guard.machine.frozen
    notices = NoticeWatch(settings.notices)
    volumes = IoWatch(
        IoSources(
            node=settings.name,
            reader=IoReader(
                cgroup_root=paths.cgroup_root, sampler=WaitSampler(proc_root=paths.proc_root)
            ),
            sys_root=paths.sys_root,
            proc_root=paths.proc_root,
            pods=lambda: pods.by_uid,
            data_waits=lambda: data_waits(containers.progress),
            limit=freezer.limit,
            say=sources.events.say,
        )
    )
    registry.register(FiguresCollector(lambda: telemetry.memory))
    registry.register(FiguresCollector(lambda: sample_figures(telemetry.samples.newest)))
    registry.register(FiguresCollector(lambda: telemetry.figures))
    registry.register(FiguresCollector(lambda: notices.figures))
    registry.register(FiguresCollector(lambda: volumes.figures))
    return Watchers(telemetry=telemetry, guard=guard, notices=notices, volumes=volumes)


def data_waits(progress: Mapping[ContainerKey, StepProgress]) -> dict[str, float]:
    """Part of a step that the slowest rank of a pod (uid) waits for data, where its hook says so.

    The program's own claim, so it only keeps its own pod from counting as starved.
    """
    waits: dict[str, float] = {}
    for key, made in progress.items():
        for rank in made.ranks:
            if rank.step_micros > 0:
                part = min(1.0, rank.data_wait_micros / rank.step_micros)
                waits[key.pod_uid] = max(part, waits.get(key.pod_uid, 0.0))
    return waits
