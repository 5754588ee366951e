# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Plays arrivals through the router's own chooser in virtual time: a bounded queue, its workers.

The chooser never sees the true times; only the simulated workers do.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np

from ullage.engines.batching.batch_time import BatchCosts
from ullage.engines.batching.chooser import BatchChooser
from ullage.engines.batching.histogram import Floats
from ullage.engines.batching.waiting import BatchRequest, WaitingRequests

CAPACITY: Final = 10_000
"""Requests that wait at most; beyond it a request is refused at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Requests that one worker runs together."""

    worker: int
    requests: tuple[BatchRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Batches to start and requests to refuse, at one moment."""

    batches: tuple[Batch, ...]
    dropped: tuple[BatchRequest, ...]


@dataclass(slots=True, kw_only=True)
class WorkerPool:
    """Waiting requests by deadline, and workers that are idle."""

    chooser: BatchChooser
    workers: Iterable[int]
    capacity: int = CAPACITY
    waiting: WaitingRequests = field(init=False, default_factory=WaitingRequests)
    _idle: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self._idle = set(self.workers)

    def offer(self, request: BatchRequest) -> bool:
        """Take a request in; ``False`` when the queue is full."""
        if len(self.waiting) >= self.capacity:
            return False
        self.waiting.add(request)
        return True

    def release(self, worker: int) -> None:
        """The worker is idle again."""
        self._idle.add(worker)

    def dispatch(self, now_s: float) -> Dispatch:
        """Run the loop for each idle worker until none is idle or nothing waits."""
        batches: list[Batch] = []
        dropped: list[BatchRequest] = []
        while self._idle and self.waiting:
            choice = self.chooser.choose(self.waiting, now_s)
            gone = self.waiting.take([*choice.run, *choice.dropped])
            run = gone[: len(choice.run)]
            dropped += gone[len(run) :]
            if not run:
                break
            worker = min(self._idle)
            self._idle.remove(worker)
            batches.append(Batch(worker=worker, requests=run))
        return Dispatch(batches=tuple(batches), dropped=tuple(dropped))


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

    def request(self, at: int) -> BatchRequest:
        """One of them as the router sees it."""
        return BatchRequest(
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
    chooser: BatchChooser,
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
