# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Objectives that weigh prices: the most work for the money, deadlines kept where they can be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import WorkloadBuilder, a_device_profile, a_job
from fakes.toy_rounds import FAST, SLOW, Turns, a_turn_policy, rates
from ullage.api.reasons import ConditionType, Reason
from ullage.api.trainingjob import CostAim
from ullage.cluster.records.pool import PoolRecord, PoolStatus
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Condition, DroppedDeadline, SolveRecord
from ullage.engines.capacity.records import CapacityType
from ullage.scheduling.learning.device_prices import prices_of

ROUND_S = 60.0
TWO = {"n1": FAST, "n2": SLOW}


def job(name: str, workload_class: str = "a", **fields: object) -> WorkloadBuilder:
    """A job that can checkpoint."""
    return a_job(name).checkpointed().with_(workload_class=workload_class, **fields)


def due(name: str, seconds: float, steps: int, workload_class: str = "a") -> WorkloadBuilder:
    """A job with a deadline."""
    return job(name, workload_class, work_steps=steps, cost=CostAim(deadline_s=seconds))


def priced(turns: Turns, **prices: float) -> Turns:
    """The same cluster with these prices."""
    turns.prices = prices
    return turns


def a_cluster(objective: str = "MinCost", **policy: object) -> Turns:
    """Two types: the fast one four times as fast and ten times as dear."""
    turns = Turns.of(TWO, rates("a", 4, 1), policy=a_turn_policy(objective, **policy))
    return priced(turns, fast=10.0, slow=1.0)


def solve(turns: Turns) -> SolveRecord:
    """The division in force."""
    found = turns.toy.shape.policy.last_solve
    assert found is not None
    return found


def degraded(turns: Turns) -> Condition | None:
    """What the policy says of itself."""
    found = turns.toy.shape.policy.conditions
    return next((one for one in found if one.type == ConditionType.DEGRADED), None)


def dropped(turns: Turns, name: str) -> DroppedDeadline | None:
    """Why a job's deadline is not kept."""
    books = turns.job(name).status.allocation
    assert books is not None
    return books.dropped


def test_the_type_that_brings_most_for_its_price_is_promised() -> None:
    turns = a_cluster(min_service_percent=0)
    turns.add(job("one"))
    turns.settle()
    assert turns.fraction("one") == {SLOW: 1.0}
    assert solve(turns).result == "Optimal"
    assert float(solve(turns).objective_value) == pytest.approx(0.25, rel=0.05)


def test_no_one_gets_less_than_the_floor() -> None:
    turns = a_cluster(min_service_percent=40)
    turns.add(*(job(f"j{at}") for at in range(4)))
    turns.settle()
    # the proportional part of 2 devices is 2.5 steps/s, and 4 jobs share 2 devices
    for at in range(4):
        books = turns.job(f"j{at}").status.allocation
        assert books is not None
        assert float(books.effective_throughput) >= 0.4 * 2.5 * 0.5 * 0.95


def test_another_price_divides_again_and_the_same_one_does_not() -> None:
    turns = a_cluster(min_service_percent=0)
    turns.add(job("one"))
    turns.run(2 * ROUND_S)
    before, books = turns.counts["SetConditions"], turns.job("one").status.allocation
    priced(turns, fast=10.01, slow=1.0)
    turns.run(2 * ROUND_S)
    assert turns.counts["SetConditions"] == before
    assert turns.job("one").status.allocation == books
    priced(turns, fast=2.0, slow=1.0)
    turns.settle()
    assert turns.fraction("one") == {FAST: 1.0}


@pytest.mark.parametrize("objective", ["MinCost", "MinCostSLO"])
def test_without_a_price_time_is_divided_all_the_same_and_the_policy_names_the_type(
    objective: str,
) -> None:
    turns = priced(a_cluster(objective), fast=10.0)
    turns.add(a_job("one").with_(workload_class="a"), a_job("two").with_(workload_class="a"))
    turns.settle()
    assert set(turns.holding()) == {"one", "two"}
    assert solve(turns).result == "FellBack"
    found = degraded(turns)
    assert found is not None
    assert (found.status, found.reason) == ("True", Reason.PRICE_MISSING)
    assert f"{objective} needs a price above 0 for slow" in found.message
    assert "until then time is divided by MaxMinFairness" in found.message
    before, books = turns.counts["SetConditions"], turns.job("one").status.allocation
    turns.run(3 * ROUND_S)
    assert turns.counts["SetConditions"] == before
    assert turns.job("one").status.allocation == books
    priced(turns, fast=10.0, slow=1.0)
    turns.settle()
    assert degraded(turns) is None
    assert solve(turns).result == "Optimal"


def test_a_type_that_no_one_may_use_needs_no_price() -> None:
    turns = priced(a_cluster(), fast=10.0)
    turns.add(job("one", accelerators=(FAST,)))
    turns.settle()
    assert degraded(turns) is None
    assert turns.fraction("one") == {FAST: 1.0}


def test_the_condition_ends_with_the_objective() -> None:
    turns = priced(a_cluster())
    turns.add(job("one"))
    turns.settle()
    assert degraded(turns) is not None
    turns.toy.shape.policy = replace(turns.toy.shape.policy, objective="FIFO")
    turns.settle()
    assert degraded(turns) is None


