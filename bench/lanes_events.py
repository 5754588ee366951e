# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Random events for a lane table beside an account of memory that does not trust it.

The account knows declared figures and grants alone: what residents hold for good, and what the
steps that run may take. It never asks the table what is free.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from ullage.engines.lanes.records import (
    Answer,
    Change,
    Enlarged,
    Granted,
    JobDemand,
    JobRefused,
    Joined,
    LaneLease,
    Opened,
    Queued,
    Resume,
    Suspend,
    Turn,
)
from ullage.engines.lanes.safety import UnsafeLanes
from ullage.engines.lanes.settings import IterationPolicy, LaneAim, LaneSettings, Margins
from ullage.engines.lanes.table import LaneTable


@dataclass(slots=True, kw_only=True)
class Account:
    """What jobs hold by what they were told.

    ``steps_mib`` is the largest step that each job may run; ``leases`` those that run. ``orders``
    are jobs that are being suspended or resumed, ``away_mib`` what those that are suspended need.
    """

    capacity_mib: int
    persistent_mib: dict[str, int] = field(default_factory=dict)
    steps_mib: dict[str, int] = field(default_factory=dict)
    leases: dict[str, LaneLease] = field(default_factory=dict)
    orders: dict[str, Suspend | Resume] = field(default_factory=dict)
    away_mib: dict[str, int] = field(default_factory=dict)
    suspended: int = 0
    resumed: int = 0
    served: set[str] = field(default_factory=set)
    unsafe: int = 0

    def see(
        self, changes: Iterable[Change | Answer | Turn], declared: dict[str, JobDemand]
    ) -> None:
        """Follow what the table says."""
        for one in changes:
            if isinstance(one, Opened | Joined | Enlarged):
                self.persistent_mib[one.job] = declared[one.job].persistent_mib
                self.steps_mib[one.job] = declared[one.job].ephemeral_mib
            elif isinstance(one, Suspend):
                self.unsafe += one.job in self.leases or one.job in self.orders
                self.unsafe += one.job not in self.persistent_mib
                self.unsafe += not declared[one.job].suspendable
                self.orders[one.job] = one
            elif isinstance(one, Resume):
                self.unsafe += one.job not in self.away_mib or one.job in self.orders
                self.persistent_mib[one.job] = self.away_mib.pop(one.job)
                self.orders[one.job] = one
            elif isinstance(one, Granted):
                self.unsafe += one.job in self.orders
                self.unsafe += one.job in self.leases or one.job not in self.persistent_mib
                lanes = [lease.lane for lease in self.leases.values()]
                self.unsafe += one.lease.lane in lanes
                self.unsafe += self.steps_mib[one.job] > one.size_mib
                self.leases[one.job] = one.lease
                self.served.add(one.job)
        running = sum(self.steps_mib[job] for job in self.leases)
        self.unsafe += sum(self.persistent_mib.values()) + running > self.capacity_mib

    def forget(self, job: str) -> None:
        """Its process is gone."""
        self.persistent_mib.pop(job, None)
        self.steps_mib.pop(job, None)
        self.leases.pop(job, None)
        self.orders.pop(job, None)
        self.away_mib.pop(job, None)

    def has_left(self, job: str, more_mib: int) -> None:
        """A job is suspended, and kept so much more than it had declared."""
        more = min(more_mib, self.steps_mib[job])
        self.away_mib[job] = self.persistent_mib.pop(job) + more
        self.steps_mib[job] -= more
        self.suspended += 1


