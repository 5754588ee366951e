# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Width, depth, microbatch and recomputation of a model of equal blocks: 2BW and Flush.

Planner of PipeDream-2BW (ICML 2021, section 4), all candidates tried. Blocks divide equally into d
stages of w replicas, w * d devices; a pipeline takes m microbatches a step. With T the slowest
stage of a microbatch and R the all-reduce of a stage's gradients:

- Flush: (m + d - 1) T + R; one version of the weights.
- 2BW: max(m T, R): nothing is flushed, R hides; two versions, and m >= d.

A stage keeps min(m, d - r) microbatches; with recomputation their inputs, and all activations of
one. 2BW changes what is computed (gradients of weights one step old) and is advice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ullage.engines.parallelism.records import (
    MOST_DEVICES,
    MOST_LAYERS,
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
from ullage.engines.parallelism.schedules import NOT_EXECUTED, executable_by


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCosts:
    """One block with one size of microbatch.

    Attributes:
        microbatch: Samples.
        forward_s: Forward pass.
        backward_s: Backward pass.
        kept_bytes: Kept for the backward pass.
        sent_bytes: Input, and output.
    """

    microbatch: int
    forward_s: float
    backward_s: float
    kept_bytes: float
    sent_bytes: float

    def __post_init__(self) -> None:
        whole(self.microbatch, "samples of a microbatch", most=MOST_MICROBATCHES)
        for what in ("forward_s", "backward_s", "kept_bytes", "sent_bytes"):
            not_negative(getattr(self, what), f"{what} of a block")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockProblem:
    """A model of equal blocks and the devices for it.

    Attributes:
        blocks: Their number.
        block_bytes: Gradients of a block, as they are all-reduced.
        version_bytes: One version of a block's weights.
        state_bytes: Gradients and optimizer state of a block.
        costs: Sizes of microbatches that were measured.
        batch: Samples of a step.
        devices: To use, all of them.
        links: Between them.
        memory_bytes: Of a device.
    """

    blocks: int
    block_bytes: float
    version_bytes: float
    state_bytes: float
    costs: tuple[BlockCosts, ...]
    batch: int
    devices: int
    links: DeviceLinks
    memory_bytes: float

    def __post_init__(self) -> None:
        whole(self.blocks, "blocks of a model", most=MOST_LAYERS)
        whole(self.batch, "samples of a step", most=MOST_MICROBATCHES)
        whole(self.devices, "devices of a plan", most=MOST_DEVICES)
        positive(self.memory_bytes, "memory of a device")
        for what in ("block_bytes", "version_bytes", "state_bytes"):
            not_negative(getattr(self, what), what)
        if not self.costs or len({cost.microbatch for cost in self.costs}) < len(self.costs):
            raise ValueError("each size of a microbatch has one cost, and there is one at least")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlan:
    """A plan of equal stages.

    Attributes:
        width: Pipelines side by side.
        depth: Stages.
        microbatch: Samples.
        microbatches: Of each pipeline in a step.
        recompute: Activations are computed again in the backward pass.
        schedule: 2BW or Flush.
        step_s: Predicted step.
        memory_bytes: Of the first stage, which keeps most.
        executable_by: Frameworks; none for 2BW.
        why_not: Why none.
    """

    width: int
    depth: int
    microbatch: int
    microbatches: int
    recompute: bool
    schedule: PipelineSchedule
    step_s: float
    memory_bytes: float
    executable_by: tuple[TrainingFramework, ...]
    why_not: str


def block_plan(problem: BlockProblem, schedule: PipelineSchedule) -> BlockPlan | PlanRefusal:
    """The fastest plan that fits; equal steps go to less memory, then to the smaller depth.

    Args:
        problem: The problem.
        schedule: 1F1B (Flush) or 2BW.

    Raises:
        ValueError: it is another schedule.
    """
    plans = list(block_candidates(problem, schedule))
    if not plans:
        return PlanRefusal(
            constraint=PlanConstraint.DEGREES,
            stage=None,
            need=float(problem.devices),
            have=float(math.gcd(problem.devices, problem.blocks)),
        )
    fitting = [plan for plan in plans if plan.memory_bytes <= problem.memory_bytes]
    if not fitting:
        return PlanRefusal(
            constraint=PlanConstraint.DEVICE_MEMORY,
            stage=0,
            need=min(plan.memory_bytes for plan in plans),
            have=problem.memory_bytes,
        )
    return min(fitting, key=lambda plan: (plan.step_s, plan.memory_bytes, plan.depth))


def block_candidates(problem: BlockProblem, schedule: PipelineSchedule) -> Iterator[BlockPlan]:
    """Every plan, also those that do not fit; arguments and errors of :func:`block_plan`."""
    flushes = schedule is PipelineSchedule.ONE_FORWARD_ONE_BACKWARD
    if not flushes and schedule is not PipelineSchedule.TWO_BUFFERED_WEIGHTS:
        raise ValueError(f"blocks are planned for 1F1B and 2BW, not {schedule}")
    for depth in range(1, min(problem.devices, problem.blocks) + 1):
        width, rest = divmod(problem.devices, depth)
        if rest or problem.blocks % depth:
            continue
        for costs in problem.costs:
            microbatches, rest = divmod(problem.batch, width * costs.microbatch)
            # 2BW needs d microbatches an update; torch's 1F1B the same to fill its stages
            if rest or microbatches < depth:
                continue
            for recompute in (False, True):
                executing = executable_by(schedule, ranks=depth, microbatches=microbatches)
                yield BlockPlan(
                    width=width,
                    depth=depth,
                    microbatch=costs.microbatch,
                    microbatches=microbatches,
                    recompute=recompute,
                    schedule=schedule,
                    step_s=_step_s(
                        problem, costs, depth, microbatches, recompute=recompute, flushes=flushes
                    ),
                    memory_bytes=_memory_bytes(
                        problem, costs, depth, microbatches, recompute=recompute, flushes=flushes
                    ),
                    executable_by=executing,
                    why_not="" if executing else NOT_EXECUTED,
                )


def _step_s(
    problem: BlockProblem,
    costs: BlockCosts,
    depth: int,
    microbatches: int,
    *,
    recompute: bool,
    flushes: bool,
) -> float:
    blocks, width = problem.blocks // depth, problem.devices // depth
    stage = blocks * (costs.forward_s * (2 if recompute else 1) + costs.backward_s)
    if depth > 1:
        # forward and gradient of one boundary, as if all crossed the slowest
        stage += 2 * problem.links.between(0, problem.devices - 1).send_s(costs.sent_bytes)
    ring = problem.links.between(0, width - 1)
    reduced = ring.all_reduce_s(problem.block_bytes * blocks, width)
    if flushes:
        return (microbatches + depth - 1) * stage + reduced
    return max(microbatches * stage, reduced)


def _memory_bytes(
    problem: BlockProblem,
    costs: BlockCosts,
    depth: int,
    microbatches: int,
    *,
    recompute: bool,
    flushes: bool,
) -> float:
    blocks = problem.blocks // depth
    flight = min(microbatches, depth)
    versions = 1 if flushes else 2
    kept = blocks * costs.kept_bytes
    activations = kept + flight * costs.sent_bytes if recompute else flight * kept
    return blocks * (versions * problem.version_bytes + problem.state_bytes) + activations
