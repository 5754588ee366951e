# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Joins the lanes of a node with its book of slices, its readings and the Events of pods.

Wiring only. A node without a slice that requests a lane creates no socket and no file.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ullage_node.devices.backend import Hardware
from ullage_node.devices.processes import identified
from ullage_node.events import AgentEvent, Events, EventSubject
from ullage_node.lanes.device import IdleLimits
from ullage_node.lanes.members import LaneMember
from ullage_node.lanes.reports import StepFault, StepReport
from ullage_node.lanes.server import LaneServer, LaneTenant, SharedDevice
from ullage_node.model.devices import Attachment, AttachState, ContainerKey
from ullage_node.model.slices import HeldSlice, context_costs_mib, shares_lane
from ullage_node.model.switching import ProcessSwitch, Program
from ullage_node.settings import AgentSettings
from ullage_node.slices.table import SliceTable
from ullage_node.times import EVENT_QUIET_S

FOLDER: Final = "lanes"
"""Directory of the lanes, below the run directory."""


class NodeLanes:
    """The lanes of one agent; its owner awaits :meth:`run` and calls :meth:`look` each second."""

    def __init__(self, settings: AgentSettings, table: SliceTable, events: Events) -> None:
        paths = settings.paths
        self.server = LaneServer(paths.run_dir / FOLDER, paths.proc_root)
        self.server.on_report = self._tell
        times = settings.checkpoint
        self.server.idle = IdleLimits(
            idle_s=times.idle_seconds,
            busy_s=times.busy_seconds,
            least_resident_s=times.resident_seconds,
        )
        self.server.moves.proc_root = paths.proc_root
        self.server.moves.find = self._find
        self._attachments: Mapping[ContainerKey, Attachment] = {}
        self.run = self.server.run
        self._counts_only = settings.backend is Hardware.EMULATED
        self._table = table
        self._events = events
        self._said: dict[tuple[str, StepFault], float] = {}

    def folder(self, container: ContainerKey, slot: str) -> Path:
        """Create the directory of a container that is about to start.

        Raises:
            OSError: it cannot be created.
        """
        return self.server.prepare(container.directory, slot)

    async def look(self, attachments: Mapping[ContainerKey, Attachment]) -> None:
        """Bring lanes in line with slices and readings.

        Raises:
            OSError: a socket cannot be created.
        """
        self._attachments = attachments
        await self.server.settle(self._devices())
        if not self.server.devices:
            return
        absent = [
            key for key, attachment in attachments.items() if attachment.state is AttachState.ABSENT
        ]
        self.server.seen(key.directory for key in absent)
        for part in self._table.held:
            seen = attachments.get(part.container)
            if seen is not None and self._exceeds(part, seen):
                most = part.desired.memory_mib
                text = f"the container holds more than the {most} MiB of its slice"
                self._say(part, StepFault.EXCEEDED, text)

    def suspend_by(self, switch: ProcessSwitch) -> None:
        """Set the mechanism that suspends and resumes programs."""
        self.server.moves.switch = switch

    def suspended(self, container: ContainerKey) -> bool:
        """True if the memory of a container is off its device."""
        job = container.directory
        return any(lanes.is_away(job) for lanes in self.server.devices.values())

    def missing_room(self, container: ContainerKey) -> str:
        """The reason why a container must wait; empty = its memory is free.

        A container that shares no lane uses its memory without a request, while programs may still
        be moving out for it; and the grant must be on file for the next agent.
        """
        for part in self._table.held_for(container):
            gpu = part.desired.gpu
            lanes = self.server.devices.get(gpu)
            if lanes is None:
                continue
            if not lanes.has_room(container.directory):
                return f"idle programs are leaving {gpu} to make room"
            if problem := self.server.unkept(gpu):
                return f"the node cannot write down who has the memory of {gpu}: {problem}"
        return ""

    def clear(self) -> None:
        """Remove everything; only on a node without slices."""
        self.server.clear()

    def _exceeds(self, part: HeldSlice, seen: Attachment) -> bool:
        """True if a container that shares a lane uses more device memory than its slice."""
        return shares_lane((part.desired,)) and seen.memory_used_mib > part.desired.memory_mib

    def _find(self, job: str) -> Program | None:
        """The container of a job, with its currently visible processes on the device."""
        for part in self._table.held:
            if part.container.directory == job:
                seen = self._attachments.get(part.container)
                return Program(
                    key=part.container,
                    processes=identified(
                        self.server.moves.proc_root,
                        seen.pids if seen is not None else (),
                        part.container.pod_uid,
                    ),
                    memory_mib=part.desired.persistent_mib,
                )
        return None

    def _devices(self) -> dict[str, SharedDevice]:
        held: dict[str, list[HeldSlice]] = {}
        for part in self._table.held:
            if part.phase.holds_capacity:
                held.setdefault(part.desired.gpu, []).append(part)
        return {
            uuid: SharedDevice(
                memory_mib=self._table.devices[uuid].memory_mib,
                counts_only=self._counts_only,
                tenants=tuple(map(self._tenant, parts)),
            )
            for uuid, parts in held.items()
            if uuid in self._table.devices
        }

    def _tenant(self, part: HeldSlice) -> LaneTenant:
        key, desired = part.container, part.desired
        binding = self._table.binding(key)
        shares = shares_lane(tuple(sibling.desired for sibling in self._table.held_for(key)))
        member = LaneMember(
            job=key.directory,
            memory_mib=desired.memory_mib,
            persistent_mib=desired.persistent_mib if shares else 0,
            ephemeral_mib=desired.ephemeral_mib if shares else 0,
            lane=desired.lane if shares else 0,
            steps=desired.work_steps if shares else 0,
            suspendable=shares and desired.suspendable and desired.lane > 0,
            context_mib=self._context_mib(part),
        )
        slot = binding.slots[0] if binding is not None else ""
        return LaneTenant(member=member, pod_uid=key.pod_uid, slot=slot)

    def _context_mib(self, part: HeldSlice) -> int:
        device = self._table.devices[part.desired.gpu]
        return context_costs_mib(device, [part.desired])[0]

    def _tell(self, report: StepReport) -> None:
        for part in self._table.held:
            if part.container.directory == report.job:
                self._say(part, report.fault, report.message)
                return

    def _say(self, part: HeldSlice, fault: StepFault, message: str) -> None:
        """Notify the owner, rate-limited: the program controls the figures in the text."""
        desired, now = part.desired, time.monotonic()
        self._said = {key: at for key, at in self._said.items() if now - at < EVENT_QUIET_S}
        if self._said.setdefault((desired.key.pod_uid, fault), now) != now:
            return
        subject = EventSubject(
            namespace=desired.pod_namespace, name=desired.pod_name, uid=desired.key.pod_uid
        )
        self._events.say(AgentEvent(subject=subject, reason=fault.value, message=message))
