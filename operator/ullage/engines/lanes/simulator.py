# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Plays jobs through the lane table in virtual time, step by step."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ullage.engines.lanes.explain import wait_fraction
from ullage.engines.lanes.records import (
    Change,
    Enlarged,
    Granted,
    JobDemand,
    JobRefused,
    Joined,
    Opened,
    Turn,
)
from ullage.engines.lanes.settings import LaneSettings
from ullage.engines.lanes.table import LaneTable


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneJob:
    """A job with this many steps, each with its duration when its lane runs alone.

    The declared demand may differ; between steps the job pauses according to its duty.

    Raises:
        ValueError: it has no steps, or they take no time.
    """

    demand: JobDemand
    arrival_s: float
    steps: int
    step_s: float

    def __post_init__(self) -> None:
        if self.steps < 1 or not (math.isfinite(self.step_s) and self.step_s > 0):
            raise ValueError("a job has at least one step, of a positive length")
        if not (math.isfinite(self.arrival_s) and self.arrival_s >= 0):
            raise ValueError("a job arrives at a number of seconds from 0")

    @property
    def name(self) -> str:
        """Name of the job."""
        return self.demand.name


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedJob:
    """Resident time, end and steps of a job; ``wait_fraction`` from the former on."""

    name: str
    arrival_s: float
    resident_s: float
    end_s: float
    ran_s: float
    wait_fraction: float

    @property
    def completion_s(self) -> float:
        """Seconds from arrival to end."""
        return self.end_s - self.arrival_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedLanes:
    """Ends of all jobs, and means over the time from the first arrival to the last end.

    ``counts`` are residents from each time on; ``refused`` are jobs that never fit the device.
    """

    jobs: tuple[PlayedJob, ...]
    refused: tuple[str, ...]
    residents: float
    lanes: float
    busy: float
    switches: int
    counts: tuple[tuple[float, int], ...]

    @property
    def mean_completion_s(self) -> float:
        """Mean over all jobs that ran."""
        return sum(job.completion_s for job in self.jobs) / max(1, len(self.jobs))


