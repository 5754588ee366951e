# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A running job whose choice of devices has become much better is told, and moved if it may be."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from builders import Part, WorkloadBuilder, a_job, a_policy
from fakes.choosing import RATES, STEPS, Market, known, nodes
from ullage.api.reasons import Reason
from ullage.api.schedulingpolicy import ReconsiderTerms
from ullage.api.trainingjob import CostAim
from ullage.cluster.records.status import Recommended, WorkloadStatus
from ullage.engines.devicechoice.offers import ChoiceAim
from ullage.scheduling.learning.reconsider import better_choice

HOLD_S: Final = 600.0
CHEAP: Final = CostAim(objective="CostPerWork")
TERMS: Final = ReconsiderTerms()


def job(name: str = "train", cost: CostAim = CHEAP) -> WorkloadBuilder:
    one = a_job(name).with_(workload_class="resnet", work_steps=STEPS, cost=cost)
    return one.checkpointed()


def market(*jobs: WorkloadBuilder, parts: tuple[Part, ...] = (), **devices: int) -> Market:
    """A cluster in which t4 costs least per step, and jobs that run there."""
    found = Market([*nodes(**(devices or {"a100": 1, "t4": 1})), known(**RATES), *parts])
    found.price(a100=4.0, t4=0.6)
    found.add(*jobs)
    found.settle()
    return found


def test_a_job_moves_to_a_type_that_became_much_cheaper() -> None:
    found = market(job())
    assert found.types("train") == ["t4"]
    found.passes(HOLD_S + 60)
    found.price(a100=0.9, t4=0.6)
    found.settle()
    said = found.condition("train")
    assert said is not None
    assert (said.status, said.reason) == ("False", Reason.BETTER_CHOICE)
    assert "a100 would save 43% of the cost that is left" in said.message, "it has run 660 s"
    assert found.events.count(("BetterChoice", "train")) == 1
    assert found.moves == [], "it is told first"
    found.passes(90)
    assert found.types("train") == ["a100"]
    assert len(found.moves) == 1
    last = found.condition("train")
    assert last is not None
    assert last.status == "True"


def test_it_asks_to_be_woken_for_the_move() -> None:
    found = market(job())
    began = found.world.now
    found.passes(300)
    found.price(a100=0.9, t4=0.6)
    found.settle()
    assert found.wake_at == began + HOLD_S


def test_a_small_gain_moves_no_job() -> None:
    found = market(job())
    found.passes(HOLD_S + 60)
    found.price(a100=1.5, t4=0.6)
    found.passes(600)
    said = found.condition("train")
    assert said is not None
    assert said.reason == Reason.FEASIBLE
    assert found.moves == []


def test_the_policy_says_what_is_much() -> None:
    policy = replace(a_policy(), reconsider=ReconsiderTerms(min_saving_percent=10, hold_s=60))
    found = market(job(), parts=(policy,))
    found.passes(1500)
    found.price(a100=1.5, t4=0.6)
    found.passes(120)
    assert found.types("train") == ["a100"]


def test_a_job_that_cannot_save_its_work_is_told_and_stays() -> None:
    found = market(job().with_(checkpoint=False))
    found.passes(HOLD_S + 60)
    found.price(a100=0.9, t4=0.6)
    found.passes(900)
    said = found.condition("train")
    assert said is not None
    assert said.reason == Reason.BETTER_CHOICE
    assert "without spec.checkpoint" in said.message
    assert found.moves == []


def test_it_stays_while_someone_who_waits_could_use_the_devices() -> None:
    found = market(job(), a100=2, t4=1)
    never = job("never").with_(replicas=3).on("a100")
    holder, large = job("holder").on("a100"), job("large").with_(replicas=2).on("a100")
    found.add(never, holder)
    found.settle()
    found.add(large)
    found.passes(HOLD_S + 60)
    assert found.types("holder") == ["a100"]
    found.price(a100=0.9, t4=0.6)
    found.passes(300)
    assert found.types("train") == ["t4"], "one device is free, and another job waits for two"
    found.world.forget("uid-default-large")
    found.passes(120)
    assert found.types("train") == ["a100"], "who can never run holds nothing up"


