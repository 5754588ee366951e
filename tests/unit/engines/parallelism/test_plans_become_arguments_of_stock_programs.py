# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A plan is given to a program as arguments and files, or refused with the reason."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from functools import cache

import pytest

from ullage.engines.parallelism.chain import ChainProblem, chain_plan
from ullage.engines.parallelism.delivery import (
    MOST_PASSES,
    DeliveryFault,
    DeliveryRefusal,
    ProgramArguments,
    chain_arguments,
    decoder_names,
    transformer_arguments,
)
from ullage.engines.parallelism.dimensions import Recomputation, TransformerShape
from ullage.engines.parallelism.records import (
    LayerCost,
    PipelinePlan,
    PipelineSchedule,
    PlanComparison,
    TrainingFramework,
)
from ullage.engines.parallelism.transformer import (
    TransformerChoice,
    TransformerPlan,
    TransformerProblem,
    transformer_plan,
)
from unit.engines.parallelism.chains import layer, links
from unit.engines.parallelism.transformers import A100, LLAMA, NODES

SMALL = replace(LLAMA, layers=32, hidden=4096, heads=32, ffn=14336)


@cache
def plan_of(
    shape: TransformerShape, framework: TrainingFramework | None, memory: float = 74e9
) -> TransformerPlan:
    """The plan of a model on 256 devices."""
    choice = transformer_plan(
        TransformerProblem(
            shape=shape,
            devices=256,
            batch=1024,
            speed=A100,
            links=NODES,
            memory_bytes=memory,
            framework=framework,
        )
    )
    assert isinstance(choice, TransformerChoice)
    return choice.chosen


def given(
    framework: TrainingFramework, shape: TransformerShape, plan: TransformerPlan
) -> ProgramArguments:
    """Its arguments."""
    delivery = transformer_arguments(framework, shape, plan)
    assert isinstance(delivery, ProgramArguments)
    return delivery


def value(delivery: ProgramArguments, flag: str) -> str:
    """The argument after a flag."""
    return delivery.arguments[delivery.arguments.index(flag) + 1]


def test_megatron_gets_degrees_and_one_token_for_the_layout() -> None:
    plan = plan_of(LLAMA, TrainingFramework.MEGATRON)
    assert plan.degrees.pipeline > 1 < plan.degrees.tensor
    delivery = given(TrainingFramework.MEGATRON, LLAMA, plan)
    layout = value(delivery, "--pipeline-model-parallel-layout")
    stages = layout.split("|")
    assert re.fullmatch(r"Et*(\|t+)*\|t*L", layout)
    assert tuple(stage.count("t") for stage in stages) == plan.stages
    assert len(stages) == plan.degrees.pipeline * plan.degrees.chunks
    assert value(delivery, "--tensor-model-parallel-size") == str(plan.degrees.tensor)
    assert value(delivery, "--global-batch-size") == "1024"
    assert "--sequence-parallel" in delivery.arguments
    assert "--use-distributed-optimizer" in delivery.arguments


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Recomputation.NONE, ()),
        (
            Recomputation.SELECTIVE,
            ("--recompute-granularity", "selective", "--recompute-modules", "core_attn"),
        ),
        (
            Recomputation.FULL,
            (
                *("--recompute-granularity", "full"),
                *("--recompute-method", "uniform", "--recompute-num-layers", "1"),
            ),
        ),
    ],
)
def test_recomputation_is_said_to_megatron(kind: Recomputation, words: tuple[str, ...]) -> None:
    plan = plan_of(SMALL, None)
    plan = replace(plan, degrees=replace(plan.degrees, recomputation=kind))
    arguments = given(TrainingFramework.MEGATRON, SMALL, plan).arguments
    start = len(arguments) - len(words)
    assert arguments[start:] == words
    assert sum(word.startswith("--recompute") for word in arguments) == len(words[::2])


def test_torchtitan_gets_one_token_for_each_stage() -> None:
    plan = plan_of(LLAMA, TrainingFramework.TORCHTITAN)
    delivery = given(TrainingFramework.TORCHTITAN, LLAMA, plan)
    arguments = delivery.arguments
    first = arguments.index("--parallelism.module_fqns_per_model_part") + 1
    stages = [token.split(",") for token in arguments[first : first + len(plan.stages)]]
    assert stages[0][:2] == ["tok_embeddings", "layers.0"]
    assert stages[-1][-3:] == ["layers.79", "norm", "lm_head"]
    assert arguments[first + len(plan.stages)].startswith("--")
    # torchtitan refuses a pipeline without it
    assert "--training.disable_cuda_graphs" in arguments
    assert value(delivery, "--training.global_batch_size") == "1024"
    local = int(value(delivery, "--training.local_batch_size"))
    assert local * plan.degrees.data == 1024
    # a subcommand ends the line of its parser
    assert arguments[-1] in ("activation-checkpoint:none", "activation-checkpoint:full")


def test_torch_pipelining_gets_a_split_and_a_schedule() -> None:
    plan = plan_of(SMALL, TrainingFramework.TORCH_PIPELINING)
    assert plan.degrees.pipeline > 1
    delivery = given(TrainingFramework.TORCH_PIPELINING, SMALL, plan)
    files = {file.name: file.text for file in delivery.files}
    split = json.loads(files["split.json"])
    assert list(split["split_spec"]) == [stage[0] for stage in split["stages"][1:]]
    assert set(split["split_spec"].values()) == {"BEGINNING"}
    rows = list(csv.reader(io.StringIO(files["schedule.csv"])))
    assert len(rows) == plan.degrees.pipeline
    each = 2 * plan.degrees.chunks * plan.microbatches
    assert all(len(row) == each and len(set(row)) == each for row in rows)
    assert all(re.fullmatch(r"\d+[FB]\d+", word) for row in rows for word in row)
    assert any("ZeroRedundancyOptimizer" in note for note in delivery.notes)


