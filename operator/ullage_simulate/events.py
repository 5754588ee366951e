# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Simulates a trace on a cluster, event by event, from a seed.

Decisions are made when a job arrives or ends, a device fails or returns, and at the end of a round,
at most once per configurable gap. Between two events nothing is computed, so a year of a large
cluster takes minutes.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ullage.engines.allocation.model import PairRow, TenantView
from ullage.engines.allocation.round_records import Members, RoundSettings
from ullage_simulate.choosers import PolicyChooser, Queue, RoundsChooser
from ullage_simulate.failures import FailureLaw, Failures
from ullage_simulate.outcome import JobOutcome, PolicyOutcome, UsageSample, in_devices
from ullage_simulate.policies import SimulatedPolicy
from ullage_simulate.priorities import PriorityQueue
from ullage_simulate.progress import Tell
from ullage_simulate.trace import Fleet, JobTrace, JobTraceError
from ullage_simulate.work import Costs, JobWork, begun

_MANY: Final = 2000
"""Number of jobs above which decisions are batched by default."""
_IDLE_ROUNDS: Final = 10_000
"""Rounds without a running job that indicate an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """Settings of a run of a trace.

    Attributes:
        seed: Seed of failures.
        rounds: Length of rounds and their limits.
        costs: Of starts, stops and failures.
        failures: Failure rates of devices.
        gap_s: Minimum seconds between two decisions; ``None`` = 0 for small traces, a round for
            more than 2,000 jobs.
        pairs: Kinds that may share devices, with the types in the order of the cluster.
        tenants: Entities of hierarchical fairness; empty = jobs share the cluster directly.
        min_service: Floor of the cost policies, part of a proportional share.
    """

    seed: int = 0
    rounds: RoundSettings = field(default_factory=RoundSettings)
    costs: Costs = field(default_factory=Costs)
    failures: FailureLaw = field(default_factory=FailureLaw)
    gap_s: float | None = None
    pairs: tuple[PairRow, ...] = ()
    tenants: tuple[TenantView, ...] = ()
    min_service: float = 0.0

    def gap(self, jobs: int) -> float:
        """Minimum seconds between two decisions of a trace with that many jobs."""
        if self.gap_s is not None:
            return self.gap_s
        return self.rounds.round_s if jobs > _MANY else 0.0


def run(
    trace: JobTrace,
    fleet: Fleet,
    policy: SimulatedPolicy,
    settings: TraceSettings | None = None,
    tell: Tell | None = None,
) -> PolicyOutcome:
    """Run a trace to its end; the same arguments give the same outcome.

    Args:
        trace: Fitted to the fleet.
        fleet: The cluster.
        policy: Policy under test.
        settings: Costs, failures, rounds.
        tell: Called with the number of finished jobs, after every end.

    Raises:
        TraceError: nothing can run any more.
        ProblemError: the policy is unusable for this input (a price is missing).
    """
    how = settings or TraceSettings()
    chooser: PolicyChooser
    if policy.victims is not None:
        chooser = PriorityQueue(costs=how.costs, victims=policy.victims)
    elif policy.solve is None:
        rounds = how.rounds
        patience_s = rounds.gang_skip_limit * rounds.round_s if policy.aware else None
        chooser = Queue(strict=policy.strict, patience_s=patience_s)
    else:
        chooser = RoundsChooser(
            policy=policy,
            fleet=fleet,
            costs=how.costs,
            settings=how.rounds,
            pairs=how.pairs,
            tenants=how.tenants,
            min_service=how.min_service if policy.priced else 0.0,
        )
    cluster = _Cluster(
        trace=trace,
        fleet=fleet,
        settings=how,
        chooser=chooser,
        failures=Failures(fleet.devices, how.failures, random.Random(how.seed)),
        beside=_speeds_beside(fleet, how.pairs),
        gap_s=how.gap(len(trace.jobs)),
        tell=tell,
    )
    while cluster.arrived < len(trace.jobs) or cluster.active:
        cluster.step()
    hours = {kind: seconds / 3600 for kind, seconds in cluster.held_s.items()}
    outcome = PolicyOutcome(
        policy=policy.name,
        devices=fleet.devices,
        jobs=tuple(cluster.done),
        moments=tuple(cluster.moments),
        held_s=cluster.held_s,
        dollars=sum(fleet.prices.get(kind, 0.0) * held for kind, held in hours.items()),
        decisions=cluster.decisions,
        solves=chooser.solves,
    )
    return outcome if fleet.parts == 1 else in_devices(outcome, fleet.parts)


Beside = Mapping[tuple[str, str, str], float]
"""Kind, neighbour's kind, type -> steps/s of the first."""


def _speeds_beside(fleet: Fleet, pairs: tuple[PairRow, ...]) -> Beside:
    speeds: dict[tuple[str, str, str], float] = {}
    for row in pairs:
        for at, kind in enumerate(fleet.devices):
            speeds[row.left, row.right, kind] = row.left_rates[at]
            speeds[row.right, row.left, kind] = row.right_rates[at]
    return speeds


