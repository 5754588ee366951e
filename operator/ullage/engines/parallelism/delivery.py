# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Arguments and files by which stock programs execute a plan, without a change of their scripts.

Names of Megatron-LM are those of its arguments.py with core 0.16.1, of torchtitan those of its
configuration of 0.3.0; a stage is one token, ``Ett|ttL`` or ``tok_embeddings,layers.0``. The
dimensions of the model are the program's own arguments and stay where they are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from ullage.engines.parallelism.dimensions import Recomputation, TransformerShape
from ullage.engines.parallelism.frameworks import degrees_fault
from ullage.engines.parallelism.records import (
    LayerCost,
    PipelinePlan,
    PipelineSchedule,
    TrainingFramework,
    whole,
)
from ullage.engines.parallelism.schedules import passes, schedule_fault
from ullage.engines.parallelism.transformer import TransformerPlan

EMBEDDING: Final = "tok_embeddings"
OUTPUT: Final = ("norm", "lm_head")
"""Children of a decoder of torchtitan that are not its layers."""
MEGATRON_KINDS: Final = {"embedding": "E", "decoder": "t", "loss": "L"}
"""Letters of a layout, by the first part of a row's name."""
SPLIT_FILE: Final = "split.json"
SCHEDULE_FILE: Final = "schedule.csv"
MOST_PASSES: Final = 200_000
"""Passes of a schedule that is written as a file."""
MOST_SAMPLES: Final = 1_000_000


