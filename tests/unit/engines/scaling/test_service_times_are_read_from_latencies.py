# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Waiting is taken off: load is not mistaken for slowness."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.scaling.observed_service import Latencies, mean_without_wait, observed_service
from ullage.engines.scaling.pooled_queue import PooledLoad, predicted_s
from ullage.engines.scaling.service_times import ServiceTime


def seen(service: ServiceTime, requests_per_s: float) -> Latencies:
    """Latencies of the queue that the scaler plans with."""
    busy = requests_per_s * service.mean_s
    wait_s = busy * service.mean_s * (1 + service.cv2) / 2 / (1 - busy)
    load = PooledLoad(requests_per_s=requests_per_s)
    return Latencies(
        requests_per_s=requests_per_s,
        mean_s=service.mean_s + wait_s,
        at_quantile_s=predicted_s(service, load, 1, 0.99),
        quantile=0.99,
    )


@pytest.mark.slow
@given(mean_s=st.floats(1e-3, 10), sigma=st.floats(0.1, 1.0), busy=st.floats(0.05, 0.6))
def test_what_the_queue_makes_of_a_service_gives_the_service_back(
    mean_s: float, sigma: float, busy: float
) -> None:
    service = ServiceTime(mean_s=mean_s, sigma=sigma)
    found = observed_service(seen(service, busy / mean_s), None)
    assert found.mean_s == pytest.approx(mean_s, rel=0.05)
    assert found.sigma == pytest.approx(sigma, abs=0.08)


def test_a_simulated_queue_gives_its_service_time() -> None:
    rng, mean_s, rate = np.random.default_rng(1), 0.1, 7.0
    arrival_s = np.cumsum(rng.exponential(1 / rate, 40_000))
    service_s = rng.lognormal(math.log(mean_s) - 0.5**2 / 2, 0.5, arrival_s.size)
    free_s, latency_s = 0.0, np.empty_like(arrival_s)
    for at, (came, took) in enumerate(zip(arrival_s, service_s, strict=True)):
        free_s = max(free_s, came) + took
        latency_s[at] = free_s - came
    found = observed_service(
        Latencies(
            requests_per_s=rate,
            mean_s=float(latency_s.mean()),
            at_quantile_s=float(np.quantile(latency_s, 0.99)),
            quantile=0.99,
        ),
        None,
    )
    assert found.mean_s == pytest.approx(mean_s, rel=0.1)


def test_a_full_server_is_as_slow_as_what_it_gets_done() -> None:
    known = ServiceTime(mean_s=0.1, sigma=0.4)
    full = Latencies(requests_per_s=5.0, mean_s=60.0, at_quantile_s=120.0, quantile=0.99)
    found = observed_service(full, known)
    assert 0.1 < found.mean_s < 0.2
    assert found.sigma == known.sigma, "the tail is that of the queue"
    for _ in range(40):
        found = observed_service(full, found)
    assert found.mean_s == pytest.approx(0.2, rel=0.02)


@given(rate=st.floats(1e-6, 1e7), latency_s=st.floats(1e-6, 3600), cv2=st.floats(0, 1000))
def test_it_is_above_nothing_and_below_the_latency_and_the_gap(
    rate: float, latency_s: float, cv2: float
) -> None:
    found = mean_without_wait(rate, latency_s, cv2)
    assert 0 < found <= max(1e-6, latency_s) * (1 + 1e-9)
    assert found <= max(1e-6, 1 / rate) * (1 + 1e-9)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_figures_that_are_none_are_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="latencies above 0"):
        observed_service(
            Latencies(requests_per_s=wrong, mean_s=1.0, at_quantile_s=1.0, quantile=0.99), None
        )
