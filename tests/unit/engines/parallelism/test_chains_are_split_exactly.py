# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A chain is split as if every contiguous split had been tried; a refusal says what is short."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.examples import seeds
from ullage.engines.parallelism import chain
from ullage.engines.parallelism.chain import ChainProblem, chain_plan, split
from ullage.engines.parallelism.records import (
    LayerCost,
    LinkSpeed,
    PipelinePlan,
    PlanComparison,
    PlanConstraint,
    PlanRefusal,
    TrainingFramework,
)
from unit.engines.parallelism.chains import AMPLE, drawn, layer, links


def splits(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Every contiguous split, as the last layer of each stage."""
    for inner in combinations(range(layers - 1), stages - 1):
        yield (*inner, layers - 1)


def by_hand(problem: ChainProblem, last: tuple[int, ...]) -> tuple[float, float]:
    """Step and largest memory of a split, written out stage by stage."""
    stages, width = len(last), problem.devices // len(last)
    count = problem.microbatches // width
    times, memories = [], []
    for stage, end in enumerate(last):
        start = last[stage - 1] + 1 if stage else 0
        part = problem.layers[start : end + 1]
        weights = math.fsum(item.parameter_bytes for item in part)
        time = math.fsum(item.forward_s + item.backward_s for item in part)
        ring = problem.links.between(stage * width, (stage + 1) * width - 1)
        time += ring.all_reduce_s(weights, width) / count
        if stage < stages - 1:
            time += crossing(problem, stage, width).send_s(part[-1].activation_bytes)
        came = problem.layers[start - 1].activation_bytes if stage else 0.0
        if stage:
            time += crossing(problem, stage - 1, width).send_s(came)
        kept = math.fsum(item.kept for item in part)
        times.append(time)
        flight = min(count, stages - stage)
        memories.append(weights * problem.state_factor + flight * (kept + came))
    return math.fsum(times) + (count - 1) * max(times), max(memories)


def crossing(problem: ChainProblem, stage: int, width: int) -> LinkSpeed:
    """The slowest link from the replicas of a stage to those of the next."""
    first = stage * width
    pairs = [problem.links.between(first + lane, first + lane + width) for lane in range(width)]
    return min(pairs, key=lambda link: link.bytes_per_s)


def exhaustive(problem: ChainProblem) -> float:
    """Step of the best split of any length; infinite if none fits."""
    best = math.inf
    for stages in range(1, min(problem.devices, len(problem.layers)) + 1):
        if problem.devices % stages:
            continue
        for last in splits(len(problem.layers), stages):
            step, memory = by_hand(problem, last)
            if memory <= problem.memory_bytes:
                best = min(best, step)
    return best


@pytest.mark.parametrize("seed", seeds(300, many=1_000))
def test_the_split_is_that_of_all_splits(seed: int) -> None:
    problem = drawn(seed, layers=1 + seed % 8, devices=(1, 2, 3, 4, 6, 8)[seed % 6])
    if seed % 2:
        memory = AMPLE if seed % 4 == 1 else (0.5 + seed % 5) * 1e9
        problem = replace(problem, memory_bytes=memory)
    best, planned = exhaustive(problem), chain_plan(problem)
    if isinstance(planned, PlanRefusal):
        assert best == math.inf
        assert planned.constraint is PlanConstraint.DEVICE_MEMORY
        assert planned.need > planned.have == problem.memory_bytes
    else:
        assert planned.chosen.step_s == pytest.approx(best, rel=1e-9)
        assert planned.chosen.gap == 0
        step, memory = by_hand(problem, tuple(stage.last for stage in planned.chosen.stages))
        assert planned.chosen.step_s == pytest.approx(step, rel=1e-9)
        assert max(stage.memory_bytes for stage in planned.chosen.stages) == pytest.approx(memory)


def test_a_split_that_was_not_refined_states_its_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "REFINED_CELLS", 0)
    gaps = []
    for seed in range(60):
        problem = replace(drawn(seed, layers=8, devices=4), microbatches=16)
        planned = chain_plan(problem)
        assert isinstance(planned, PlanComparison)
        for plan in (planned.chosen, planned.runner_up):
            assert plan is not None
            stages = len(plan.stages)
            best = min(split(problem, last).step_s for last in splits(8, stages))
            assert plan.step_s * (1 - plan.gap) <= best * (1 + 1e-9) <= plan.step_s * (1 + 1e-8)
            gaps.append(plan.gap)
    assert max(gaps) > 0


def chosen(problem: ChainProblem) -> PipelinePlan:
    """The plan of a problem that has plans."""
    planned = chain_plan(problem)
    assert isinstance(planned, PlanComparison)
    return planned.chosen


@given(
    seed=st.integers(0, 10_000),
    layers=st.integers(1, 12),
    devices=st.sampled_from([1, 2, 4, 6, 8]),
)
def test_plans_are_whole_and_never_worse_than_their_rivals(
    seed: int, layers: int, devices: int
) -> None:
    problem = drawn(seed, layers=layers, devices=devices)
    planned = chain_plan(problem)
    assert isinstance(planned, PlanComparison)
    plan = planned.chosen
    covered = [n for part in plan.stages for n in range(part.first, part.last + 1)]
    assert covered == list(range(layers))
    assert plan.devices == devices
    assert 0 <= plan.bubble < 1
    assert planned.data_parallel_s is None or plan.step_s <= planned.data_parallel_s
    if layers >= devices:
        straight = split(problem, [*range(devices - 1), layers - 1])
        assert plan.step_s <= straight.step_s * (1 + 1e-12)
    assert planned == chain_plan(problem)


@given(seed=st.integers(0, 10_000), more=st.floats(1, 4))
def test_more_memory_and_faster_links_never_make_the_plan_slower(seed: int, more: float) -> None:
    problem = drawn(seed, layers=8, devices=4, memory=6e9)
    wide = replace(
        problem,
        memory_bytes=problem.memory_bytes * more,
        links=replace(
            problem.links,
            node=LinkSpeed(bytes_per_s=problem.links.node.bytes_per_s * more, latency_s=1e-5),
        ),
    )
    before, after = chain_plan(problem), chain_plan(wide)
    if isinstance(before, PlanComparison):
        assert isinstance(after, PlanComparison)
        assert after.chosen.step_s <= before.chosen.step_s * (1 + 1e-9)


def test_a_heavy_block_gets_a_stage_of_its_own() -> None:
    heavy = tuple(layer(n, 4.0 if n == 3 else 1.0, weights=1e9) for n in range(8))
    problem = ChainProblem(
        layers=heavy, devices=4, links=links(in_node=1, slow=1e8), memory_bytes=20e9, microbatches=8
    )
    plan = chosen(problem)
    assert (3, 3) in [(part.first, part.last) for part in plan.stages]
    assert len(plan.stages) == 4
    assert plan.step_s == pytest.approx(11 + 7 * 4)
    assert plan.step_s < split(problem, [1, 3, 5, 7]).step_s
    assert plan.executable_by == (
        TrainingFramework.TORCHTITAN,
        TrainingFramework.MEGATRON,
        TrainingFramework.TORCH_PIPELINING,
    )


def test_the_first_stage_keeps_more_microbatches_than_the_last() -> None:
    layers = tuple(layer(n, 1.0, weights=1e9, sent=1e6) for n in range(4))
    problem = ChainProblem(
        layers=layers, devices=4, links=links(slow=1e7), memory_bytes=4.5e9, microbatches=16
    )
    assert [part.in_flight for part in chosen(problem).stages] == [4, 3, 2, 1]


def test_what_memory_excludes_is_named() -> None:
    layers = tuple(layer(n, 1.0, weights=1e9) for n in range(4))
    problem = ChainProblem(
        layers=layers, devices=4, links=links(fast=1e12), memory_bytes=8e9, microbatches=16
    )
    planned = chain_plan(problem)
    assert isinstance(planned, PlanComparison)
    assert planned.data_parallel_s is None
    assert planned.single_device_s is None
    assert planned.binding == PlanRefusal(
        constraint=PlanConstraint.DEVICE_MEMORY, stage=0, need=16e9, have=8e9
    )
    assert planned.runner_up is not None
    assert len(planned.runner_up.stages) != len(planned.chosen.stages)


def test_refusals_say_which_stage_lacks_what() -> None:
    layers = tuple(layer(n, 1.0, weights=5e9 if n == 2 else 1e9) for n in range(4))
    problem = ChainProblem(
        layers=layers, devices=4, links=links(), memory_bytes=8e9, microbatches=16
    )
    assert chain_plan(problem) == PlanRefusal(
        constraint=PlanConstraint.DEVICE_MEMORY, stage=2, need=20e9, have=8e9
    )


def test_microbatches_that_no_pipeline_can_take_are_refused() -> None:
    problem = ChainProblem(
        layers=(layer(0, 1.0), layer(1, 1.0)),
        devices=7,
        links=links(),
        memory_bytes=AMPLE,
        microbatches=3,
    )
    assert chain_plan(problem) == PlanRefusal(
        constraint=PlanConstraint.MICROBATCHES, stage=None, need=7, have=3
    )


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0])
def test_rows_that_are_no_figures_are_refused_by_name(wrong: float) -> None:
    with pytest.raises(ValueError, match="forward_s of layer a"):
        LayerCost(name="a", forward_s=wrong, backward_s=1, activation_bytes=0, parameter_bytes=0)


@pytest.mark.parametrize("name", ["", "a;b", "a'b", "a b", "$(x)", "a" * 254, "a\n"])
def test_names_that_cannot_be_arguments_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="names of layers"):
        LayerCost(name=name, forward_s=1, backward_s=1, activation_bytes=0, parameter_bytes=0)


def test_problems_out_of_range_are_refused() -> None:
    problem = drawn(1, layers=4, devices=2)
    for wrong in (
        {"layers": ()},
        {"layers": (problem.layers[0],) * 2},
        {"layers": tuple(layer(n, 1.0) for n in range(513))},
        {"devices": 0},
        {"devices": 10**6},
        {"devices": True},
        {"microbatches": 0},
        {"memory_bytes": math.nan},
        {"memory_bytes": 0.0},
    ):
        with pytest.raises(ValueError, match=r"must|layers"):
            replace(problem, **wrong)
    with pytest.raises(ValueError, match="link"):
        LinkSpeed(bytes_per_s=0)
    for last in ((), (1,), (1, 1, 3), (3, 1)):
        with pytest.raises(ValueError, match="stages must"):
            split(problem, last)
