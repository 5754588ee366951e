# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a node tells of its lanes: readings of containers, and lanes as they are observed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ullage.api.contract import MAX_LANE, ObservedLane
from ullage.engines.lanes.explain import wait_fraction
from ullage.engines.lanes.state import MemoryPlace
from ullage.engines.lanes.table import LaneTable
from ullage_node.lanes.members import Job
from ullage_node.model.lanes import LaneReading


def readings(table: LaneTable, jobs: Mapping[str, Job], now: float) -> dict[str, LaneReading]:
    """What is known of the jobs that take turns, by name.

    Args:
        table: Lanes of the device.
        jobs: Its programs, by name.
        now: The present, seconds.
    """
    known = {**table.memory.residents, **table.away.jobs}
    return {
        name: LaneReading(
            suspended=resident.memory in (MemoryPlace.AWAY, MemoryPlace.COMING),
            wait_percent=round(100 * wait_fraction(resident, now)),
            persistent_peak_mib=jobs[name].persistent_peak_mib,
            ephemeral_peak_mib=jobs[name].ephemeral_peak_mib,
        )
        for name, resident in known.items()
        if name in jobs and jobs[name].member.shares
    }


def observed(table: LaneTable, gpu: str) -> tuple[ObservedLane, ...]:
    """Lanes in which programs take turns, by number.

    Args:
        table: Lanes of the device.
        gpu: UUID of the device.
    """
    away = Counter(one.demand.assigned for one in table.away.jobs.values())
    found = [
        ObservedLane(
            gpu=gpu,
            lane=lane.assigned or MAX_LANE + lane.lane,
            size_mib=lane.reserved_mib,
            residents=len(lane.residents),
            waiting=sum(one.asked_s is not None for one in lane.residents.values()),
            suspended=away.pop(lane.assigned, 0) if lane.assigned else 0,
        )
        for lane in table.memory.lanes.values()
        if not lane.own and lane.residents
    ]
    found += [
        ObservedLane(gpu=gpu, lane=number, suspended=count)
        for number, count in away.items()
        if number
    ]
    return tuple(sorted(found, key=lambda one: one.lane))