@dataclass(slots=True, kw_only=True)
class RandomEvents:
    """Arrivals, steps, larger steps, deaths and restarts of the table's process, from a seed.

    ``unserved`` are jobs that never ran a step though all others had left.
    """

    seed: int
    table: LaneTable = field(init=False)
    account: Account = field(init=False)
    declared: dict[str, JobDemand] = field(init=False, default_factory=dict)
    unserved: int = field(init=False, default=0)
    _rng: random.Random = field(init=False)
    _now_s: float = field(init=False, default=0.0)
    _arrivals: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        capacity = self._rng.choice((16_384, 81_920))
        settings = LaneSettings(
            capacity_mib=capacity,
            policy=self._rng.choice(list(IterationPolicy)),
            margins=self._rng.choice((Margins(), Margins(persistent=1, peak=1, free_mib=0))),
            aim=self._rng.choice(list(LaneAim)),
            most_queued=30,
        )
        self.table = LaneTable(settings=settings)
        self.account = Account(capacity_mib=capacity)

    def play(self, events: int) -> None:
        """So many events, then no more arrivals: every job that is left must get its step."""
        try:
            for _ in range(events):
                self._now_s += self._rng.expovariate(1.0)
                self._event()
            self._drain()
        except UnsafeLanes:
            self.account.unsafe += 1

    def _event(self) -> None:
        residents, rng = list(self.table.memory.residents), self._rng
        way = rng.random()
        away = list(self.table.away.jobs)
        if way < 0.1:
            self._arrive()
        elif way < 0.12 and self.account.orders:
            self._carry_out(rng.choice(list(self.account.orders)), done=rng.random() < 0.9)
        elif way < 0.2 and residents:
            self._leave(rng.choice([*residents, *self.table.queue, *away]))
        elif way < 0.25:
            self._see(self.table.look(self._now_s))
        elif way < 0.35 and away:
            self._acquire_away(rng.choice(away))
        elif way < 0.4 and self.account.orders:
            self._carry_out(rng.choice(list(self.account.orders)), done=True)
        elif way < 0.55 and residents:
            self._acquire(rng.choice(residents))
        elif way < 0.99 and self.account.leases:
            self._release(rng.choice(list(self.account.leases)))
        elif way >= 0.998:
            self._restart()

    def _restart(self) -> None:
        self.table = LaneTable.restored(self.table.settings, self.table.record(), self._now_s)
        again = {one.job: one for one in self.table.orders_again()}
        self.account.unsafe += again.keys() != self.account.orders.keys()
        self.account.orders = again

    def _carry_out(self, job: str, *, done: bool) -> None:
        order = self.account.orders.pop(job)
        if isinstance(order, Suspend):
            more = int(self.account.steps_mib[job] * self._rng.choice((0, 0, 0.3, 1.5)))
            holds = self.table.memory.residents[job].persistent_mib + more
            if done:
                self.account.has_left(job, more)
            self._see(self.table.has_left(order.order, self._now_s, done=done, holds_mib=holds))
            return
        self.account.resumed += done
        self._see(self.table.is_back(order.order, self._now_s, done=done))

    def _acquire_away(self, job: str) -> None:
        if self._rng.random() < 0.2:
            self._see(self.table.recall(job, self._now_s))
        else:
            turn, changes = self.table.acquire(job, self._now_s)
            self._see((turn, *changes))
        if self._rng.random() < 0.1:
            self.table.withdraw(job, self._now_s)

    def _arrive(self) -> None:
        rng, usable = self._rng, self.table.settings.usable_mib
        self._arrivals += 1
        demand = JobDemand(
            name=f"job-{self._arrivals}",
            persistent_mib=int(usable * min(1.2, rng.lognormvariate(-3.5, 1.0))),
            ephemeral_mib=int(usable * min(1.2, rng.lognormvariate(-2.0, 1.0))),
            own_lane=(own := rng.random() < 0.1),
            suspendable=not own and rng.random() < 0.5,
            duty=rng.choice((0.05, 0.5, 1.0)),
            step_s=rng.choice((None, 0.5)),
            total_s=rng.choice((None, 20.0)),
        )
        self.declared[demand.name] = demand
        answer, changes = self.table.arrive(demand, self._now_s)
        self._see((answer, *changes))
        if isinstance(answer, JobRefused):
            del self.declared[demand.name]
        assert isinstance(answer, Opened | Joined | Enlarged | Queued | JobRefused)

    def _leave(self, job: str) -> None:
        self.account.forget(job)
        self.declared.pop(job)
        self._see(self.table.leave(job, self._now_s))

    def _acquire(self, job: str) -> None:
        wants = None
        if job not in self.account.leases and self._rng.random() < 0.1:
            wants = int(self.account.steps_mib[job] * self._rng.uniform(0.5, 2.0))
        answer, changes = self.table.acquire(job, self._now_s, wants)
        if isinstance(answer, Granted) and wants is not None:
            self.account.steps_mib[job] = max(self.account.steps_mib[job], wants)
        self._see((answer, *changes))

    def _release(self, job: str) -> None:
        lease = self.account.leases.pop(job)
        rng = self._rng
        peak = int(self.account.steps_mib[job] * rng.uniform(0.3, 1.0))
        if rng.random() < 0.05:  # a breach is learned at the boundary
            peak *= 3
        again = rng.random() < 0.7
        self._see(self.table.release(lease.lease, self._now_s, peak, again=again))

    def _see(self, changes: Iterable[Change | Answer | Turn]) -> None:
        self.account.see(changes, self.declared)

    def _drain(self) -> None:
        """Every job takes a step and leaves."""
        for _ in range(8 * len(self.declared) + 8):
            self._now_s += 10.0
            self._see(self.table.look(self._now_s))
            for job in list(self.account.orders):
                self._carry_out(job, done=True)
            for job in list(self.table.away.jobs):
                self._acquire_away(job)
            for job in list(self.account.leases):
                if job in self.account.leases:
                    self._leave(job)
            for job in list(self.table.memory.residents):
                if job not in self.table.memory.residents or job in self.account.leases:
                    continue
                answer, changes = self.table.acquire(job, self._now_s)
                self._see((answer, *changes))
                if isinstance(answer, JobRefused):
                    self._leave(job)  # it outgrew its lane, or it is stuck
        self.unserved = len(self.declared)
