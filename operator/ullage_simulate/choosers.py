# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses the jobs that run next: the operator's rounds over a policy's fractions, or a queue.

The rounds are the operator's own functions, called as by ``decide``; this module has no clock.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Mapping, Set
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
    ThroughputTable,
    TypeView,
)
from ullage.engines.allocation.round_records import (
    Cell,
    Members,
    RoundJob,
    RoundSettings,
    RoundState,
)
from ullage.engines.allocation.rounds import (
    TICK_S,
    Filled,
    are_patient,
    fill_round,
    keeps_turn,
    next_end,
    next_round,
    rounds_passed,
    worth_of_staying,
)
from ullage.scheduling.timeslicing.problem import on_grid
from ullage_simulate.books import Books
from ullage_simulate.policies import SimulatedPolicy
from ullage_simulate.trace import Fleet, TraceJob
from ullage_simulate.work import Costs, JobWork

_OLDEST: Final = 1e9
"""Seconds; age of the first job, where only the order of ages counts."""
_PERCENT: Final = 100
_SPARE_CLAIMS: Final = 16
"""Claims beyond one per device that a round is first planned with (not measured)."""
_MORE: Final = 4
"""Factor of the claims where those were too few (not measured)."""

Runs = Mapping[Members, str]


class PolicyChooser(Protocol):
    """Interface used by the loop."""

    @property
    def solves(self) -> int:
        """Programs solved so far."""

    def due_s(self, now: float) -> float:
        """Time of the next choice without an event, after a choice at ``now``."""

    def arrive(self, work: JobWork) -> None:
        """Add a job."""

    def leave(self, name: str) -> None:
        """Remove a finished job."""

    def fall(self, members: Members) -> None:
        """Return jobs on a failed device to the queue."""

    def choose(self, active: Mapping[str, JobWork], up: Mapping[str, int], now: float) -> Runs:
        """The jobs that should run from now on, with their types."""


@dataclass(slots=True)
class Queue:
    """First come, first served, in the fixed order of types, each to its end.

    Attributes:
        strict: A job that does not fit blocks those behind it; else it is passed over.
        patience_s: As the operator's FIFO: the fastest type that has room first, and for the first
            job that waited longer than this, as many devices of its best type are reserved as it
            needs; ``None`` = neither.
        waiting: A heap for each size of gang and set of types, which determine the fit.
    """

    strict: bool = False
    patience_s: float | None = None
    active: dict[str, JobWork] = field(default_factory=dict)
    runs: dict[Members, str] = field(default_factory=dict)
    waiting: dict[tuple[int, tuple[str, ...]], list[tuple[int, str]]] = field(default_factory=dict)
    solves: int = 0

    def due_s(self, now: float) -> float:
        """Never."""
        return float("inf")

    def arrive(self, work: JobWork) -> None:
        """Queue the job."""
        self.active[work.job.name] = work
        self._queue(work)

    def leave(self, name: str) -> None:
        """Release its devices."""
        del self.active[name]
        del self.runs[(name,)]

    def fall(self, members: Members) -> None:
        """Return them to their place in the queue."""
        del self.runs[members]
        for name in members:
            self._queue(self.active[name])

    def choose(self, active: Mapping[str, JobWork], up: Mapping[str, int], now: float) -> Runs:
        """The running jobs, and from the queue as many as fit."""
        free = dict(up)
        for (name,), kind in self.runs.items():
            free[kind] -= active[name].job.gang
        # equal jobs behind one that does not fit do not fit either
        heads = [(queue[0], alike) for alike, queue in self.waiting.items() if queue]
        heapq.heapify(heads)
        holder = ""
        while heads and any(free.values()):
            (_, name), alike = heads[0]
            job, queue = active[name].job, self.waiting[alike]
            fits = [kind for kind, n in free.items() if n >= job.gang and job.speeds[kind] > 0]
            if fits:
                heapq.heappop(queue)
                kind = fits[0] if self.patience_s is None else max(fits, key=job.speeds.__getitem__)
                free[kind] -= job.gang
                self.runs[(name,)] = kind
            elif self.strict:
                break
            if fits and queue:
                heapq.heapreplace(heads, (queue[0], alike))
            else:
                heapq.heappop(heads)
            if not fits and not holder and self._waited_too_long(job, now):
                holder = name
                _keep_for(job, up, free)
        return self.runs

    def _queue(self, work: JobWork) -> None:
        job = work.job
        alike = job.gang, tuple(kind for kind, speed in job.speeds.items() if speed > 0)
        heapq.heappush(self.waiting.setdefault(alike, []), (work.order, job.name))

    def _waited_too_long(self, job: TraceJob, now: float) -> bool:
        return self.patience_s is not None and now - job.arrival_s > self.patience_s


