# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What is recommended is what a job gets, or a condition or refusal says with a reason why not.

The cycles are the real ones: the first compares the types and creates pods, the next one places.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from builders import Part, WorkloadBuilder, a_device, a_device_profile, a_gpu_node, a_job, a_policy
from fakes.choosing import MEMORY_MIB, RATES, known, nodes
from fakes.deciding import Decided, decided, told
from ullage.api.devices import Health
from ullage.api.reasons import Reason
from ullage.api.trainingjob import CostAim
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.profile import ProfileStatus, SoloEntry
from ullage.scheduling.model.gang_speed import speed

PRICES: Final = {"a100": 4.0, "t4": 0.6}
STEPS: Final = 36_000
"""Ten hours and 6.00 on a t4, a third of the time and 13.33 on an a100."""
CHEAP: Final = CostAim(objective="CostPerWork")
FAST: Final = CostAim(objective="Makespan")


def priced(**prices: float | None) -> list[Part]:
    return [
        replace(a_device_profile(kind, MEMORY_MIB), price_per_hour=price)
        for kind, price in prices.items()
    ]


def world(a100: int = 1, t4: int = 1) -> list[Part]:
    return [*nodes(a100=a100, t4=t4), known(**RATES), *priced(**PRICES)]


def job(cost: CostAim | None) -> WorkloadBuilder:
    return a_job().with_(workload_class="resnet", work_steps=STEPS, cost=cost)


def compared(one: WorkloadBuilder, *parts: Part) -> WorkloadBuilder:
    """The job after the cycle that compares the types."""
    return told(one, *parts)


def placed(one: WorkloadBuilder, *parts: Part) -> Decided:
    """The cycle that places the job's pods."""
    one = compared(one, *parts)
    if one.build().elasticity is not None:  # its pods are made for the size of the second cycle
        one = told(one, *parts)
        one = one.with_(replicas=one.build().status.replicas)
    return decided(one, *one.pods(), *parts)


def kinds(found: Decided) -> list[str]:
    """Types of the devices that were given, with repetitions."""
    return sorted(uuid.split("-")[1] for taken in found.places().values() for uuid in taken)


def verdict(found: Decided) -> tuple[str, Reason]:
    """Whether the job has what is recommended, and the reason, once its status was read back."""
    said = found.condition("train", "AsRecommended")
    return said.status, Reason(said.reason)


@pytest.mark.parametrize(
    ("cost", "kind"), [(CHEAP, "t4"), (FAST, "a100")], ids=["cheapest", "fastest"]
)
def test_a_list_of_types_is_a_choice_among_them(cost: CostAim, kind: str) -> None:
    found = placed(job(cost).on("a100", "t4"), *world())
    assert kinds(found) == [kind]
    assert verdict(found) == ("True", Reason.RECOMMENDED)


@pytest.mark.parametrize(("cost", "kind"), [(CHEAP, "t4"), (FAST, "a100"), (None, "a100")])
@pytest.mark.parametrize("names", [("1", "2"), ("2", "1")], ids=["first", "second"])
def test_a_node_of_several_types_gives_the_one_that_serves_best(
    cost: CostAim | None, kind: str, names: tuple[str, str]
) -> None:
    both = a_gpu_node(
        devices=[
            a_device(f"GPU-{name}-{model}", model=model, memory_mib=MEMORY_MIB)
            for model, name in zip(("a100", "t4"), names, strict=True)
        ]
    )
    found = placed(job(cost), both, known(**RATES), *priced(**PRICES))
    ((uuid,),) = found.places().values()
    assert uuid.endswith(kind)


def test_a_cap_of_cost_alone_rules_out_what_costs_more() -> None:
    found = placed(job(CostAim(max_cost=8.0)), *world())
    assert kinds(found) == ["t4"], "the a100 is faster and costs 13.33"
    assert verdict(found) == ("True", Reason.RECOMMENDED)


def test_a_cap_of_time_alone_rules_out_what_takes_longer() -> None:
    found = placed(job(CostAim(max_time_s=5 * 3600.0)), *world())
    assert kinds(found) == ["a100"]


