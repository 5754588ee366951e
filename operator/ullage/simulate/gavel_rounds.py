# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A trace of training jobs under the operator's own rounds, with the cost of stopping and starting.

The engine decides; this moves the clock. Every start, first or not, costs a job the seconds that
are asked for, in which its devices are held and no step is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ullage.engines.allocation.model import Allocation, JobView, Problem, Throughputs, TypeView
from ullage.engines.allocation.round_records import RoundJob, RoundSettings, RoundState
from ullage.engines.allocation.rounds import next_round
from ullage.simulate.gavel import Outcome, TraceJob

Solve = Callable[[Problem], Allocation]


@dataclass(slots=True)
class _Job:
    job: TraceJob
    left: float
    isolated_s: float = 0.0
    isolated_speed: float = 0.0
    left_then: float = 0.0
    starting_s: float = 0.0


@dataclass(slots=True)
class _Cluster:
    devices: Mapping[str, int]
    solve: Solve
    settings: RoundSettings
    restart_s: float
    active: dict[str, _Job] = field(default_factory=dict)
    state: RoundState = field(default_factory=RoundState)
    allocation: Allocation | None = None
    stale: bool = False
    jct_s: dict[str, float] = field(default_factory=dict)
    solves: int = 0
    rounds: int = 0
    stops: int = 0

    def decide(self, now: float) -> None:
        """Renew the fractions where jobs came or went, then plan the round."""
        if self.stale or self.allocation is None:
            self.allocation = self.solve(self._problem(now))
            self.solves, self.stale = self.solves + 1, False
        plan = next_round(
            self.state,
            self.allocation,
            self.devices,
            now,
            jobs=[
                RoundJob(
                    name=name,
                    gang=one.job.gang,
                    speeds=one.job.speeds,
                    restart_s=self.restart_s,
                )
                for name, one in self.active.items()
            ],
            settings=self.settings,
        )
        for run in plan.runs:
            if not run.kept:
                for name in run.members:
                    self.active[name].starting_s = self.restart_s
        self.stops += len(plan.stops)
        self.rounds += 1
        self.state = plan.state

    def next_end(self, now: float) -> float:
        """When the first running job ends; infinity where none runs."""
        ends = [
            now + one.starting_s + one.left / one.job.speeds[kind]
            for (name,), kind in self.state.running.items()
            if (one := self.active[name])
        ]
        return min(ends, default=float("inf"))

    def advance(self, now: float, until: float) -> None:
        """Let everything run that is running."""
        for (name,), kind in self.state.running.items():
            one = self.active[name]
            work = max(0.0, until - now - one.starting_s)
            one.starting_s = max(0.0, one.starting_s - (until - now))
            one.left -= work * one.job.speeds[kind]
        for name, one in list(self.active.items()):
            if one.left <= 1e-6 * one.job.steps:
                self.jct_s[name] = until - one.job.arrival_s
                del self.active[name]
                self.stale = True

    def _problem(self, now: float) -> Problem:
        kinds = list(self.devices)
        views = []
        for name, one in self.active.items():
            if one.isolated_speed > 0:
                one.isolated_s += (one.left_then - one.left) / one.isolated_speed
            part = np.array([self.devices[k] / len(self.active) / one.job.gang for k in kinds])
            rates = np.array([one.job.speeds[k] for k in kinds])
            one.isolated_speed = float(rates @ part) / max(1.0, float(part.sum()))
            one.left_then = one.left
            views.append(
                JobView(
                    name=name,
                    gang=one.job.gang,
                    steps_left=one.left,
                    age_s=now - one.job.arrival_s,
                    isolated_s=one.isolated_s,
                )
            )
        rates = np.array([[one.job.speeds[k] for k in kinds] for one in self.active.values()])
        return Problem(
            jobs=tuple(views),
            types=tuple(TypeView(name=kind, devices=self.devices[kind]) for kind in kinds),
            throughputs=Throughputs(rates=rates),
            previous=self.allocation,
        )


def run_rounds(
    jobs: Sequence[TraceJob],
    devices: Mapping[str, int],
    solve: Solve,
    *,
    restart_s: float = 0.0,
    settings: RoundSettings | None = None,
) -> tuple[Outcome, int]:
    """Run a trace under the operator's rounds.

    A decision is due when a job arrives or ends, and at the end of a round.

    Args:
        jobs: In order of arrival.
        devices: Of each type.
        solve: The policy.
        restart_s: Seconds that every start costs.
        settings: Length of rounds and the limit of skips.

    Returns:
        What came of it, and how often a running job was stopped or moved.

    Raises:
        ValueError: a job fits no type.
    """
    for job in jobs:
        if not any(job.speeds[kind] > 0 and job.gang <= size for kind, size in devices.items()):
            raise ValueError(f"{job.name}: a gang of {job.gang} fits no type of this cluster")
    cut = settings or RoundSettings()
    cluster = _Cluster(devices=devices, solve=solve, settings=cut, restart_s=restart_s)
    queue = list(jobs)
    now = queue[0].arrival_s if queue else 0.0
    while queue or cluster.active:
        if not cluster.active:
            now = max(now, queue[0].arrival_s)
        while queue and queue[0].arrival_s <= now:
            job = queue.pop(0)
            cluster.active[job.name] = _Job(job=job, left=float(job.steps))
            cluster.stale = True
        cluster.decide(now)
        arrival = queue[0].arrival_s if queue else float("inf")
        until = min(now + cut.round_s, cluster.next_end(now), arrival)
        cluster.advance(now, until)
        now = until
    outcome = Outcome(
        makespan_s=now, jct_s=cluster.jct_s, solves=cluster.solves, rounds=cluster.rounds
    )
    return outcome, cluster.stops


def run_in_order(jobs: Sequence[TraceJob], devices: Mapping[str, int]) -> Outcome:
    """The plain baseline: by arrival, the first type in fixed order that is free, to the end.

    A job that does not fit holds up those behind it, as a queue without policies does.

    Args:
        jobs: In order of arrival.
        devices: Of each type, in the fixed order.
    """
    free = dict(devices)
    running: list[tuple[float, str, TraceJob]] = []
    jct_s: dict[str, float] = {}
    now = 0.0
    for job in jobs:
        now = max(now, job.arrival_s)
        while True:
            for end, kind, done in [one for one in running if one[0] <= now]:
                running.remove((end, kind, done))
                free[kind] += done.gang
            fits = [k for k, size in free.items() if size >= job.gang and job.speeds[k] > 0]
            if fits:
                break
            now = min(end for end, _, _ in running)
        free[fits[0]] -= job.gang
        end = now + job.steps / job.speeds[fits[0]]
        running.append((end, fits[0], job))
        jct_s[job.name] = end - job.arrival_s
    last = max((end for end, _, _ in running), default=now)
    ends = [job.arrival_s + jct_s[job.name] for job in jobs]
    return Outcome(makespan_s=max([last, *ends]), jct_s=jct_s, solves=0, rounds=0)
