# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses which jobs run next: the operator's rounds over a policy's fractions, or a queue.

The rounds are the operator's own functions, called as ``decide`` calls them; nothing here moves a
clock.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import numpy as np

from ullage.engines.allocation.model import (
    Allocation,
    Inner,
    JobView,
    PairRow,
    Problem,
    TenantView,
    Throughputs,
    TypeView,
)
from ullage.engines.allocation.round_records import Members, RoundJob, RoundSettings, RoundState
from ullage.engines.allocation.rounds import (
    TICK_S,
    are_patient,
    keeps_turn,
    next_end,
    next_round,
    rounds_passed,
)
from ullage.scheduling.timeslicing.division import retold
from ullage.scheduling.timeslicing.problem import on_grid
from ullage.simulate.policies import Policy
from ullage.simulate.trace import Fleet, TraceJob
from ullage.simulate.work import Costs, Work

_OLDEST: Final = 1e9
"""Seconds; age of a job that came first, where only the order of ages counts."""
_PERCENT: Final = 100

Runs = Mapping[Members, str]


class Chooser(Protocol):
    """Interface that the loop calls."""

    @property
    def solves(self) -> int:
        """Programs solved so far."""

    def due_s(self, now: float) -> float:
        """When it wants to be asked again though nothing happens, after a choice at ``now``."""

    def arrive(self, work: Work) -> None:
        """A job is there."""

    def leave(self, name: str) -> None:
        """A job is done."""

    def fall(self, members: Members) -> None:
        """A device failed under these jobs; they wait again."""

    def choose(self, active: Mapping[str, Work], up: Mapping[str, int], now: float) -> Runs:
        """Everyone who shall run from now on, and where."""


@dataclass(slots=True)
class Queue:
    """First come, first served, in the fixed order of types, each to its end.

    Attributes:
        strict: A job that does not fit holds up those behind it; else it is passed by.
        patience_s: As the operator's FIFO: the fastest type that has room first, and for the first
            job that waited longer than this as many devices of its best type are kept as it needs;
            ``None`` = neither.
    """

    strict: bool = False
    patience_s: float | None = None
    active: dict[str, Work] = field(default_factory=dict)
    runs: dict[Members, str] = field(default_factory=dict)
    waiting: list[tuple[int, str]] = field(default_factory=list)
    solves: int = 0

    def due_s(self, now: float) -> float:
        """Never."""
        return float("inf")

    def arrive(self, work: Work) -> None:
        """It queues up."""
        self.active[work.job.name] = work
        heapq.heappush(self.waiting, (work.order, work.job.name))

    def leave(self, name: str) -> None:
        """Its devices are free."""
        del self.active[name]
        del self.runs[(name,)]

    def fall(self, members: Members) -> None:
        """They take their old place in the queue."""
        del self.runs[members]
        for name in members:
            heapq.heappush(self.waiting, (self.active[name].order, name))

    def choose(self, active: Mapping[str, Work], up: Mapping[str, int], now: float) -> Runs:
        """Those that run, and from the queue as many as fit."""
        free = dict(up)
        for (name,), kind in self.runs.items():
            free[kind] -= active[name].job.gang
        passed: list[tuple[int, str]] = []
        holder = ""
        while self.waiting and any(free.values()):
            job = active[self.waiting[0][1]].job
            fits = [one for one, n in free.items() if n >= job.gang and job.speeds[one] > 0]
            if fits:
                heapq.heappop(self.waiting)
                kind = fits[0] if self.patience_s is None else max(fits, key=job.speeds.__getitem__)
                free[kind] -= job.gang
                self.runs[(job.name,)] = kind
            elif self.strict:
                break
            else:
                if not holder and self._waited_too_long(job, now):
                    holder = job.name
                    _keep_for(job, up, free)
                passed.append(heapq.heappop(self.waiting))
        self.waiting = sorted(passed + self.waiting) if passed else self.waiting
        return self.runs

    def _waited_too_long(self, job: TraceJob, now: float) -> bool:
        return self.patience_s is not None and now - job.arrival_s > self.patience_s


