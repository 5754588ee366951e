# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The published heterogeneity simulator's rules, for comparing with its published figures.

Rounds of 360 s, no cost of restarts, steps in whole numbers. It measures fidelity of the policies
only; what a cluster would do is simulated with the operator's own rounds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import numpy as np

from bench.gavel_centre import centre
from bench.gavel_rounds import ROUND_S, CompatCounters, CompatJob, compat_round, fractions_of
from ullage.engines.allocation.model import Allocation, JobView, Problem, ThroughputTable, TypeView
from ullage.engines.allocation.policies import finish_time, makespan, max_min, waterfill
from ullage_simulate.policies import all_alike
from ullage_simulate.trace import TraceJob


class GavelPolicy(StrEnum):
    """Policies by the names of the published simulator."""

    FIFO_PERF = "fifo_perf"
    MAX_MIN_FAIRNESS = "max_min_fairness"
    MAX_MIN_FAIRNESS_PERF = "max_min_fairness_perf"
    FINISH_TIME_FAIRNESS = "finish_time_fairness"
    FINISH_TIME_FAIRNESS_PERF = "finish_time_fairness_perf"
    MIN_TOTAL_DURATION = "min_total_duration"
    MIN_TOTAL_DURATION_PERF = "min_total_duration_perf"
    WATER_FILLING_PERF = "water_filling_perf"


AWARE: Final = frozenset(policy for policy in GavelPolicy if policy.value.endswith("perf"))
REFERENCE: Final = "v100"
"""Type whose speed an agnostic policy takes for all."""


def like_type(problem: Problem, type_name: str) -> Problem:
    """Every allowed type runs a job at its speed on one type: for objectives that count steps.

    A job that cannot run on that type is taken at its best speed.

    Args:
        problem: Jobs, types and speeds (steps/s).
        type_name: The type whose speeds count.

    Raises:
        ValueError: there is no such type.
    """
    rates = problem.throughputs.rates
    column = [kind.name for kind in problem.types].index(type_name)
    common = np.where(rates[:, column] > 0, rates[:, column], rates.max(axis=1))
    alike = np.where(rates > 0, common[:, None], 0.0)
    return replace(problem, throughputs=ThroughputTable(rates=alike))