def test_a_deadline_moves_its_job_to_where_it_is_kept() -> None:
    turns = a_cluster("MinCostSLO", min_service_percent=0)
    turns.add(due("soon", seconds=1000, steps=2500), job("later"))
    turns.settle()
    books = turns.job("soon").status.allocation
    assert books is not None
    assert books.dropped is None
    assert float(books.effective_throughput) >= 2.5 * 0.97
    assert turns.fraction("soon")[FAST] > 0.5
    assert solve(turns).dropped == 0


def test_a_deadline_that_cannot_be_kept_is_told_once_with_its_speeds() -> None:
    turns = a_cluster("MinCostSLO")
    turns.add(due("hopeless", seconds=1000, steps=40_000))
    turns.run(5 * ROUND_S)
    found = dropped(turns, "hopeless")
    assert found is not None
    assert found.cause == "TooSlow"
    assert float(found.needed) == pytest.approx(40, rel=0.1)
    assert float(found.best) == pytest.approx(4, rel=0.02)
    assert turns.events.count(("hopeless", "SLOInfeasible")) == 1
    assert solve(turns).dropped == 1
    assert turns.fraction("hopeless"), "it keeps its floor"


def test_of_deadlines_that_cannot_all_be_kept_the_fewest_are_dropped() -> None:
    turns = a_cluster("MinCostSLO", min_service_percent=0)
    jobs = [due(name, seconds=1000, steps=3000) for name in ("a", "b", "c")]
    turns.add(*(one.with_(accelerators=(FAST,)) for one in jobs))
    turns.settle()
    lost = {name: dropped(turns, name) for name in ("a", "b", "c")}
    causes = [one.cause for one in lost.values() if one is not None]
    assert causes == ["Contended", "Contended"], "one of three fits: 3 of 4 steps/s each"
    waiting = [name for name, one in lost.items() if one is not None]
    decision = turns.job(waiting[0]).status.decision
    assert decision is not None
    assert "other deadlines need the same devices" in decision.message


def test_a_deadline_that_passed_is_told_as_such() -> None:
    turns = a_cluster("MinCostSLO")
    turns.add(due("late", seconds=100, steps=300))
    turns.settle()
    assert dropped(turns, "late") is None
    turns.run(4 * ROUND_S)
    found = dropped(turns, "late")
    assert found is not None
    assert found.cause == "Passed"


def test_a_deadline_of_work_that_no_one_states_is_not_looked_at_and_says_so() -> None:
    turns = a_cluster("MinCostSLO")
    turns.add(job("vague", cost=CostAim(deadline_s=1000.0)))
    turns.run(3 * ROUND_S)
    found = dropped(turns, "vague")
    assert found is not None
    assert found.cause == "WorkUnknown"
    assert turns.events.count(("vague", "SLOInfeasible")) == 1


def test_estimated_work_counts_at_the_best_speed() -> None:
    turns = a_cluster("MinCostSLO", min_service_percent=0)
    # 900 of 1000 seconds on the fast type: the slow one alone would take an hour
    turns.add(job("one", cost=CostAim(deadline_s=1000.0, estimated_work_s=900.0)))
    turns.settle()
    assert dropped(turns, "one") is None
    assert turns.fraction("one")[FAST] > 0.8


def test_a_deadline_that_is_kept_just_so_is_not_given_up_for_a_stale_report() -> None:
    turns = a_cluster("MinCostSLO", min_service_percent=0)
    turns.add(due("tight", seconds=1000, steps=3990))
    turns.settle()
    assert dropped(turns, "tight") is None
    turns.toy.now += 30
    turns.cycle()
    assert dropped(turns, "tight") is None


def test_a_new_leader_remembers_which_deadlines_were_dropped() -> None:
    turns = a_cluster("MinCostSLO")
    turns.add(due("hopeless", seconds=10_000, steps=400_000), job("other"))
    turns.settle()
    before = solve(turns)
    turns.run(10)
    assert solve(turns) == before
    # a status that lost the word of it is written again
    key = turns.job("hopeless").ref.uid
    known = turns.toy.workloads[key]
    books = known.status.allocation
    assert books is not None
    status = replace(known.status, allocation=replace(books, dropped=None))
    turns.toy.workloads[key] = replace(known, status=status)
    turns.settle()
    assert dropped(turns, "hopeless") is not None


def a_pool(name: str, price: float | None, **fields: object) -> PoolRecord:
    """A pool of eight devices an instance."""
    status = PoolStatus(price=price, **fields)  # type: ignore[arg-type]
    return PoolRecord(
        name=name,
        instance_type="big",
        zone="z1",
        capacity_type=CapacityType.SPOT,
        accelerator="fast",
        gpus_per_instance=8,
        status=status,
    )


def test_the_cheapest_pool_that_can_be_had_goes_before_what_was_declared() -> None:
    declared = replace(a_device_profile("fast"), price_per_hour=9.0)
    pools = [
        a_pool("gone", 1.0, available=False),
        a_pool("unknown", None),
        a_pool("spot", 8.0),
        a_pool("dear", 40.0),
    ]
    found = prices_of(
        Snapshot(
            version=1,
            taken_at=0.0,
            device_profiles={"fast": declared, "slow": a_device_profile("slow")},
            pools={one.name: one for one in pools},
        )
    )
    assert found == {"fast": 1.0}
    held = a_pool("held", 4.0, available=False, nodes=1)
    none = prices_of(Snapshot(version=1, taken_at=0.0, pools={"held": held}))
    assert none == {"fast": 0.5}
