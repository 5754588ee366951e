# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Degrees of a transformer over equal devices: all that are admissible, in order of a lower bound.

Two analytic models of one cluster disagree by a tenth and more, so the answer is the set of plans
within the model's own error. The fastest of it is chosen. The rule of PTD-P (SC 2021, takeaways 1
and 2) - tensor ranks fill a node, then the fewest pipeline ranks that fit - decides only between
times that differ by less than a tie: followed in the whole set, it costs more than twice as much by
the times of a second model, Calculon (docs/plans.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from ullage.engines.parallelism.dimensions import (
    ParallelDegrees,
    Recomputation,
    TransformerShape,
    rank_layers,
    stage_layers,
)
from ullage.engines.parallelism.frameworks import degrees_fault
from ullage.engines.parallelism.memory import RankMemory, rank_memory
from ullage.engines.parallelism.records import (
    MOST_DEVICES,
    MOST_MICROBATCHES,
    DeviceLinks,
    PipelineSchedule,
    PlanConstraint,
    PlanRefusal,
    TrainingFramework,
    not_negative,
    positive,
    whole,
)
from ullage.engines.parallelism.schedules import executable_by, schedule_fault
from ullage.engines.parallelism.step_time import (
    DeviceSpeed,
    LayerTime,
    StepEstimate,
    layer_time,
    step_estimate,
)

MODEL_ERROR: Final = 0.1
"""Largest error on published step times; `make bench-plans` measures it."""
USUAL_EFFICIENCIES: Final = (0.6, 0.85)
"""Range of E where it was not measured. Chosen; `make bench-plans` fits 0.73 and 0.85 on A100."""
NO_DIFFERENCE: Final = 0.01
"""Times that differ by less are a tie, which PTD-P's rule decides. Chosen, a tenth of the model's
error: of the ten configurations of `make bench-plans`, ties of 1.5 % to 3 % decide one to three,
and raise the mean excess by Calculon's times from 3.5 % to 5.6 %."""
MICROBATCHES: Final = (1, 2, 4, 8, 16)
CHUNKS: Final = (1, 2, 3, 4, 6, 8)
CONTEXTS: Final = (1, 2, 4, 8)
LONG_SEQUENCE: Final = 16_384
"""Shorter sequences are not shared by devices."""
MOST_SHOWN: Final = 16
MOST_PIPELINE: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerProblem:
    """A transformer to spread over equal devices.

    Attributes:
        shape: The model.
        devices: To use, all of them.
        batch: Samples of a step.
        speed: Of the devices.
        links: Between them.
        memory_bytes: Of a device, without what a process takes for itself.
        error: Plans slower than the fastest by at most this part are shown beside it.
        tie: Part by which a plan of PTD-P's rule may be slower and is still chosen.
        framework: Only plans that it executes; ``None`` = any.
    """

    shape: TransformerShape
    devices: int
    batch: int
    speed: DeviceSpeed
    links: DeviceLinks
    memory_bytes: float
    error: float = MODEL_ERROR
    tie: float = NO_DIFFERENCE
    framework: TrainingFramework | None = None

    def __post_init__(self) -> None:
        whole(self.devices, "devices of a plan", most=MOST_DEVICES)
        whole(self.batch, "samples of a step", most=MOST_MICROBATCHES)
        positive(self.memory_bytes, "memory of a device")
        not_negative(self.error, "error of the model")
        not_negative(self.tie, "tie of two plans")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerPlan:
    """A transformer over devices.

    Attributes:
        degrees: Its degrees.
        microbatches: Of each pipeline in a step.
        schedule: Order of the microbatches.
        stages: Layers of each stage.
        estimate: Predicted step.
        memory: Of the rank that needs most.
        largest_rank: Index of that rank.
        executable_by: Frameworks that can run it.
    """

    degrees: ParallelDegrees
    microbatches: int
    schedule: PipelineSchedule
    stages: tuple[int, ...]
    estimate: StepEstimate
    memory: RankMemory
    largest_rank: int
    executable_by: tuple[TrainingFramework, ...]

    @property
    def spread(self) -> tuple[int, int, int, int]:
        """Degrees that say which devices work together."""
        degrees = self.degrees
        return degrees.tensor, degrees.pipeline, degrees.data, degrees.context


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerChoice:
    """A plan and those that the model cannot tell from it.

    Attributes:
        chosen: The fastest, or in a tie with it the one that follows PTD-P's rule.
        runner_up: The fastest with other degrees; ``None`` = there is none within the error.
        within: The fastest of each spread within the error, fastest first.
        binding: The memory that keeps a faster plan out; ``None`` = none does.
        tried: Admissible candidates.
    """

    chosen: TransformerPlan
    runner_up: TransformerPlan | None
    within: tuple[TransformerPlan, ...]
    binding: PlanRefusal | None
    tried: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """Degrees with a lower bound of their step."""

    degrees: ParallelDegrees
    microbatches: int
    layer: LayerTime
    bound_s: float


def transformer_plan(problem: TransformerProblem) -> TransformerChoice | PlanRefusal:
    """Choose the degrees; equal inputs give equal plans."""
    candidates = sorted(
        _candidates(problem),
        key=lambda item: (item.bound_s, item.degrees.tensor, item.degrees.pipeline),
    )
    if not candidates:
        return _no_degrees(problem)
    fastest, excluded = math.inf, math.inf
    binding: PlanRefusal | None = None
    smallest: PlanRefusal | None = None
    best: dict[tuple[int, int, int, int], TransformerPlan] = {}
    for candidate in candidates:
        if candidate.bound_s > fastest * (1 + problem.error):
            break
        plan = _planned(problem, candidate)
        if plan.memory.total > problem.memory_bytes:
            refusal = PlanRefusal(
                constraint=PlanConstraint.DEVICE_MEMORY,
                stage=plan.largest_rank,
                need=plan.memory.total,
                have=problem.memory_bytes,
            )
            if smallest is None or refusal.need < smallest.need:
                smallest = refusal
            if plan.estimate.step_s < excluded:
                excluded, binding = plan.estimate.step_s, refusal
            continue
        fastest = min(fastest, plan.estimate.step_s)
        rival = best.get(plan.spread)
        if rival is None or plan.estimate.step_s < rival.estimate.step_s:
            best[plan.spread] = plan
    if not best:
        return smallest or _no_degrees(problem)
    within = sorted(
        (plan for plan in best.values() if plan.estimate.step_s <= fastest * (1 + problem.error)),
        key=lambda plan: (plan.estimate.step_s, plan.spread),
    )
    chosen = _by_rule(problem, within)
    return TransformerChoice(
        chosen=chosen,
        runner_up=next((plan for plan in within if plan.spread != chosen.spread), None),
        within=tuple(within[:MOST_SHOWN]),
        binding=binding if excluded < fastest else None,
        tried=len(candidates),
    )


def step_bounds(
    problem: TransformerProblem, plan: TransformerPlan, *, measured: bool
) -> tuple[float, float]:
    """Seconds between which the step of a plan is expected.

    Args:
        problem: The problem.
        plan: A plan of it.
        measured: The efficiency was measured on such devices; otherwise the usual ones are taken.
    """
    own = problem.speed.efficiency
    slow, fast = (own, own) if measured else USUAL_EFFICIENCIES
    layers = rank_layers(plan.stages, plan.degrees.pipeline)
    least, most = (
        step_estimate(
            problem.shape,
            plan.degrees,
            replace(problem.speed, efficiency=efficiency),
            problem.links,
            problem.batch,
            layers=layers,
        ).step_s
        for efficiency in (max(fast, own), min(slow, own))
    )
    return least * (1 - problem.error), most * (1 + problem.error)


def _by_rule(problem: TransformerProblem, within: list[TransformerPlan]) -> TransformerPlan:
    """Tensor ranks that fill a node with the fewest pipeline ranks, in a tie with the fastest."""
    node = max(_tensor_degrees(problem))
    most_s = within[0].estimate.step_s * (1 + problem.tie)
    filling = [
        plan for plan in within if plan.degrees.tensor == node and plan.estimate.step_s <= most_s
    ]
    return min(filling, key=lambda plan: plan.degrees.pipeline) if filling else within[0]


def _tensor_degrees(problem: TransformerProblem) -> list[int]:
    """Tensor ranks of one node that divide the model."""
    shape = problem.shape
    most = min(problem.links.devices, problem.devices)
    return [
        tensor
        for tensor in range(1, most + 1)
        if not any(
            number % tensor
            for number in (
                *(problem.devices, problem.links.devices),
                *(shape.heads, shape.kv_heads, shape.ffn, shape.hidden),
            )
        )
        or tensor == 1
    ]


def _candidates(problem: TransformerProblem) -> Iterator[_Candidate]:
    shape = problem.shape
    contexts = CONTEXTS if shape.sequence >= LONG_SEQUENCE else (1,)
    times: dict[tuple[int, int, int, int, Recomputation], LayerTime] = {}
    for tensor in _tensor_degrees(problem):
        for context in contexts:
            if problem.devices % (tensor * context) or shape.sequence % context:
                continue
            left = problem.devices // (tensor * context)
            for pipeline in range(1, min(left, shape.layers, MOST_PIPELINE) + 1):
                if left % pipeline or problem.batch % (left // pipeline):
                    continue
                if _admitted(problem, ParallelDegrees(tensor=tensor, pipeline=pipeline)):
                    yield from _with(problem, tensor, context, pipeline, times)


def _admitted(problem: TransformerProblem, degrees: ParallelDegrees) -> bool:
    """The framework takes the degrees."""
    framework = problem.framework
    return framework is None or not degrees_fault(framework, problem.shape, degrees)


def _with(
    problem: TransformerProblem,
    tensor: int,
    context: int,
    pipeline: int,
    times: dict[tuple[int, int, int, int, Recomputation], LayerTime],
) -> Iterator[_Candidate]:
    """Candidates with these degrees."""
    shape = problem.shape
    data = problem.devices // (tensor * context * pipeline)
    experts = sorted({1, math.gcd(data * context, shape.experts)} - {0}) if shape.experts else [1]
    each = problem.batch // data
    for microbatch in MICROBATCHES:
        microbatches, rest = divmod(each, microbatch)
        if rest or microbatches < pipeline:
            continue
        for chunks in CHUNKS:
            stages = pipeline * chunks
            uneven = shape.layers % stages or microbatches % pipeline
            if chunks > 1 and (pipeline == 1 or stages > shape.layers or uneven):
                continue
            if problem.framework is not None and schedule_fault(
                _schedule(chunks),
                problem.framework,
                ranks=pipeline,
                microbatches=microbatches,
                chunks=chunks,
            ):
                continue
            most = -(-shape.layers // stages) * chunks
            for expert in experts:
                for recomputation in Recomputation:
                    if recomputation is Recomputation.SELECTIVE and not shape.stored_attention:
                        continue
                    degrees = ParallelDegrees(
                        tensor=tensor,
                        pipeline=pipeline,
                        data=data,
                        context=context,
                        expert=expert,
                        chunks=chunks,
                        microbatch=microbatch,
                        recomputation=recomputation,
                        sequence_parallel=tensor > 1,
                    )
                    if not _admitted(problem, degrees):
                        continue
                    key = (tensor, context, expert, microbatch, recomputation)
                    layer = times.get(key)
                    if layer is None:
                        layer = layer_time(shape, degrees, problem.speed, problem.links)
                        times[key] = layer
                    filled = (shape.layers - most) / chunks
                    yield _Candidate(
                        degrees=degrees,
                        microbatches=microbatches,
                        layer=layer,
                        bound_s=layer.seconds * (microbatches * most + filled),
                    )


def _schedule(chunks: int) -> PipelineSchedule:
    if chunks > 1:
        return PipelineSchedule.INTERLEAVED
    return PipelineSchedule.ONE_FORWARD_ONE_BACKWARD


def _planned(problem: TransformerProblem, candidate: _Candidate) -> TransformerPlan:
    shape, degrees = problem.shape, candidate.degrees
    ranks = degrees.pipeline
    stages = stage_layers(shape.layers, ranks * degrees.chunks)
    layers = rank_layers(stages, ranks)
    # memory falls from rank to rank but for the remainder of the layers and the two ends
    looked = sorted({0, min(1, ranks - 1), ranks - 1})
    needs = {
        rank: rank_memory(shape, degrees, candidate.microbatches, rank, layers) for rank in looked
    }
    largest = max(needs, key=lambda rank: needs[rank].total)
    schedule = _schedule(degrees.chunks)
    executing = executable_by(
        schedule, ranks=ranks, microbatches=candidate.microbatches, chunks=degrees.chunks
    )
    return TransformerPlan(
        degrees=degrees,
        microbatches=candidate.microbatches,
        schedule=schedule,
        stages=stages,
        estimate=step_estimate(
            shape,
            degrees,
            problem.speed,
            problem.links,
            problem.batch,
            candidate.layer,
            layers,
        ),
        memory=needs[largest],
        largest_rank=largest,
        executable_by=tuple(
            framework for framework in executing if not degrees_fault(framework, shape, degrees)
        ),
    )


def _no_degrees(problem: TransformerProblem) -> PlanRefusal:
    """The refusal where no degrees are admissible: by the batch, or by too few layers."""
    longest = min(problem.shape.layers, MOST_PIPELINE)
    admitted = [
        (tensor, pipeline)
        for tensor in _tensor_degrees(problem)
        for pipeline in range(1, longest + 1)
        if _admitted(problem, ParallelDegrees(tensor=tensor, pipeline=pipeline))
    ]
    needs = []
    for tensor, pipeline in admitted:
        data, rest = divmod(problem.devices, tensor * pipeline)
        if data and not rest:
            # each pipeline has as many microbatches as ranks
            needs.append(math.ceil(max(problem.batch, data * pipeline) / data) * data)
    if needs:
        return PlanRefusal(
            constraint=PlanConstraint.MICROBATCHES,
            stage=None,
            need=float(min(needs)),
            have=float(problem.batch),
        )
    return PlanRefusal(
        constraint=PlanConstraint.DEGREES,
        stage=None,
        need=float(problem.devices),
        have=float(max(tensor * pipeline for tensor, pipeline in admitted)),
    )
