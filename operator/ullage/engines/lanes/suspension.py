# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Choice of the residents to suspend so that the first queued job fits.

A suspended job has no memory on the device: it is queued with all others when it makes a request,
and returns by the same rules. A resident is suspended only when another job needs its memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ullage.engines.lanes.rules import LaneNeed, LaneSize, missing_mib, sizes
from ullage.engines.lanes.settings import LaneSettings
from ullage.engines.lanes.state import LaneResident, LaneState, MemoryPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspensionMoment:
    """Times of a choice, seconds: now, and the start of the first job's wait."""

    now_s: float
    waits_since_s: float

    def overdue(self, settings: LaneSettings) -> bool:
        """True if the first job has waited long enough to suspend busy residents, too."""
        return self.now_s - self.waits_since_s >= settings.busy_s


def may_leave(resident: LaneResident, settings: LaneSettings, moment: SuspensionMoment) -> bool:
    """True if a resident can be suspended now, or at the end of its step.

    It must have been resident for the minimum time, and have had a step since it came if it
    requests one: each stay on the device must be useful. A busy resident is chosen only for a job
    that has waited for long.

    Args:
        resident: Candidate.
        settings: Settings with the durations.
        moment: Times of the choice.
    """
    if not resident.demand.suspendable or resident.memory is not MemoryPlace.HERE:
        return False
    if moment.now_s < max(resident.came_s + settings.least_resident_s, resident.spared_until_s):
        return False
    if resident.lease is None and resident.asked_s is None:
        return moment.now_s - resident.quiet_s >= settings.idle_s or moment.overdue(settings)
    return moment.overdue(settings) and (resident.served or resident.lease is not None)


def leavers(
    need: LaneNeed,
    lanes: Iterable[LaneState],
    usable_mib: int,
    settings: LaneSettings,
    moment: SuspensionMoment,
) -> tuple[LaneResident, ...]:
    """Residents to suspend so that a job fits; none if that cannot help, or enough leave already.

    Idle residents go before busy ones, the longest idle first; suspensions that turn out
    unnecessary are dropped (derived).

    Args:
        need: Demand of the first queued job.
        lanes: All lanes of the device.
        usable_mib: Memory that persistent memory and lanes may take, MiB.
        settings: Of the device.
        moment: Times of the choice.
    """
    lanes = tuple(lanes)
    everyone = [resident for lane in lanes for resident in lane.residents.values()]
    gone = [resident for resident in everyone if resident.memory is MemoryPlace.LEAVING]
    able = [resident for resident in everyone if may_leave(resident, settings, moment)]
    order = sorted(able, key=lambda resident: (_works(resident), resident.quiet_s, resident.number))
    chosen: list[LaneResident] = []
    while _misses(need, lanes, usable_mib, (*gone, *chosen)):
        if not order:
            return ()
        chosen.append(order.pop(0))
    for resident in tuple(chosen):
        rest = [each for each in chosen if each is not resident]
        if not _misses(need, lanes, usable_mib, (*gone, *rest)):
            chosen = rest
    return tuple(chosen)


def _works(resident: LaneResident) -> bool:
    return resident.lease is not None or resident.asked_s is not None


def _misses(
    need: LaneNeed, lanes: Sequence[LaneState], usable_mib: int, without: Sequence[LaneResident]
) -> bool:
    """True if a job lacks memory even without these residents and with lanes at a boundary."""
    names = {resident.name for resident in without}
    left = [kept for lane in lanes if (kept := _after(lane, names)) is not None]
    used = sum(lane.size_mib for lane in left)
    used += sum(
        resident.persistent_mib
        for lane in lanes
        for resident in lane.residents.values()
        if resident.name not in names
    )
    return missing_mib(need, left, usable_mib - used) > 0


def _after(lane: LaneState, names: set[str]) -> LaneSize | None:
    """A lane without these residents; ``None`` = it closes."""
    rest = [resident for resident in lane.residents.values() if resident.name not in names]
    if not rest:
        return None
    (size,) = sizes((lane,))
    largest = max(resident.ephemeral_mib for resident in rest)
    return LaneSize(
        lane=size.lane,
        size_mib=largest,
        duty=size.duty,
        shared=size.shared,
        assigned=size.assigned,
    )
