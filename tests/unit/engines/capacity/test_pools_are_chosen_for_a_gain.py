# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One decision: pools are added, released or swapped only for a gain and within the limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ullage.api.words import CostObjective
from ullage.engines.capacity.cost import CostTerms, ScalingCurve
from ullage.engines.capacity.deadline import ProgressLine
from ullage.engines.capacity.decide import Due, decide
from ullage.engines.capacity.records import (
    Ask,
    CapacityDecision,
    CapacitySettings,
    CapacityType,
    CapacityWhy,
    Pool,
    PoolHolding,
)
from ullage.engines.capacity.search import CapacitySearch

TERMS = CostTerms(
    scaling=ScalingCurve(per_doubling=0.97),
    eviction_h=5 / 60,
    change_h=3 / 60,
    reliable_per_hour=3.06,
)
FREE = CostTerms(scaling=ScalingCurve(per_doubling=0.97))
HELD = Pool(name="held", price_per_hour=0.95, hazard_per_hour=0.095, most=8)
EXAMPLE = (
    HELD,
    Pool(name="us-east-1a", price_per_hour=0.98, hazard_per_hour=1.39),
    Pool(name="us-east-2a", price_per_hour=1.023, hazard_per_hour=0.175),
    Pool(name="us-west-2c", price_per_hour=0.942, hazard_per_hour=0.146),
)
SPOT = Pool(name="spot", price_per_hour=1.0, hazard_per_hour=0.1)
DEAR = Pool(name="dear", price_per_hour=2.0, hazard_per_hour=0.1)
ON_DEMAND = Pool(name="on-demand", price_per_hour=3.06, capacity_type=CapacityType.ON_DEMAND)


def counts(decision: CapacityDecision) -> dict[str, int]:
    return {one.pool: one.instances for one in decision.chosen.shares}


def held(pool: str, instances: int, held_s: float = 3600.0) -> tuple[PoolHolding, ...]:
    return (PoolHolding(pool=pool, instances=instances, held_s=held_s),)


def test_the_example_accepts_the_cheapest_addition_and_names_the_next() -> None:
    ask = Ask(most=16, gang=8, held=held("held", 8, 0.0))
    found = decide(ask, EXAMPLE, TERMS)
    assert counts(found) == {"held": 8, "us-west-2c": 8}
    assert found.reason is CapacityWhy.ACQUIRED
    assert found.chosen.expected.per_work == pytest.approx(1.399, abs=5e-4)
    assert found.current.expected.per_work == pytest.approx(1.492, abs=5e-4)
    assert found.runner_up is not None
    assert found.runner_up.expected.per_work == pytest.approx(1.453, abs=5e-4)
    assert "1.399" in found.text
    assert "1.453" in found.text


def test_what_gains_less_than_three_percent_is_left() -> None:
    found = decide(
        Ask(most=8, held=held("spot", 8)), [replace(SPOT, price_per_hour=1.02), SPOT_B], FREE
    )
    assert counts(found) == {"spot": 8}
    assert found.reason is CapacityWhy.KEPT
    assert found.runner_up is not None


SPOT_B = Pool(name="spot-b", price_per_hour=1.0, hazard_per_hour=0.1)


@pytest.mark.parametrize("objective", [CostObjective.MAKESPAN, CostObjective.COST_PER_WORK])
def test_what_is_as_good_is_no_gain_however_little_is_asked(objective: CostObjective) -> None:
    ask = Ask(most=8, held=held("spot-b", 8), objective=objective)
    found = decide(ask, [SPOT, SPOT_B], FREE, settings=CapacitySettings(min_gain=0.0))
    assert counts(found) == {"spot-b": 8}
    assert found.reason is CapacityWhy.KEPT


def test_what_gains_more_is_moved_to_although_the_job_is_full() -> None:
    found = decide(Ask(most=8, held=held("dear", 8)), [DEAR, SPOT], TERMS)
    assert counts(found) == {"spot": 8}
    assert found.reason is CapacityWhy.SWITCHED


def test_a_move_brings_no_more_instances_than_it_takes() -> None:
    slow_to_scale = CostTerms(scaling=ScalingCurve(per_doubling=0.55))
    found = decide(Ask(most=8, held=held("dear", 4)), [DEAR, SPOT], slow_to_scale)
    assert counts(found) == {"spot": 4}
    assert found.reason is CapacityWhy.SWITCHED


def test_nothing_is_given_back_before_the_minimum_hold() -> None:
    found = decide(Ask(most=8, held=held("dear", 8, 580.0)), [DEAR, SPOT], TERMS)
    assert counts(found) == {"dear": 8}
    assert found.reason is CapacityWhy.HOLDING
    assert found.next_in_s == pytest.approx(20.0)


def test_a_pool_that_costs_more_than_it_brings_is_released() -> None:
    both = (*held("spot", 4), *held("dear", 4))
    found = decide(Ask(most=8, held=both), [replace(SPOT, most=4), DEAR], FREE)
    assert counts(found) == {"spot": 4}
    assert found.reason is CapacityWhy.RELEASED


def test_on_demand_is_left_when_spot_comes_back() -> None:
    pools = [SPOT, ON_DEMAND]
    gone = decide(Ask(most=4), [replace(SPOT, available=False), ON_DEMAND], FREE)
    assert set(counts(gone)) == {"on-demand"}
    back = decide(Ask(most=4, held=held("on-demand", 4)), pools, FREE)
    assert counts(back) == {"spot": 4}


def test_pools_of_a_kind_that_is_not_allowed_are_never_used() -> None:
    found = decide(Ask(most=4, allow_spot=False), [SPOT, ON_DEMAND], FREE)
    assert set(counts(found)) == {"on-demand"}
    found = decide(Ask(most=4, allow_on_demand=False), [ON_DEMAND], FREE)
    assert found.reason is CapacityWhy.NO_CAPACITY


