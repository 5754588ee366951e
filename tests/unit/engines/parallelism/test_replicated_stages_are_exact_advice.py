# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""PipeDream's plan equals a search of all splits and replicas, and is said to be advice."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise

import pytest

from fakes.examples import seeds
from ullage.engines.parallelism.chain import ChainProblem
from ullage.engines.parallelism.records import PipelinePlan, PlanConstraint, PlanRefusal
from ullage.engines.parallelism.replicated import WHY_NOT, CostForm, replicated_plan
from unit.engines.parallelism.chains import drawn, layer, links


def shares(devices: int, stages: int) -> Iterator[tuple[int, ...]]:
    """All ways to give every stage at least one device."""
    for inner in combinations(range(1, devices), stages - 1):
        edges = (0, *inner, devices)
        yield tuple(high - low for low, high in pairwise(edges))


def steady(
    problem: ChainProblem, form: CostForm, last: tuple[int, ...], owns: tuple[int, ...]
) -> float:
    """Steady time of a microbatch, infinite where a stage does not fit."""
    bandwidth = problem.links.between(0, problem.devices - 1).bytes_per_s
    slowest, before = 0.0, 0
    for stage, (end, own) in enumerate(zip(last, owns, strict=True)):
        start = last[stage - 1] + 1 if stage else 0
        part = problem.layers[start : end + 1]
        time = math.fsum(item.forward_s + item.backward_s for item in part)
        weights = math.fsum(item.parameter_bytes for item in part)
        came = problem.layers[start - 1].activation_bytes if stage else 0.0
        if form is CostForm.PAPER:
            time = max(time, 2 * (own - 1) * weights / bandwidth) / own
            sent = 2 * came / bandwidth
        else:
            time = (time + 4 * (own - 1) * weights / (bandwidth * own)) / own
            sent = 2 * came / (bandwidth * own)
        flight = math.ceil((problem.devices - before) / own)
        held = (problem.state_factor - 1) * weights
        held += flight * (weights + came + math.fsum(item.kept for item in part))
        if held > problem.memory_bytes:
            return math.inf
        slowest, before = max(slowest, time, sent), before + own
    return slowest


def exhaustive(problem: ChainProblem, form: CostForm) -> float:
    """The least steady time of all splits and shares of the devices."""
    layers = len(problem.layers)
    return min(
        steady(problem, form, (*inner, layers - 1), owns)
        for stages in range(1, min(problem.devices, layers) + 1)
        for inner in combinations(range(layers - 1), stages - 1)
        for owns in shares(problem.devices, stages)
    )


@pytest.mark.parametrize("form", list(CostForm))
@pytest.mark.parametrize("seed", seeds(150, many=500))
def test_the_plan_is_the_best_of_all(seed: int, form: CostForm) -> None:
    problem = drawn(seed, layers=1 + seed % 7, devices=1 + seed % 5)
    if seed % 2:
        problem = replace(problem, memory_bytes=(1 + seed % 7) * 1e9)
    best, plan = exhaustive(problem, form), replicated_plan(problem, form)
    if isinstance(plan, PlanRefusal):
        assert best == math.inf
    else:
        assert plan.step_s / plan.microbatches == pytest.approx(best, rel=1e-9)
        owns = tuple(stage.replicas for stage in plan.stages)
        last = tuple(stage.last for stage in plan.stages)
        assert steady(problem, form, last, owns) == pytest.approx(best, rel=1e-9)
        assert plan.devices == problem.devices


def test_stages_with_replicas_of_their_own_are_advice() -> None:
    layers = (layer(0, 4.0), layer(1, 5.0), layer(2, 1.0, weights=1e12))
    problem = ChainProblem(
        layers=layers, devices=4, links=links(), memory_bytes=1e14, microbatches=8
    )
    plan = replicated_plan(problem)
    assert isinstance(plan, PipelinePlan)
    assert [(part.last, part.replicas, part.in_flight) for part in plan.stages] == [
        (1, 3, 2),
        (2, 1, 1),
    ]
    assert plan.executable_by == ()
    assert plan.why_not == WHY_NOT


def test_refusals_name_the_memory_of_the_largest_layer() -> None:
    problem = replace(drawn(3, layers=3, devices=2), memory_bytes=1.0)
    refusal = replicated_plan(problem)
    assert isinstance(refusal, PlanRefusal)
    assert refusal.constraint is PlanConstraint.DEVICE_MEMORY
    assert refusal.need > refusal.have == 1.0


def test_programmes_that_would_take_minutes_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 16384 layers times devices"):
        replicated_plan(drawn(1, layers=200, devices=100))