@dataclass(slots=True)
class _Cluster:
    """The state between two events."""

    trace: JobTrace
    fleet: Fleet
    settings: TraceSettings
    chooser: PolicyChooser
    failures: Failures
    beside: Beside
    gap_s: float
    tell: Tell | None
    now: float = 0.0
    decided_s: float = float("-inf")
    again_s: float = float("inf")
    pending: bool = False
    arrived: int = 0
    idle_rounds: int = 0
    decisions: int = 0
    active: dict[str, JobWork] = field(default_factory=dict)
    runs: dict[Members, str] = field(default_factory=dict)
    busy: dict[str, int] = field(default_factory=dict)
    held_s: dict[str, float] = field(default_factory=dict)
    ends: list[tuple[float, int, str, int]] = field(default_factory=list)
    done: list[JobOutcome] = field(default_factory=list)
    moments: list[UsageSample] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.busy = dict.fromkeys(self.fleet.devices, 0)
        self.held_s = dict.fromkeys(self.fleet.devices, 0.0)

    def step(self) -> None:
        """Advance to the next event and process it."""
        now = self._next()
        for kind, count in self.busy.items():
            self.held_s[kind] += count * (now - self.now)
        self.now = now
        self._end()
        while self.failures.next_s <= now:
            self._fail()
        if self.failures.repair(now):
            self.pending = True
        self._arrive()
        if self.active and self._due_s() <= now:
            self._decide()

    def _next(self) -> float:
        moments = [self.failures.next_s, self.failures.next_repair_s, self._due_s()]
        if not self.active:
            moments = []
        while self.ends and self._void(self.ends[0]):
            heapq.heappop(self.ends)
        if self.ends:
            moments.append(self.ends[0][0])
        if self.arrived < len(self.trace.jobs):
            moments.append(self.trace.jobs[self.arrived].arrival_s)
        return max(self.now, min(moments))

    def _due_s(self) -> float:
        """Time of the next decision without an earlier event."""
        if self.pending:
            return max(self.now, self.decided_s + self.gap_s)
        return max(self.again_s, self.decided_s + self.gap_s)

    def _void(self, end: tuple[float, int, str, int]) -> bool:
        work = self.active.get(end[2])
        return work is None or work.turn != end[3]

    def _end(self) -> None:
        while self.ends and self.ends[0][0] <= self.now:
            end = heapq.heappop(self.ends)
            if self._void(end):
                continue
            name = end[2]
            work = self.active[name]
            work.book(self.now, len(self.active))
            self.done.append(work.outcome(self.now))
            members = next(run for run in self._runs_of(name))
            self._alone(members, name)
            del self.active[name]
            self.chooser.leave(name)
            self.pending = True
            if self.tell is not None:
                self.tell(len(self.done))

    def _runs_of(self, name: str) -> list[Members]:
        single = (name,)
        return [single] if single in self.runs else [run for run in self.runs if name in run]

    def _alone(self, members: Members, leaver: str) -> None:
        """Remove a job from its devices; a job that shared them continues alone."""
        kind = self.runs.pop(members)
        rest = tuple(member for member in members if member != leaver)
        if not rest:
            self.busy[kind] -= self.active[leaver].job.gang
            return
        self.runs[rest] = kind
        for name in rest:
            work = self.active[name]
            work.book(self.now, len(self.active))
            work.speed, work.partners = work.job.speeds[kind], len(rest)
            work.turn += 1
            self._expect(work)

    def _expect(self, work: JobWork) -> None:
        heapq.heappush(self.ends, (work.end_s, work.order, work.job.name, work.turn))

    def _fail(self) -> None:
        struck = self.failures.strike()
        if struck is None:
            return
        self.pending = True
        kind, number = struck
        for members, on in self.runs.items():
            if on != kind:
                continue
            number -= self.active[members[0]].job.gang
            if number < 0:
                break
        else:
            return
        for name in members:
            work = self.active[name]
            work.failures += 1
            work.tear(self.now, len(self.active), work.unsaved_s(self.now, self.settings.costs))
        self.busy[kind] -= self.active[members[0]].job.gang
        del self.runs[members]
        self.chooser.fall(members)

    def _arrive(self) -> None:
        jobs = self.trace.jobs
        while self.arrived < len(jobs) and jobs[self.arrived].arrival_s <= self.now:
            work = begun(jobs[self.arrived], self.arrived, self.fleet)
            self.active[work.job.name] = work
            self.chooser.arrive(work)
            self.arrived += 1
            self.pending = True

    def _decide(self) -> None:
        crowd = len(self.active)
        for members in self.runs:  # waiting jobs have nothing to book
            for name in members:
                self.active[name].book(self.now, crowd)
        wanted = self.chooser.choose(self.active, self.failures.up(), self.now)
        for members, kind in list(self.runs.items()):
            if wanted.get(members) != kind:
                self._stop(members, kind)
        for members, kind in wanted.items():
            if members not in self.runs:
                self._start(members, kind)
        self.decided_s, self.pending = self.now, False
        self.again_s = self.chooser.due_s(self.now)
        self.decisions += 1
        waiting = crowd - sum(len(members) for members in self.runs)
        self.moments.append(
            UsageSample(at_s=self.now, busy=tuple(self.busy.values()), waiting=waiting)
        )
        self.idle_rounds = 0 if self.runs else self.idle_rounds + 1
        if self.idle_rounds > _IDLE_ROUNDS:
            names = ", ".join(list(self.active)[:3])
            raise JobTraceError(f"{self.trace.name}: nothing runs any more; {names} wait for ever")

    def _stop(self, members: Members, kind: str) -> None:
        costs = self.settings.costs
        self.busy[kind] -= self.active[members[0]].job.gang
        for name in members:
            work = self.active[name]
            work.stops += 1
            lost_s = 0.0 if costs.saves_on_stop else work.unsaved_s(self.now, costs)
            work.tear(self.now, len(self.active), lost_s)
        del self.runs[members]

    def _start(self, members: Members, kind: str) -> None:
        self.runs[members] = kind
        self.busy[kind] += self.active[members[0]].job.gang
        for name in members:
            work = self.active[name]
            speed = work.job.speeds[kind]
            for other in members:
                if other != name:
                    pair = (work.job.kind, self.active[other].job.kind, kind)
                    speed = self.beside.get(pair, speed)
            work.partners = len(members)
            work.begin(kind, speed, self.now, self.settings.costs.restart_s)
            self._expect(work)