def test_the_budget_is_a_limit() -> None:
    found = decide(Ask(most=16, budget_per_hour=8.0), [SPOT], TERMS)
    assert counts(found) == {"spot": 4}
    assert found.chosen.expected.per_hour <= 8.0


def test_a_price_that_rises_above_the_budget_shrinks_the_job() -> None:
    ask = Ask(most=8, gang=2, budget_per_hour=10.0, held=held("spot", 8, 0.0))
    found = decide(ask, [replace(SPOT, price_per_hour=1.5)], FREE)
    assert counts(found) == {"spot": 6}
    assert found.reason is CapacityWhy.LIMITED


def test_a_gang_that_is_spread_over_pools_stays_whole() -> None:
    slow = Pool(name="slow", price_per_hour=1.0, speed=0.001, most=8)
    ask = Ask(most=4, gang=2, held=(*held("slow", 1), *held("spot", 3)))
    found = decide(ask, [slow, replace(SPOT, available=False)], FREE)
    assert counts(found) == {"slow": 1, "spot": 3}
    ask = replace(ask, held=(*held("dear", 3), *held("slow", 1)))
    found = decide(ask, [DEAR, replace(slow, available=False), SPOT], FREE)
    assert sum(counts(found).values()) == 4
    assert counts(found)["spot"] == 3


def test_a_budget_below_the_fewest_replicas_says_so() -> None:
    found = decide(Ask(least=8, most=8, budget_per_hour=5.0), [SPOT], FREE)
    assert counts(found) == {}
    assert found.reason is CapacityWhy.BUDGET
    assert "raise budgetPerHour" in found.text


def test_too_little_capacity_for_the_fewest_replicas_says_so() -> None:
    found = decide(Ask(least=8, most=8), [replace(SPOT, most=4)], FREE)
    assert found.reason is CapacityWhy.NO_CAPACITY
    assert counts(found) == {}


def test_the_fewest_replicas_may_come_from_several_pools() -> None:
    found = decide(Ask(least=8, most=8), [replace(SPOT, most=4), replace(DEAR, most=6)], FREE)
    assert sum(counts(found).values()) == 8


def test_a_lost_node_does_not_tear_down_a_job_that_can_shrink() -> None:
    gone = replace(SPOT, available=False)
    found = decide(Ask(least=2, most=8, held=held("spot", 7)), [gone], FREE)
    assert counts(found) == {"spot": 7}


def test_a_gang_that_lost_a_member_is_made_whole_or_cut() -> None:
    short = Ask(most=8, gang=4, held=held("spot", 7))
    assert counts(decide(short, [SPOT], TERMS)) == {"spot": 8}
    assert counts(decide(short, [replace(SPOT, available=False)], TERMS)) == {"spot": 4}


def test_makespan_takes_all_the_budget_allows_and_the_cheaper_of_equals() -> None:
    ask = Ask(objective=CostObjective.MAKESPAN, most=8, budget_per_hour=20.0)
    assert counts(decide(ask, [SPOT, DEAR], FREE)) == {"spot": 8}
    slow = replace(SPOT, speed=0.5)
    fast = replace(DEAR, speed=1.0)
    assert counts(decide(ask, [slow, fast], FREE)) == {"dear": 8}


def test_no_price_is_no_offer() -> None:
    found = decide(Ask(most=8), [replace(SPOT, price_per_hour=None)], FREE)
    assert found.reason is CapacityWhy.NOT_PRICED
    assert counts(found) == {}


def test_what_is_held_in_a_pool_that_is_gone_does_not_count() -> None:
    found = decide(Ask(most=4, held=held("gone", 4)), [SPOT], FREE)
    assert counts(found)
    assert set(counts(found)) == {"spot"}


def test_the_same_inputs_give_the_same_bytes_in_any_order() -> None:
    ask = Ask(most=16, gang=8, held=held("held", 8))
    one = decide(ask, EXAMPLE, TERMS)
    assert one == decide(ask, tuple(reversed(EXAMPLE)), TERMS)
    dearer = (replace(HELD, price_per_hour=0.96), *EXAMPLE[1:])
    assert decide(ask, dearer, TERMS).inputs_hash != one.inputs_hash


def test_unclear_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="one name"):
        decide(Ask(most=1), [SPOT, SPOT], FREE)
    with pytest.raises(ValueError, match="comes with a deadline"):
        decide(Ask(objective=CostObjective.DEADLINE, most=1), [SPOT], FREE)


@pytest.mark.parametrize("objective", ["Deadline", "CostPerWork"])
def test_a_deadline_comes_with_its_objective_and_no_other(objective: str) -> None:
    line = ProgressLine(work_s=3600, deadline_s=7200, changeover_s=60, tick_s=60)
    due = None if objective == "Deadline" else Due(line=line, elapsed_s=0, done_s=0)
    with pytest.raises(ValueError, match="comes with a deadline"):
        decide(Ask(most=1, objective=CostObjective(objective)), [SPOT], FREE, due=due)


@pytest.mark.parametrize(("most", "gives", "whole"), [(7, None, 6), (8, 5, 4), (8, 1, 0)])
def test_a_pool_gives_whole_gangs_alone(most: int, gives: int | None, whole: int) -> None:
    search = CapacitySearch(
        pools=[replace(SPOT, most=gives)],
        ask=Ask(most=most, gang=2),
        terms=FREE,
        settings=CapacitySettings(),
        held=(0,),
        held_s=(0.0,),
    )
    assert search.addable(0, (0,)) == whole