def _keep_for(job: TraceJob, up: Mapping[str, int], free: dict[str, int]) -> None:
    """Take what is free of a job's best type out, as far as it needs it.

    Of types within a percent the one that lacks least, as the operator does.
    """
    large = [kind for kind, n in up.items() if n >= job.gang and job.speeds[kind] > 0]
    if not large:
        return
    best = max(job.speeds.values())
    kept = min(
        large,
        key=lambda kind: (
            -round(_PERCENT * job.speeds[kind] / best),
            max(0, job.gang - free[kind]),
            kind,
        ),
    )
    free[kept] = max(0, free[kept] - job.gang)


@dataclass(slots=True)
class Rounds:
    """A policy's fractions, realised by the operator's rounds."""

    policy: Policy
    fleet: Fleet
    costs: Costs
    settings: RoundSettings
    pairs: tuple[PairRow, ...] = ()
    tenants: tuple[TenantView, ...] = ()
    min_service: float = 0.0
    state: RoundState = field(default_factory=RoundState)
    allocation: Allocation | None = None
    stale: bool = True
    solves: int = 0
    began: dict[str, float] = field(default_factory=dict)
    """When the turn of each job that runs began."""
    passed_since: dict[str, float] = field(default_factory=dict)
    """Since when smaller jobs pass by each that waits."""
    waits: bool = False
    """Whether anyone waits."""
    _round: int = -1
    _told: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    _kinds: tuple[str, ...] = ()
    _views: dict[str, JobView] = field(default_factory=dict)
    _asking: dict[str, RoundJob] = field(default_factory=dict)
    _rates: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take types in the operator's order: equal optima are told apart by it."""
        self._kinds = tuple(sorted(self.fleet.devices))
        order = [list(self.fleet.devices).index(kind) for kind in self._kinds]
        self.pairs = tuple(
            replace(
                row,
                left_rates=tuple(row.left_rates[at] for at in order),
                right_rates=tuple(row.right_rates[at] for at in order),
            )
            for row in self.pairs
        )

    def due_s(self, now: float) -> float:
        """When the next turn may end, as the operator looks again."""
        return next_end(self.began.values(), now, self.settings) if self.waits else float("inf")

    def arrive(self, work: Work) -> None:
        """New fractions are due; a newcomer has a part in them at once."""
        job = work.job
        speeds = {kind: on_grid(job.speeds[kind]) for kind in self._kinds}
        alike = {kind: float(speed > 0) for kind, speed in speeds.items()}
        self._rates[job.name] = tuple(speeds.values())
        self._views[job.name] = JobView(
            name=job.name,
            gang=job.gang / self.fleet.parts,
            weight=job.weight,
            age_s=max(0.0, _OLDEST - job.arrival_s),
            steps_left=job.steps,
            tenant=job.tenant if self.tenants else "",
            kind=job.kind if self.pairs else "",
        )
        self._asking[job.name] = RoundJob(
            name=job.name,
            gang=job.gang,
            speeds=speeds if self.policy.aware else alike,
            checkpointable=job.checkpointable,
            restart_s=self.costs.restart_s,
        )
        self.stale = True

    def leave(self, name: str) -> None:
        """New fractions are due."""
        del self._views[name], self._asking[name], self._rates[name]
        self.began.pop(name, None)
        self.passed_since.pop(name, None)
        self.stale = True

    def fall(self, members: Members) -> None:
        """They run nowhere."""
        running = {who: kind for who, kind in self.state.running.items() if who != members}
        self.state = replace(self.state, running=running)
        for name in members:
            self.began.pop(name, None)

    def choose(self, active: Mapping[str, Work], up: Mapping[str, int], now: float) -> Runs:
        """The next round."""
        number = math.floor((now + TICK_S) / self.settings.round_s)
        self.stale |= self.policy.follows_progress and number != self._round
        if self.stale or self.allocation is None:
            assert self.policy.solve is not None
            self.allocation = self._as_told(self.policy.solve(self._problem(active, now)))
            self.solves, self.stale, self._round = self.solves + 1, False, number
        late = {
            name: rounds_passed(since, now, self.settings)
            for name, since in self.passed_since.items()
        }
        plan = next_round(
            replace(self.state, skipped=late),
            self.allocation,
            up,
            now,
            jobs=self._asked(active, late, now),
            settings=self.settings,
        )
        before, self.state, self.waits = self.state.running, plan.state, bool(plan.waiting)
        self._begin(before, late, now)
        return plan.state.running

    def _as_told(self, found: Allocation) -> Allocation:
        """The fractions as jobs are told them; what stayed about the same stays."""
        if found.pairs:
            return found
        before, self._told = self._told, {}
        rows: list[list[float]] = []
        for name, row in zip(found.jobs, found.fractions.tolist(), strict=True):
            said = retold(before.get(name, ()), dict(zip(found.types, row, strict=True)))
            self._told[name], parts = said, dict(said)
            rows.append([float(parts.get(kind, "0")) for kind in found.types])
        table = np.array(rows, float).reshape(found.fractions.shape)
        return replace(found, fractions=table)

    def _begin(self, before: Runs, late: Mapping[str, int], now: float) -> None:
        """Turns begin and end, and with them the time in which others were passed by."""
        now_on = {name: (who, kind) for who, kind in self.state.running.items() for name in who}
        stays: set[str] = set()
        for members, kind in before.items():
            for name in members:
                who, on = now_on.get(name, ((), ""))
                # of a pair a turn goes on for the one that is left
                if on == kind and set(who) <= set(members):
                    stays.add(name)
        self.began = {name: self.began.get(name, now) if name in stays else now for name in now_on}
        self.passed_since = {
            name: self.passed_since.get(name, now)
            for name in (*late, *self.state.skipped)
            if name not in now_on and name in self._asking
        }

    def _asked(
        self, active: Mapping[str, Work], late: Mapping[str, int], now: float
    ) -> list[RoundJob]:
        """Who takes part; one whose turn is not over is not stopped."""
        found: list[RoundJob] = []
        patient = are_patient(late.values(), self.settings)
        for name, work in active.items():
            asking = self._asking[name]
            began = self.began.get(name)
            if began is not None and keeps_turn(began, now, self.settings, patient=patient):
                asking = asking._replace(checkpointable=False)
            elif work.kind and not self.costs.saves_on_stop:
                asking = asking._replace(unsaved_s=work.unsaved_s(now, self.costs))
            found.append(asking)
        return found

    def _problem(self, active: Mapping[str, Work], now: float) -> Problem:
        queues = any(tenant.inner is Inner.FIFO for tenant in self.tenants)
        if self.policy.follows_progress or queues:
            views = tuple(_as_it_stands(self._views[n], work, now) for n, work in active.items())
        else:
            views = tuple(self._views[name] for name in active)
        types = tuple(
            TypeView(
                name=kind,
                devices=self.fleet.devices[kind] / self.fleet.parts,
                dollars_per_hour=self.fleet.prices.get(kind, 0.0) * self.fleet.parts,
            )
            for kind in self._kinds
        )
        return Problem(
            jobs=views,
            types=types,
            throughputs=Throughputs(
                rates=np.array([self._rates[name] for name in active], float), pairs=self.pairs
            ),
            previous=self.allocation,
            tenants=self.tenants,
            min_service=self.min_service,
        )


def _as_it_stands(view: JobView, work: Work, now: float) -> JobView:
    job = work.job
    passed = now - job.arrival_s
    return replace(
        view,
        # as statuses tell them: whole steps, tenths of seconds
        steps_left=max(1.0, math.ceil(work.left - TICK_S)),
        age_s=round(passed, 1),
        isolated_s=round(work.isolated_s, 1),
        deadline_in_s=None if job.deadline_s is None else job.deadline_s - passed,
    )
