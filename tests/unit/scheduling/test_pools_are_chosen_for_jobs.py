# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs with a cost objective go to the pools that suit them, and no one else is touched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import MODEL, WorkloadBuilder, a_gpu_node, a_job, a_profile, a_snapshot
from fakes.deciding import SETTINGS, decided, decided_on
from fakes.toy_pools import PoolPlay, a_pool, aim
from ullage.api.reasons import Reason
from ullage.api.spot import SpotTerms
from ullage.api.trainingjob import CostAim
from ullage.cluster.records.profile import SoloEntry
from ullage.scheduling.model.plan import CreatePod, Emit, EvictPod

HOUR = 3600.0


def job(cost: CostAim | None = None, **changes: object) -> WorkloadBuilder:
    built = a_job().exclusive(1).checkpointed().with_(work_steps=36_000)
    return built.with_(cost=cost or aim(), **changes)


def play(*pools: object, **nodes: int) -> PoolPlay:
    found = PoolPlay({one.name: one for one in pools})  # type: ignore[attr-defined]
    for pool, count in nodes.items():
        found.give(pool.replace("_", "-"), count)
    found.settle()
    return found


def test_the_cheapest_work_wins_not_the_cheapest_hour() -> None:
    toy = play(a_pool("calm", 1.0, hazard=0.01), a_pool("wild", 0.95, hazard=1.4), calm=1, wild=1)
    toy.add(job())
    toy.settle()
    assert toy.on() == {"calm"}
    decision = toy.job().status.spend.decision  # type: ignore[union-attr]
    assert decision is not None
    assert decision.reason is Reason.POOL_ACQUIRED
    assert decision.runner_up is not None
    assert [one.pool for one in decision.runner_up.pools] == ["wild"]
    assert (decision.mode, decision.chosen.per_hour) == ("Spot", "1")
    assert ("train", "PoolAcquired") in toy.events


def test_work_goes_nowhere_but_where_it_was_sent() -> None:
    toy = play(a_pool("cheap", 1.0), a_pool("dear", 5.0, spot=False), cheap=1, dear=1)
    toy.add(*(a_job(f"j{at}").exclusive(1).with_(cost=aim(), work_steps=9) for at in range(2)))
    toy.settle()
    assert toy.on("j0") == toy.on("j1") == {"cheap"}


def test_what_has_no_room_is_passed_over_for_what_has() -> None:
    toy = play(a_pool("cheap", 1.0), a_pool("dear", 5.0, spot=False), cheap=1, dear=1)
    toy.add(*(a_job(f"j{at}").exclusive(1).with_(cost=aim(), work_steps=99) for at in range(3)))
    toy.run(120)
    assert [len(toy.on(f"j{at}")) for at in range(3)] == [1, 1, 1]
    assert toy.on("j2") == {"dear"}


def test_without_pools_or_objective_nothing_changes() -> None:
    plain = a_job().exclusive(1)
    without = decided(plain, a_gpu_node())
    with_pools = decided_on(replace(without.snapshot, pools={"spot-a": a_pool()}))
    assert with_pools.plan.statuses == without.plan.statuses
    assert with_pools.plan.steps == without.plan.steps
    costly = decided(job(), a_gpu_node())
    assert costly.status("train").spend is None


def test_what_runs_on_nodes_of_no_pool_is_left_alone() -> None:
    toy = play()
    toy.toy.add_node("plain")
    toy.toy.nodes["plain"] = replace(toy.toy.nodes["plain"], labels={"pool": "none"})
    toy.add(job())
    toy.settle()
    toy.pools["spot-a"] = a_pool()
    toy.give("spot-a")
    toy.settle()
    assert toy.counts["EvictPod"] == 0


def test_a_budget_is_a_limit() -> None:
    toy = play(a_pool("cheap", 4.0), a_pool("dear", 6.0, spot=False), cheap=1, dear=1)
    toy.add(job(aim("CostPerWork", budget_per_hour=3.0)).with_())
    toy.settle()
    assert toy.on() == set()
    status = toy.job().status
    assert status.decision is not None
    assert status.decision.reason is Reason.BUDGET_TOO_SMALL
    assert "raise budgetPerHour" in status.decision.message
    toy.price("cheap", 2.0)
    toy.settle()
    assert toy.on() == {"cheap"}
    toy.price("cheap", 3.5)
    toy.settle()
    assert toy.on() == set()
    assert toy.counts["EvictPod"] == 1
    assert toy.job().status.restarts == 0


def test_without_a_checkpoint_running_work_is_never_moved() -> None:
    toy = play(a_pool("cheap", 2.0), a_pool("other", 3.0), cheap=1, other=1)
    toy.add(a_job().exclusive(1).with_(cost=aim(budget_per_hour=3.0), work_steps=99))
    toy.settle()
    toy.price("cheap", 30.0)
    toy.run(2 * 86_400, step_s=3600)
    assert toy.counts["EvictPod"] == 0


