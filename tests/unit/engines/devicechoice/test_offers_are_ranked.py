# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Offers become a table: infeasible ones say why, unknown memory is advice, the best is taken."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ullage.api.reasons import Reason
from ullage.api.words import CostObjective
from ullage.engines.devicechoice.choose import choose
from ullage.engines.devicechoice.explain import offer_line, summary
from ullage.engines.devicechoice.intervals import Interval, around
from ullage.engines.devicechoice.memory import (
    Footprint,
    MeasuredMemory,
    MemoryEvidence,
    MemoryFit,
    MemoryVerdict,
    memory_verdict,
)
from ullage.engines.devicechoice.offers import (
    AcceleratorOffer,
    ChoiceAim,
    ChoiceGoal,
    OfferCandidate,
    Source,
    StepForecast,
)
from ullage.engines.devicechoice.predict import TrainingWork

GIB = 2**30
WORK = TrainingWork(samples=3600, epochs=1, batch_per_gpu=1)
"""3,600 steps on one device: a step of 1 s is an hour."""
CHEAP = ChoiceGoal(objective=CostObjective.COST_PER_WORK)
FAST = ChoiceGoal(objective=CostObjective.MAKESPAN)


def vouched(need: float = GIB, device: float = 16 * GIB) -> MemoryVerdict:
    return memory_verdict(device, measured=[MeasuredMemory(device_bytes=device, peak_bytes=need)])


def candidate(
    accelerator: str,
    step_s: float | None,
    price: float | None,
    *,
    factor: float = 1.0,
    source: Source = Source.ESTIMATED,
    gpus: int = 1,
    memory: MemoryVerdict | None = None,
) -> OfferCandidate:
    step = None if step_s is None else around(step_s, factor)
    return OfferCandidate(
        offer=AcceleratorOffer(accelerator=accelerator, gpus=gpus, price_per_hour=price),
        forecast=StepForecast(step=step, source=source),
        memory=memory or vouched(),
    )


OLD = candidate("old", 4.0, 0.5, source=Source.MEASURED)
MIDDLE = candidate("middle", 1.0, 1.5)
NEW = candidate("new", 0.5, 4.0)
ALL = (NEW, OLD, MIDDLE)


def names(*, goal: ChoiceGoal, candidates: tuple[OfferCandidate, ...] = ALL) -> list[str]:
    return [row.offer.accelerator for row in choose(candidates, goal, WORK).rows]


def test_the_aim_ranks() -> None:
    assert names(goal=CHEAP) == ["middle", "old", "new"]
    assert names(goal=FAST) == ["new", "middle", "old"]
    answer = choose(ALL, CHEAP, WORK)
    assert answer.outcome is Reason.INSTANCE_SELECTED
    assert answer.chosen is answer.rows[0]
    assert answer.chosen is not None
    assert answer.chosen.cost == pytest.approx(1.5)
    assert answer.chosen.total == Interval(value_s=3600, low_s=3600, high_s=3600)


def test_a_cap_alone_minimises_the_other_quantity() -> None:
    assert ChoiceGoal(max_cost=1.8).aim() is ChoiceAim.TIME
    assert ChoiceGoal(max_time_s=1.0).aim() is ChoiceAim.COST
    assert ChoiceGoal(max_time_s=1.0, max_cost=1.0).aim() is ChoiceAim.COST
    answer = choose(ALL, ChoiceGoal(max_cost=1.8), WORK)
    assert [row.infeasible for row in answer.rows] == [
        None,
        Reason.OVER_COST,
        Reason.OVER_COST,
    ]
    assert "at most 1.80" in answer.rows[1].text
    late = choose(ALL, ChoiceGoal(max_time_s=1900), WORK)
    assert late.rows[0].offer.accelerator == "new"
    assert late.rows[1].infeasible is Reason.OVER_TIME


def test_capacity_decides_a_deadline() -> None:
    answer = choose(ALL, ChoiceGoal(objective=CostObjective.DEADLINE, max_time_s=4000), WORK)
    assert answer.outcome is Reason.CAPACITY_DECIDES
    assert answer.chosen is None
    assert [row.infeasible for row in answer.rows] == [None, None, Reason.OVER_TIME]


def test_advice_without_an_aim_goes_by_cost_and_without_prices_by_time() -> None:
    assert names(goal=ChoiceGoal()) == ["middle", "old", "new"]
    unpriced = (candidate("a", 2.0, 0.1), candidate("b", 1.0, None))
    assert names(goal=ChoiceGoal(), candidates=unpriced) == ["b", "a"]