def _keep_for(job: TraceJob, up: Mapping[str, int], free: dict[str, int]) -> None:
    """Reserve free devices of a job's best type, as many as it needs.

    Ties within a percent go to the type that lacks least, as in the operator.
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
class RoundsChooser:
    """A policy's fractions, realised by the operator's rounds."""

    policy: SimulatedPolicy
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
    """Start of the turn of each running job."""
    passed_since: dict[str, float] = field(default_factory=dict)
    """Time since which smaller jobs pass over each waiting job."""
    waits: bool = False
    """True when any job waits."""
    _round: int = -1
    _kinds: tuple[str, ...] = ()
    _books: Books = field(init=False)
    _views: dict[str, JobView] = field(default_factory=dict)
    _asking: dict[str, RoundJob] = field(default_factory=dict)
    _rates: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Use types in the operator's order, which breaks ties between optima."""
        self._kinds = tuple(sorted(self.fleet.devices))
        self._books = Books(kinds=self._kinds, settings=self.settings)
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
        """Time of the next end of a turn, as in the operator."""
        return next_end(self.began.values(), now, self.settings) if self.waits else float("inf")

    def arrive(self, work: JobWork) -> None:
        """New fractions are due; they include a new job at once."""
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
        self._books.arrive(self._views[job.name], self._rates[job.name])
        self.stale = True

    def leave(self, name: str) -> None:
        """New fractions are due."""
        del self._views[name], self._asking[name], self._rates[name]
        self._books.leave(name)
        self.began.pop(name, None)
        self.passed_since.pop(name, None)
        self.stale = True

    def fall(self, members: Members) -> None:
        """Remove them from their devices."""
        running = {who: kind for who, kind in self.state.running.items() if who != members}
        self.state = replace(self.state, running=running)
        for name in members:
            self.began.pop(name, None)

    def choose(self, active: Mapping[str, JobWork], up: Mapping[str, int], now: float) -> Runs:
        """The next round."""
        number = math.floor((now + TICK_S) / self.settings.round_s)
        self._books.gather()
        self.stale |= self.policy.follows_progress and number != self._round
        if self.stale or self.allocation is None:
            self.allocation = self._as_told(self._divided(active, now))
            self.solves, self.stale, self._round = self.solves + 1, False, number
        late = {
            name: rounds_passed(since, now, self.settings)
            for name, since in self.passed_since.items()
        }
        turns = self._turns(active, late, now)
        before = self.state.running
        if self.pairs:
            self.state = next_round(
                replace(self.state, skipped=late),
                self.allocation,
                up,
                now,
                jobs=[turns.get(name, self._asking[name]) for name in active],
                settings=self.settings,
            ).state
            passed: Collection[str] = self.state.skipped
        else:
            filled = self._filled_by_head(turns, late, up, now)
            self.state = RoundState(running={run.members: run.type for run in filled.runs})
            passed = filled.passed
        self.waits = sum(len(members) for members in self.state.running) < len(active)
        self._begin(before, (*late, *passed), now)
        return self.state.running

    def _filled_by_head(
        self,
        turns: Mapping[str, RoundJob],
        late: Mapping[str, int],
        up: Mapping[str, int],
        now: float,
    ) -> Filled:
        """The next round, filled by no more waiting jobs than needed."""
        books = self._books
        running = {who: kind for who, kind in self.state.running.items() if who[0] in self._asking}
        books.book(now, running)
        stays_s = {
            (who, kind): worth_of_staying(who, turns, self.settings)
            for who, kind in running.items()
        }
        limit = self.settings.gang_skip_limit
        overdue = {name for name, count in late.items() if count >= limit}
        count = sum(up.values()) + _SPARE_CLAIMS
        while True:
            everyone = 2 * count >= len(books.names)
            claims = frozenset() if everyone else frozenset(books.head(count, stays_s))
            fills = books.most_owed(count) if overdue and not everyone else set[str]()
            few = {*turns, *late, *fills, *(name for (name,), _ in claims)}
            names = books.names if everyone else books.by_arrival(few)
            filled = fill_round(
                books.of(names, running, late),
                up,
                known={name: turns.get(name) or self._asking[name] for name in names},
                settings=self.settings,
            )
            if everyone or self._is_full(filled, up, claims, turns, overdue, fills):
                return filled
            count *= _MORE

    def _is_full(
        self,
        filled: Filled,
        up: Mapping[str, int],
        claims: Set[Cell],
        turns: Mapping[str, RoundJob],
        overdue: Set[str],
        fills: Set[str],
    ) -> bool:
        """True if a round filled by the head of the queue equals that of the whole queue.

        It does if jobs with precedence over all others took all devices.

        Args:
            filled: The round filled by the head.
            up: Devices.
            claims: The most urgent ones.
            turns: Running jobs; those that cannot be stopped come before any claim.
            overdue: Jobs that were passed over too often, which come before any claim.
            fills: Jobs with precedence for idle devices, after running ones.
        """
        promised, idle = dict(up), dict(up)
        for kept in filled.reserved:
            promised[kept.type] -= kept.devices
        for run in filled.runs:
            (name,), kind = run.members, run.type
            gang = self._asking[name].gang
            idle[kind] -= gang
            if run.spare:
                first = name in fills or name in turns
            else:
                promised[kind] -= gang
                stays = run.kept and not turns[name].checkpointable
                first = stays or name in overdue or (run.members, kind) in claims
            if not first:
                return False
        return not any(idle.values()) and not any(promised.values())

    def _divided(self, active: Mapping[str, JobWork], now: float) -> Allocation:
        """The policy's fractions: with arrays alone where possible."""
        books, policy = self._books, self.policy
        if policy.divide is not None and not self.tenants and not self.pairs:
            sizes = np.array([self.fleet.devices[kind] / self.fleet.parts for kind in self._kinds])
            fractions = policy.divide(books.gang, books.weight, books.rates, sizes)
            if fractions is not None:
                return Allocation(jobs=tuple(books.names), types=self._kinds, fractions=fractions)
        assert policy.solve is not None
        return policy.solve(self._problem(active, now))

    def _as_told(self, solved: Allocation) -> Allocation:
        """The fractions as written for jobs; nearly unchanged ones keep their value."""
        if solved.pairs:
            return solved
        fresh, names = solved.fractions, self._books.names
        if list(solved.jobs) != names:  # a kept answer lacks new jobs, and has removed ones
            at = {name: row for row, name in enumerate(solved.jobs)}
            nothing = np.zeros((1, len(solved.types)))
            fresh = np.concatenate([fresh, nothing])[[at.get(name, -1) for name in names]]
        return replace(solved, jobs=tuple(names), fractions=self._books.tell(fresh))

    def _begin(self, before: Runs, passed: Iterable[str], now: float) -> None:
        """Start and end turns, and the times in which others were passed over."""
        now_on = {name: (who, kind) for who, kind in self.state.running.items() for name in who}
        stays: set[str] = set()
        for members, kind in before.items():
            for name in members:
                who, on = now_on.get(name, ((), ""))
                # the turn of a pair continues for the remaining job
                if on == kind and set(who) <= set(members):
                    stays.add(name)
        self.began = {name: self.began.get(name, now) if name in stays else now for name in now_on}
        self.passed_since = {
            name: self.passed_since.get(name, now)
            for name in passed
            if name not in now_on and name in self._asking
        }

    def _turns(
        self, active: Mapping[str, JobWork], late: Mapping[str, int], now: float
    ) -> dict[str, RoundJob]:
        """Running jobs; one whose turn is not over is not stopped."""
        turns: dict[str, RoundJob] = {}
        patient = are_patient(late.values(), self.settings)
        for name, began in self.began.items():
            asking = self._asking[name]
            if keeps_turn(began, now, self.settings, patient=patient):
                asking = asking._replace(checkpointable=False)
            elif not self.costs.saves_on_stop:
                asking = asking._replace(unsaved_s=active[name].unsaved_s(now, self.costs))
            turns[name] = asking
        return turns

    def _problem(self, active: Mapping[str, JobWork], now: float) -> Problem:
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
            throughputs=ThroughputTable(
                rates=np.array([self._rates[name] for name in active], float), pairs=self.pairs
            ),
            previous=self.allocation,
            tenants=self.tenants,
            min_service=self.min_service,
        )


def _as_it_stands(view: JobView, work: JobWork, now: float) -> JobView:
    job = work.job
    passed = now - job.arrival_s
    return replace(
        view,
        # as in statuses: whole steps, tenths of seconds
        steps_left=max(1.0, math.ceil(work.left - TICK_S)),
        age_s=round(passed, 1),
        isolated_s=round(work.isolated_s, 1),
        deadline_in_s=None if job.deadline_s is None else job.deadline_s - passed,
    )
