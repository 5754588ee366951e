# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Latency of replicas that share one queue, as behind a router that dispatches to idle replicas.

The wait is that of a G/G/k queue: Erlang's delay probability and an exponential tail with the mean
of Allen and Cunneen. Wait and service time are added as random variables: the sum of two quantiles
would be an upper estimate, and cost unnecessary devices. Replicas behind a plain Service have
separate queues; each is one replica with its fraction of the load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Final

import numpy as np

from ullage.engines.scaling.forecast import Floats
from ullage.engines.scaling.service_times import ServiceTime

BISECTIONS: Final = 40
EVEN: Final = 1e-9
"""Spread of arrivals and service times without variance."""
NODES: Final = 160
RAREST: Final = 1e-5
"""Probability of the last discretised part of the service times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledLoad:
    """Requests to all replicas of a service.

    Attributes:
        requests_per_s: Arrival rate.
        cv2: Squared coefficient of variation of the times between them.
        pooled: True when the replicas share a queue; else the load is divided evenly.
    """

    requests_per_s: float
    cv2: float = 1.0
    pooled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyTarget:
    """A latency, seconds, and the quantile (above .5, below 1) of requests that stay below it."""

    limit_s: float
    quantile: float = 0.99


def late_part(service: ServiceTime, load: PooledLoad, replicas: int, limit_s: float) -> float:
    """The fraction of requests that take longer than a limit, waiting included.

    Args:
        service: Of one replica at its share.
        load: To all replicas together.
        replicas: At least 1.
        limit_s: Seconds.

    Returns:
        0..1; 1 when arrivals exceed the capacity.

    Raises:
        ValueError: there is no replica.
    """
    if replicas < 1:
        raise ValueError("a load needs at least one replica to carry it")
    servers = replicas if load.pooled else 1
    offered = load.requests_per_s * servers / replicas * service.mean_s
    if offered >= servers:
        return 1.0
    spread = max((load.cv2 + service.cv2) / 2, EVEN)
    wait_s = spread * service.mean_s / (servers - offered)
    left_s = limit_s - service.mean_s * _multiples(service.sigma)
    waits = delay_probability(offered, servers) * np.exp(-np.maximum(left_s, 0.0) / wait_s)
    return float(np.where(left_s > 0, waits, 1.0) @ _weights())


def predicted_s(service: ServiceTime, load: PooledLoad, replicas: int, quantile: float) -> float:
    """Latency at a quantile of the requests to all replicas, by bisection of :func:`late_part`.

    Returns:
        Seconds; ``inf`` when arrivals exceed the capacity.
    """
    if load.requests_per_s * service.mean_s >= replicas:
        return math.inf
    low, high = 0.0, service.quantile_s(quantile)
    while late_part(service, load, replicas, high) > 1 - quantile:
        low, high = high, 2 * high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        late = late_part(service, load, replicas, middle) > 1 - quantile
        low, high = (middle, high) if late else (low, middle)
    return high


def delay_probability(offered: float, servers: int) -> float:
    """Fraction of requests that wait in an M/M/k queue (Erlang C, by the recursion of Erlang B).

    Args:
        offered: Arrival rate times mean service time, below ``servers``.
        servers: At least 1.

    Returns:
        0..1.
    """
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    busy = offered / servers
    return blocked / (1 - busy * (1 - blocked))


def replicas_needed(
    service: ServiceTime, load: PooledLoad, target: LatencyTarget, most: int
) -> int | None:
    """The fewest replicas that meet a target; ``None`` = ``most`` do not.

    Latency falls with every replica, so bisection finds it (derived).

    Args:
        service: Of one replica at its share.
        load: To all replicas together.
        target: Latency target.
        most: Maximum of replicas, at least 1.
    """

    def keeps(count: int) -> bool:
        return late_part(service, load, count, target.limit_s) <= 1 - target.quantile

    if not keeps(most):
        return None
    low, high = 0, most  # high meets the target, low does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


@lru_cache(maxsize=256)
def _multiples(sigma: float) -> Floats:
    """Service times relative to the mean, at the nodes."""
    inside = np.asarray([NormalDist().inv_cdf(float(at)) for at in _nodes()])
    return np.asarray(np.exp(sigma * inside - sigma * sigma / 2))


@lru_cache(maxsize=1)
def _edges() -> Floats:
    return np.concatenate([1 - np.geomspace(1, RAREST, NODES), [1.0]])


def _nodes() -> Floats:
    edges = _edges()
    return np.asarray((edges[:-1] + edges[1:]) / 2)


@lru_cache(maxsize=1)
def _weights() -> Floats:
    return np.diff(_edges())
