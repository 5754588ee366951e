# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Splits a chain of layers into stages of equal width, the form that frameworks execute.

Exact for each number of stages p: the step of 1F1B, sum of the stages + (m - 1) * the slowest
(derived), over all contiguous splits that fit in memory. It is an upper bound of the replay where
all stages have one ratio of backward to forward; with mixed ratios the replay was once 1.75 % above
it. A stage's time is forward + backward of a microbatch, its two sends, and 1 / m of its
all-reduce. Stage r keeps min(m, p - r) microbatches (PipeDream-Flush, ICML 2021, section 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ullage.engines.parallelism.records import (
    MOST_DEVICES,
    MOST_MICROBATCHES,
    DeviceLinks,
    LayerCost,
    PipelinePlan,
    PipelineSchedule,
    PlanComparison,
    PlanConstraint,
    PlanRefusal,
    StagePlan,
    TrainingFramework,
    chain_of,
    not_negative,
    positive,
    whole,
)

Floats = NDArray[np.float64]
_Join = Callable[[Floats, Floats], Floats]
SPLIT_BY: Final = (
    TrainingFramework.TORCHTITAN,
    TrainingFramework.MEGATRON,
    TrainingFramework.TORCH_PIPELINING,
)
"""Frameworks that take a list of the layers of each stage; DeepSpeed partitions by a rule."""
MOST_STAGES: Final = 64
REFINED_CELLS: Final = 50_000_000
"""Cells of the tables of further splits of one length; then the best stands with its gap."""
TIE: Final = 1e-12
"""Times that differ by less of themselves are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainProblem:
    """Layers to spread over equal devices.

    Attributes:
        layers: In order.
        devices: To use, all of them.
        links: Between them.
        memory_bytes: Of a device, without what a process takes for itself.
        microbatches: Of a step, over all pipelines.
        state_factor: Weights, gradients and optimizer state per byte of weights; 4 = Adam in one
            precision.
        most_stages: Longest pipeline tried.

    Raises:
        ValueError: a figure is out of range.
    """

    layers: tuple[LayerCost, ...]
    devices: int
    links: DeviceLinks
    memory_bytes: float
    microbatches: int
    state_factor: float = 4.0
    most_stages: int = MOST_STAGES

    def __post_init__(self) -> None:
        chain_of(self.layers)
        whole(self.devices, "devices of a plan", most=MOST_DEVICES)
        whole(self.microbatches, "microbatches of a step", most=MOST_MICROBATCHES)
        whole(self.most_stages, "stages of a pipeline", most=MOST_DEVICES)
        positive(self.memory_bytes, "memory of a device")
        not_negative(self.state_factor, "state per byte of weights")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChainSums:
    """Prefix sums of a chain; ``sums[j + 1] - sums[i]`` is that of the layers i to j."""

    compute: Floats
    weights: Floats
    kept: Floats
    outputs: Floats
    """Bytes sent after each layer, 0 after the last."""

    @classmethod
    def of(cls, layers: Sequence[LayerCost]) -> ChainSums:
        """Sums of these layers."""

        def prefix(values: Iterable[float]) -> Floats:
            return np.concatenate(([0.0], np.cumsum(np.fromiter(values, dtype=np.float64))))

        outputs = np.array([layer.activation_bytes for layer in layers], dtype=np.float64)
        outputs[-1] = 0.0
        return cls(
            compute=prefix(layer.forward_s + layer.backward_s for layer in layers),
            weights=prefix(layer.parameter_bytes for layer in layers),
            kept=prefix(layer.kept for layer in layers),
            outputs=outputs,
        )

    @staticmethod
    def spans(sums: Floats) -> Floats:
        """Sums from layer i (row) to layer j (column)."""
        return np.asarray(sums[None, 1:] - sums[:-1, None])

    @property
    def inputs(self) -> Floats:
        """Bytes that come in before each layer."""
        return np.concatenate(([0.0], self.outputs[:-1]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pipeline:
    """Costs of all stages of a pipeline of one length; infinite where the stage is impossible."""

    seconds: list[Floats]
    memory: list[Floats]
    microbatches: int

    def within(self, memory_bytes: float) -> list[Floats]:
        """Seconds of the stages that fit."""
        return [
            np.where(memory <= memory_bytes, seconds, np.inf)
            for seconds, memory in zip(self.seconds, self.memory, strict=True)
        ]


def chain_plan(problem: ChainProblem) -> PlanComparison | PlanRefusal:
    """The fastest split of equal width over all numbers of stages.

    Equal times go to fewer stages.
    """
    sums = ChainSums.of(problem.layers)
    feasible: list[PipelinePlan] = []
    refused: list[tuple[float, PlanRefusal]] = []
    nearest: PlanRefusal | None = None
    for stages in _lengths(problem):
        if (fault := _countless(problem, stages)) is not None:
            nearest = nearest or fault
            continue
        pipeline = _pipeline(problem, sums, stages)
        cuts = _fastest(
            pipeline.within(problem.memory_bytes),
            pipeline.microbatches,
            min((plan.step_s for plan in feasible), default=math.inf),
        )
        if cuts is not None:
            feasible.append(_plan(problem, pipeline, *cuts))
        free = _plan(problem, pipeline, _least_largest(pipeline.seconds), 0.0)
        worst = max(range(stages), key=lambda index: free.stages[index].memory_bytes)
        need = free.stages[worst].memory_bytes
        if need > problem.memory_bytes:
            refused.append((free.step_s, _too_large(problem, worst, need)))
        if cuts is None:
            nearest = _nearer(nearest, _smallest(problem, pipeline))
    if not feasible:
        return nearest or PlanRefusal(
            constraint=PlanConstraint.STAGES,
            stage=None,
            need=float(problem.devices),
            have=float(len(problem.layers)),
        )
    order = sorted(feasible, key=lambda plan: (plan.step_s, len(plan.stages)))
    faster = [(step, why) for step, why in refused if step < order[0].step_s * (1 - TIE)]
    alone = _alone(problem, sums)
    return PlanComparison(
        chosen=order[0],
        runner_up=order[1] if len(order) > 1 else None,
        single_device_s=alone,
        data_parallel_s=next((plan.step_s for plan in feasible if len(plan.stages) == 1), None),
        binding=min(faster, key=lambda item: item[0])[1] if faster else None,
    )


def split(problem: ChainProblem, last: Sequence[int]) -> PipelinePlan:
    """The plan with given stages, for comparisons: not judged by memory.

    Args:
        problem: The problem.
        last: Index of the last layer of each stage.

    Raises:
        ValueError: stages are empty or do not end with the chain, or do not divide the devices.
    """
    ends = [-1, *last]
    ordered = all(low < high for low, high in pairwise(ends))
    if not last or not ordered or last[-1] != len(problem.layers) - 1:
        raise ValueError("stages must follow each other and end with the last layer")
    if problem.devices % len(last) or problem.microbatches % (problem.devices // len(last)):
        raise ValueError("stages must divide the devices, and pipelines the microbatches")
    pipeline = _pipeline(problem, ChainSums.of(problem.layers), len(last))
    return _plan(problem, pipeline, tuple(last), 0.0)


def _lengths(problem: ChainProblem) -> list[int]:
    most = min(problem.devices, len(problem.layers), problem.most_stages)
    return [stages for stages in range(1, most + 1) if problem.devices % stages == 0]


def _countless(problem: ChainProblem, stages: int) -> PlanRefusal | None:
    """The refusal where a step's microbatches cannot fill pipelines of so many stages."""
    width = problem.devices // stages
    if problem.microbatches % width:
        need = math.ceil(problem.microbatches / width) * width
    elif stages > 1 and problem.microbatches // width < stages:
        need = stages * width
    else:
        return None
    return PlanRefusal(
        constraint=PlanConstraint.MICROBATCHES,
        stage=None,
        need=float(need),
        have=float(problem.microbatches),
    )


def _pipeline(problem: ChainProblem, sums: ChainSums, stages: int) -> _Pipeline:
    """Costs of the stages from layer i to layer j at each place of a pipeline."""
    width = problem.devices // stages
    count = problem.microbatches // width
    computed = ChainSums.spans(sums.compute)
    weights = ChainSums.spans(sums.weights)
    kept = ChainSums.spans(sums.kept) + sums.inputs[:, None]
    empty = np.tril(np.ones_like(computed, dtype=bool), -1)
    seconds, memory = [], []
    for stage in range(stages):
        first = stage * width
        cost = computed.copy()
        if width > 1:
            ring = problem.links.between(first, first + width - 1)
            steps = 2 * (width - 1)
            reduced = steps * (ring.latency_s + weights / width / ring.bytes_per_s)
            cost += np.where(weights > 0, reduced, 0.0) / count
        # a stage sends its output forward and the gradient of its input back
        if stage < stages - 1:
            cost += _sent(problem, first, width, sums.outputs)[None, :]
        if stage > 0:
            cost += _sent(problem, first - width, width, sums.inputs)[:, None]
        cost[empty] = np.inf
        seconds.append(cost)
        memory.append(weights * problem.state_factor + min(count, stages - stage) * kept)
    return _Pipeline(seconds=seconds, memory=memory, microbatches=count)


def _sent(problem: ChainProblem, first: int, width: int, sizes: Floats) -> Floats:
    """Seconds to send so many bytes from each replica of a stage to that of the next."""
    links = [problem.links.between(first + lane, first + lane + width) for lane in range(width)]
    slowest = problem.links.node if problem.links.node in links else links[0]
    sent = slowest.latency_s + sizes / slowest.bytes_per_s
    return np.where(sizes > 0, sent, 0.0)


def _fastest(
    seconds: Sequence[Floats], count: int, rival: float = math.inf
) -> tuple[tuple[int, ...], float] | None:
    """The split of the least sum + (count - 1) * largest, and its gap; ``None`` = there is none.

    The least sum under a falling limit of the largest: a better split has a sum no smaller than the
    least of all, hence a largest below (best - least sum) / (count - 1). No split that cannot beat
    the ``rival`` is refined.
    """
    cuts = _least_sum(seconds, np.inf)
    if cuts is None:
        return None
    least, largest = _sum_and_largest(seconds, cuts)
    if count == 1 or len(seconds) == 1:
        return cuts, 0.0
    narrow = _least_largest(seconds)
    floor = _sum_and_largest(seconds, narrow)[1]
    best, chosen = min(
        (_value(seconds, candidate, count), candidate) for candidate in (cuts, narrow)
    )
    bound = least + (count - 1) * floor
    passes = REFINED_CELLS // (len(seconds) * seconds[0].size) if bound < rival else 0
    for _ in range(passes):
        limit = min(largest * (1 - TIE), (best - least) / (count - 1))
        candidate = _least_sum(seconds, limit) if limit >= floor else None
        if candidate is None:
            return chosen, 0.0
        best, chosen = min((best, chosen), (_value(seconds, candidate, count), candidate))
        largest = _sum_and_largest(seconds, candidate)[1]
    return chosen, max(0.0, 1 - bound / best) if best else 0.0


def _value(seconds: Sequence[Floats], cuts: tuple[int, ...], count: int) -> float:
    total, largest = _sum_and_largest(seconds, cuts)
    return total + (count - 1) * largest


def _sum_and_largest(seconds: Sequence[Floats], cuts: tuple[int, ...]) -> tuple[float, float]:
    firsts = [0, *(last + 1 for last in cuts)]
    parts = [float(seconds[stage][firsts[stage], last]) for stage, last in enumerate(cuts)]
    return math.fsum(parts), max(parts)


def _least_sum(seconds: Sequence[Floats], limit: float) -> tuple[int, ...] | None:
    """Ends of the stages with the least sum, none above the limit."""
    return _through(
        [np.where(cost <= limit, cost, np.inf) for cost in seconds],
        lambda before, cost: before[:, None] + cost,
    )


def _least_largest(seconds: Sequence[Floats]) -> tuple[int, ...]:
    """Ends of the stages whose largest is least; there is such a split."""
    cuts = _through(seconds, lambda before, cost: np.maximum(before[:, None], cost))
    if cuts is None:
        raise ValueError("no split has finite costs")
    return cuts


def _through(seconds: Sequence[Floats], joined: _Join) -> tuple[int, ...] | None:
    """The dynamic programme over ends of stages; ``None`` = no split has finite costs."""
    state = seconds[0][0]
    back = []
    for cost in seconds[1:]:
        table = joined(np.concatenate(([np.inf], state[:-1])), cost)
        back.append(np.argmin(table, axis=0))
        state = table[back[-1], np.arange(len(state))]
    if not np.isfinite(state[-1]):
        return None
    ends = [len(state) - 1]
    for choice in reversed(back):
        ends.append(int(choice[ends[-1]]) - 1)
    return tuple(reversed(ends))


def _plan(
    problem: ChainProblem, pipeline: _Pipeline, cuts: tuple[int, ...], gap: float
) -> PipelinePlan:
    firsts = [0, *(last + 1 for last in cuts)]
    count, stages = pipeline.microbatches, len(cuts)
    parts = tuple(
        StagePlan(
            first=firsts[stage],
            last=last,
            replicas=problem.devices // stages,
            in_flight=min(count, stages - stage),
            seconds=float(pipeline.seconds[stage][firsts[stage], last]),
            memory_bytes=float(pipeline.memory[stage][firsts[stage], last]),
        )
        for stage, last in enumerate(cuts)
    )
    seconds = [part.seconds for part in parts]
    total = math.fsum(seconds)
    step = total + (count - 1) * max(seconds)
    return PipelinePlan(
        stages=parts,
        microbatches=count,
        schedule=PipelineSchedule.ONE_FORWARD_ONE_BACKWARD,
        step_s=step,
        bubble=max(0.0, 1 - total * count / (step * stages)) if step else 0.0,
        executable_by=SPLIT_BY if stages > 1 else tuple(TrainingFramework),
        gap=gap,
    )


def _too_large(problem: ChainProblem, stage: int, need: float) -> PlanRefusal:
    return PlanRefusal(
        constraint=PlanConstraint.DEVICE_MEMORY, stage=stage, need=need, have=problem.memory_bytes
    )


def _smallest(problem: ChainProblem, pipeline: _Pipeline) -> PlanRefusal:
    """The refusal of the split whose largest stage needs the least memory."""
    possible = [
        np.where(np.isfinite(seconds), memory, np.inf)
        for seconds, memory in zip(pipeline.seconds, pipeline.memory, strict=True)
    ]
    cuts = _least_largest(possible)
    firsts = [0, *(last + 1 for last in cuts)]
    needs = [float(possible[stage][firsts[stage], last]) for stage, last in enumerate(cuts)]
    return _too_large(problem, needs.index(max(needs)), max(needs))


def _nearer(before: PlanRefusal | None, refusal: PlanRefusal) -> PlanRefusal:
    """Of two refusals for memory the smaller need; a need of memory tells more than of counts."""
    if before is None or before.constraint is not PlanConstraint.DEVICE_MEMORY:
        return refusal
    return min(before, refusal, key=lambda item: item.need)


def _alone(problem: ChainProblem, sums: ChainSums) -> float | None:
    """Step on one device, which computes all microbatches; ``None`` = they do not fit there."""
    single = replace(problem, devices=1)
    pipeline = _pipeline(single, sums, 1)
    cuts = _fastest(pipeline.within(problem.memory_bytes), pipeline.microbatches)
    return None if cuts is None else _plan(single, pipeline, *cuts).step_s
