# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The queue for memory of a device: order, grants, and suspensions for the first job.

Newcomers and suspended jobs wait in one order, and none overtakes the first.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from ullage.engines.lanes.away import Away, settled
from ullage.engines.lanes.memory import DeviceMemory, need_of
from ullage.engines.lanes.records import Change, JobDemand, Queued
from ullage.engines.lanes.rules import missing_mib
from ullage.engines.lanes.settings import LaneSettings, Margins
from ullage.engines.lanes.state import LaneResident, MemoryPlace
from ullage.engines.lanes.suspension import SuspensionMoment, leavers


@dataclass(slots=True, kw_only=True)
class LaneQueue:
    """Queue of the jobs that wait for ``memory``; ``away`` = suspended, waiting or not.

    ``arrivals`` is the number of the last newcomer.
    """

    memory: DeviceMemory
    away: Away
    queue: OrderedDict[str, LaneResident] = field(default_factory=OrderedDict)
    arrivals: int = 0

    def newcomer(self, demand: JobDemand, margins: Margins, now_s: float) -> LaneResident:
        """A job as a future resident; it is not queued yet.

        Args:
            demand: Its declared memory.
            margins: Margins added to it.
            now_s: The current time.
        """
        return LaneResident(
            demand=demand,
            persistent_mib=margins.persistent_mib(demand.persistent_mib),
            ephemeral_mib=margins.ephemeral_mib(demand.persistent_mib, demand.ephemeral_mib),
            number=self.arrivals + 1,
            since_s=now_s,
            queued_s=now_s,
            step_s=demand.step_s,
        )

    def add(self, newcomer: LaneResident) -> None:
        """Append a newcomer to the queue."""
        self.arrivals += 1
        self.queue[newcomer.name] = newcomer

    def enqueue(self, resident: LaneResident, now_s: float) -> None:
        """Queue a suspended job for its memory; an already queued job keeps its place."""
        if resident.name not in self.queue:
            resident.queued_s = now_s
            self.queue[resident.name] = resident

    def place(self, job: str) -> Queued:
        """Position of a queued job.

        Raises:
            KeyError: it is not queued.
        """
        need = need_of(self.queue[job])
        missing = missing_mib(need, self.memory.sizes(), self.memory.free_mib)
        place = list(self.queue).index(job) + 1
        return Queued(job=job, place=place, waiting=len(self.queue), missing_mib=missing)

    def admit(self, now_s: float, changes: list[Change]) -> bool:
        """Admit newcomers in order, as long as the first one fits; true when none waits."""
        while self.queue:
            first = next(iter(self.queue.values()))
            assigned = self.memory.admit(first, changes)
            if assigned is None:
                return False
            del self.queue[first.name]
            if first.memory is MemoryPlace.AWAY:
                changes.append(self.away.resume(first))
                continue
            first.since_s = now_s
            settled(first, now_s)
            changes.append(assigned)
        return True

    def make_room(
        self, settings: LaneSettings, now_s: float, changes: list[Change]
    ) -> tuple[LaneResident, ...]:
        """Suspend residents for the first job of the queue; those in a step when it has ended.

        Args:
            settings: Of the device.
            now_s: The current time.
            changes: Receives the changes.

        Returns:
            Those that begin to leave.
        """
        for resident in self.memory.residents.values():
            resident.leaves = False
        if not self.queue:
            return ()
        first = next(iter(self.queue.values()))
        moment = SuspensionMoment(now_s=now_s, waits_since_s=first.queued_s)
        memory = self.memory
        leaving: list[LaneResident] = []
        for resident in leavers(
            need_of(first), memory.lanes.values(), memory.usable_mib, settings, moment
        ):
            if resident.lease is not None:
                resident.leaves = True
                continue
            changes.append(self.away.suspend(resident))
            leaving.append(resident)
        return tuple(leaving)
