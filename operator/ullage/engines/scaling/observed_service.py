# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Service times without waiting, from latencies of replicas with separate queues.

A server reports the time of requests from arrival to answer. Their wait is subtracted by the
scaler's queue model, so that load is not mistaken for slowness: M/G/1 with one request at a time
(Pollaczek and Khinchine), solved for the service time (derived).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from ullage.engines.scaling.pooled_queue import PooledLoad, predicted_s
from ullage.engines.scaling.service_times import ServiceTime
from ullage.engines.scaling.times import SERVICE_LEAST_S

BUSY: Final = 0.8
"""Utilisation above which the tail is that of the queue and says nothing of the service."""
WEIGHT: Final = 0.3
"""Weight of the newest measurement."""
HALVINGS: Final = 12
FIRST_SIGMA: Final = 0.5
WIDEST: Final = 1.5
"""Largest spread of the logarithm; wider service times are treated as having it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Latency of requests to one replica, waiting included.

    Attributes:
        requests_per_s: To this replica.
        mean_s: Mean latency, seconds.
        at_quantile_s: Latency at the quantile, seconds.
        quantile: Above .5 and below 1.
    """

    requests_per_s: float
    mean_s: float
    at_quantile_s: float
    quantile: float


def observed_service(seen: Latencies, before: ServiceTime | None) -> ServiceTime:
    """The service time that explains the latencies, averaged with the previous one.

    An overloaded replica is always busy, so its mean is the inverse of its throughput; the spread
    is unchanged.

    Args:
        seen: Latencies of one replica, or of the mean one.
        before: Previous service time; ``None`` = none.

    Raises:
        ValueError: a figure is not finite or not above 0.
    """
    figures = (seen.requests_per_s, seen.mean_s, seen.at_quantile_s)
    if not all(math.isfinite(figure) and figure > 0 for figure in figures):
        raise ValueError("a service time needs requests with latencies above 0")
    sigma = before.sigma if before is not None else FIRST_SIGMA
    mean_s = mean_without_wait(seen.requests_per_s, seen.mean_s, _cv2(sigma))
    if seen.requests_per_s * mean_s <= BUSY:
        sigma = _spread(seen)
        mean_s = mean_without_wait(seen.requests_per_s, seen.mean_s, _cv2(sigma))
    if before is None:
        return ServiceTime(mean_s=mean_s, sigma=sigma)
    return ServiceTime(
        mean_s=before.mean_s + WEIGHT * (mean_s - before.mean_s),
        sigma=before.sigma + WEIGHT * (sigma - before.sigma),
    )


def mean_without_wait(requests_per_s: float, latency_s: float, cv2: float) -> float:
    """Mean service time s with s + r s^2 (1 + cv2) / 2 / (1 - r s) = latency (derived).

    Args:
        requests_per_s: r, to one replica.
        latency_s: Mean latency, seconds.
        cv2: Squared coefficient of variation of the service times.

    Returns:
        Seconds, above 0 and below 1 / r.
    """
    square = requests_per_s * (cv2 - 1) / 2
    line = 1 + requests_per_s * latency_s
    root = math.sqrt(line * line + 4 * square * latency_s)
    return max(SERVICE_LEAST_S, 2 * latency_s / (line + root))


def _spread(seen: Latencies) -> float:
    """The spread that gives the latency at the quantile, by bisection."""
    low, high = 0.0, WIDEST
    load = PooledLoad(requests_per_s=seen.requests_per_s)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        mean_s = mean_without_wait(seen.requests_per_s, seen.mean_s, _cv2(middle))
        service = ServiceTime(mean_s=mean_s, sigma=middle)
        above = predicted_s(service, load, 1, seen.quantile) > seen.at_quantile_s
        low, high = (low, middle) if above else (middle, high)
    return high


def _cv2(sigma: float) -> float:
    return math.expm1(sigma * sigma)