def test_every_argument_is_plain_text() -> None:
    for framework in (TrainingFramework.MEGATRON, TrainingFramework.TORCHTITAN):
        for shape in (LLAMA, SMALL):
            delivery = given(framework, shape, plan_of(shape, framework))
            for word in delivery.arguments:
                assert re.fullmatch(r"[A-Za-z0-9_.,:|-]+", word), word


def test_plans_that_a_framework_cannot_execute_are_refused() -> None:
    plan = plan_of(LLAMA, None)
    tied = transformer_arguments(TrainingFramework.TORCHTITAN, replace(LLAMA, tied=True), plan)
    assert isinstance(tied, DeliveryRefusal)
    assert (tied.fault, "tie" in tied.message) == (DeliveryFault.DEGREES, True)
    torch = transformer_arguments(TrainingFramework.TORCH_PIPELINING, LLAMA, plan)
    assert isinstance(torch, DeliveryRefusal)
    assert torch.fault is DeliveryFault.DEGREES
    uneven = replace(plan, microbatches=plan.degrees.pipeline + 1, schedule=PipelineSchedule.GPIPE)
    order = transformer_arguments(TrainingFramework.MEGATRON, LLAMA, uneven)
    assert isinstance(order, DeliveryRefusal)
    assert order.fault is DeliveryFault.SCHEDULE
    for framework in (TrainingFramework.OTHER, TrainingFramework.DEEPSPEED, TrainingFramework.FSDP):
        assert isinstance(transformer_arguments(framework, LLAMA, plan), DeliveryRefusal)
    other = transformer_arguments(TrainingFramework.OTHER, LLAMA, plan)
    assert isinstance(other, DeliveryRefusal)
    assert other.fault is DeliveryFault.FRAMEWORK


def chain(names: list[str]) -> tuple[tuple[LayerCost, ...], PipelinePlan]:
    """Layers of these names over two devices, all of which one device cannot hold."""
    layers = tuple(
        replace(layer(number, 1.0, weights=1e9), name=name) for number, name in enumerate(names)
    )
    comparison = chain_plan(
        ChainProblem(
            layers=layers, devices=2, links=links(fast=1e12), memory_bytes=2e10, microbatches=8
        )
    )
    assert isinstance(comparison, PlanComparison)
    return layers, comparison.chosen


def test_measured_layers_become_stages_of_each_framework() -> None:
    layers, plan = chain(["embedding", *(f"decoder.{n}" for n in range(6)), "loss"])
    megatron = chain_arguments(TrainingFramework.MEGATRON, layers, plan, microbatch=2)
    assert isinstance(megatron, ProgramArguments)
    layout = value(megatron, "--pipeline-model-parallel-layout")
    assert re.fullmatch(r"Et+\|t+L", layout)
    assert layout.count("t") == 6
    assert value(megatron, "--global-batch-size") == "16"
    layers, plan = chain(["tok_embeddings", *(f"layers.{n}" for n in range(6)), "lm_head"])
    titan = chain_arguments(TrainingFramework.TORCHTITAN, layers, plan, microbatch=2)
    assert isinstance(titan, ProgramArguments)
    assert value(titan, "--parallelism.module_fqns_per_model_part").startswith("tok_embeddings,")
    assert value(titan, "--training.local_batch_size") == "16"
    refused = chain_arguments(TrainingFramework.MEGATRON, layers, plan)
    assert isinstance(refused, DeliveryRefusal)
    assert refused.fault is DeliveryFault.LAYERS
    torch = chain_arguments(TrainingFramework.TORCH_PIPELINING, layers, plan)
    assert isinstance(torch, ProgramArguments)
    assert [file.name for file in torch.files] == ["split.json", "schedule.csv"]
    with pytest.raises(ValueError, match="microbatch"):
        chain_arguments(TrainingFramework.MEGATRON, layers, plan, microbatch=0)


def test_replicated_stages_and_long_schedules_are_said() -> None:
    layers, plan = chain(list("abcdefgh"))
    wide = replace(plan, stages=(replace(plan.stages[0], replicas=3), *plan.stages[1:]))
    refused = chain_arguments(TrainingFramework.TORCHTITAN, layers, wide)
    assert isinstance(refused, DeliveryRefusal)
    assert refused.fault is DeliveryFault.DEGREES
    long = replace(plan, microbatches=MOST_PASSES)
    delivery = chain_arguments(TrainingFramework.TORCH_PIPELINING, layers, long)
    assert isinstance(delivery, ProgramArguments)
    assert [file.name for file in delivery.files] == ["split.json"]
    assert any("passes" in note for note in delivery.notes)


def test_modules_of_a_decoder_are_named_once_and_in_order() -> None:
    assert decoder_names((2, 1)) == (
        ("tok_embeddings", "layers.0", "layers.1"),
        ("layers.2", "norm", "lm_head"),
    )
    assert decoder_names((1,)) == (("tok_embeddings", "layers.0", "norm", "lm_head"),)
