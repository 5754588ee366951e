# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A priority queue with preemption of lower priorities, and two orders of victims.

By recency the job that started last is stopped first; by checkpoint age the one that loses least.
Lower priorities are always stopped before higher ones, and a job that cannot be stopped never is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ullage.engines.allocation.round_records import Members
from ullage_simulate.work import Costs, JobWork

Runs = Mapping[Members, str]


class Victims(StrEnum):
    """Order of victims of equal priority."""

    RECENCY = "recency"
    CHECKPOINT_AGE = "checkpoint-age"


@dataclass(slots=True)
class PriorityQueue:
    """Higher priorities first, then by arrival, in the fixed order of types."""

    costs: Costs
    victims: Victims
    active: dict[str, JobWork] = field(default_factory=dict)
    runs: dict[Members, str] = field(default_factory=dict)
    waiting: dict[str, JobWork] = field(default_factory=dict)
    solves: int = 0

    def due_s(self, now: float) -> float:
        """Never."""
        return float("inf")

    def arrive(self, work: JobWork) -> None:
        """Queue the job."""
        self.active[work.job.name] = self.waiting[work.job.name] = work

    def leave(self, name: str) -> None:
        """Release its devices."""
        del self.active[name]
        del self.runs[(name,)]

    def fall(self, members: Members) -> None:
        """Queue them again."""
        del self.runs[members]
        self.waiting |= {name: self.active[name] for name in members}

    def choose(self, active: Mapping[str, JobWork], up: Mapping[str, int], now: float) -> Runs:
        """The running jobs, those that fit, and those that preempt others."""
        free = dict(up)
        for (name,), kind in self.runs.items():
            free[kind] -= active[name].job.gang
        line = sorted(self.waiting.values(), key=lambda work: (-work.job.priority, work.order))
        for work in line:
            job = work.job
            kinds = [kind for kind in free if job.speeds[kind] > 0]
            fits = [kind for kind in kinds if free[kind] >= job.gang]
            if fits:
                self._take(work, fits[0], free)
                continue
            ways = [way for kind in kinds if (way := self._room(work, kind, free[kind], now))]
            if not ways:
                continue
            _, _, kind, names = min(ways) if self._by_age else ways[0]
            for name in names:
                free[self.runs.pop((name,))] += active[name].job.gang
                self.waiting[name] = active[name]
            self._take(work, kind, free)
        return self.runs

    @property
    def _by_age(self) -> bool:
        return self.victims is Victims.CHECKPOINT_AGE

    def _take(self, work: JobWork, kind: str, free: dict[str, int]) -> None:
        free[kind] -= work.job.gang
        self.runs[(work.job.name,)] = kind
        del self.waiting[work.job.name]

    def _room(
        self, work: JobWork, kind: str, free: int, now: float
    ) -> tuple[float, int, str, tuple[str, ...]] | None:
        """The fewest victims on a type in their order, their loss, and their number."""
        here = [
            other
            for (name,), on in self.runs.items()
            if on == kind
            and (other := self.active[name]).job.priority < work.job.priority
            and other.job.checkpointable
        ]
        taken: list[JobWork] = []
        for other in sorted(here, key=lambda other: self._rank(other, now)):
            if free >= work.job.gang:
                break
            taken.append(other)
            free += other.job.gang
        if free < work.job.gang:
            return None
        for other in list(taken):
            if free - other.job.gang >= work.job.gang:
                taken.remove(other)
                free -= other.job.gang
        lost = sum(other.unsaved_s(now, self.costs) * other.job.gang for other in taken)
        return lost, len(taken), kind, tuple(other.job.name for other in taken)

    def _rank(self, work: JobWork, now: float) -> tuple[float, float, int]:
        first = work.unsaved_s(now, self.costs) if self._by_age else -work.ready_s
        return (work.job.priority, first, -work.order)