def test_a_cap_holds_though_the_only_type_that_keeps_it_is_taken() -> None:
    aim = CostAim(objective="Makespan", max_cost=8.0)
    other = a_job("other").on("t4")
    parts = [*world(), other, *other.pods()]
    found = placed(job(aim), *parts)
    assert "train-0" not in found.places()
    assert found.status("train").decision is not None


@pytest.mark.parametrize(
    ("cost", "reason"),
    [
        (CostAim(max_cost=5.0), Reason.OVER_COST),
        (CostAim(objective="CostPerWork", max_time_s=3600.0), Reason.OVER_TIME),
    ],
)
def test_a_job_whose_bounds_no_type_keeps_does_not_start(cost: CostAim, reason: Reason) -> None:
    found = placed(job(cost), *world())
    assert found.places() == {}
    said = found.condition("train", "Admitted")
    assert (said.status, said.reason) == ("False", reason)
    assert "a100: " in said.message
    assert "t4: " in said.message


def test_nothing_starts_under_a_cap_before_the_types_were_compared() -> None:
    one = job(CostAim(max_cost=8.0))
    found = decided(one, *one.pods(), *world())
    assert found.places() == {}
    assert found.condition("train", "Admitted").reason == Reason.WAITING_FOR_DECISION


@pytest.mark.parametrize("objective", ["MaxMinFairness", "FinishTimeFairness", "SJF"])
@pytest.mark.parametrize(("cost", "kind"), [(CHEAP, "t4"), (FAST, "a100"), (None, "a100")])
def test_in_turns_a_job_counts_what_its_own_aim_counts(
    objective: str, cost: CostAim | None, kind: str
) -> None:
    found = placed(job(cost), *world(), a_policy(objective=objective))
    assert kinds(found) == [kind]


def test_in_turns_caps_hold() -> None:
    policy = a_policy(objective="MaxMinFairness")
    assert kinds(placed(job(CostAim(max_cost=8.0)), *world(), policy)) == ["t4"]
    none = placed(job(CostAim(max_cost=5.0)), *world(), policy)
    assert none.places() == {}
    assert none.condition("train", "Admitted").reason == Reason.OVER_COST
    only = placed(job(CostAim(max_cost=8.0)), *world(t4=0), policy)
    assert only.places() == {}, "no turn on what costs more, though it idles"


def test_an_elastic_gang_takes_the_number_that_is_recommended() -> None:
    cheap = placed(job(CHEAP).elastic(1, 8), *world(a100=8, t4=8))
    assert kinds(cheap) == ["t4"]
    assert verdict(cheap) == ("True", Reason.RECOMMENDED)
    fast = placed(job(FAST).elastic(1, 8), *world(a100=8, t4=8))
    assert kinds(fast) == ["a100"] * 8


def test_a_cap_holds_an_elastic_gang_to_the_number_that_keeps_it() -> None:
    alone = STEPS / 3600 / RATES["t4"] * PRICES["t4"]
    most = alone * 4 / speed(4) * 1.001
    found = placed(job(CostAim(max_cost=most)).elastic(1, 8), *world(a100=8, t4=8))
    assert kinds(found) == ["t4"] * 4


def test_delay_that_costs_its_owner_counts_in_the_recommended_number() -> None:
    dear = CostAim(objective="CostPerWork", delay_cost_per_hour=100.0)
    found = placed(job(dear).elastic(1, 8), *world(a100=8, t4=8))
    assert kinds(found) == ["a100"] * 8, "an hour of delay costs more than all devices"


def test_in_turns_an_elastic_gang_takes_the_recommended_number() -> None:
    policy = a_policy(objective="MaxMinFairness")
    found = placed(job(CHEAP).elastic(1, 8), *world(a100=8, t4=8), policy)
    assert kinds(found) == ["t4"]


def test_another_type_is_taken_where_the_recommended_one_is_not_free_and_it_says_so() -> None:
    other = a_job("other").on("t4")
    taken = decided(other, *other.pods(), *world())
    assert kinds(taken) == ["t4"]
    held = [
        replace(part, desired=taken.plan.slices[part.name])
        if isinstance(part, GPUNodeRecord)
        else part
        for part in world()
    ]
    found = placed(job(CHEAP), *held, other, *other.pods())
    assert found.places()["train-0"] == ["GPU-a100-0"]
    assert verdict(found) == ("False", Reason.FEASIBLE)
    assert "1 x t4 is recommended" in found.condition("train", "AsRecommended").message