class DeliveryFault(StrEnum):
    """Why a program cannot be given a plan."""

    FRAMEWORK = "Framework"
    """No arguments of it are known."""
    SCHEDULE = "Schedule"
    """It does not admit the order of the microbatches."""
    DEGREES = "Degrees"
    """It does not share the model like this."""
    LAYERS = "Layers"
    """It has no such layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """A file beside the arguments.

    Attributes:
        name: Without a folder.
        text: Its content.
    """

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramArguments:
    """A plan as a program takes it.

    Attributes:
        framework: Of the program.
        arguments: In the order of the command line, each one argument.
        files: That it reads.
        notes: What no argument can state.
    """

    framework: TrainingFramework
    arguments: tuple[str, ...]
    files: tuple[PlanFile, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRefusal:
    """A program cannot be given a plan.

    Attributes:
        framework: Of the program.
        fault: The kind of reason.
        message: The reason.
    """

    framework: TrainingFramework
    fault: DeliveryFault
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stages:
    """A pipeline as all frameworks take it."""

    names: tuple[tuple[str, ...], ...]
    ranks: int
    chunks: int
    schedule: PipelineSchedule
    microbatches: int


def transformer_arguments(
    framework: TrainingFramework, shape: TransformerShape, plan: TransformerPlan
) -> ProgramArguments | DeliveryRefusal:
    """The plan of a transformer for a program of a framework.

    Args:
        framework: Of the program.
        shape: The model.
        plan: Its plan.
    """
    degrees = plan.degrees
    stages = _Stages(
        names=decoder_names(plan.stages),
        ranks=degrees.pipeline,
        chunks=degrees.chunks,
        schedule=plan.schedule,
        microbatches=plan.microbatches,
    )
    if (refusal := _schedule_refusal(framework, stages)) is not None:
        return refusal
    if reason := degrees_fault(framework, shape, degrees):
        return DeliveryRefusal(framework=framework, fault=DeliveryFault.DEGREES, message=reason)
    match framework:
        case TrainingFramework.MEGATRON:
            layout = "|".join("t" * layers for layers in plan.stages)
            return ProgramArguments(
                framework=framework, arguments=_megatron(plan, f"E{layout}L" if layout else "")
            )
        case TrainingFramework.TORCHTITAN:
            return ProgramArguments(framework=framework, arguments=_torchtitan(plan, stages))
        case TrainingFramework.TORCH_PIPELINING:
            notes = [f"the program forms {degrees.data} replicas of {degrees.pipeline} ranks"]
            notes += [f"microbatches are of {degrees.microbatch} samples"]
            if degrees.distributed_optimizer and degrees.data > 1:
                notes.append("replicas share the optimizer's state (ZeroRedundancyOptimizer)")
            if degrees.recomputation is not Recomputation.NONE:
                kind = degrees.recomputation.lower()
                notes.append(f"the program computes activations again ({kind} recomputation)")
            return _torch_pipelining(stages, tuple(notes))
        case TrainingFramework.DEEPSPEED | TrainingFramework.FSDP | TrainingFramework.OTHER:
            return _unknown(framework)
        case _:
            assert_never(framework)


def chain_arguments(
    framework: TrainingFramework,
    layers: Sequence[LayerCost],
    plan: PipelinePlan,
    *,
    microbatch: int = 1,
) -> ProgramArguments | DeliveryRefusal:
    """The plan of a chain for a program of a framework.

    Args:
        framework: Of the program.
        layers: The chain, named as the program names its modules; for Megatron ``embedding``,
            ``decoder.0`` and so on, ``loss``.
        plan: Its plan, of equal replicas.
        microbatch: Samples of a microbatch.

    Raises:
        ValueError: the microbatch is empty.
    """
    whole(microbatch, "samples of a microbatch", most=MOST_SAMPLES)
    width = plan.stages[0].replicas
    if any(stage.replicas != width for stage in plan.stages):
        return DeliveryRefusal(
            framework=framework,
            fault=DeliveryFault.DEGREES,
            message=plan.why_not or "the stages differ in replicas",
        )
    stages = _Stages(
        names=tuple(
            tuple(layer.name for layer in layers[stage.first : stage.last + 1])
            for stage in plan.stages
        ),
        ranks=len(plan.stages),
        chunks=1,
        schedule=plan.schedule,
        microbatches=plan.microbatches,
    )
    if (refusal := _schedule_refusal(framework, stages)) is not None:
        return refusal
    batch = microbatch * plan.microbatches * width
    match framework:
        case TrainingFramework.MEGATRON:
            return _megatron_chain(stages, microbatch, batch)
        case TrainingFramework.TORCHTITAN:
            arguments = [
                *("--parallelism.data_parallel_replicate_degree", str(width)),
                *("--parallelism.data_parallel_shard_degree", "1"),
                *_torchtitan_pipeline(stages, microbatch),
                *_torchtitan_batch(stages, microbatch, batch),
            ]
            return ProgramArguments(framework=framework, arguments=tuple(arguments))
        case TrainingFramework.TORCH_PIPELINING:
            notes = (
                f"the program forms {width} replicas of {stages.ranks} ranks",
                f"microbatches are of {microbatch} samples",
            )
            return _torch_pipelining(stages, notes)
        case TrainingFramework.DEEPSPEED | TrainingFramework.FSDP | TrainingFramework.OTHER:
            return _unknown(framework)
        case _:
            assert_never(framework)


def decoder_names(stages: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    """Modules of a decoder of torchtitan in each stage, from its numbers of layers."""
    names: list[list[str]] = []
    first = 0
    for layers in stages:
        names.append([f"layers.{number}" for number in range(first, first + layers)])
        first += layers
    names[0].insert(0, EMBEDDING)
    names[-1].extend(OUTPUT)
    return tuple(tuple(stage) for stage in names)


def _unknown(framework: TrainingFramework) -> DeliveryRefusal:
    return DeliveryRefusal(
        framework=framework,
        fault=DeliveryFault.FRAMEWORK,
        message=f"no arguments of {framework} programs are known; the plan is advice",
    )


def _schedule_refusal(framework: TrainingFramework, stages: _Stages) -> DeliveryRefusal | None:
    if framework is TrainingFramework.OTHER:
        return _unknown(framework)
    reason = schedule_fault(
        stages.schedule,
        framework,
        ranks=stages.ranks,
        microbatches=stages.microbatches,
        chunks=stages.chunks,
    )
    if not reason:
        return None
    return DeliveryRefusal(framework=framework, fault=DeliveryFault.SCHEDULE, message=reason)


def _megatron(plan: TransformerPlan, layout: str) -> tuple[str, ...]:
    degrees = plan.degrees
    arguments = [
        *("--tensor-model-parallel-size", str(degrees.tensor)),
        *("--pipeline-model-parallel-size", str(degrees.pipeline)),
        *("--micro-batch-size", str(degrees.microbatch)),
        *("--global-batch-size", str(plan.microbatches * degrees.microbatch * degrees.data)),
    ]
    if degrees.context > 1:
        arguments += ["--context-parallel-size", str(degrees.context)]
    if degrees.expert > 1:
        arguments += ["--expert-model-parallel-size", str(degrees.expert)]
    if degrees.tensor > 1 and degrees.sequence_parallel:
        arguments.append("--sequence-parallel")
    if degrees.distributed_optimizer:
        arguments.append("--use-distributed-optimizer")
    if degrees.pipeline > 1:
        arguments += ["--pipeline-model-parallel-layout", layout]
    match degrees.recomputation:
        case Recomputation.NONE:
            pass
        case Recomputation.SELECTIVE:
            arguments += ["--recompute-granularity", "selective"]
            arguments += ["--recompute-modules", "core_attn"]
        case Recomputation.FULL:
            arguments += ["--recompute-granularity", "full"]
            arguments += ["--recompute-method", "uniform", "--recompute-num-layers", "1"]
        case _:
            assert_never(degrees.recomputation)
    return tuple(arguments)


def _megatron_chain(
    stages: _Stages, microbatch: int, batch: int
) -> ProgramArguments | DeliveryRefusal:
    framework = TrainingFramework.MEGATRON
    kinds = [[name.partition(".")[0] for name in stage] for stage in stages.names]
    layers = [kind for stage in kinds for kind in stage]
    inner = set(layers[1:-1])
    if (layers[0], layers[-1]) != ("embedding", "loss") or inner - {"decoder"}:
        return DeliveryRefusal(
            framework=framework,
            fault=DeliveryFault.LAYERS,
            message="a layout of Megatron has the rows embedding, decoder.0 and so on, loss",
        )
    arguments = [
        *("--tensor-model-parallel-size", "1"),
        *("--pipeline-model-parallel-size", str(stages.ranks)),
        *("--micro-batch-size", str(microbatch)),
        *("--global-batch-size", str(batch)),
    ]
    if stages.ranks > 1:
        layout = "|".join("".join(MEGATRON_KINDS[kind] for kind in stage) for stage in kinds)
        arguments += ["--pipeline-model-parallel-layout", layout]
    return ProgramArguments(framework=framework, arguments=tuple(arguments))


def _torchtitan(plan: TransformerPlan, stages: _Stages) -> tuple[str, ...]:
    degrees = plan.degrees
    shard = degrees.data if degrees.distributed_optimizer else 1
    arguments = [
        *("--parallelism.tensor_parallel_degree", str(degrees.tensor)),
        *("--parallelism.data_parallel_replicate_degree", str(degrees.data // shard)),
        *("--parallelism.data_parallel_shard_degree", str(shard)),
        # the plan's memory has whole weights on each device during a step
        *("--parallelism.fsdp_reshard_after_forward", "never"),
    ]
    if degrees.context > 1:
        arguments += ["--parallelism.context_parallel_degree", str(degrees.context)]
    if degrees.expert > 1:
        arguments += ["--parallelism.expert_parallel_degree", str(degrees.expert)]
    arguments += _torchtitan_pipeline(stages, degrees.microbatch)
    batch = plan.microbatches * degrees.microbatch * degrees.data
    arguments += _torchtitan_batch(stages, degrees.microbatch, batch)
    if degrees.expert > 1 and stages.ranks == 1:
        arguments.append("--training.disable_cuda_graphs")
    # a subcommand of its parser, so it ends the line
    kind = "full" if degrees.recomputation is Recomputation.FULL else "none"
    return (*arguments, f"activation-checkpoint:{kind}")


def _torchtitan_pipeline(stages: _Stages, microbatch: int) -> list[str]:
    """Flags of the stages, one token each; CUDA graphs know no pipelines."""
    arguments = ["--parallelism.pipeline_parallel_degree", str(stages.ranks)]
    if stages.ranks == 1:
        return arguments
    return [
        *arguments,
        *("--parallelism.pipeline_parallel_schedule", str(stages.schedule)),
        *("--parallelism.pipeline_parallel_microbatch_size", str(microbatch)),
        "--parallelism.module_fqns_per_model_part",
        *(",".join(stage) for stage in stages.names),
        "--training.disable_cuda_graphs",
    ]


def _torchtitan_batch(stages: _Stages, microbatch: int, batch: int) -> list[str]:
    """A pipeline takes all microbatches at once; without one they are accumulated."""
    local = microbatch * (stages.microbatches if stages.ranks > 1 else 1)
    return [
        *("--training.local_batch_size", str(local)),
        *("--training.global_batch_size", str(batch)),
    ]


def _torch_pipelining(stages: _Stages, notes: tuple[str, ...]) -> ProgramArguments:
    """A file with the split of ``pipeline()``, and one for ``_PipelineScheduleRuntime``."""
    split = {
        "split_spec": {stage[0]: "BEGINNING" for stage in stages.names[1:]},
        "stages": [list(stage) for stage in stages.names],
        "ranks": stages.ranks,
        "schedule": str(stages.schedule),
        "microbatches": stages.microbatches,
    }
    files = [PlanFile(name=SPLIT_FILE, text=json.dumps(split, indent=2) + "\n")]
    if stages.ranks > 1:
        if 2 * len(stages.names) * stages.microbatches <= MOST_PASSES:
            files.append(PlanFile(name=SCHEDULE_FILE, text=_schedule_csv(stages)))
        else:
            notes = (*notes, f"the schedule has more than {MOST_PASSES} passes: use torch's own")
    return ProgramArguments(
        framework=TrainingFramework.TORCH_PIPELINING,
        arguments=(),
        files=tuple(files),
        notes=notes,
    )


def _schedule_csv(stages: _Stages) -> str:
    """Passes of each rank in a row, in torch's words: ``0F0`` and ``0B0``."""
    rows = passes(stages.schedule, stages.ranks, stages.microbatches, stages.chunks)
    return "".join(
        ",".join(f"{item.stage}{'B' if item.backward else 'F'}{item.microbatch}" for item in row)
        + "\n"
        for row in rows
    )
