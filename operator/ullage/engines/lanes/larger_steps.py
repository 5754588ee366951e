# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Residents whose next step needs more memory than they have: they run none until they get it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ullage.engines.lanes.memory import DeviceMemory
from ullage.engines.lanes.records import Change, Exceeded, JobRefused, TableRefusal
from ullage.engines.lanes.settings import Margins
from ullage.engines.lanes.state import LaneResident, MemoryPlace
from ullage.engines.lanes.turns import stop_asking


@dataclass(slots=True, kw_only=True)
class LargerSteps:
    """Residents of ``memory`` that wait for a larger step."""

    memory: DeviceMemory
    _outgrown: set[str] = field(init=False, default_factory=set)

    def note(self, resident: LaneResident) -> None:
        """Record if a step needs more than its job has, of jobs whose memory is in place."""
        if resident.needs_mib and resident.memory is MemoryPlace.HERE:
            self._outgrown.add(resident.name)
        else:
            self._outgrown.discard(resident.name)

    def forget(self, job: str) -> None:
        """Forget a job that is no longer resident."""
        self._outgrown.discard(job)

    def need(self, resident: LaneResident, ephemeral_mib: int, margins: Margins) -> None:
        """Request more memory for the next step of a job.

        Args:
            resident: The job.
            ephemeral_mib: Memory of the step, MiB; less than it has changes nothing.
            margins: Margins added to it.
        """
        wanted = margins.ephemeral_mib(resident.demand.persistent_mib, ephemeral_mib)
        if wanted > resident.ephemeral_mib:
            resident.needs_mib = max(resident.needs_mib, wanted)
            self.note(resident)

    def learn_peak(
        self, resident: LaneResident, peak_mib: int, margins: Margins, changes: list[Change]
    ) -> None:
        """Record the memory of a step; a peak above the declaration is the job's new demand.

        Args:
            resident: The job of the step.
            peak_mib: Peak memory used of the lane, MiB.
            margins: Margins added to it.
            changes: Receives the changes.
        """
        resident.peak_mib = max(resident.peak_mib, peak_mib)
        if peak_mib > resident.ephemeral_mib:
            declared = resident.demand.ephemeral_mib
            name = resident.name
            changes.append(Exceeded(job=name, peak_mib=peak_mib, declared_mib=declared))
            self.need(resident, peak_mib, margins)

    def grow(self, margins: Margins, now_s: float, changes: list[Change]) -> bool:
        """Grant or refuse each request.

        Args:
            margins: Margins added to a step.
            now_s: The current time.
            changes: Receives the changes.

        Returns:
            True when none waits for lanes to merge.
        """
        done = True
        for resident in [self.memory.residents[name] for name in sorted(self._outgrown)]:
            if resident.lease is not None or resident.asked_s is None:
                continue
            grown = self.memory.grow(resident, resident.needs_mib, changes)
            if grown:
                self._has_what_it_needs(resident)
            elif grown is None:
                done = False
            else:
                changes.append(self._refused(resident))
                stop_asking(resident, now_s)
                self._has_what_it_needs(resident)
                if resident.peak_mib > resident.ephemeral_mib:
                    self.need(resident, resident.peak_mib, margins)
        return done

    def _has_what_it_needs(self, resident: LaneResident) -> None:
        resident.needs_mib = 0
        self._outgrown.discard(resident.name)

    def _refused(self, resident: LaneResident) -> JobRefused:
        return JobRefused(
            job=resident.name,
            reason=TableRefusal.CANNOT_GROW,
            needs_mib=resident.persistent_mib + resident.needs_mib,
            usable_mib=self.memory.usable_mib,
        )
