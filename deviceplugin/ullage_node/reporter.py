# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Composes the agent's state into its status and its metrics; changes nothing.

Everything is read on demand, so status and metrics cannot diverge.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from ullage.api.devices import Health
from ullage.api.readers import JsonObject
from ullage_node.containers import Containers
from ullage_node.dataio.loaders import LoaderReports
from ullage_node.dataio.watch import IoWatch
from ullage_node.device_watch import DeviceWatch
from ullage_node.events import Events
from ullage_node.faults import FaultBook
from ullage_node.guard.guard import Guard
from ullage_node.kubelet.registrar import Registrar
from ullage_node.kubelet.slot_board import SlotBoard
from ullage_node.lanes.server import LaneServer
from ullage_node.mirrors import NodeMirror
from ullage_node.model.devices import ProgressSource, ShareDriver
from ullage_node.notices.watch import NoticeWatch
from ullage_node.publisher import Publisher
from ullage_node.settings import AgentSettings
from ullage_node.slices.steps import StepRecords
from ullage_node.slices.table import SliceTable
from ullage_node.status import (
    NodeFacts,
    StatusFacts,
    body_of,
    guarded_slices,
    judge,
    loaded_slices,
    observed_slices,
    timestamp,
    tuned_slices,
    turned_slices,
    with_transitions,
)
from ullage_node.telemetry.station import Telemetry
from ullage_node.telemetry.usage import metered_slices
from ullage_node.traces.tracer import Tracer
from ullage_node.web import Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of the agent that are reported."""

    settings: AgentSettings
    version: str
    table: SliceTable
    node: NodeMirror
    watch: DeviceWatch
    driver: ShareDriver
    board: SlotBoard
    registrar: Registrar
    containers: Containers
    events: Events
    progress: ProgressSource
    steps: StepRecords
    guard: Guard
    telemetry: Telemetry
    notices: NoticeWatch
    faults: FaultBook
    lanes: LaneServer
    tracer: Tracer
    volumes: IoWatch
    loaders: LoaderReports


class NodeReporter:
    """Composes status and figures."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._said: tuple[JsonObject, ...] = ()
        self.retired = False
        """True if the agent has removed everything of its own from the node."""
        self.generation = 0
        """Generation of the spec that the book has applied."""

    def status(self) -> Mapping[str, object] | None:
        """The current apply body; ``None`` while there is no GPUNode."""
        parts, spec = self._parts, self._parts.node.spec
        if spec is None:
            self._said = ()
            return None
        now = timestamp(time.time())
        self._said = with_transitions(
            judge(self._node_facts(spec.problems)),
            self._said or parts.node.conditions,
            now,
            self.generation,
        )
        facts = StatusFacts(
            name=parts.settings.name,
            uid=spec.uid,
            generation=self.generation,
            epoch=parts.table.epoch,
            version=parts.version,
            driver=parts.driver.version if parts.watch.known else "",
            devices=parts.watch.observed,
            slices=metered_slices(
                turned_slices(
                    tuned_slices(
                        loaded_slices(
                            guarded_slices(
                                observed_slices(
                                    parts.table.held,
                                    parts.containers.attachments,
                                    parts.containers.progress,
                                ),
                                parts.guard.marks,
                                parts.guard.tallies,
                            ),
                            parts.telemetry.loads(time.monotonic()),
                        ),
                        parts.loaders.observed,
                    ),
                    parts.lanes.readings,
                ),
                parts.telemetry.usage,
            ),
            lanes=parts.lanes.observed,
            slots=len(parts.board.slots),
            used_slots=len(parts.table.slots),
            conditions=self._said,
            observations=parts.telemetry.book.rows,
            faults=parts.faults.faults,
            interruption=parts.notices.current,
            checks=parts.watch.checks,
            traces=parts.tracer.reports,
            starvations=parts.volumes.reports,
        )
        return body_of(facts, now)

    def _node_facts(self, problems: tuple[str, ...]) -> NodeFacts:
        parts = self._parts
        return NodeFacts(
            registration=parts.registrar.registration,
            late_binding=parts.settings.late_binding,
            retired=self.retired,
            backend_problem=parts.watch.problem,
            lost_devices=parts.watch.lost,
            problems=problems,
            unshared=parts.watch.problems,
        )

    def figures(
        self,
        publisher: Publisher,
        task_failures: Mapping[str, int],
        unreadable: Mapping[str, int],
    ) -> Figures:
        """Current figures of the metrics."""
        parts = self._parts
        states = dict.fromkeys(("free", "used", "unhealthy"), 0)
        for slot, healthy in parts.board.slots.items():
            used = slot in parts.table.slots
            states["used" if used else "free" if healthy else "unhealthy"] += 1
        return Figures(
            slots=states,
            refusals=parts.containers.refusals,
            registrations=parts.registrar.registrations,
            healthy={
                device.uuid: device.health is Health.HEALTHY for device in parts.watch.observed
            },
            status_writes=publisher.writes,
            status_failures=publisher.failures,
            events_dropped=parts.events.dropped,
            records_invalid=parts.progress.invalid_total + parts.loaders.invalid_total,
            records_uncapped=parts.steps.uncapped,
            task_failures=task_failures,
            unreadable=unreadable,
        )