def test_two_jobs_do_not_leave_for_one_device() -> None:
    found = market(job("one"), job("two"), a100=1, t4=2)
    found.passes(HOLD_S + 60)
    found.price(a100=0.9, t4=0.6)
    found.passes(900)
    assert len(found.moves) == 1
    assert sorted(found.types("one") + found.types("two")) == ["a100", "t4"]


def test_turns_decide_for_themselves() -> None:
    found = market(job(), parts=(a_policy(objective="MaxMinFairness"),))
    found.passes(HOLD_S + 60)
    found.price(a100=0.9, t4=0.6)
    found.settle()
    assert ("BetterChoice", "train") not in found.events


def _row(kind: str, seconds: int, cost: str, *, spread: float = 1.0, first: bool) -> Recommended:
    return Recommended(
        accelerator=kind,
        devices=1,
        total_s=seconds,
        low_s=round(seconds / spread),
        high_s=round(seconds * spread),
        cost=cost,
        reason=Reason.RECOMMENDED if first else Reason.FEASIBLE,
    )


def _runs(aim: str, *rows: Recommended, ran_s: float) -> WorkloadBuilder:
    status = WorkloadStatus(recommendation=rows, start_time=1_000.0)
    return job(cost=CostAim(objective=aim)).with_(status=status, created=1_000.0 - ran_s)


@pytest.mark.parametrize(
    ("left", "aim", "saved"),
    [
        (36_000, "Makespan", 1 - 1 / 3 - 30 / 36_000),
        (3_600, "CostPerWork", 1 - 0.5 - 30 / 3_600 * 1.5),
        (40, "Makespan", None),
    ],
    ids=["time", "cost", "near the end"],
)
def test_what_is_left_counts_with_the_move_in_it(left: int, aim: str, saved: float | None) -> None:
    rows = (
        _row("a100", 12_000, "3.00", first=True),
        _row("t4", 36_000, "6.00", first=False),
    )
    one = _runs(aim, *rows, ran_s=0).build()
    found = better_choice(one, ["t4"], 1, TERMS, now=1_000.0 + left)
    if saved is None:
        assert found is None
        return
    assert found is not None
    assert found.saved == pytest.approx(saved)
    assert found.aim is (ChoiceAim.TIME if aim == "Makespan" else ChoiceAim.COST)


def test_work_that_is_not_saved_counts_against_the_move() -> None:
    rows = (_row("a100", 12_000, "3", first=True), _row("t4", 36_000, "6", first=False))
    one = _runs("Makespan", *rows, ran_s=0).build()
    assert better_choice(one, ["t4"], 1, TERMS, now=4_600.0, unsaved_s=1_200.0) is not None
    assert better_choice(one, ["t4"], 1, TERMS, now=4_600.0, unsaved_s=1_600.0) is None


def test_bounds_count_against_the_move() -> None:
    rows = (
        _row("a100", 12_000, "3", spread=1.6, first=True),
        _row("t4", 36_000, "6", spread=1.6, first=False),
    )
    one = _runs("Makespan", *rows, ran_s=0).build()
    assert better_choice(one, ["t4"], 1, TERMS, now=37_000.0) is None, "2.56 times 1 / 3 is 0.85"


def test_other_numbers_of_devices_are_no_reason_to_move() -> None:
    rows = (_row("a100", 12_000, "3", first=True), _row("t4", 36_000, "6", first=False))
    one = _runs("Makespan", *rows, ran_s=0).build()
    assert better_choice(one, ["t4"], 2, TERMS, now=37_000.0) is None
    assert better_choice(one, ["k80"], 1, TERMS, now=37_000.0) is None, "nothing is known of it"