_SOLVE: Final[Mapping[GavelPolicy, Callable[[Problem], Allocation]]] = {
    GavelPolicy.MAX_MIN_FAIRNESS: lambda problem: max_min.solve(all_alike(problem)),
    GavelPolicy.MAX_MIN_FAIRNESS_PERF: max_min.solve,
    GavelPolicy.FINISH_TIME_FAIRNESS: lambda problem: finish_time.solve(
        like_type(problem, REFERENCE)
    ),
    GavelPolicy.FINISH_TIME_FAIRNESS_PERF: finish_time.solve,
    GavelPolicy.MIN_TOTAL_DURATION: lambda problem: makespan.solve(like_type(problem, REFERENCE)),
    GavelPolicy.MIN_TOTAL_DURATION_PERF: makespan.solve,
    GavelPolicy.WATER_FILLING_PERF: waterfill.solve,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of a run of a trace.

    Attributes:
        makespan_s: When the last job ended.
        jct_s: Seconds from arrival to end, of each job.
        solves: Programs solved.
        rounds: Rounds run.
    """

    makespan_s: float
    jct_s: Mapping[str, float]
    solves: int
    rounds: int

    @property
    def mean_jct_s(self) -> float:
        """Mean of the completion times."""
        return sum(self.jct_s.values()) / len(self.jct_s)


@dataclass(slots=True)
class _Active:
    job: TraceJob
    left: int
    isolated_s: float = 0.0
    isolated_speed: float = 0.0
    left_then: int = 0


@dataclass(slots=True)
class _Run:
    devices: Mapping[str, int]
    policy: GavelPolicy
    order: random.Random
    counters: CompatCounters
    active: dict[str, _Active] = field(default_factory=dict)
    fractions: dict[str, dict[str, float]] = field(default_factory=dict)
    jct_s: dict[str, float] = field(default_factory=dict)
    stale: bool = False
    solves: int = 0
    rounds: int = 0

    def arrive(self, job: TraceJob) -> None:
        self.active[job.name] = _Active(job=job, left=job.steps)
        self.counters.add(job.name)
        self.stale = True

    def round(self, now: float) -> float:
        """One round from now; returns when it ends, which is now where nothing could run."""
        if self.stale and self.counters.due(now):
            self.counters.reset(self.fractions, now)
            self.fractions = self._fractions(now)
            self.stale, self.solves = False, self.solves + 1
        kinds = list(self.devices)
        if self.policy not in AWARE:
            self.order.shuffle(kinds)
        self.counters.types = kinds
        placed = compat_round(
            self.counters,
            self.fractions,
            self.devices,
            [
                CompatJob(name=name, gang=one.job.gang, speeds=one.job.speeds)
                for name, one in self.active.items()
            ],
            only_promised=self.policy is GavelPolicy.FIFO_PERF,
        )
        self.rounds += 1
        return max((self._run(name, kind, now) for name, kind in placed.items()), default=now)

    def _run(self, name: str, kind: str, now: float) -> float:
        one = self.active[name]
        speed = one.job.speeds[kind]
        steps = min(int(speed * ROUND_S), one.left)
        seconds = steps / speed
        self.counters.book(name, kind, seconds)
        one.left -= steps
        if one.left <= 0:
            self.jct_s[name] = now + seconds - one.job.arrival_s
            del self.active[name]
            self.counters.remove(name)
            self.stale = True
        return now + seconds

    def _fractions(self, now: float) -> dict[str, dict[str, float]]:
        if self.policy is GavelPolicy.FIFO_PERF:
            return self._greedy()
        problem = self._problem(now)
        return fractions_of(_SOLVE[self.policy](problem))

    def _greedy(self) -> dict[str, dict[str, float]]:
        """Each job by arrival its quickest free type; the first that does not fit ends it."""
        left = dict(self.devices)
        given = {name: dict.fromkeys(self.devices, 0.0) for name in self.active}
        for name, one in self.active.items():
            fits = [kind for kind in sorted(left) if left[kind] >= one.job.gang]
            if not fits:
                break
            best = max(fits, key=one.job.speeds.__getitem__)
            if one.job.speeds[best] > 0:
                given[name][best] = 1.0
                left[best] -= one.job.gang
        return given

    def _problem(self, now: float) -> Problem:
        kinds = sorted(self.devices)
        total = len(self.active)
        jobs = []
        for name, one in self.active.items():
            if one.isolated_speed > 0:
                one.isolated_s += (one.left_then - one.left) / one.isolated_speed
            part = np.array([self.devices[kind] / total / one.job.gang for kind in kinds])
            rates = np.array([self._speed(one.job, kind) for kind in kinds])
            one.isolated_speed = float(rates @ part) / max(1.0, float(part.sum()))
            one.left_then = one.left
            jobs.append(
                JobView(
                    name=name,
                    gang=one.job.gang,
                    steps_left=one.left,
                    age_s=now - one.job.arrival_s,
                    isolated_s=one.isolated_s,
                )
            )
        return Problem(
            jobs=tuple(jobs),
            types=tuple(TypeView(name=kind, devices=self.devices[kind]) for kind in kinds),
            throughputs=ThroughputTable(
                rates=np.array(
                    [[one.job.speeds[kind] for kind in kinds] for one in self.active.values()]
                )
            ),
            centre=centre,
        )

    def _speed(self, job: TraceJob, kind: str) -> float:
        return job.speeds[kind] if self.policy in AWARE else job.speeds[REFERENCE]


def run_trace(
    jobs: Sequence[TraceJob], devices: Mapping[str, int], policy: GavelPolicy, *, seed: int = 0
) -> Outcome:
    """Run a trace to its end.

    Args:
        jobs: In order of arrival; every job must fit some type.
        devices: Of each type, in the order in which rounds give them out.
        policy: Which.
        seed: Of the order of types, which agnostic policies shuffle every round.

    Raises:
        ValueError: a job fits no type.
    """
    for job in jobs:
        if not any(job.speeds[kind] > 0 and job.gang <= size for kind, size in devices.items()):
            raise ValueError(f"{job.name}: a gang of {job.gang} fits no type of this cluster")
    run = _Run(
        devices=devices,
        policy=policy,
        order=random.Random(seed),
        counters=CompatCounters(types=list(devices)),
    )
    queue = list(jobs)
    now, ran = 0.0, False
    while queue or run.active:
        if not ran:
            if queue:
                now = queue[0].arrival_s
            else:
                run.counters.last_reset_s = 0.0
        while queue and queue[0].arrival_s <= now:
            run.arrive(queue.pop(0))
        end = run.round(now)
        ran, now = end > now, end
    return Outcome(makespan_s=now, jct_s=run.jct_s, solves=run.solves, rounds=run.rounds)
