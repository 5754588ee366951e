# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Record of a lane table, which outlives its process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ullage.engines.lanes.away import Away
from ullage.engines.lanes.memory import DeviceMemory
from ullage.engines.lanes.records import JobDemand, LaneLease
from ullage.engines.lanes.state import LaneResident, LaneState, MemoryPlace

Shape = tuple[object, ...]
"""Equal for records that differ only in leases and times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentRecord:
    """A resident job."""

    demand: JobDemand
    persistent_mib: int
    ephemeral_mib: int
    needs_mib: int
    peak_mib: int
    number: int
    since_s: float
    waited_s: float
    ran_s: float
    steps: int
    step_s: float | None
    lease: LaneLease | None
    memory: MemoryPlace = MemoryPlace.HERE
    came_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRecord:
    """A lane, and its residents in their order."""

    lane: int
    size_mib: int
    own: bool
    epoch: int
    residents: tuple[ResidentRecord, ...]
    assigned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecord:
    """Lanes, queued jobs in their order, and the last numbers in use.

    ``away`` are suspended jobs, resuming or not.
    """

    lanes: tuple[LaneRecord, ...]
    queue: tuple[JobDemand, ...]
    next_lane: int
    arrivals: int
    leases: int
    away: tuple[ResidentRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRecord:
    """The part that every step changes: the leases, and the last number."""

    held: tuple[LaneLease, ...]
    leases: int


def running_in(record: TableRecord, running: RunningRecord) -> TableRecord:
    """A recorded table with the leases of a later time.

    Args:
        record: Of the same lanes and residents.
        running: Changes since.
    """
    held = {lease.job: lease for lease in running.held}

    def later(resident: ResidentRecord) -> ResidentRecord:
        return replace(resident, lease=held.get(resident.demand.name))

    lanes = tuple(
        replace(lane, residents=tuple(map(later, lane.residents))) for lane in record.lanes
    )
    return replace(record, lanes=lanes, leases=running.leases)


def shape_of(
    lanes: Iterable[LaneState], queue: Iterable[LaneResident], away: Iterable[LaneResident] = ()
) -> Shape:
    """Lanes, their residents, queued jobs and their limits, without leases and times.

    Args:
        lanes: Of the device.
        queue: Jobs that wait for a lane.
        away: Jobs that are suspended.
    """
    parts = (
        (
            *(lane.lane, lane.size_mib, lane.epoch, lane.assigned),
            *(
                (
                    resident.number,
                    resident.persistent_mib,
                    resident.ephemeral_mib,
                    resident.needs_mib,
                    resident.memory,
                )
                for resident in lane.residents.values()
            ),
        )
        for lane in lanes
    )
    absent = tuple(
        (resident.number, resident.persistent_mib, resident.ephemeral_mib) for resident in away
    )
    return (*parts, tuple(demand.demand.name for demand in queue), absent)


def recorded(lane: LaneState) -> LaneRecord:
    """Record of a lane."""
    return LaneRecord(
        lane=lane.lane,
        size_mib=lane.size_mib,
        own=lane.own,
        epoch=lane.epoch,
        residents=tuple(map(recorded_resident, lane.residents.values())),
        assigned=lane.assigned,
    )


def recorded_resident(resident: LaneResident) -> ResidentRecord:
    """Record of a job."""
    return ResidentRecord(
        demand=resident.demand,
        persistent_mib=resident.persistent_mib,
        ephemeral_mib=resident.ephemeral_mib,
        needs_mib=resident.needs_mib,
        peak_mib=resident.peak_mib,
        number=resident.number,
        since_s=resident.since_s,
        waited_s=resident.waited_s,
        ran_s=resident.ran_s,
        steps=resident.steps,
        step_s=resident.step_s,
        lease=resident.lease,
        memory=resident.memory,
        came_s=resident.came_s,
    )


def rebuild(record: TableRecord, memory: DeviceMemory, away: Away) -> None:
    """Restore lanes, residents and suspended jobs.

    Args:
        record: Of an earlier table.
        memory: Of the device, without lanes.
        away: Of the device, without jobs.

    Raises:
        ValueError: the record contradicts itself.
    """
    for lane in map(_rebuilt, record.lanes):
        if lane.lane in memory.lanes or memory.residents.keys() & lane.residents.keys():
            raise ValueError(f"lane {lane.lane} or a job of it is recorded twice")
        memory.lanes[lane.lane] = lane
        memory.residents.update(lane.residents)
    for resident in map(_rebuilt_resident, record.away):
        known = resident.name in memory.residents or resident.name in away.jobs
        if known or resident.memory is not MemoryPlace.AWAY or resident.lease is not None:
            raise ValueError(f"{resident.name!r} is recorded as away and is not")
        away.jobs[resident.name] = resident
    memory.next_lane = max((record.next_lane, *(number + 1 for number in memory.lanes)))


def _rebuilt(record: LaneRecord) -> LaneState:
    """Restore a lane; the levels of FAIR and RR are reset to equal values.

    Raises:
        ValueError: two jobs run in it, or a lease is of another lane.
    """
    lane = LaneState(
        lane=record.lane,
        size_mib=record.size_mib,
        own=record.own,
        assigned=record.assigned,
        epoch=record.epoch,
    )
    for each in record.residents:
        resident = _rebuilt_resident(each)
        lane.add(resident)
        if each.lease is None:
            continue
        if (each.lease.job, each.lease.lane) != (resident.name, lane.lane):
            raise ValueError(f"the lease of {resident.name!r} is not of lane {lane.lane}")
        if lane.holder is not None:
            raise ValueError(f"{lane.holder!r} and {resident.name!r} run in lane {lane.lane}")
        lane.holder = resident.name
    return lane


def _rebuilt_resident(record: ResidentRecord) -> LaneResident:
    """Restore a job; requests must be repeated."""
    return LaneResident(
        demand=record.demand,
        persistent_mib=record.persistent_mib,
        ephemeral_mib=record.ephemeral_mib,
        needs_mib=record.needs_mib,
        peak_mib=record.peak_mib,
        number=record.number,
        since_s=record.since_s,
        waited_s=record.waited_s,
        ran_s=record.ran_s,
        steps=record.steps,
        step_s=record.step_s,
        lease=record.lease,
        memory=record.memory,
        came_s=record.came_s,
        quiet_s=record.came_s,
    )
