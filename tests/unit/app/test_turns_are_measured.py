# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of turns follow the books; a preemption counts once, by its cause."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from builders import NOW, a_job, a_snapshot, an_adopted
from fakes.toy_rounds import FAST, Turns, rates
from ullage.api.reasons import Reason
from ullage.app.solver import Stopwatch
from ullage.cluster.records.status import AllocationRecord, Received
from ullage.engines.allocation.model import JobView, Problem, ThroughputTable, TypeView
from ullage.engines.allocation.policies import Objective
from ullage.metrics.histograms import division_seconds
from ullage.metrics.tenants import TenantLabels
from ullage.metrics.turns import preempted, turn_figures
from ullage.process.metric_families import families
from ullage.scheduling.model.plan import EvictPod, SetStatus, TellPod


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
            TenantLabels(),
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


@pytest.mark.slow
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
        throughputs=ThroughputTable(rates=np.array([[2.0]])),
    )
    assert watch(Objective.MAX_MIN_FAIRNESS, problem).of("one") == {"fast": 1.0}
    assert watch.take() > 0
    assert watch.take() == 0


BOOKS = AllocationRecord(since=NOW - 100, fractions=(("fast", "0.25"),))


def test_a_preemption_counts_by_its_cause_under_turns_too() -> None:
    before = a_job("one").status(phase="Running", allocation=BOOKS).build()
    again = before.status.scheduling
    for reason, scheduling, cause in (
        (Reason.QUOTA_RECLAIMED, replace(again, preemptions=1, preempted_at=NOW), "reclaim"),
        (Reason.PREEMPTED, replace(again, preemptions=1, preempted_at=NOW), "priority"),
        (Reason.PREEMPTED, again, "turn"),
        (Reason.RESIZING, again, ""),
    ):
        status = replace(before.status, phase="Restarting", scheduling=scheduling)
        told = SetStatus(
            owner=before.ref, resource_version="1", status=status, epoch=1, reason=reason, text=""
        )
        assert list(preempted(a_snapshot(before), (told, told))) == ([cause] if cause else [])


def test_a_gang_of_adopted_pods_that_is_preempted_counts_once() -> None:
    one = an_adopted("gang").build()
    second = replace(one.adopted[0], pod=replace(one.adopted[0].pod, uid="uid-2", name="gang-1"))
    unit = replace(one, adopted=(*one.adopted, second))
    status = replace(unit.status, phase="Restarting")
    told = [
        TellPod(
            owner=one.pod, unit=unit.ref.uid, resource_version="", status=status, epoch=1,
            reason=Reason.PREEMPTED, text="",
        )
        for one in unit.adopted
    ]  # fmt: skip
    assert list(preempted(a_snapshot(unit), told)) == ["priority"]