def test_a_type_without_a_price_is_used_only_where_no_cap_asks_for_one() -> None:
    parts = [*nodes(a100=1, t4=1), known(**RATES), *priced(a100=4.0, t4=None)]
    assert kinds(placed(job(CHEAP), *parts)) == ["a100"]
    assert kinds(placed(job(CostAim(max_cost=20.0)), *parts)) == ["a100"]
    capped = placed(job(CostAim(max_cost=8.0)), *parts)
    assert capped.places() == {}
    said = capped.condition("train", "Admitted")
    assert said.reason == Reason.OVER_COST
    assert "no price is known" in said.message
    alone = [*nodes(t4=1), known(**RATES), *priced(t4=None)]
    free = placed(job(CHEAP), *alone)
    assert kinds(free) == ["t4"]
    assert verdict(free) == ("False", Reason.PRICE_MISSING)
    never = placed(job(CostAim(max_cost=8.0)), *alone)
    assert never.condition("train", "Admitted").reason == Reason.PRICE_MISSING


def test_a_type_without_a_speed_is_tried_only_where_no_other_is_known_to_keep_the_cap() -> None:
    some = [*nodes(a100=1, t4=1), known(t4=1.0), *priced(**PRICES)]
    kept = placed(job(CostAim(max_cost=8.0)), *some)
    assert kinds(kept) == ["t4"]
    none = [*nodes(a100=1, t4=1), *priced(**PRICES)]
    tried = placed(job(CostAim(max_cost=8.0)), *none)
    assert len(kinds(tried)) == 1
    assert verdict(tried) == ("False", Reason.NO_ESTIMATE)


def test_memory_that_no_one_knows_makes_it_advice_and_it_says_so() -> None:
    unknown = replace(
        known(**RATES),
        status=ProfileStatus(
            solo=tuple(
                SoloEntry(device=kind, share=100, steps_per_second=rate, samples=9)
                for kind, rate in RATES.items()
            )
        ),
    )
    found = placed(job(CHEAP), *nodes(a100=1, t4=1), unknown, *priced(**PRICES))
    assert len(kinds(found)) == 1
    assert verdict(found) == ("False", Reason.MEMORY_UNKNOWN)


@pytest.mark.parametrize("objective", ["FIFO", "MaxMinFairness"])
def test_a_type_that_vanishes_is_no_choice_any_more(objective: str) -> None:
    policy = a_policy(objective=objective)
    one = compared(job(CHEAP).on("a100", "t4"), *world(), policy)
    assert one.build().status.recommendation[0].accelerator == "t4"
    gone = [*nodes(a100=1), known(**RATES), *priced(**PRICES), policy]
    found = decided(one, *one.pods(), *gone)
    assert kinds(found) == ["a100"], "nothing waits for a type that is not there"
    rows = found.status("train").recommendation
    assert (rows[0].accelerator, rows[0].reason) == ("a100", Reason.RECOMMENDED)
    assert {row.accelerator: row.reason for row in rows}["t4"] is Reason.NOT_AVAILABLE


@pytest.mark.parametrize("objective", ["FIFO", "MaxMinFairness"])
def test_a_cap_holds_when_the_type_that_keeps_it_vanishes(objective: str) -> None:
    policy = a_policy(objective=objective)
    one = compared(job(CostAim(max_cost=8.0)), *world(), policy)
    gone = [*nodes(a100=1), known(**RATES), *priced(**PRICES), policy]
    found = decided(one, *one.pods(), *gone)
    assert found.places() == {}
    said = found.condition("train", "Admitted")
    assert (said.status, said.reason) == ("False", Reason.OVER_COST)


def test_devices_that_fail_are_no_choice() -> None:
    broken = replace(
        a_gpu_node("node-t4"),
        devices=(a_device("GPU-t4-0", model="t4", memory_mib=MEMORY_MIB, health=Health.UNHEALTHY),),
    )
    parts = [*nodes(a100=1), broken, known(**RATES), *priced(**PRICES)]
    assert kinds(placed(job(CHEAP), *parts)) == ["a100"]