@pytest.mark.slow
def test_prices_are_compared_once_a_period_and_moves_pay() -> None:
    toy = play(a_pool("now", 2.0, hazard=0.0), a_pool("later", 2.2, hazard=0.0), now=1, later=1)
    toy.add(job(work_steps=100_000))
    toy.settle()
    assert toy.on() == {"now"}
    toy.run(HOUR)
    toy.price("later", 1.99)
    toy.run(25 * HOUR, step_s=600)
    assert toy.on() == {"now"}, "half a percent does not pay for a restart"
    toy.price("later", 1.0)
    toy.run(HOUR, step_s=600)
    assert toy.on() == {"later"}
    assert ("train", "OfferSwitched") in toy.events
    assert toy.job().status.restarts == 0


def test_nothing_is_moved_shortly_before_its_end() -> None:
    toy = play(a_pool("now", 2.0, hazard=0.0), a_pool("later", 2.2, hazard=0.0), now=1, later=1)
    toy.add(job(aim(estimated_work_s=1.5 * HOUR), work_steps=540))
    toy.settle()
    toy.run(1.4 * HOUR, step_s=600)
    toy.price("later", 1.5)
    toy.settle()
    assert toy.counts["EvictPod"] == 0


def test_an_unknown_price_stops_no_one_and_starts_no_one() -> None:
    toy = play(a_pool("spot-a", None), spot_a=1)
    toy.add(job())
    toy.settle()
    assert toy.on() == set()
    assert toy.job().status.decision.reason is Reason.PRICE_MISSING  # type: ignore[union-attr]
    toy.price("spot-a", 1.0)
    toy.settle()
    toy.price("spot-a", None)
    toy.run(2 * HOUR)
    assert toy.on() == {"spot-a"}


def test_pools_that_cannot_serve_it_are_named() -> None:
    pool = a_pool(accelerator="nvidia-l4")
    found = decided_on(replace(a_snapshot(job().on(MODEL), a_gpu_node()), pools={"spot-a": pool}))
    spend = found.status("train").spend
    assert spend is not None
    assert spend.decision is not None
    assert spend.decision.reason is Reason.NO_POOL
    assert "has nvidia-l4, which spec.accelerators leaves out" in spend.decision.message
    assert Reason.NO_POOL in [one.reason for one in found.all(Emit)]
    assert len(found.all(CreatePod)) == 1


@pytest.mark.parametrize(
    ("objective", "expected"), [("CostPerWork", {"slow"}), ("Makespan", {"fast"})]
)
def test_speed_counts_as_the_objective_says(objective: str, expected: set[str]) -> None:
    rows = [
        SoloEntry(device="fast", share=100, steps_per_second=2.0),
        SoloEntry(device=MODEL, share=100, steps_per_second=1.0),
    ]
    toy = play(
        a_pool("fast", 5.0, spot=False, accelerator="fast"),
        a_pool("slow", 2.0, spot=False),
    )
    profile = a_profile("p", *rows, workload_class="toy")
    toy.toy.profiles[profile.namespace, profile.name] = profile
    for pool in ("fast", "slow"):
        toy.give(pool)
    agent = toy.toy.agents["fast-n0"]
    agent.devices = {uuid: replace(one, model="fast") for uuid, one in agent.devices.items()}
    toy.add(job(aim(objective), workload_class="toy"))
    toy.settle()
    assert toy.on() == expected


def said(toy: PoolPlay, name: str) -> object:
    """The status but for the account of what was spent, which grows with time."""
    status = toy.job(name).status
    assert status.spend is not None
    spend = (status.spend.decision, status.spend.next_decision)
    return replace(status, spend=None), spend


def test_a_steady_state_writes_nothing() -> None:
    toy = play(a_pool("spot-a", 1.0), a_pool("od", 3.0, spot=False), spot_a=1, od=1)
    cost = aim("Deadline", deadline_s=60 * HOUR, estimated_work_s=20 * HOUR)
    toy.add(job(cost, work_steps=7200), a_job("idle").exclusive(4).with_(cost=aim(), work_steps=9))
    toy.run(600)
    before = [said(toy, name) for name in ("train", "idle")]
    for _ in range(20):
        toy.settle()
        toy.toy.now += 7
        for name in toy.toy.agents:
            toy.toy.sync_agent(name)
    assert [said(toy, name) for name in ("train", "idle")] == before


def test_equal_inputs_give_equal_decisions() -> None:
    toy = play(a_pool("spot-a", 1.0), a_pool("od", 3.0, spot=False), spot_a=1, od=1)
    toy.add(job(), job(aim("Makespan")).with_(ref=replace(job().build().ref, uid="u2", name="b")))
    snapshot = replace(toy.toy.snapshot(), pools=dict(toy.pools))
    first, second = (decided_on(snapshot, at=toy.toy.now, settings=SETTINGS) for _ in range(2))
    assert first.plan == second.plan
    assert first.all(EvictPod) == []


def test_terms_of_the_policy_bind() -> None:
    toy = play(a_pool("now", 2.0, hazard=0.0), a_pool("later", 2.2, hazard=0.0), now=1, later=1)
    toy.toy.shape.policy = replace(
        toy.toy.shape.policy, spot=SpotTerms(min_savings_percent=60, decision_period_s=HOUR)
    )
    toy.add(job(work_steps=100_000))
    toy.settle()
    toy.price("later", 1.0)
    toy.run(3 * HOUR, step_s=600)
    assert toy.on() == {"now"}, "half of the cost is less than the savings asked for"
