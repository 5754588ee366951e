# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Joins the guard with the agent: its sources, its listeners and its socket.

Wiring only; every rule is in the machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry

from ullage.api.contract import STEPS_FILE, StepRecord
from ullage_node.containers import Containers
from ullage_node.device_watch import DeviceWatch
from ullage_node.events import Events
from ullage_node.guard.client import FreezerClient
from ullage_node.guard.gather import subjects, tenants
from ullage_node.guard.guard import Guard, Surroundings
from ullage_node.guard.learning import ObservationSink, RecentObservations
from ullage_node.guard.metrics import GuardMetrics
from ullage_node.guard.protocol import guard_socket
from ullage_node.guard.windows import StepWindows
from ullage_node.model.devices import ContainerKey
from ullage_node.model.guard import Windows
from ullage_node.settings import PathSettings
from ullage_node.slices.pods import PodCache
from ullage_node.slices.table import SliceTable
from ullage_node.step_record import read_step_record


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardParts:
    """The parts of the agent that the guard works with; ``windows`` ``None`` = step records."""

    paths: PathSettings
    table: SliceTable
    containers: Containers
    pods: PodCache
    watch: DeviceWatch
    events: Events
    registry: CollectorRegistry
    windows: Windows | None = None
    sink: ObservationSink = field(default_factory=RecentObservations)


def guard_of(parts: GuardParts) -> Guard:
    """The guard of this agent; its owner awaits ``run``."""
    containers, table = parts.containers, parts.table
    return Guard(
        around=Surroundings(
            tenants=lambda: tenants(table.held, containers.attachments, parts.pods.by_uid),
            subjects=lambda: subjects(table.held, containers.progress),
            windows=parts.windows or step_windows(parts.paths.steps_dir),
            freezer=FreezerClient(guard_socket(parts.paths.run_dir)),
            sink=parts.sink,
            metrics=GuardMetrics(parts.registry),
            model_of=lambda uuid: model_of(parts.watch, uuid),
            say=parts.events.say,
        )
    )


def step_windows(steps_dir: Path) -> StepWindows:
    """Windows over the step records below one directory."""

    def read(key: ContainerKey) -> StepRecord | None:
        return read_step_record(steps_dir / key.directory / STEPS_FILE)

    return StepWindows(read)


def model_of(watch: DeviceWatch, uuid: str) -> str:
    """Accelerator key of a device, empty when it is not known."""
    return next((device.model for device in watch.observed if device.uuid == uuid), "")
