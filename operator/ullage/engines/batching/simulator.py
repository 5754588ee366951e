# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Plays arrivals through the router's own chooser and worker pool in virtual time.

The chooser never sees the true times; only the simulated workers do.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ullage.engines.batching.batch_time import BatchCosts
from ullage.engines.batching.chooser import Chooser
from ullage.engines.batching.histogram import Floats
from ullage.engines.batching.waiting import Request
from ullage.engines.batching.worker_pool import CAPACITY, WorkerPool


class Outcome(StrEnum):
    """End of a request."""

    MET = "met"
    LATE = "late"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arrivals:
    """Requests in order of arrival: when they come, how long they take alone, their deadlines.

    All in seconds; ``apps`` is empty where all are of the application ``default``.
    """

    arrival_s: Floats
    single_s: Floats
    deadline_s: Floats
    apps: tuple[str, ...] = ()

    def request(self, at: int) -> Request:
        """One of them as the router sees it."""
        return Request(
            number=at,
            arrival_s=float(self.arrival_s[at]),
            deadline_s=float(self.deadline_s[at]),
            app=self.apps[at] if self.apps else "default",
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Played:
    """Outcomes by request, ends in seconds (NaN where dropped), sizes of the batches."""

    outcomes: tuple[Outcome, ...]
    end_s: Floats
    batch_sizes: tuple[int, ...]

    @property
    def finish_rate(self) -> float:
        """The part of all arrivals that ended in time; what was dropped did not."""
        return sum(o is Outcome.MET for o in self.outcomes) / max(1, len(self.outcomes))


def play(
    arrivals: Arrivals,
    chooser: Chooser,
    costs: BatchCosts,
    *,
    workers: int = 1,
    capacity: int = CAPACITY,
) -> Played:
    """Play all arrivals to their end.

    Args:
        arrivals: Requests in order of arrival.
        chooser: Decides by what it has learned.
        costs: What batches really cost.
        workers: Servers that run one batch each.
        capacity: Requests that wait at most.
    """
    pool = WorkerPool(chooser=chooser, workers=range(workers), capacity=capacity)
    count = arrivals.arrival_s.size
    outcomes = [Outcome.DROPPED] * count
    ends = np.full(count, np.nan)
    sizes: list[int] = []
    running: list[tuple[float, int]] = []
    at = 0
    while at < count or running:
        coming = arrivals.arrival_s[at] if at < count else np.inf
        if running and running[0][0] <= coming:
            now, worker = heapq.heappop(running)
            pool.release(worker)
        else:
            now = float(coming)
            pool.offer(arrivals.request(at))
            at += 1
        for batch in pool.dispatch(now).batches:
            numbers = [r.number for r in batch.requests]
            end = now + costs.batch_s(len(numbers), float(arrivals.single_s[numbers].max()))
            heapq.heappush(running, (end, batch.worker))
            sizes.append(len(numbers))
            ends[numbers] = end
            for number in numbers:
                met = end <= arrivals.deadline_s[number]
                outcomes[number] = Outcome.MET if met else Outcome.LATE
    return Played(outcomes=tuple(outcomes), end_s=ends, batch_sizes=tuple(sizes))
