# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""PipeDream's own plan: every stage has a number of replicas of its own (SOSP 2019, section 3.1).

A(j, m) = min over k, m' of max(A(k, m - m'), 2 a_k / B, T(k + 1 .. j, m')) is the steady time of a
microbatch. No maintained framework has a degree of data parallelism per stage, so the plan is
advice. A stage keeps ceil(devices from it on / its replicas) microbatches, weights and activations.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ullage.engines.parallelism.chain import ChainProblem, ChainSums, Floats
from ullage.engines.parallelism.records import (
    PipelinePlan,
    PipelineSchedule,
    PlanConstraint,
    PlanRefusal,
    StagePlan,
    TrainingFramework,
)

Indices = NDArray[np.int64]
MOST_STATES: Final = 16_384
"""Layers times devices; the programme takes about the square of them."""
WHY_NOT: Final = "no framework has another number of replicas for each stage"


class CostForm(StrEnum):
    """Cost of a replicated stage, its all-reduce by its bytes w and bandwidth B."""

    PAPER = "Paper"
    """max(compute, 2 (m' - 1) w / B) / m': the all-reduce hides behind the computation."""
    COMPAT = "Compat"
    """(compute + 4 (m' - 1) w / (B m')) / m', and transfers by m': the public planner's."""


def replicated_plan(
    problem: ChainProblem, form: CostForm = CostForm.PAPER
) -> PipelinePlan | PlanRefusal:
    """The stages and replicas of the least steady time, over all devices.

    Args:
        problem: The problem; all links count as its slowest.
        form: Cost of a stage.

    Raises:
        ValueError: layers times devices are too many.
    """
    layers, devices = len(problem.layers), problem.devices
    if layers * devices > MOST_STATES:
        raise ValueError(
            f"replicated stages are planned for at most {MOST_STATES} layers times devices, "
            f"not {layers} times {devices}"
        )
    sums = ChainSums.of(problem.layers)
    bandwidth = problem.links.between(0, devices - 1).bytes_per_s
    # [j, m - 1]: layers 0 to j on m devices; the last stage begins at firsts on owns devices
    best = np.full((layers, devices), np.inf)
    firsts = np.zeros((layers, devices), dtype=np.int64)
    owns = np.zeros((layers, devices), dtype=np.int64)
    for last in range(layers):
        computed, weights, kept = _of_stage(sums, last)
        for own in range(1, devices + 1):
            # devices from this stage on, for each number that is used up to its end
            behind = np.arange(devices, own - 1, -1)
            memory = _memory(problem, weights, kept, -(-behind // own))
            sent = 2 * sums.inputs[: last + 1] / bandwidth
            if form is CostForm.COMPAT:
                sent = sent / own
            time = np.maximum(stage_s(form, computed, weights, own, bandwidth), sent)
            before = np.full(memory.shape, np.inf)
            before[0, 0] = 0.0
            before[1:, 1:] = best[:last, : devices - own]
            table = np.where(
                memory <= problem.memory_bytes, np.maximum(before, time[:, None]), np.inf
            )
            choice = np.argmin(table, axis=0)
            value = table[choice, np.arange(len(behind))]
            better = value < best[last, own - 1 :]
            best[last, own - 1 :][better] = value[better]
            firsts[last, own - 1 :][better] = choice[better]
            owns[last, own - 1 :][better] = own
    if not np.isfinite(best[-1, -1]):
        return PlanRefusal(
            constraint=PlanConstraint.DEVICE_MEMORY,
            stage=None,
            need=_largest_layer(problem),
            have=problem.memory_bytes,
        )
    return _traced(problem, form, float(best[-1, -1]), firsts, owns)


def stage_s(
    form: CostForm, computed: Floats, weights: Floats, replicas: int, bandwidth: float
) -> Floats:
    """Time of a microbatch in a replicated stage.

    Args:
        form: The form.
        computed: Forward and backward on one device.
        weights: Bytes of its weights.
        replicas: Devices that hold it.
        bandwidth: Bytes per second of their links.
    """
    if form is CostForm.PAPER:
        reduced = 2 * (replicas - 1) * weights / bandwidth
        return np.asarray(np.maximum(computed, reduced) / replicas)
    reduced = 4 * (replicas - 1) * weights / (bandwidth * replicas)
    return np.asarray((computed + reduced) / replicas)


def _of_stage(sums: ChainSums, last: int) -> tuple[Floats, Floats, Floats]:
    """Compute, weights and kept bytes of the layers from each one to the last."""
    span = slice(0, last + 1)
    return (
        sums.compute[last + 1] - sums.compute[span],
        sums.weights[last + 1] - sums.weights[span],
        sums.kept[last + 1] - sums.kept[span] + sums.inputs[span],
    )


def _memory(problem: ChainProblem, weights: Floats, kept: Floats, flight: Indices) -> Floats:
    """Bytes of a device: a version of weights and activations per microbatch, other state once."""
    once = weights * (problem.state_factor - 1)
    return np.asarray(once[:, None] + (weights + kept)[:, None] * flight[None, :])


def _largest_layer(problem: ChainProblem) -> float:
    """Bytes without which no plan exists: those of the largest layer alone in the last stage."""
    return max(
        layer.parameter_bytes * problem.state_factor + layer.kept for layer in problem.layers
    )


def _traced(
    problem: ChainProblem,
    form: CostForm,
    steady_s: float,
    firsts: Indices,
    owns: Indices,
) -> PipelinePlan:
    """The plan behind the last entry of the table."""
    sums = ChainSums.of(problem.layers)
    bandwidth = problem.links.between(0, problem.devices - 1).bytes_per_s
    stages: list[StagePlan] = []
    last, used = len(problem.layers) - 1, problem.devices
    while last >= 0:
        first, own = int(firsts[last, used - 1]), int(owns[last, used - 1])
        flight = math.ceil((problem.devices - used + own) / own)
        computed, weights, kept = _of_stage(sums, last)
        memory = _memory(problem, weights, kept, np.array([flight]))
        stages.append(
            StagePlan(
                first=first,
                last=last,
                replicas=own,
                in_flight=flight,
                seconds=float(stage_s(form, computed, weights, own, bandwidth)[first]),
                memory_bytes=float(memory[first, 0]),
            )
        )
        last, used = first - 1, used - own
    stages.reverse()
    step = steady_s * problem.microbatches
    busy = math.fsum(stage.seconds * stage.replicas for stage in stages)
    return PipelinePlan(
        stages=tuple(stages),
        microbatches=problem.microbatches,
        schedule=PipelineSchedule.ONE_FORWARD_ONE_BACKWARD,
        step_s=step,
        bubble=max(0.0, 1 - busy / (steady_s * problem.devices)) if steady_s else 0.0,
        executable_by=() if len(stages) > 1 else tuple(TrainingFramework),
        why_not=WHY_NOT if len(stages) > 1 else "",
    )