def test_without_an_aim_or_a_second_type_there_is_advice_only() -> None:
    for candidates, goal in ((ALL, ChoiceGoal()), ((OLD,), CHEAP)):
        answer = choose(candidates, goal, WORK)
        assert answer.outcome is Reason.ADVICE_ONLY
        assert answer.chosen is None
        assert answer.best is answer.rows[0]
        assert not answer.acts


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (replace(MIDDLE, memory=vouched(need=17 * GIB)), Reason.MEMORY_TOO_LARGE),
        (candidate("middle", None, 1.5), Reason.DID_NOT_RUN),
        (candidate("middle", 0.0, 1.5), Reason.DID_NOT_RUN),
        (replace(MIDDLE, forecast=None), Reason.NO_ESTIMATE),
        (replace(MIDDLE, offer=replace(MIDDLE.offer, available=False)), Reason.NOT_AVAILABLE),
        (candidate("middle", 1.0, None), Reason.PRICE_MISSING),
    ],
)
def test_what_cannot_be_taken_stays_in_the_table_with_its_reason(
    broken: OfferCandidate, reason: Reason
) -> None:
    answer = choose((NEW, OLD, broken), CHEAP, WORK)
    assert answer.chosen is not None
    assert answer.chosen.offer.accelerator == "old"
    last = answer.rows[-1]
    assert last.infeasible is reason
    assert last.text in offer_line(last)


def test_a_price_is_not_needed_for_time() -> None:
    answer = choose((candidate("a", 1.0, None), candidate("b", 2.0, 1.0)), FAST, WORK)
    assert answer.chosen is not None
    assert answer.chosen.offer.accelerator == "a"
    assert answer.chosen.cost is None


@pytest.mark.parametrize(
    ("held", "hold"),
    [
        (replace(MIDDLE, memory=memory_verdict(16 * GIB)), Reason.MEMORY_UNKNOWN),
        (
            replace(
                MIDDLE,
                forecast=StepForecast(
                    step=around(1.0, 1.0), source=Source.ESTIMATED, anchored=False
                ),
            ),
            Reason.NOT_ANCHORED,
        ),
    ],
)
def test_what_no_one_vouches_for_is_advice(held: OfferCandidate, hold: Reason) -> None:
    answer = choose((NEW, OLD, held), CHEAP, WORK)
    assert answer.best is not None
    assert (answer.best.offer.accelerator, answer.best.hold) == ("middle", hold)
    assert answer.chosen is not None
    assert answer.chosen.offer.accelerator == "old"
    assert answer.rows[0] is answer.chosen


def test_a_job_that_waits_for_input_stays_on_what_was_measured() -> None:
    answer = choose(ALL, CHEAP, WORK, input_bound=True)
    assert answer.chosen is not None
    assert answer.chosen.offer.accelerator == "old"
    assert {row.hold for row in answer.rows} == {None, Reason.INPUT_BOUND}


def test_another_count_is_advice_where_the_batch_was_chosen_for_one() -> None:
    pair = candidate("middle", 0.5, 1.0, gpus=2)
    answer = choose((OLD, MIDDLE, pair), replace(CHEAP, gpus=1), WORK)
    assert answer.best is not None
    assert answer.best.offer.gpus == 2
    assert answer.best.hold is Reason.COUNT_CHANGES_BATCH
    assert answer.chosen is not None
    assert answer.chosen.offer.gpus == 1


def test_more_devices_make_fewer_steps() -> None:
    one, four = candidate("a", 1.0, 1.0), candidate("b", 1.0, 4.0, gpus=4)
    answer = choose((one, four), CHEAP, WORK)
    totals = {row.offer.gpus: row.total and row.total.value_s for row in answer.rows}
    assert totals == {1: 3600, 4: 900}
    assert {row.cost for row in answer.rows} == {1.0}


def test_near_equals_are_settled_by_measurement_then_by_price() -> None:
    best = candidate("best", 1.0, 1.0, factor=1.3)
    close = candidate("close", 1.04, 1.0, source=Source.MEASURED)
    assert names(goal=CHEAP, candidates=(best, close))[0] == "close"
    far = candidate("far", 1.2, 1.0, source=Source.MEASURED)
    assert names(goal=CHEAP, candidates=(best, far))[0] == "best"
    sure = replace(best, forecast=StepForecast(step=around(1.0, 1.0), source=Source.ESTIMATED))
    assert names(goal=CHEAP, candidates=(sure, close))[0] == "best"
    dear = candidate("dear", 1.0, 3.0, factor=1.1)
    fair = candidate("fair", 1.01, 1.0, factor=1.1)
    assert names(goal=FAST, candidates=(dear, fair))[0] == "fair"


