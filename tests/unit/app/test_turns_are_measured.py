# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of turns follow the books; a preemption counts once, by its cause."""

from __future__ import annotations

from collections import Counter

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from builders import NOW, a_job
from fakes.toy_rounds import FAST, Turns, rates
from ullage.app.solver import Stopwatch
from ullage.cluster.records.status import AllocationRecord, Received
from ullage.engines.allocation.model import JobView, Problem, Throughputs, TypeView
from ullage.engines.allocation.policies import Objective
from ullage.metrics.histograms import division_seconds
from ullage.metrics.tenants import Parties
from ullage.metrics.turns import preempted, turn_figures
from ullage.process.metric_families import families
from ullage.scheduling.model.plan import EvictPod, SetStatus


def scrape(figures: object) -> str:
    class One(Collector):
        def collect(self) -> list[Metric]:
            return list(families(figures))

    registry = CollectorRegistry()
    registry.register(One())
    return generate_latest(registry).decode()


def test_sums_go_by_accelerator_and_tenant() -> None:
    books = AllocationRecord(
        since=NOW - 100,
        fractions=(("fast", "0.25"),),
        deficit_seconds=(("fast", "-5"),),
        received=(("fast", Received(seconds=20)),),
    )
    jobs = [
        a_job(name).aged(200).with_(tenant="research").status(phase="Pending", allocation=books)
        for name in ("a", "b")
    ]
    divisions = division_seconds()
    divisions.observe(0.2)
    text = scrape(
        turn_figures(
            [*(job.build() for job in jobs), a_job("plain").build()],
            NOW,
            Parties(),
            round_s=60.0,
            preemptions=Counter(turn=3),
            divisions=divisions,
        )
    )
    assert 'ullage_allocation_ratio{accelerator="fast",tenant="research"} 0.5' in text
    assert 'ullage_received_ratio{accelerator="fast",tenant="research"} 0.2' in text
    assert 'ullage_deficit_seconds{accelerator="fast",tenant="research"} 40.0' in text
    assert 'ullage_preemptions_total{cause="turn"} 3.0' in text
    assert "ullage_policy_solve_seconds_count 1.0" in text


def test_the_end_of_a_turn_counts_once_however_many_cycles_it_takes() -> None:
    turns = Turns.of({"n1": FAST}, rates("a", 4, 1))
    turns.add(*(a_job(name).checkpointed().with_(workload_class="a") for name in ("one", "two")))
    seen: Counter[str] = Counter()
    evicted = 0
    for _ in range(200):
        snapshot = turns.toy.snapshot()
        actions = turns.cycle()
        seen.update(preempted(snapshot, actions))
        evicted += sum(isinstance(one, EvictPod) for one in actions)
        turns.toy.now += 1
        assert all(one.status is not None for one in actions if isinstance(one, SetStatus))
    assert evicted >= 2
    assert seen == Counter(turn=evicted)


def test_a_division_is_timed_where_a_clock_may_be_read() -> None:
    watch = Stopwatch()
    problem = Problem(
        jobs=(JobView(name="one"),),
        types=(TypeView(name="fast", devices=1),),
        throughputs=Throughputs(rates=np.array([[2.0]])),
    )
    assert watch(Objective.MAX_MIN_FAIRNESS, problem).of("one") == {"fast": 1.0}
    assert watch.take() > 0
    assert watch.take() == 0
