# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The queue for memory of a device: who waits for it, who gets it, who makes room for the first.

Newcomers and suspended jobs wait in one order, and none passes the first.
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
    """Queue of the jobs that wait for ``memory``; ``away`` are suspended, whether or not they wait.

    ``arrivals`` is the number of the last newcomer.
    """

    memory: DeviceMemory
    away: Away
    queue: OrderedDict[str, LaneResident] = field(default_factory=OrderedDict)
    arrivals: int = 0

    def newcomer(self, demand: JobDemand, margins: Margins, now_s: float) -> LaneResident:
        """A job as it would be resident; it does not wait yet.

        Args:
            demand: What it declares.
            margins: What is added to it.
            now_s: The present.
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
        """A newcomer waits, after all others."""
        self.arrivals += 1
        self.queue[newcomer.name] = newcomer

    def enqueue(self, resident: LaneResident, now_s: float) -> None:
        """A suspended job wants its memory back; one that waits already keeps its place."""
        if resident.name not in self.queue:
            resident.queued_s = now_s
            self.queue[resident.name] = resident

    def place(self, job: str) -> Queued:
        """Place of a queued job.

        Raises:
            KeyError: it is not queued.
        """
        need = need_of(self.queue[job])
        missing = missing_mib(need, self.memory.sizes(), self.memory.free_mib)
        place = list(self.queue).index(job) + 1
        return Queued(job=job, place=place, waiting=len(self.queue), missing_mib=missing)

    def admit(self, now_s: float, changes: list[Change]) -> bool:
        """Newcomers in their order, as long as the first one fits; whether none waits."""
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
        """Residents leave for the first job of the queue; those in a step when it has ended.

        Args:
            settings: Of the device.
            now_s: The present.
            changes: Get what was done.

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
