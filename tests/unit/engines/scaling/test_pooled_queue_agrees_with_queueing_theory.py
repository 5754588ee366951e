# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The wait of replicas that share a queue: exact cases, brute force, and the simulator."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.scaling.pooled_queue import (
    LatencyTarget,
    PooledLoad,
    delay_probability,
    late_part,
    predicted_s,
    replicas_needed,
)
from ullage.engines.scaling.service_times import ServiceTime, service_time
from ullage.engines.scaling.simulator import RequestLoad, play_requests

SERVICES = st.builds(ServiceTime, mean_s=st.floats(0.001, 10), sigma=st.floats(0, 2))
LOADS = st.builds(
    PooledLoad,
    requests_per_s=st.floats(0, 1e4),
    cv2=st.floats(0, 20),
    pooled=st.booleans(),
)


def erlang_c(offered: float, servers: int) -> float:
    """The textbook sum."""
    tail = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return tail / (sum(offered**k / math.factorial(k) for k in range(servers)) + tail)


@pytest.mark.parametrize("servers", [1, 2, 5, 20])
@pytest.mark.parametrize("busy", [0.1, 0.5, 0.95])
def test_delay_probability_is_erlang_c(servers: int, busy: float) -> None:
    assert delay_probability(busy * servers, servers) == pytest.approx(
        erlang_c(busy * servers, servers)
    )


def test_one_server_waits_as_often_as_it_is_busy() -> None:
    assert delay_probability(0.7, 1) == pytest.approx(0.7)


def test_times_that_never_vary_are_late_by_their_wait_alone() -> None:
    service = ServiceTime(mean_s=1.0, sigma=0.0)
    load = PooledLoad(requests_per_s=0.5, cv2=1.0, pooled=True)
    # M/D/1 by Allen-Cunneen: P(W > t) = rho exp(-t (1 - rho) 2 / s)
    assert late_part(service, load, 1, 2.0) == pytest.approx(0.5 * math.exp(-1.0 * 0.5 * 2))
    assert late_part(service, load, 1, 0.999) == 1.0


@given(service=SERVICES, load=LOADS, replicas=st.integers(1, 64), limit_s=st.floats(0.001, 100))
def test_more_replicas_are_never_later(
    service: ServiceTime, load: PooledLoad, replicas: int, limit_s: float
) -> None:
    fewer, more = (late_part(service, load, count, limit_s) for count in (replicas, replicas + 1))
    assert 0 <= more <= fewer + 1e-9 <= 1 + 2e-9


@given(
    service=SERVICES,
    load=LOADS,
    limit_s=st.floats(0.01, 50),
    quantile=st.floats(0.55, 0.9999),
    most=st.integers(1, 40),
)
def test_the_fewest_replicas_are_found(
    service: ServiceTime, load: PooledLoad, limit_s: float, quantile: float, most: int
) -> None:
    keeps = [
        count
        for count in range(1, most + 1)
        if late_part(service, load, count, limit_s) <= 1 - quantile
    ]
    target = LatencyTarget(limit_s=limit_s, quantile=quantile)
    assert replicas_needed(service, load, target, most) == (keeps[0] if keeps else None)


def test_predicted_latency_is_late_just_as_often_as_it_may_be() -> None:
    service = service_time(0.4, 1.44, 0.99)
    load = PooledLoad(requests_per_s=9.0)
    found = predicted_s(service, load, 5, 0.99)
    assert late_part(service, load, 5, found) == pytest.approx(0.01, rel=0.02)
    assert predicted_s(service, PooledLoad(requests_per_s=12.5), 5, 0.99) == math.inf


def test_a_service_is_read_from_its_mean_and_a_quantile() -> None:
    found = service_time(0.4, 1.44, 0.99)
    assert found.quantile_s(0.99) == pytest.approx(1.44)
    assert service_time(1.0, 0.5, 0.99).sigma == 0  # a quantile below the mean: no spread
    assert math.isfinite(service_time(1.0, 1e6, 0.99).cv2)


@pytest.mark.parametrize(("replicas", "rate"), [(1, 1.2), (4, 7.0), (12, 24.0)])
def test_prediction_and_simulator_agree(replicas: int, rate: float) -> None:
    service = service_time(0.4, 1.2, 0.99)
    generator = np.random.default_rng(5)
    count = 60_000
    requests = RequestLoad(
        arrival_s=np.cumsum(generator.exponential(1 / rate, count)),
        service_s=generator.lognormal(
            math.log(service.mean_s) - service.sigma**2 / 2, service.sigma, count
        ),
    )
    played = play_requests(
        requests, lambda _: replicas, limit_s=1, bin_s=60, launch_s=0, first=replicas
    )
    seen_s = float(np.quantile(played.latency_s, 0.99))
    predicted = predicted_s(service, PooledLoad(requests_per_s=rate), replicas, 0.99)
    assert predicted == pytest.approx(seen_s, rel=0.12)
