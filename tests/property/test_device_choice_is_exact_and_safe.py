# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The choice equals enumeration, and nothing that is known or feared not to fit is ever taken."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from fakes.examples import examples
from ullage.api.words import CostObjective
from ullage.engines.devicechoice.choose import choose
from ullage.engines.devicechoice.intervals import around
from ullage.engines.devicechoice.memory import (
    Footprint,
    MeasuredMemory,
    MemoryFit,
    MemoryVerdict,
    memory_verdict,
)
from ullage.engines.devicechoice.offers import (
    AcceleratorOffer,
    ChoiceGoal,
    OfferCandidate,
    Source,
    StepForecast,
)
from ullage.engines.devicechoice.predict import TrainingWork

SIZES = st.sampled_from([8.0, 11.0, 16.0, 32.0, 80.0])
NUMBERS = st.one_of(st.none(), st.floats(0, 1e4), st.sampled_from([math.nan, math.inf, -1.0, 0.0]))
RUNS = st.lists(
    st.builds(
        MeasuredMemory,
        device_bytes=SIZES,
        peak_bytes=st.floats(0, 100),
        failed=st.booleans(),
    ),
    max_size=3,
)

CI = examples(40, many=200)
FOOTPRINTS = st.none() | st.builds(
    Footprint,
    parameters=NUMBERS,
    activation_bytes_per_sample=NUMBERS,
    batch_per_gpu=st.integers(1, 4),
    workspace_bytes=st.floats(0, 5),
    bytes_per_parameter=st.sampled_from([8.0, 18.0]),
)
CAPS = st.none() | st.sampled_from([1.0, 10.0, 100.0, 1e4, 1e6])


@st.composite
def verdicts(draw: st.DrawFn) -> MemoryVerdict:
    return memory_verdict(draw(SIZES), measured=draw(RUNS), footprint=draw(FOOTPRINTS))


@st.composite
def candidates(draw: st.DrawFn) -> list[OfferCandidate]:
    """Offers with ties: few distinct steps and prices, some prices missing, some runs failed."""
    keys = draw(
        st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 4)), max_size=8, unique=True)
    )
    steps = st.sampled_from([None, 0.0, 0.5, 1.0, 1.0, 2.0, 7.0])
    prices = st.sampled_from([None, 0.0, 1.0, 2.0, 2.0, 5.0])
    return [
        OfferCandidate(
            offer=AcceleratorOffer(
                accelerator=name, gpus=gpus, price_per_hour=draw(prices), available=draw(AVAILABLE)
            ),
            forecast=draw(forecasts(draw(steps))),
            memory=draw(verdicts()),
        )
        for name, gpus in keys
    ]


AVAILABLE = st.sampled_from([True, True, True, False])


@st.composite
def forecasts(draw: st.DrawFn, step_s: float | None) -> StepForecast | None:
    if draw(st.integers(0, 9)) == 0:
        return None
    return StepForecast(
        step=None if step_s is None else around(step_s, 1.0),
        source=draw(st.sampled_from(Source)),
        anchored=draw(AVAILABLE),
    )


GOALS = st.builds(
    ChoiceGoal,
    objective=st.sampled_from([None, CostObjective.COST_PER_WORK, CostObjective.MAKESPAN]),
    max_cost=CAPS,
    max_time_s=CAPS,
    gpus=st.sampled_from([None, None, 1, 2]),
)
WORKS = st.builds(
    TrainingWork,
    samples=st.integers(1, 100_000),
    epochs=st.integers(1, 3),
    batch_per_gpu=st.integers(1, 64),
)


