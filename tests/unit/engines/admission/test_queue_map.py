# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A latency objective becomes the largest slowdown that keeps it at the offered load."""

from __future__ import annotations

import math

import pytest

from ullage.api.reasons import Reason
from ullage.engines.admission.queue_map import (
    Load,
    QueueObjective,
    Service,
    largest_slowdown,
    latency_s,
    replica_load,
    without_wait,
)
from ullage.engines.admission.records import Refusal

MM1 = Service(mean_s=1.0, quantile_s=1.0)


def test_the_wait_in_a_markov_queue_is_the_textbooks() -> None:
    wait = latency_s(1.0, MM1, Load(requests_per_s=0.8), 0.99) - 1.0
    assert wait == pytest.approx(math.log(80) / 0.2)
    slower = latency_s(1.1, MM1, Load(requests_per_s=0.8), 0.99) - 1.1
    assert slower / wait == pytest.approx(1.87, abs=0.01)


def test_a_service_a_hundred_times_as_quick_waits_a_hundredth_of_the_time() -> None:
    quick = Service(mean_s=0.01, quantile_s=0.01)
    slow = latency_s(1.1, MM1, Load(requests_per_s=0.8), 0.99)
    found = latency_s(1.1, quick, Load(requests_per_s=80.0), 0.99)
    assert found == pytest.approx(slow / 100)


def test_one_replica_carries_all_and_none_carries_nothing() -> None:
    assert replica_load(8.0, 1) == Load(requests_per_s=8.0)
    with pytest.raises(ValueError, match="at least one replica"):
        replica_load(8.0, 0)


def test_no_one_waits_longer_than_the_quantile_of_an_idle_server() -> None:
    assert latency_s(1.0, MM1, Load(requests_per_s=0.01), 0.99) == 1.0


def test_more_than_is_served_waits_for_ever() -> None:
    assert latency_s(1.3, MM1, Load(requests_per_s=0.8), 0.99) == math.inf


@pytest.mark.parametrize("rate", [0.0, 0.005, 0.3, 0.8, 0.95])
@pytest.mark.parametrize("slack", [1.01, 2.0, 50.0])
def test_the_largest_slowdown_keeps_the_objective_and_a_little_more_does_not(
    rate: float, slack: float
) -> None:
    load = Load(requests_per_s=rate, cv2=1.7)
    service = Service(mean_s=1.0, quantile_s=2.5, cv2=0.6)
    slo = slack * latency_s(1.0, service, load, 0.99)
    found = largest_slowdown(service, load, QueueObjective(latency_s=slo))
    assert isinstance(found, float)
    assert found >= 1
    assert latency_s(found, service, load, 0.99) <= slo * (1 + 1e-9)
    assert latency_s(found * 1.0001, service, load, 0.99) > slo


def test_an_objective_below_the_solo_time_is_refused_in_figures() -> None:
    found = largest_slowdown(
        Service(mean_s=0.03, quantile_s=0.052),
        Load(requests_per_s=1),
        QueueObjective(latency_s=0.04),
    )
    assert found == Refusal(
        reason=Reason.SLO_INFEASIBLE, text="cannot be met even alone: solo 52 ms > 40 ms"
    )


def test_a_load_above_capacity_blames_the_load() -> None:
    service = Service(mean_s=0.03, quantile_s=0.03)
    found = largest_slowdown(service, Load(requests_per_s=50), QueueObjective(latency_s=0.04))
    assert isinstance(found, Refusal)
    assert found.reason is Reason.LOAD_INFEASIBLE
    assert "150% busy" in found.text
    assert "2 times the replicas" in found.text


def test_a_queue_that_breaks_the_objective_alone_blames_the_load() -> None:
    service = Service(mean_s=0.03, quantile_s=0.03)
    found = largest_slowdown(service, Load(requests_per_s=30), QueueObjective(latency_s=0.04))
    assert isinstance(found, Refusal)
    assert found.reason is Reason.LOAD_INFEASIBLE
    assert "add replicas" in found.text


def test_replicas_share_the_load() -> None:
    assert replica_load(12.0, 4, cv2=2.0) == Load(requests_per_s=3.0, cv2=2.0)
    with pytest.raises(ValueError, match="at least one replica"):
        replica_load(12.0, 0)


@pytest.mark.parametrize(
    ("service", "load", "objective", "what"),
    [
        (Service(mean_s=math.nan, quantile_s=1), Load(requests_per_s=1), 1.0, "mean service"),
        (Service(mean_s=1, quantile_s=-1), Load(requests_per_s=1), 1.0, "at the quantile"),
        (MM1, Load(requests_per_s=math.inf), 1.0, "requests per second"),
        (MM1, Load(requests_per_s=-1), 1.0, "requests per second"),
        (Service(mean_s=0, quantile_s=0), Load(requests_per_s=1), 1.0, "above 0"),
        (MM1, Load(requests_per_s=1), math.nan, "latency objective"),
    ],
)
def test_bad_figures_are_named(service: Service, load: Load, objective: float, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        largest_slowdown(service, load, QueueObjective(latency_s=objective))


def test_a_quantile_outside_the_open_interval_is_refused() -> None:
    with pytest.raises(ValueError, match="quantile"):
        largest_slowdown(MM1, Load(requests_per_s=0.1), QueueObjective(latency_s=9, quantile=1.0))


@pytest.mark.parametrize("requests_per_s", [0.001, 0.2, 0.7])
def test_the_queue_gives_back_the_latency_that_was_measured(requests_per_s: float) -> None:
    load, measured = Load(requests_per_s=requests_per_s), 20.0
    served = without_wait(measured, 1.0, load, 0.99)
    service = Service(mean_s=1.0, quantile_s=served)
    assert latency_s(1.0, service, load, 0.99) == pytest.approx(measured)


@pytest.mark.parametrize("requests_per_s", [0.95, 1.5])
def test_no_one_is_served_faster_than_the_mean(requests_per_s: float) -> None:
    assert without_wait(20.0, 1.0, Load(requests_per_s=requests_per_s), 0.99) == 1.0


def test_uneven_arrivals_make_the_queue_longer() -> None:
    even, bursts = (Load(requests_per_s=0.8, cv2=cv2) for cv2 in (1.0, 3.0))
    waits = [latency_s(1.0, MM1, load, 0.99) - 1.0 for load in (even, bursts)]
    assert waits[1] == pytest.approx(2 * waits[0])  # Allen-Cunneen: (3 + 1) / 2 against (1 + 1) / 2
