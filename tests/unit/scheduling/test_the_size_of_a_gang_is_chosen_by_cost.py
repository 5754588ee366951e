# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""With a price of delay, the size of an elastic gang is chosen together with its pools."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import WorkloadBuilder, a_job
from fakes.toy_pools import PoolPlay, a_pool, aim
from ullage.api.spot import SpotTerms
from ullage.cluster.records.pod import PodStage
from ullage.engines.capacity.cost import CostTerms, ScalingCurve
from ullage.engines.capacity.records import Ask, CapacitySettings, Pool
from ullage.engines.capacity.search import MOST_SIZES, CapacitySearch
from ullage.scheduling.capacity import choice
from ullage.scheduling.capacity.choice import CapacityFacts
from ullage.scheduling.capacity.market import SuitedPool, SuitedPools
from ullage.scheduling.model.gang_speed import speed
from ullage.scheduling.times import GANG_HOLD_S


def gang(delay: float | None, least: int = 1, most: int = 6, **cost: object) -> WorkloadBuilder:
    """Members of one device each; nodes have two."""
    job = a_job().elastic(least, most, in_place=True).checkpointed()
    return job.with_(cost=aim(delay_cost_per_hour=delay, **cost), work_steps=1_000_000)


def play(price: float = 2.0, nodes: int = 3, hazard: float = 0.0) -> PoolPlay:
    toy = PoolPlay({"cheap": a_pool("cheap", price, hazard=hazard)})
    toy.give("cheap", nodes)
    toy.settle()
    return toy


def members(toy: PoolPlay) -> int:
    pods = toy.toy.members(toy.job().ref.uid)
    return sum(one.stage is PodStage.RUNNING and not one.deleting for one in pods)


def test_without_a_price_of_delay_it_takes_what_there_is() -> None:
    toy = play()
    toy.add(gang(None))
    toy.run(300)
    assert members(toy) == 6


def test_the_cheapest_size_is_the_least_where_delay_costs_nothing() -> None:
    toy = play()
    toy.add(gang(0.0, least=2))
    toy.run(300)
    assert members(toy) == 2
    size = toy.job().status.size
    assert size is not None
    assert size.message == (
        "2 of 6 members: instances and delay (spec.cost.delayCostPerHour) cost least with 2"
    )
    toy.run(4 * GANG_HOLD_S)
    assert members(toy) == 2, "room for more is no reason to pay more"


def test_a_dear_delay_pays_for_many() -> None:
    toy = play()
    toy.add(gang(50.0))
    toy.run(600)
    assert members(toy) == 6


def test_a_budget_still_bounds_what_delay_pays_for() -> None:
    toy = play()
    toy.add(gang(50.0, budget_per_hour=4.0))
    toy.run(600)
    assert members(toy) == 4
    assert toy.dearest["train"] <= 4.0


@pytest.mark.slow
def test_members_leave_when_instances_become_dear_and_come_back() -> None:
    toy = play(1.0, nodes=8)
    toy.add(gang(1.0, most=16))
    toy.run(1200)
    many = members(toy)
    toy.price("cheap", 40.0)
    toy.run(1200)
    few = members(toy)
    assert few < many
    assert toy.job().status.restarts == 0
    toy.price("cheap", 1.0)
    toy.run(1200)
    assert members(toy) == many
    assert toy.job().status.restarts == 0


def test_one_pool_that_is_taken_leaves_the_rest_at_work() -> None:
    toy = PoolPlay({"one": a_pool("one", 1.0), "two": a_pool("two", 1.1)})
    toy.give("one", 2)
    toy.give("two", 2)
    toy.settle()
    toy.add(gang(50.0, most=8))
    toy.run(900)
    assert set(toy.here().values()) == {"one", "two"}
    toy.take("one")
    toy.run(120)
    assert set(toy.here().values()) == {"two"}
    assert members(toy) == 4
    toy.give("one", 2)
    toy.run(600)
    assert members(toy) == 8
    assert toy.job().status.restarts == 0


def test_a_gang_that_restarts_to_grow_keeps_its_pools_and_takes_the_best_size_there() -> None:
    toy = play()
    job = a_job().elastic(2, 6).checkpointed()
    toy.add(job.with_(cost=aim(delay_cost_per_hour=0.0), work_steps=1_000_000))
    toy.run(600)
    assert members(toy) == 2
    toy.pools["other"] = a_pool("other", 0.1)
    toy.give("other", 3)
    toy.run(600)
    assert members(toy) == 2


def facts_of(pools: list[Pool], least: int, most: int, delay: float) -> CapacityFacts:
    suited = {
        pool.name: SuitedPool(pool=pool, record=a_pool(pool.name), per_node=2, grows=True)
        for pool in pools
    }
    return CapacityFacts(
        job=gang(delay, least, most).build(),
        members=most,
        suited=SuitedPools(by_name=suited, speeds_known=True, steps_per_second=1.0, unsuitable=""),
        work=None,
        due=None,
        held={},
        terms=SpotTerms(restart_cost_s=480),
        now=1_000_000.0,
    )


@given(
    price=st.floats(0.1, 20.0),
    hazard=st.floats(0.0, 2.0),
    delay=st.floats(0.0, 100.0),
    bounds=st.tuples(st.integers(1, 8), st.integers(1, 16)).filter(lambda two: two[0] < two[1]),
)
def test_the_size_costs_as_little_per_work_as_any(
    price: float, hazard: float, delay: float, bounds: tuple[int, int]
) -> None:
    least, most = bounds
    pool = Pool(name="one", price_per_hour=price, hazard_per_hour=hazard)
    found = choice.choose(facts_of([pool], least, most, delay)).chosen
    count = sum(share.instances for share in found.shares)
    life = -math.expm1(-hazard) / hazard if hazard > 1e-12 else 1.0
    alive = max(1e-12, life - -math.expm1(-hazard) * 480 / 3600)

    def per_work(size: int) -> float:
        return (delay + price * size * life) / (speed(size) * alive)

    best = min(per_work(size) for size in range(least, most + 1))
    assert per_work(count) <= best * 1.031, (count, best)


def test_wild_bounds_cost_no_more_than_some_sizes_of_each_pool() -> None:
    pools = [Pool(name=f"p{one}", price_per_hour=1.0 + one / 100) for one in range(8)]
    search = CapacitySearch(
        pools=pools,
        ask=Ask(least=1, most=1_000_000),
        terms=CostTerms(scaling=ScalingCurve(per_doubling=0.97), delay_per_hour=3.0),
        settings=CapacitySettings(),
        held=(0,) * 8,
        held_s=(0.0,) * 8,
    )
    assert sum(search.run()) >= 1
    assert len(search.seen) < 8 * 8 * (MOST_SIZES + 2)


@pytest.mark.parametrize("delay", [0.0, 3.0])
def test_equal_facts_give_equal_sizes(delay: float) -> None:
    pools = [Pool(name="one", price_per_hour=1.0), Pool(name="two", price_per_hour=1.0)]
    first, second = (choice.choose(facts_of(pools, 1, 8, delay)) for _ in range(2))
    assert first == second
