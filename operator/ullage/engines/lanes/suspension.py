# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which residents are suspended so that the first job of the queue fits, and in what order.

A suspended job has nothing on the device: it waits in the queue with all others when it asks again,
and comes back by the same rules. A resident is suspended only when another job needs its memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ullage.engines.lanes.rules import Need, Size, missing_mib, sizes
from ullage.engines.lanes.settings import LaneSettings
from ullage.engines.lanes.state import Lane, Memory, Resident


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When a choice is made, seconds: the present, and since when the first job waits."""

    now_s: float
    waits_since_s: float

    def overdue(self, settings: LaneSettings) -> bool:
        """Whether the first job has waited so long that busy residents make room, too."""
        return self.now_s - self.waits_since_s >= settings.busy_s


def may_leave(one: Resident, settings: LaneSettings, moment: Moment) -> bool:
    """Whether a resident can be suspended now, or at the end of its step.

    It must have been here for a while, and have had a step since it came where it asks for one:
    each time on the device is of use. A resident that works is chosen only for a job that has
    waited for long.

    Args:
        one: A resident.
        settings: Say how long each of this takes.
        moment: When.
    """
    if not one.demand.suspendable or one.memory is not Memory.HERE:
        return False
    if moment.now_s < max(one.came_s + settings.least_resident_s, one.spared_until_s):
        return False
    if one.lease is None and one.asked_s is None:
        return moment.now_s - one.quiet_s >= settings.idle_s or moment.overdue(settings)
    return moment.overdue(settings) and (one.served or one.lease is not None)


def leavers(
    need: Need, lanes: Iterable[Lane], usable_mib: int, settings: LaneSettings, moment: Moment
) -> tuple[Resident, ...]:
    """Whom to suspend so that a job fits; none where that does not help, or enough leave already.

    Idle residents go before those that work, of these the one that did nothing for longest; who is
    not needed stays (derived).

    Args:
        need: What the first job of the queue adds.
        lanes: All lanes of the device.
        usable_mib: Memory that persistent memory and lanes may take, MiB.
        settings: Of the device.
        moment: When.
    """
    lanes = tuple(lanes)
    everyone = [one for lane in lanes for one in lane.residents.values()]
    gone = [one for one in everyone if one.memory is Memory.LEAVING]
    able = [one for one in everyone if may_leave(one, settings, moment)]
    order = sorted(able, key=lambda one: (_works(one), one.quiet_s, one.number))
    chosen: list[Resident] = []
    while _misses(need, lanes, usable_mib, (*gone, *chosen)):
        if not order:
            return ()
        chosen.append(order.pop(0))
    for one in tuple(chosen):
        rest = [each for each in chosen if each is not one]
        if not _misses(need, lanes, usable_mib, (*gone, *rest)):
            chosen = rest
    return tuple(chosen)


def _works(one: Resident) -> bool:
    return one.lease is not None or one.asked_s is not None


def _misses(
    need: Need, lanes: Sequence[Lane], usable_mib: int, without: Sequence[Resident]
) -> bool:
    """Whether a job lacks memory even when these residents are gone and lanes at a boundary."""
    names = {one.name for one in without}
    left = [kept for lane in lanes if (kept := _after(lane, names)) is not None]
    used = sum(one.size_mib for one in left)
    used += sum(
        one.persistent_mib
        for lane in lanes
        for one in lane.residents.values()
        if one.name not in names
    )
    return missing_mib(need, left, usable_mib - used) > 0


def _after(lane: Lane, names: set[str]) -> Size | None:
    """A lane without these residents; ``None`` = it closes."""
    rest = [one for one in lane.residents.values() if one.name not in names]
    if not rest:
        return None
    (size,) = sizes((lane,))
    largest = max(one.ephemeral_mib for one in rest)
    return Size(
        lane=size.lane,
        size_mib=largest,
        duty=size.duty,
        shared=size.shared,
        assigned=size.assigned,
    )