def test_nothing_feasible_lists_every_reason() -> None:
    answer = choose((replace(OLD, forecast=None), candidate("new", None, 1.0)), CHEAP, WORK)
    assert answer.outcome is Reason.NO_FEASIBLE_ACCELERATOR
    assert answer.best is None
    said = summary(answer)
    assert "no step time is known for old" in said
    assert "did not run" in said
    assert summary(choose((), CHEAP, WORK)).endswith("there are no offers")


def test_a_failure_holds_for_smaller_devices_and_beats_every_other_evidence() -> None:
    runs = [
        MeasuredMemory(device_bytes=16 * GIB, failed=True),
        MeasuredMemory(device_bytes=12 * GIB, peak_bytes=8 * GIB),
    ]
    for size in (12, 16):
        said = memory_verdict(size * GIB, measured=runs)
        assert (said.verdict, said.evidence) == (MemoryFit.TOO_LARGE, MemoryEvidence.FAILED)
    assert memory_verdict(24 * GIB, measured=runs).verdict is MemoryFit.FITS


def test_peaks_of_the_same_size_decide_and_others_only_where_they_fit() -> None:
    peak = MeasuredMemory(device_bytes=40 * GIB, peak_bytes=20 * GIB)
    small = Footprint(parameters=1e6, activation_bytes_per_sample=1e6, batch_per_gpu=4)
    same = memory_verdict(40 * GIB, measured=[peak], context_bytes=21 * GIB)
    assert (same.verdict, same.evidence) == (MemoryFit.TOO_LARGE, MemoryEvidence.PEAK)
    assert memory_verdict(80 * GIB, measured=[peak]).evidence is MemoryEvidence.PEAK
    assert memory_verdict(16 * GIB, measured=[peak]).verdict is MemoryFit.UNKNOWN
    assert (
        memory_verdict(16 * GIB, measured=[peak], footprint=small).evidence
        is MemoryEvidence.ESTIMATE
    )


def test_the_estimate_counts_optimizer_activations_workspace_and_context() -> None:
    parts = Footprint(
        parameters=1e9, activation_bytes_per_sample=1e8, batch_per_gpu=10, workspace_bytes=5e8
    )
    said = memory_verdict(24e9, footprint=parts, context_bytes=5e8)
    assert said.need_bytes == 18e9 + 1e9 + 5e8 + 5e8
    assert said.verdict is MemoryFit.FITS
    assert memory_verdict(19.9e9, footprint=parts, context_bytes=5e8).verdict is MemoryFit.TOO_LARGE
    sgd = replace(parts, bytes_per_parameter=8)
    assert memory_verdict(19.9e9, footprint=sgd).verdict is MemoryFit.FITS


@pytest.mark.parametrize(
    "missing",
    [
        Footprint(),
        Footprint(parameters=1.0),
        Footprint(activation_bytes_per_sample=1.0),
        Footprint(parameters=math.nan, activation_bytes_per_sample=1.0),
        Footprint(parameters=-1.0, activation_bytes_per_sample=1.0),
    ],
)
def test_half_an_estimate_is_none(missing: Footprint) -> None:
    assert memory_verdict(16 * GIB, footprint=missing).verdict is MemoryFit.UNKNOWN


@pytest.mark.parametrize("size", [0.0, -1.0, math.nan, math.inf])
def test_a_device_of_unknown_size_fits_nothing(size: float) -> None:
    assert memory_verdict(size, footprint=Footprint()).verdict is MemoryFit.UNKNOWN


def test_the_summary_tells_bounds() -> None:
    wide = candidate("middle", 1.0, 1.5, factor=1.25)
    answer = choose((wide, OLD, replace(NEW, memory=memory_verdict(16 * GIB))), CHEAP, WORK)
    assert summary(answer).startswith(
        "take 1 x middle, 1.00 h (0.80 to 1.25), cost 1.50, estimated; next"
    )
    advice = choose((wide,), CHEAP, WORK)
    assert summary(advice).startswith("advice only:")
