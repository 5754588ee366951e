# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Simulates requests to a varying number of replicas, in virtual time.

One queue, first come first served; each replica serves one request at a time. A requested replica
serves after its launch time and is paid for from its request on; a removed one finishes its
request. The scaler sees past measurements, never the future.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ullage.engines.scaling.forecast import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerView:
    """View of a scaler at the end of a bin."""

    now_s: float
    rates: tuple[float, ...]
    """Requests per second that arrived, by bin, the oldest first."""
    busy: float
    """Mean number of replicas that served in the last bin."""
    late: float
    """The fraction of the requests that ended in the last bin beyond the limit."""
    ended: int
    waiting: int
    ready: int
    current: int
    """Ready and starting replicas."""


Scaler = Callable[[ScalerView], int]
"""Desired replicas from now on."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestLoad:
    """Requests in order of arrival: arrival and service times, seconds."""

    arrival_s: Floats
    service_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlayedRequests:
    """Latency of each request and the replicas' time, seconds; (time, replicas) at each change."""

    latency_s: Floats
    replica_s: float
    changes: tuple[tuple[float, int], ...]

    def attained(self, limit_s: float) -> float:
        """The fraction of requests within a latency; 1 without requests."""
        return float(np.mean(self.latency_s <= limit_s)) if self.latency_s.size else 1.0


def play_requests(
    requests: RequestLoad,
    scaler: Scaler,
    *,
    limit_s: float,
    bin_s: float,
    launch_s: float,
    first: int,
) -> PlayedRequests:
    """Simulate all requests to their end.

    Args:
        requests: All requests.
        scaler: Called at the end of each bin.
        limit_s: Latency beyond which a request is late, seconds.
        bin_s: Length of a bin, seconds.
        launch_s: Time from a replica's request until it serves, seconds.
        first: Initial replicas, at least 1.

    Raises:
        ValueError: there is no initial replica.
    """
    if first < 1:
        raise ValueError("at least one replica serves from the beginning")
    fleet = _Fleet(limit_s=limit_s, launch_s=launch_s, ready=first)
    fleet.changes.append((0.0, first))
    latency_s = np.empty_like(requests.arrival_s)
    rates: list[float] = []
    at, count, due = 0, requests.arrival_s.size, bin_s
    arrived = 0
    while at < count or fleet.serving:
        arrives = float(requests.arrival_s[at]) if at < count else math.inf
        now = min(arrives, fleet.next_s(), due)
        fleet.advance(now)
        if now == due:
            due += bin_s
            if at < count:
                rates.append(arrived / bin_s)
                arrived = 0
                fleet.ask(scaler(fleet.seen(now, tuple(rates), bin_s)), now)
        elif now == arrives:
            fleet.queue.append(at)
            at += 1
            arrived += 1
        for number in fleet.started():
            served = float(requests.service_s[number])
            latency_s[number] = now + served - float(requests.arrival_s[number])
            heapq.heappush(fleet.serving, (now + served, float(latency_s[number])))
    return PlayedRequests(latency_s=latency_s, replica_s=fleet.paid_s, changes=tuple(fleet.changes))


@dataclass(slots=True, kw_only=True)
class _Fleet:
    """Replicas: serving or ready ones, and starting ones."""

    limit_s: float
    launch_s: float
    ready: int
    queue: deque[int] = field(default_factory=deque)
    serving: list[tuple[float, float]] = field(default_factory=list)
    """Heap of the busy replicas' end times, with the latency of each request."""
    starting: deque[float] = field(default_factory=deque)
    leaving: int = 0
    """Busy replicas to remove when they have finished."""
    paid_s: float = 0.0
    busy_s: float = 0.0
    ended: int = 0
    late: int = 0
    now_s: float = 0.0
    changes: list[tuple[float, int]] = field(default_factory=list)

    @property
    def current(self) -> int:
        return self.ready + len(self.starting)

    def next_s(self) -> float:
        """Time at which a replica finishes a request or becomes ready."""
        ends = self.serving[0][0] if self.serving else math.inf
        return min(ends, self.starting[0] if self.starting else math.inf)

    def advance(self, now_s: float) -> None:
        passed = now_s - self.now_s
        self.paid_s += passed * (self.current + self.leaving)
        self.busy_s += passed * len(self.serving)
        self.now_s = now_s
        while self.serving and self.serving[0][0] <= now_s:
            _, latency_s = heapq.heappop(self.serving)
            self.ended += 1
            self.late += latency_s > self.limit_s
            if self.leaving:
                self.leaving -= 1
        while self.starting and self.starting[0] <= now_s:
            self.starting.popleft()
            self.ready += 1

    def started(self) -> list[int]:
        """Start serving waiting requests."""
        free = self.ready + self.leaving - len(self.serving)
        return [self.queue.popleft() for _ in range(min(max(free, 0), len(self.queue)))]

    def ask(self, wanted: int, now_s: float) -> None:
        """Start or remove replicas: starting ones are removed first, then idle ones."""
        if wanted == self.current:
            return
        while self.current < wanted:
            self.starting.append(now_s + self.launch_s)
        while self.current > wanted and self.starting:
            self.starting.pop()
        while self.current > max(1, wanted):
            if len(self.serving) - self.leaving >= self.ready:
                self.leaving += 1
            self.ready -= 1
        self.changes.append((now_s, self.current))

    def seen(self, now_s: float, rates: tuple[float, ...], bin_s: float) -> ScalerView:
        busy, self.busy_s = self.busy_s / bin_s, 0.0
        ended, late = self.ended, self.late
        self.ended = self.late = 0
        return ScalerView(
            now_s=now_s,
            rates=rates,
            busy=busy,
            late=late / max(1, ended),
            ended=ended,
            waiting=len(self.queue),
            ready=self.ready,
            current=self.current,
        )
