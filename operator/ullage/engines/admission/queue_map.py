# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Maps a latency objective to the largest slowdown that keeps it, at the offered load.

A server that slows down by a tenth can double its queue, so a latency objective has no meaning
without the load. Admission then works on slowdowns for both training and serving. Pure arithmetic;
it must never map an objective for a load that was neither declared nor measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from ullage.api.reasons import Reason
from ullage.engines.admission.records import Refusal

BISECTIONS: Final = 40
MS: Final = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One replica alone on the whole device.

    ``mean_s`` and ``quantile_s`` are of the service time, seconds, the latter at the objective's
    quantile; ``cv2`` is its squared coefficient of variation.
    """

    mean_s: float
    quantile_s: float
    cv2: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests offered to one replica; ``cv2`` is that of the times between arrivals."""

    requests_per_s: float
    cv2: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueObjective:
    """A latency, seconds, and the quantile (0..1) of requests that must stay below it."""

    latency_s: float
    quantile: float = 0.99


def replica_load(requests_per_s: float, replicas: int, *, cv2: float = 1.0) -> Load:
    """The load of one replica of a service.

    Args:
        requests_per_s: Requests per second to the whole service.
        replicas: Ready replicas.
        cv2: Squared coefficient of variation of the times between arrivals.

    Raises:
        ValueError: there is no replica.
    """
    if replicas < 1:
        raise ValueError("a load needs at least one replica to carry it")
    return Load(requests_per_s=requests_per_s / replicas, cv2=cv2)


def latency_s(slowdown: float, service: Service, load: Load, quantile: float) -> float:
    """Latency at the quantile when every service takes ``slowdown`` times as long.

    Service time at the quantile plus the quantile of the wait in a G/G/1 queue (exponential tail,
    Allen-Cunneen mean). The sum of two quantiles is an upper estimate. For M/M/1 the queueing part
    is exact: ln(100 rho) / (1 - rho) services at 99 %.

    Args:
        slowdown: Against running alone on the whole device, at least 1.
        service: Service time alone, seconds.
        load: Of one replica.
        quantile: 0..1.

    Returns:
        Seconds; ``inf`` when arrivals exceed the capacity.
    """
    mean = slowdown * service.mean_s
    busy = load.requests_per_s * mean
    if busy >= 1:
        return math.inf
    alone = slowdown * service.quantile_s
    if busy <= 1 - quantile:
        return alone
    spread = (load.cv2 + service.cv2) / 2
    return alone + spread * mean / (1 - busy) * math.log(busy / (1 - quantile))


def wait_s(service_s: float, load: Load, quantile: float, *, cv2: float = 1.0) -> float:
    """The quantile of the wait alone; formula of :func:`latency_s`.

    Args:
        service_s: Mean service time, seconds.
        load: Of one replica.
        quantile: 0..1.
        cv2: Squared coefficient of variation of the service time.

    Returns:
        Seconds.
    """
    service = Service(mean_s=service_s, quantile_s=service_s, cv2=cv2)
    return latency_s(1.0, service, load, quantile) - service_s


def without_wait(latency: float, mean_s: float, load: Load, quantile: float) -> float:
    """Service time at the quantile, from a latency that was measured under a load.

    The latency without the wait, so that :func:`latency_s` at that load gives the measurement;
    never below the mean (derived).

    Args:
        latency: Measured latency at the quantile, seconds.
        mean_s: Mean service time, seconds.
        load: Of one replica while it was measured.
        quantile: 0..1.

    Returns:
        Seconds.
    """
    return max(mean_s, latency - wait_s(mean_s, load, quantile))


def largest_slowdown(service: Service, load: Load, objective: QueueObjective) -> float | Refusal:
    """The largest slowdown that keeps the objective at this load, or a refusal.

    Latency grows with the slowdown, so bisection of :func:`latency_s` finds it (derived).

    Args:
        service: Service time alone, seconds.
        load: Of one replica.
        objective: Latency (seconds) and quantile to keep.

    Raises:
        ValueError: a figure is not finite, or negative, or a time or the quantile is out of range.
    """
    _check(service, load, objective)
    slo = objective.latency_s
    if service.quantile_s > slo:
        return Refusal(
            reason=Reason.SLO_INFEASIBLE,
            text=f"cannot be met even alone: solo {_ms(service.quantile_s)} > {_ms(slo)}",
        )
    busy = load.requests_per_s * service.mean_s
    if busy >= 1:
        return Refusal(
            reason=Reason.LOAD_INFEASIBLE,
            text=(
                f"{load.requests_per_s:g} requests/s of {_ms(service.mean_s)} keep one replica "
                f"{busy:.0%} busy even alone; needs {math.floor(busy) + 1} times the replicas"
            ),
        )
    alone = latency_s(1.0, service, load, objective.quantile)
    if alone > slo:
        return Refusal(
            reason=Reason.LOAD_INFEASIBLE,
            text=(
                f"the queue alone gives {_ms(alone)} > {_ms(slo)} at {load.requests_per_s:g} "
                f"requests/s a replica ({busy:.0%} busy); add replicas"
            ),
        )
    low, high = 1.0, slo / service.quantile_s
    if busy > 0:
        high = min(high, 1 / busy)
    if latency_s(high, service, load, objective.quantile) <= slo:
        return high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if latency_s(middle, service, load, objective.quantile) <= slo:
            low = middle
        else:
            high = middle
    return low


def _check(service: Service, load: Load, objective: QueueObjective) -> None:
    figures = {
        "mean service time": service.mean_s,
        "service time at the quantile": service.quantile_s,
        "cv2 of the service": service.cv2,
        "requests per second": load.requests_per_s,
        "cv2 of the arrivals": load.cv2,
        "latency objective": objective.latency_s,
    }
    for name, value in figures.items():
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be a number of at least 0, not {value:g}")
    if service.mean_s <= 0 or service.quantile_s <= 0 or objective.latency_s <= 0:
        raise ValueError("service times and the latency objective must be above 0")
    if not 0 < objective.quantile < 1:
        raise ValueError(f"quantile {objective.quantile:g} must lie between 0 and 1")


def _ms(seconds: float) -> str:
    return f"{seconds * MS:.4g} ms"
