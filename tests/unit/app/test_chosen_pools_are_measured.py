# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics and ``why`` tell what was chosen: cost of work, changes of pools, deadlines."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from builders import NOW, a_job
from ullage.api.reasons import Reason
from ullage.cli import tables
from ullage.cluster.records.status import (
    Condition,
    DecisionRecord,
    Offer,
    PoolShare,
    SpendDecision,
    SpendRecord,
)
from ullage.cluster.records.workload import WorkloadRecord
from ullage.metrics.spending import SpendSums
from ullage.process.metric_families import families


def job(*pools: str, mode: str = "Spot", safe: str = "") -> WorkloadRecord:
    decision = SpendDecision(
        time=NOW,
        epoch=3,
        inputs_hash="abc",
        mode=mode,
        reason=Reason.SPOT_AVAILABLE,
        message="the deadline leaves room for spot",
        chosen=Offer(
            pools=tuple(PoolShare(pool=one, replicas=2) for one in pools),
            cost_per_work="1.5" if pools else "",
            per_hour="3" if pools else "",
        ),
        runner_up=Offer(pools=(PoolShare(pool="od", replicas=2),), per_hour="9"),
        since=NOW,
    )
    said = (Condition(type="DeadlineSafe", status=safe, reason="x"),) if safe else ()
    placed = DecisionRecord(
        time=NOW,
        epoch=3,
        inputs_hash="x",
        chosen="",
        runner_up="",
        reason=Reason.PLACED,
        message="",
    )
    status = {"spend": SpendRecord(decision=decision), "conditions": said, "decision": placed}
    return a_job().with_(tenant="research").status(**status).build()


def test_changes_of_pools_are_counted_once_each() -> None:
    sums = SpendSums()
    sums.figures([job("a")])
    assert sums.figures([job("a")]).switches == {}
    assert sums.figures([job("b")]).switches == {"Spot": 1}
    sums.figures([job()])
    assert sums.figures([job("od", mode="OnDemand")]).switches == {"Spot": 1, "OnDemand": 1}


def test_costs_and_deadlines_are_gathered_by_tenant() -> None:
    late = job("a", safe="False")
    late = replace(late, ref=replace(late.ref, uid="other"))
    found = SpendSums().figures([job("a", safe="True"), late])
    assert found.cost_per_work == {("research", "USD"): 1.5}
    assert found.deadlines == {"yes": 1, "no": 1}
    names = {one.name for one in families(found)}
    assert names == {"ullage_job_cost_per_work_hour", "ullage_switches", "ullage_job_deadlines"}


def test_why_shows_the_decision_and_the_next_best() -> None:
    console = Console(width=120, record=True, file=StringIO())
    console.print(tables.why(job("spot-a")))
    said = console.export_text()
    assert "2 x spot-a (3 $/h, 1.5 $ per hour of work)" in said
    assert "2 x od (9 $/h)" in said
    assert "the deadline leaves room for spot" in said