@dataclass(slots=True, kw_only=True)
class LaneSimulator:
    """One device in virtual time.

    ``slowdown`` is the fraction by which each other running lane lengthens a step; it is applied
    when the step starts.
    """

    settings: LaneSettings
    slowdown: float = 0.0
    now_s: float = 0.0
    table: LaneTable = field(init=False)
    switches: int = field(init=False, default=0)
    _events: list[tuple[float, int, str, int]] = field(init=False, default_factory=list)
    _order: int = field(init=False, default=0)
    _jobs: dict[str, LaneJob] = field(init=False, default_factory=dict)
    _done: dict[str, int] = field(init=False, default_factory=dict)
    _ended: list[PlayedJob] = field(init=False, default_factory=list)
    _refused: list[str] = field(init=False, default_factory=list)
    _running: dict[int, tuple[str, float]] = field(init=False, default_factory=dict)
    _last: dict[int, str] = field(init=False, default_factory=dict)
    _sums: list[float] = field(init=False, default_factory=lambda: [0.0, 0.0, 0.0])
    _counts: list[tuple[float, int]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.slowdown) and self.slowdown >= 0):
            raise ValueError("a slowdown by other lanes is a part from 0")
        self.table = LaneTable(settings=self.settings)

    def add(self, job: LaneJob) -> None:
        """Add a future arrival of a job.

        Raises:
            ValueError: a job with this name exists.
        """
        if job.name in self._jobs:
            raise ValueError(f"two jobs are named {job.name!r}")
        self._jobs[job.name] = job
        self._later(max(self.now_s, job.arrival_s), job.name)

    def run(self, until_s: float = math.inf) -> None:
        """Simulate until a time, or to the end.

        Args:
            until_s: The last time, seconds.
        """
        while self._events and self._events[0][0] <= until_s:
            at_s, _, name, lease = heapq.heappop(self._events)
            self._pass(at_s)
            if lease:
                self._end_step(name, lease)
            elif name in self.table.memory.residents:
                self._acquire(name)
            else:
                self._arrive(name)
            self._count()
        if until_s < math.inf:
            self._pass(until_s)

    def played(self) -> PlayedLanes:
        """Results until now."""
        first_s = min((job.arrival_s for job in self._jobs.values()), default=0.0)
        span_s = max(self.now_s - first_s, 1e-12)
        residents, lanes, busy = (total / span_s for total in self._sums)
        return PlayedLanes(
            jobs=tuple(self._ended),
            refused=tuple(self._refused),
            residents=residents,
            lanes=lanes,
            busy=busy,
            switches=self.switches,
            counts=tuple(self._counts),
        )

    def _later(self, at_s: float, name: str, lease: int = 0) -> None:
        self._order += 1
        heapq.heappush(self._events, (at_s, self._order, name, lease))

    def _pass(self, to_s: float) -> None:
        passed_s = to_s - self.now_s
        memory = self.table.memory
        self._sums[0] += passed_s * len(memory.residents)
        self._sums[1] += passed_s * len(memory.lanes)
        self._sums[2] += passed_s * len(self._running)
        self.now_s = to_s

    def _count(self) -> None:
        here = len(self.table.memory.residents)
        if not self._counts or self._counts[-1][1] != here:
            self._counts.append((self.now_s, here))

    def _arrive(self, name: str) -> None:
        answer, changes = self.table.arrive(self._jobs[name].demand, self.now_s)
        if isinstance(answer, JobRefused):
            self._refused.append(name)
        self._follow((answer, *changes))

    def _acquire(self, name: str) -> None:
        turn, changes = self.table.acquire(name, self.now_s)
        self._follow((turn, *changes))

    def _follow(self, changes: Sequence[Change | Turn]) -> None:
        for change in changes:
            if isinstance(change, Opened | Joined | Enlarged):
                self._acquire(change.job)
            elif isinstance(change, Granted):
                self._start(change)

    def _start(self, grant: Granted) -> None:
        lease, job = grant.lease, self._jobs[grant.job]
        stretched = 1 + self.slowdown * len(self._running)
        self._running[lease.lease] = (job.name, stretched)
        self.switches += self._last.get(lease.lane, job.name) != job.name
        self._last[lease.lane] = job.name
        self._later(self.now_s + job.step_s * stretched, job.name, lease.lease)

    def _end_step(self, name: str, lease: int) -> None:
        job = self._jobs[name]
        _, stretched = self._running.pop(lease)
        self._done[name] = self._done.get(name, 0) + 1
        pause_s = job.step_s * (1 / job.demand.duty - 1)
        over = self._done[name] == job.steps
        resident = self.table.memory.residents[name]
        changes = self.table.release(
            lease, self.now_s, slowdown=stretched, again=not over and not pause_s
        )
        if over:
            self._ended.append(
                PlayedJob(
                    name=name,
                    arrival_s=job.arrival_s,
                    resident_s=resident.since_s,
                    end_s=self.now_s,
                    ran_s=resident.ran_s,
                    wait_fraction=wait_fraction(resident, self.now_s),
                )
            )
            changes = (*changes, *self.table.leave(name, self.now_s))
        elif pause_s:
            self._later(self.now_s + pause_s, name)
        self._follow(changes)


def play_lanes(
    jobs: Sequence[LaneJob], settings: LaneSettings, slowdown: float = 0.0
) -> PlayedLanes:
    """Simulate all jobs to their end.

    Args:
        jobs: Jobs with unique names.
        settings: Of the device.
        slowdown: Fraction by which each other running lane lengthens a step.

    Raises:
        ValueError: two jobs have the same name.
    """
    simulator = LaneSimulator(settings=settings, slowdown=slowdown)
    for job in jobs:
        simulator.add(job)
    simulator.run()
    return simulator.played()
