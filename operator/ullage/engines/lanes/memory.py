# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lanes of one device and their memory, changed only at boundaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from ullage.engines.lanes.records import Change, Enlarged, Joined, Moved, Opened, Placed, Resized
from ullage.engines.lanes.rules import (
    LaneFit,
    LaneMerge,
    LaneNeed,
    LaneRule,
    LaneSize,
    fit,
    loses,
    merges,
    sizes,
    split,
)
from ullage.engines.lanes.safety import check
from ullage.engines.lanes.settings import LaneAim
from ullage.engines.lanes.state import LaneResident, LaneState

_ANSWERS: Final[Mapping[LaneRule, type[Opened | Joined | Enlarged]]] = MappingProxyType(
    {LaneRule.OPEN: Opened, LaneRule.JOIN: Joined, LaneRule.ENLARGE: Enlarged}
)


@dataclass(slots=True, kw_only=True)
class DeviceMemory:
    """Lanes and residents of a device of ``usable_mib``."""

    usable_mib: int
    aim: LaneAim = LaneAim.RESIDENTS
    lanes: dict[int, LaneState] = field(default_factory=dict)
    residents: dict[str, LaneResident] = field(default_factory=dict)
    next_lane: int = 1

    @property
    def free_mib(self) -> int:
        """MiB reserved by neither lanes nor persistent memory."""
        lanes = self.lanes.values()
        return self.usable_mib - sum(lane.reserved_mib + lane.persistent_mib for lane in lanes)

    def check(self) -> None:
        """Raise `UnsafeLanes` where memory could run out."""
        check(self.lanes.values(), self.usable_mib)

    def sizes(self) -> list[LaneSize]:
        """Lanes as input of the rules."""
        return sizes(self.lanes.values())

    def admit(self, resident: LaneResident, changes: list[Change]) -> Placed | None:
        """Assign a newcomer its lane by rules 1 to 3; ``None`` where rules or aim allow none.

        Args:
            resident: Without a lane.
            changes: Receives the changes.
        """
        need = need_of(resident)
        for merge in self._merges(need, self.sizes(), self.free_mib):
            self._merge(merge, changes)
        place = fit(need, self.sizes(), self.free_mib)
        if place is None or not self._has_time(place):
            return None
        lane = self._lane(place, own=need.own, assigned=need.assigned)
        if place.rule is LaneRule.OPEN:
            lane.size_mib = need.ephemeral_mib
        self.residents[resident.name] = resident
        lane.add(resident)
        self.resize(lane, changes)
        return _ANSWERS[place.rule](
            job=resident.name,
            lane=lane.lane,
            size_mib=lane.reserved_mib,
            epoch=lane.epoch,
            persistent_mib=resident.persistent_mib,
        )

    def resize(self, lane: LaneState, changes: list[Change]) -> None:
        """Resize an idle lane to its target; close an empty one."""
        if not lane.idle:
            return
        if not lane.residents:
            del self.lanes[lane.lane]
            changes.append(Resized(lane=lane.lane, size_mib=0, epoch=lane.epoch + 1))
        elif lane.size_mib != lane.target_mib:
            lane.size_mib = lane.target_mib
            lane.epoch += 1
            changes.append(Resized(lane=lane.lane, size_mib=lane.size_mib, epoch=lane.epoch))

    def dismiss(self, resident: LaneResident, changes: list[Change]) -> None:
        """Remove a job and free its memory."""
        lane = self.lanes[resident.lane]
        if lane.holder == resident.name:
            lane.holder = None
        del self.residents[resident.name]
        lane.remove(resident.name)
        self.resize(lane, changes)

    def part(self, changes: list[Change]) -> None:
        """Split idle lanes as far as free memory allows, the largest gain first.

        A merge waits for the smaller lane's boundary and a split for that of the lane to split.
        """
        if self.aim is LaneAim.RULES_ALONE:
            return
        shared = (lane for lane in self.lanes.values() if len(lane.residents) > 1)
        idle = [lane for lane in shared if lane.idle and not lane.assigned]
        while idle:
            free = self.free_mib
            plans = [
                (split(lane.residents.values(), free), lane)
                for lane in idle
                if lane.least_mib <= free
            ]
            able = [(plan, lane) for plan, lane in plans if plan is not None]
            if not able:
                return
            plan, lane = min(able, key=lambda each: (-each[0].gain, each[0].skew, each[1].lane))
            new = self._open(own=False)
            self._move([lane.residents[name] for name in plan.names], new, changes)
            self.resize(lane, changes)
            idle = [lane for lane in (*idle, new) if len(lane.residents) > 1]

    def grow(
        self, resident: LaneResident, ephemeral_mib: int, changes: list[Change]
    ) -> bool | None:
        """Grant a resident without a lease a larger step, in its lane or another.

        Args:
            resident: Runs no step now.
            ephemeral_mib: Memory of its step, MiB, margins included.
            changes: Receives the changes.

        Returns:
            True when granted; ``None`` where lanes merge for it at later boundaries.
        """
        old = self.lanes[resident.lane]
        need = LaneNeed(
            persistent_mib=0, ephemeral_mib=ephemeral_mib, own=old.own, assigned=old.assigned
        )
        seen, free = self._without(resident)
        place = fit(need, seen, free)
        if place is None:
            planned = self._merges(need, seen, free)
            for merge in planned:
                self._merge(merge, changes)
            seen, free = self._without(resident)
            place = fit(need, seen, free)
            if place is None:
                return None if planned else False
        resident.ephemeral_mib = ephemeral_mib
        old = self.lanes[resident.lane]
        alone = place.rule is LaneRule.OPEN and len(old.residents) == 1
        if (alone and old.idle) or place.lane == old.lane:
            old.measure()
        else:
            into = self._lane(place, own=old.own, assigned=old.assigned)
            self._move([resident], into, changes)
        self.resize(old, changes)
        return True

    def _without(self, resident: LaneResident) -> tuple[list[LaneSize], int]:
        """Lanes and free memory as if a resident had a step of size zero."""
        had, lane = resident.ephemeral_mib, self.lanes[resident.lane]
        kept = lane.size_mib
        resident.ephemeral_mib = 0
        lane.measure()
        if lane.idle:
            lane.size_mib = lane.target_mib
        seen = [size for size in self.sizes() if size.lane != lane.lane or len(lane.residents) > 1]
        free = self.free_mib
        resident.ephemeral_mib, lane.size_mib = had, kept
        lane.measure()
        return seen, free

    def _lane(self, place: LaneFit, *, own: bool, assigned: int) -> LaneState:
        if place.lane is None:
            return self._open(own=own, assigned=assigned)
        return self.lanes[place.lane]

    def _open(self, *, own: bool, assigned: int = 0) -> LaneState:
        lane = LaneState(lane=self.next_lane, size_mib=0, own=own, assigned=assigned)
        self.lanes[lane.lane] = lane
        self.next_lane += 1
        return lane

    def _merges(
        self, need: LaneNeed, seen: Sequence[LaneSize], free_mib: int
    ) -> tuple[LaneMerge, ...]:
        """The merges that make room, as far as the setting permits."""
        if self.aim is LaneAim.RULES_ALONE:
            return ()
        planned = merges(need, seen, free_mib)
        costs = self.aim is LaneAim.THROUGHPUT and planned and loses(need, seen, free_mib, planned)
        return () if costs else planned

    def _has_time(self, place: LaneFit) -> bool:
        """True if a lane's residents leave it idle at times; relevant to one aim only."""
        full = place.lane is not None and self.lanes[place.lane].duty >= 1
        return not full or self.aim is not LaneAim.THROUGHPUT

    def _merge(self, merge: LaneMerge, changes: list[Change]) -> None:
        small = self.lanes[merge.lane]
        if small.idle:
            self._move(list(small.residents.values()), self.lanes[merge.into], changes)
            self.resize(small, changes)

    def _move(
        self, residents: Sequence[LaneResident], into: LaneState, changes: list[Change]
    ) -> None:
        """Move residents of one lane without a lease to another lane."""
        old = self.lanes[residents[0].lane]
        for resident in residents:
            lead_s, lead_steps = (
                resident.level_s - old.clock_s,
                resident.level_steps - old.clock_steps,
            )
            old.remove(resident.name)
            into.add(resident, lead_s, lead_steps)
        names = tuple(resident.name for resident in residents)
        changes.append(Moved(jobs=names, lane=old.lane, into=into.lane))
        self.resize(into, changes)


def need_of(resident: LaneResident) -> LaneNeed:
    """The memory that a job adds to another device."""
    return LaneNeed(
        persistent_mib=resident.persistent_mib,
        ephemeral_mib=resident.ephemeral_mib,
        own=resident.demand.own_lane,
        assigned=resident.demand.assigned,
        duty=resident.demand.duty,
    )
