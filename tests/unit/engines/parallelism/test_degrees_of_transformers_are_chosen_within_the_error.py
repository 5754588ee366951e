# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Degrees are the fastest of all that fit; the frameworks' rule decides ties."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.examples import seeds
from ullage.engines.parallelism.dimensions import ParallelDegrees, Recomputation
from ullage.engines.parallelism.memory import rank_memory
from ullage.engines.parallelism.records import (
    LinkSpeed,
    PlanConstraint,
    PlanRefusal,
    TrainingFramework,
)
from ullage.engines.parallelism.step_time import DeviceSpeed, layer_time, step_estimate
from ullage.engines.parallelism.transformer import (
    CHUNKS,
    MICROBATCHES,
    NO_DIFFERENCE,
    TransformerChoice,
    TransformerProblem,
    transformer_plan,
)
from unit.engines.parallelism.transformers import A100, LLAMA, NODES, gpt

SHAPES = [(24, 2304, 24), (30, 3072, 32), (36, 4096, 32), (40, 6144, 48)]


def problem(seed: int) -> TransformerProblem:
    """A GPT on a few nodes."""
    layers, hidden, heads = SHAPES[seed % 4]
    return TransformerProblem(
        shape=gpt(layers, hidden, heads),
        devices=(8, 16, 32, 24)[seed // 4 % 4],
        batch=(96, 192, 384)[seed // 16 % 3],
        speed=A100,
        links=NODES,
        memory_bytes=(40e9, 74e9)[seed % 2],
    )


def chosen(problem: TransformerProblem) -> TransformerChoice:
    """The choice of a problem that has plans."""
    choice = transformer_plan(problem)
    assert isinstance(choice, TransformerChoice)
    return choice


@pytest.mark.parametrize("seed", seeds(8, many=48))
def test_the_first_plan_is_the_fastest_of_all_that_fit(seed: int) -> None:
    given = problem(seed)
    shape = given.shape
    best = float("inf")
    for tensor in (1, 2, 4, 8):
        for pipeline in range(1, shape.layers + 1):
            data = given.devices // (tensor * pipeline)
            if tensor * pipeline * data != given.devices or given.batch % data:
                continue
            for microbatch in MICROBATCHES:
                count, rest = divmod(given.batch // data, microbatch)
                for chunks in CHUNKS:
                    if rest or count < pipeline or (chunks > 1 and pipeline == 1):
                        continue
                    if chunks > 1 and (shape.layers % (pipeline * chunks) or count % pipeline):
                        continue
                    for kind in Recomputation:
                        degrees = ParallelDegrees(
                            tensor=tensor,
                            pipeline=pipeline,
                            data=data,
                            chunks=chunks,
                            microbatch=microbatch,
                            recomputation=kind,
                            sequence_parallel=tensor > 1,
                        )
                        fits = all(
                            rank_memory(shape, degrees, count, rank).total <= given.memory_bytes
                            for rank in range(pipeline)
                        )
                        if fits:
                            step = step_estimate(shape, degrees, A100, NODES, given.batch).step_s
                            best = min(best, step)
    choice = chosen(given)
    assert choice.within[0].estimate.step_s == pytest.approx(best)
    for plan in choice.within:
        assert plan.estimate.step_s <= best * (1 + given.error)
        assert plan.memory.total <= given.memory_bytes
        assert plan.degrees.devices == given.devices
        assert sum(plan.stages) == shape.layers
    assert choice.chosen in choice.within
    assert choice == transformer_plan(given)


def test_the_rule_decides_a_tie_and_nothing_else() -> None:
    given = replace(problem(3), shape=gpt(48, 8192, 64), devices=512, batch=1536)
    fastest = chosen(replace(given, tie=0.0)).chosen
    assert fastest.spread[0] != 8
    wide = chosen(replace(given, tie=given.error))
    assert wide.chosen.spread == (8, 2, 32, 1)
    assert wide.runner_up == wide.within[0] == fastest
    slower = wide.chosen.estimate.step_s / fastest.estimate.step_s - 1
    assert 0 < slower <= given.error
    assert chosen(replace(given, tie=slower * 1.001)).chosen == wide.chosen
    assert chosen(replace(given, tie=slower * 0.999)).chosen != wide.chosen
    assert chosen(replace(given, error=0.0)).chosen == fastest


@pytest.mark.parametrize("seed", range(8))
def test_the_chosen_plan_is_slower_than_the_fastest_by_no_more_than_a_tie(seed: int) -> None:
    choice = chosen(problem(seed))
    best = choice.within[0].estimate.step_s
    assert choice.chosen.estimate.step_s <= best * (1 + NO_DIFFERENCE)
    if choice.chosen != choice.within[0]:
        assert choice.runner_up == choice.within[0]


def test_parts_of_a_step_add_up() -> None:
    estimate = chosen(problem(5)).chosen.estimate
    parts = (
        *(estimate.compute_s, estimate.tensor_s, estimate.pipeline_s),
        *(estimate.bubble_s, estimate.gradient_s, estimate.optimizer_s),
    )
    assert sum(parts) == pytest.approx(estimate.step_s)
    assert min(parts) >= 0


def test_memory_that_keeps_a_faster_plan_out_is_named() -> None:
    given = replace(problem(3), devices=64, batch=256, memory_bytes=40e9)
    binding = chosen(given).binding
    assert binding is not None
    assert binding.constraint is PlanConstraint.DEVICE_MEMORY
    assert binding.need > binding.have == 40e9
    assert chosen(replace(given, memory_bytes=1e15)).binding is None


def test_more_memory_and_faster_devices_never_make_the_best_slower() -> None:
    for seed in range(8):
        given = problem(seed)
        before = chosen(given).within[0].estimate.step_s
        for better in (
            replace(given, memory_bytes=given.memory_bytes * 2),
            replace(given, speed=replace(A100, efficiency=1.0)),
            replace(given, links=replace(NODES, node=LinkSpeed(bytes_per_s=1e12))),
        ):
            assert chosen(better).within[0].estimate.step_s <= before * (1 + 1e-9)


def test_frameworks_that_cannot_execute_a_plan_are_not_named() -> None:
    given = replace(problem(3), devices=256, batch=1024, tie=1.0)
    tied = chosen(given).chosen
    assert tied.degrees.tensor > 1 < tied.degrees.pipeline
    assert set(tied.executable_by) == {TrainingFramework.MEGATRON}
    free = chosen(replace(given, shape=replace(given.shape, tied=False))).chosen
    assert set(free.executable_by) == {TrainingFramework.TORCHTITAN, TrainingFramework.MEGATRON}


@pytest.mark.parametrize(
    "framework", [framework for framework in TrainingFramework if framework != "Other"]
)
@pytest.mark.parametrize("seed", range(4))
def test_plans_for_a_framework_are_executed_by_it(framework: TrainingFramework, seed: int) -> None:
    given = replace(problem(seed), memory_bytes=1e13, framework=framework)
    choice = chosen(given)
    assert all(framework in plan.executable_by for plan in choice.within)
    # the limit may only cost time
    free = chosen(replace(given, framework=None))
    assert choice.within[0].estimate.step_s >= free.within[0].estimate.step_s * (1 - 1e-12)


def test_experts_are_not_shared_by_tensor_ranks_of_torchtitan() -> None:
    shape = replace(LLAMA, layers=32, hidden=4096, heads=32, ffn=14336, experts=8, active_experts=2)
    choice = chosen(
        TransformerProblem(
            shape=shape,
            devices=32,
            batch=256,
            speed=A100,
            links=NODES,
            memory_bytes=1e12,
            framework=TrainingFramework.TORCHTITAN,
        )
    )
    assert {plan.degrees.tensor for plan in choice.within} == {1}


def test_long_sequences_are_shared_and_kv_heads_bound_the_tensor_ranks() -> None:
    given = TransformerProblem(
        shape=replace(LLAMA, sequence=65_536, kv_heads=2),
        devices=256,
        batch=32,
        speed=DeviceSpeed(peak_flops=989e12, bytes_per_s=3.35e12),
        links=NODES,
        memory_bytes=76e9,
    )
    choice = chosen(given)
    assert any(plan.degrees.context > 1 for plan in choice.within)
    assert all(plan.degrees.tensor <= 2 for plan in choice.within)


def test_experts_are_shared_where_they_do_not_fit() -> None:
    shape = replace(LLAMA, layers=32, hidden=4096, heads=32, ffn=14336, experts=8, active_experts=2)
    given = TransformerProblem(
        shape=shape, devices=32, batch=256, speed=A100, links=NODES, memory_bytes=76e9
    )
    assert chosen(given).chosen.memory.total <= 76e9
    shared = ParallelDegrees(tensor=4, data=8, expert=8)
    apart = ParallelDegrees(tensor=4, data=8)
    waits = [layer_time(shape, degrees, A100, NODES).traffic_s for degrees in (shared, apart)]
    assert waits[0] > waits[1]


@pytest.mark.parametrize("batch", [1, 509])
def test_batches_that_nothing_divides_are_refused(batch: int) -> None:
    refusal = transformer_plan(replace(problem(0), devices=4096, batch=batch))
    assert isinstance(refusal, PlanRefusal)
    assert refusal.constraint is PlanConstraint.MICROBATCHES
    assert refusal.need > refusal.have == batch


def test_models_that_fit_nowhere_are_refused_with_their_need() -> None:
    refusal = transformer_plan(replace(problem(0), devices=8, memory_bytes=1e9))
    assert isinstance(refusal, PlanRefusal)
    assert refusal.constraint is PlanConstraint.DEVICE_MEMORY
    assert refusal.need > refusal.have
    with pytest.raises(ValueError, match="memory"):
        replace(problem(0), memory_bytes=float("nan"))
