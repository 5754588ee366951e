# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An elastic gang takes as many members as its budget pays for, and gives some up when it must."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import WorkloadBuilder, a_job
from fakes.toy_pools import PoolPlay, a_pool, aim
from ullage.api.reasons import Reason
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.status import SpendRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.capacity.budgets import limits_of
from ullage.scheduling.capacity.capacity_choice import CapacityChoices, PoolChoice
from ullage.scheduling.capacity.market import affordable
from ullage.scheduling.model.device_choice import NO_CHOICE
from ullage.scheduling.times import GANG_HOLD_S


def gang(budget: float | None = 4.0, least: int = 1, most: int = 6) -> WorkloadBuilder:
    """Members of one device each; nodes have two."""
    job = a_job().elastic(least, most).checkpointed()
    return job.with_(cost=aim(budget_per_hour=budget), work_steps=1_000_000)


def play(price: float, nodes: int = 3) -> PoolPlay:
    toy = PoolPlay({"cheap": a_pool("cheap", price)})
    toy.give("cheap", nodes)
    toy.settle()
    return toy


def members(toy: PoolPlay) -> int:
    pods = toy.toy.members(toy.job().ref.uid)
    return sum(one.stage is PodStage.RUNNING and not one.deleting for one in pods)


def test_it_starts_with_as_many_as_the_budget_pays_for() -> None:
    toy = play(2.0)
    toy.add(gang())
    toy.run(60)
    assert members(toy) == 4
    size = toy.job().status.size
    assert size is not None
    assert size.message == "4 of 6 members: spec.cost.budgetPerHour pays for 4"
    toy.run(4 * GANG_HOLD_S)
    assert members(toy) == 4, "room for more is no reason to leave the budget"
    assert toy.dearest["train"] <= 4.0
    assert toy.counts["EvictPod"] == 0


def test_without_a_budget_it_takes_what_there_is() -> None:
    toy = play(2.0)
    toy.add(gang(None))
    toy.run(60)
    assert members(toy) == 6


def test_a_price_that_rises_takes_members_and_not_the_job() -> None:
    toy = play(2.0)
    toy.add(gang())
    toy.run(60)
    toy.price("cheap", 3.0)
    toy.run(120)
    assert members(toy) == 2
    size, spend = toy.job().status.size, toy.job().status.spend
    assert size is not None
    assert size.reason is Reason.SHRUNK
    assert size.message.startswith("spec.cost.budgetPerHour pays for 2 members")
    assert spend is not None
    assert spend.decision is not None
    assert [one.replicas for one in spend.decision.chosen.pools] == [2]
    assert toy.job().status.restarts == 0
    assert ("train", "Shrunk") in toy.events


def test_it_grows_again_when_prices_fall() -> None:
    toy = play(4.0)
    toy.add(gang())
    toy.run(60)
    assert members(toy) == 2
    toy.price("cheap", 2.0)
    toy.run(2 * GANG_HOLD_S)
    assert members(toy) == 4
    assert ("train", "Grown") in toy.events


def test_the_fewest_are_never_cut_for_money() -> None:
    toy = play(2.0)
    toy.add(gang(least=3))
    toy.run(60)
    assert members(toy) == 4
    toy.price("cheap", 3.0)
    toy.run(120)
    assert members(toy) == 0
    decision = toy.job().status.decision
    assert decision is not None
    assert decision.reason is Reason.BUDGET_TOO_SMALL
    toy.price("cheap", 2.0)
    toy.run(120)
    assert members(toy) >= 3


@pytest.mark.parametrize(
    ("price", "budget", "found"),
    [(2.0, 4.0, 4), (2.0, 3.99, 2), (2.0, 1.0, 0), (0.1, 0.3, 6), (None, 4.0, None)],
)
def test_whole_instances_are_paid_for(
    price: float | None, budget: float, found: int | None
) -> None:
    assert affordable(a_pool("one", price), gang(budget).build()) == found


def test_a_share_pays_its_part_of_a_device() -> None:
    shared = gang(1.0).fractional(25, 50).build()
    assert affordable(a_pool("one", 2.0), shared) == 4


def limits(job: WorkloadRecord, *pools: PoolRecord) -> dict[str, int]:
    pool_choice = PoolChoice(spend=SpendRecord(), pools=frozenset(one.name for one in pools))
    named = {one.name: one for one in pools}
    choices = CapacityChoices(choices={job.ref.uid: pool_choice})
    found = limits_of(choices, {job.ref.uid: job}, named, lambda _: NO_CHOICE)
    return {uid: limit.members for uid, limit in found.items()}


def test_the_dearest_of_the_chosen_pools_limits() -> None:
    job = gang().build()
    cheap, dear = a_pool("cheap", 1.0), a_pool("dear", 2.0)
    unpriced = a_pool("new", None)
    assert limits(job, cheap) == {}
    assert limits(job, cheap, dear, unpriced) == {job.ref.uid: 4}
    assert limits(job, unpriced) == limits(job) == {}
    assert limits(replace(job, elasticity=None), dear) == {}
    assert limits(gang(None).build(), dear) == {}


def in_place(toy: PoolPlay) -> dict[str, int]:
    """Ranks of the members that run, by uid of the pod."""
    pods = toy.toy.members(toy.job().ref.uid)
    return {one.uid: one.rank for one in pods if one.stage is PodStage.RUNNING and not one.deleting}


def test_of_a_gang_in_place_the_highest_ranks_leave_and_come_back_with_the_price() -> None:
    toy = play(2.0)
    job = a_job().elastic(1, 6, in_place=True)
    toy.add(job.with_(cost=aim(budget_per_hour=4.0), work_steps=1_000_000))
    toy.run(60)
    first = in_place(toy)
    assert sorted(first.values()) == [0, 1, 2, 3]
    toy.price("cheap", 3.0)
    toy.run(120)
    left = in_place(toy)
    assert sorted(left.values()) == [0, 1]
    assert left.items() <= first.items(), "no one else was stopped"
    assert toy.counts["EvictPod"] == 2, "asked to leave, with their grace"
    assert toy.counts["DeletePod"] == 0
    toy.run(600)
    assert in_place(toy) == left, "and it stays so"
    toy.price("cheap", 2.0)
    toy.run(300)
    again = in_place(toy)
    assert sorted(again.values()) == [0, 1, 2, 3]
    assert left.items() <= again.items()
    assert toy.job().status.restarts == 0


def test_a_gang_in_place_gives_members_up_though_another_has_just_been_lost() -> None:
    toy = play(2.0)
    job = a_job().elastic(1, 6, in_place=True)
    toy.add(job.with_(cost=aim(budget_per_hour=6.0), work_steps=1_000_000))
    toy.run(60)
    assert sorted(in_place(toy).values()) == [0, 1, 2, 3, 4, 5]
    gone = next(one for one in toy.toy.members(toy.job().ref.uid) if one.rank == 5)
    kept = {uid for uid, rank in in_place(toy).items() if rank < 2}
    toy.toy.delete_pod(gone)
    toy.price("cheap", 5.0)
    toy.run(120)
    assert in_place(toy).keys() == kept
