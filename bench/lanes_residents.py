# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Residents while others wait: lanes, packing by sums, one clairvoyant lane."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ullage.engines.lanes.records import Change, Enlarged, JobDemand, Joined, Opened
from ullage.engines.lanes.settings import LaneSettings
from ullage.engines.lanes.table import LaneTable

Fits = Callable[[Sequence[JobDemand], int], bool]


class Device(Protocol):
    """Residents in order of arrival; both give the names that became resident."""

    @property
    def parallel(self) -> float:
        """Steps that can run side by side, by what jobs want to run."""

    def offer(self, demand: JobDemand) -> list[str]:
        """A job comes."""

    def leave(self, name: str) -> list[str]:
        """A resident goes."""


def packing(demands: Sequence[JobDemand], usable_mib: int) -> bool:
    """True if all fit with their peaks side by side: sum of P + E within the device.

    Args:
        demands: Residents.
        usable_mib: The device, MiB.
    """
    return sum(demand.persistent_mib + demand.ephemeral_mib for demand in demands) <= usable_mib


def single_lane(demands: Sequence[JobDemand], usable_mib: int) -> bool:
    """True if all fit one step at a time: sum of P, and the largest E, within the device.

    Args:
        demands: Residents.
        usable_mib: The device, MiB.
    """
    largest = max((demand.ephemeral_mib for demand in demands), default=0)
    return sum(demand.persistent_mib for demand in demands) + largest <= usable_mib


@dataclass(slots=True, kw_only=True)
class RuleDevice:
    """Admits in order as long as a rule holds; knows no lanes."""

    usable_mib: int
    fits: Fits
    residents: dict[str, JobDemand] = field(default_factory=dict)
    queue: deque[JobDemand] = field(default_factory=deque)

    @property
    def parallel(self) -> float:
        """All of them by packing, one by a single lane."""
        duty = sum(min(1.0, demand.duty) for demand in self.residents.values())
        return duty if self.fits is packing else min(1.0, duty)

    def offer(self, demand: JobDemand) -> list[str]:
        """A job comes."""
        self.queue.append(demand)
        return self._admit()

    def leave(self, name: str) -> list[str]:
        """A resident goes."""
        del self.residents[name]
        return self._admit()

    def _admit(self) -> list[str]:
        admitted = []
        while self.queue and self.fits([*self.residents.values(), self.queue[0]], self.usable_mib):
            first = self.queue.popleft()
            self.residents[first.name] = first
            admitted.append(first.name)
        return admitted


@dataclass(slots=True, kw_only=True)
class LaneDevice:
    """A lane table without steps: every moment is a boundary."""

    settings: LaneSettings
    table: LaneTable = field(init=False)

    def __post_init__(self) -> None:
        self.table = LaneTable(settings=self.settings)

    @property
    def parallel(self) -> float:
        """One step a lane."""
        return sum(min(1.0, lane.duty) for lane in self.table.memory.lanes.values())

    def offer(self, demand: JobDemand) -> list[str]:
        """A job comes."""
        answer, changes = self.table.arrive(demand, 0.0)
        return _assigned((answer, *changes))

    def leave(self, name: str) -> list[str]:
        """A resident goes."""
        return _assigned(self.table.leave(name, 0.0))


def _assigned(changes: Sequence[Change]) -> list[str]:
    return [change.job for change in changes if isinstance(change, Opened | Joined | Enlarged)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupied:
    """Means over the time in which jobs waited: residents, and steps side by side."""

    residents: float
    parallel: float
    peak: int


def occupy(demands: Sequence[JobDemand], stays_s: Sequence[float], device: Device) -> Occupied:
    """All jobs come at once and each leaves so long after it became resident.

    Args:
        demands: In their order; each fits the device alone.
        stays_s: How long each is resident, seconds.
        device: Who admits them.
    """
    stays = dict(zip((demand.name for demand in demands), stays_s, strict=True))
    ends: list[tuple[float, str]] = []
    admitted = [name for demand in demands for name in device.offer(demand)]
    left, now_s, peak = len(demands) - len(admitted), 0.0, len(admitted)
    job_s = lane_s = 0.0
    for name in admitted:
        heapq.heappush(ends, (stays[name], name))
    here = len(admitted)
    if not left:
        return Occupied(residents=here, parallel=device.parallel, peak=here)
    while left:
        end_s, name = heapq.heappop(ends)
        job_s += here * (end_s - now_s)
        lane_s += device.parallel * (end_s - now_s)
        now_s = end_s
        newly = device.leave(name)
        left -= len(newly)
        here += len(newly) - 1
        peak = max(peak, here)
        for each in newly:
            heapq.heappush(ends, (now_s + stays[each], each))
    return Occupied(residents=job_s / now_s, parallel=lane_s / now_s, peak=peak)
