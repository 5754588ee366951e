# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Training beside a scaled service over toy tables whose figures can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bench.autoscale_cluster import Harvest, Served, ServedCluster
from bench.autoscale_harvest import Harvested, figures_of, first_replicas, static_share
from bench.twin_data import JobClass, Tables
from ullage.engines.scaling.forecast import Floats
from ullage.engines.scaling.pooled_queue import LatencyTarget
from ullage.engines.scaling.service_times import ServiceTime

SERVED = Served(
    time=ServiceTime(mean_s=0.2, sigma=0.5),
    target=LatencyTarget(limit_s=1.0, quantile=0.95),
    acts_as="s",
)
QUIET, LOUD = (JobClass(name=name, family=name, acts_as=name, step_s=0.1) for name in "ql")
SELF = 2.0
PAIRS = {
    ("s", "q"): (1.0, 1.25),
    ("q", "s"): (1.25, 1.0),
    ("s", "l"): (6.0, 1.0),
    ("l", "s"): (1.0, 6.0),
    ("q", "q"): (SELF, SELF),
    ("l", "l"): (SELF, SELF),
    ("q", "l"): (SELF, SELF),
    ("l", "q"): (SELF, SELF),
    ("s", "s"): (SELF, SELF),
}


def tables(*kinds: JobClass) -> Tables:
    return Tables("toy", kinds, PAIRS)


def played(*kinds: JobClass, trains: bool, gpus: int = 3, seconds: float = 300.0) -> Harvest:
    arrival_s = np.arange(0.5, seconds, 1.0)
    cluster = ServedCluster(tables(*kinds), SERVED, gpus=gpus, first=1, trains=trains, seed=1)
    return cluster.run(arrival_s, np.full(arrival_s.size, 0.2))


def test_a_service_alone_trains_nothing_and_keeps_its_objective() -> None:
    found = played(QUIET, trains=False)
    assert (found.trained_s, found.evictions) == (0.0, 0)
    assert found.attained(SERVED.target.limit_s) == 1.0
    assert len(found.latency_s) == 300


@pytest.mark.slow
def test_no_second_of_a_device_counts_twice_and_quiet_work_fills_them() -> None:
    found = played(QUIET, trains=True)
    assert found.attained(SERVED.target.limit_s) == 1.0
    assert 0.8 * 3 * 300 < found.trained_s <= 3 * 305


@pytest.mark.slow
def test_work_that_would_break_the_objective_is_kept_off_the_replica() -> None:
    found = played(LOUD, trains=True)
    assert found.attained(SERVED.target.limit_s) == 1.0
    assert 0.8 * 2 * 300 < found.trained_s <= 2 * 305, "the replica's device is left alone"


def test_a_static_share_pays_for_every_pair() -> None:
    arrival_s: Floats = np.arange(0.0, 100.0, 1.0)
    service_s = np.full(arrival_s.size, 0.5)
    found = static_share(tables(QUIET, LOUD), SERVED, 2, arrival_s, service_s, seed=1)
    assert found.trained_s == pytest.approx(99 / 1.25 + 99)
    assert 0.0 < found.attained(SERVED.target.limit_s) < 1.0


def test_the_load_of_the_beginning_has_its_replicas() -> None:
    few, many = np.arange(0, 300, 1.0), np.arange(0, 300, 0.05)
    assert first_replicas(SERVED, few) < first_replicas(SERVED, many)


def test_the_file_names_the_worst_trace() -> None:
    def way(attainment: float, trained_s: float) -> Harvested:
        return Harvested(attainment=attainment, idle_s=100.0, trained_s=trained_s, replica_s=10.0)

    found = {
        "a": (2, {"alone": way(0.99, 0.0), "ours": way(0.991, 90.0), "static": way(0.5, 70.0)}),
        "b": (3, {"alone": way(0.99, 0.0), "ours": way(0.985, 65.0), "static": way(0.6, 70.0)}),
    }
    figures = figures_of(found)
    assert figures["harvest_fraction"] == pytest.approx(0.65)
    assert figures["harvest_attainment_lost"] == pytest.approx(0.005)
    assert figures["harvest_b_static_fraction"] == pytest.approx(0.7)
    assert figures_of({})["harvest_fraction"] is None