def enumerated(
    offers: list[OfferCandidate], goal: ChoiceGoal, work: TrainingWork
) -> set[tuple[str, int]]:
    """Every offer that nothing beats, by the definition alone."""
    cost_first = goal.objective is CostObjective.COST_PER_WORK or (
        goal.objective is None and goal.max_time_s is not None
    )
    table: list[tuple[float, bool, float, tuple[str, int]]] = []
    for one in offers:
        step = one.forecast.step.value_s if one.forecast and one.forecast.step else 0.0
        if step <= 0 or one.forecast is None or not one.forecast.anchored:
            continue
        if not one.offer.available or one.memory.verdict is not MemoryFit.FITS:
            continue
        if goal.gpus not in (None, one.offer.gpus):
            continue
        batch = work.batch_per_gpu * one.offer.gpus
        seconds = step * work.epochs * -(-work.samples // batch)
        price = one.offer.price_per_hour
        cost = math.inf if price is None else seconds / 3600 * price
        if seconds > (goal.max_time_s or math.inf) or cost > (goal.max_cost or math.inf):
            continue
        if price is None and (cost_first or goal.max_cost is not None):
            continue
        value = cost if cost_first else seconds
        estimated = one.forecast.source is Source.ESTIMATED
        table.append((value, estimated, cost, (one.offer.accelerator, one.offer.gpus)))
    if not table:
        return set()
    least = min(value for value, *_ in table)
    tied = [row for row in table if row[0] <= least * (1 + 1e-12)]
    best = min((estimated, cost) for _, estimated, cost, _ in tied)
    return {
        name
        for _, estimated, cost, name in tied
        if estimated == best[0] and (cost == best[1] or math.isclose(cost, best[1], rel_tol=1e-12))
    }


@CI
@given(candidates(), GOALS, WORKS)
def test_the_choice_is_the_one_of_enumeration(
    offers: list[OfferCandidate], goal: ChoiceGoal, work: TrainingWork
) -> None:
    answer = choose(offers, goal, work, margin=1e-12)
    assert len(answer.rows) == len(offers)
    if goal.aim() is None or len({one.offer.accelerator for one in offers}) < 2:
        assert answer.chosen is None
        return
    allowed = enumerated(offers, goal, work)
    assert (answer.chosen is None) == (not allowed)
    if answer.chosen is not None:
        assert (answer.chosen.offer.accelerator, answer.chosen.offer.gpus) in allowed


@CI
@given(candidates(), GOALS, WORKS, st.floats(0, 1))
def test_what_does_not_fit_or_run_is_never_taken(
    offers: list[OfferCandidate], goal: ChoiceGoal, work: TrainingWork, margin: float
) -> None:
    answer = choose(offers, goal, work, margin=margin)
    for row in (answer.chosen, answer.best):
        if row is not None:
            assert row.memory.verdict is not MemoryFit.TOO_LARGE
            assert row.total is not None
            assert row.total.value_s > 0
    if answer.chosen is not None:
        assert answer.chosen.memory.verdict is MemoryFit.FITS
        assert answer.chosen.infeasible is None


@CI
@given(candidates(), GOALS, WORKS)
def test_the_order_of_offers_changes_nothing(
    offers: list[OfferCandidate], goal: ChoiceGoal, work: TrainingWork
) -> None:
    assert choose(offers, goal, work) == choose(offers[::-1], goal, work)


@CI
@given(SIZES, RUNS, FOOTPRINTS, st.floats(0, 4))
def test_fitting_needs_evidence_and_room(
    size: float, runs: list[MeasuredMemory], footprint: Footprint | None, context: float
) -> None:
    said = memory_verdict(size, measured=runs, footprint=footprint, context_bytes=context)
    if said.verdict is MemoryFit.FITS:
        assert said.need_bytes is not None
        assert said.need_bytes <= size
        assert not any(run.failed and run.device_bytes >= size for run in runs)
    if not runs and footprint is None:
        assert said.verdict is MemoryFit.UNKNOWN


@CI
@given(RUNS, st.floats(0, 4))
def test_a_larger_device_never_loses_what_a_measured_peak_gave(
    runs: list[MeasuredMemory], context: float
) -> None:
    sizes = [8.0, 11.0, 16.0, 32.0, 80.0]
    unmeasured = [9.0, 20.0, 120.0]
    for small in sizes:
        if memory_verdict(small, measured=runs, context_bytes=context).verdict is MemoryFit.FITS:
            for large in unmeasured:
                said = memory_verdict(large, measured=runs, context_bytes=context).verdict
                assert large < small or said is not MemoryFit.TOO_LARGE
