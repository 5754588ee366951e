# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Plans as tables and as JSON. Pure: records in, text out. Predictions are called so."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from ullage.cli.tables import facts
from ullage.engines.parallelism.chain import ChainProblem
from ullage.engines.parallelism.delivery import DeliveryRefusal, ProgramArguments
from ullage.engines.parallelism.explain import GIB, pipeline_line, transformer_line
from ullage.engines.parallelism.explain import refusal_line as refusal_line
from ullage.engines.parallelism.records import LayerCost, PipelinePlan, PlanComparison, PlanRefusal
from ullage.engines.parallelism.transformer import (
    TransformerChoice,
    TransformerPlan,
    TransformerProblem,
    step_bounds,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerAnswer:
    """A transformer's plan, and how a program takes it.

    Attributes:
        problem: What was asked.
        choice: The plans.
        measured: The efficiency of the device was stated.
        delivery: Arguments of the program.
    """

    problem: TransformerProblem
    choice: TransformerChoice
    measured: bool
    delivery: ProgramArguments | DeliveryRefusal

    def bounds(self, plan: TransformerPlan) -> tuple[float, float]:
        """Seconds between which the step is expected."""
        return step_bounds(self.problem, plan, measured=self.measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainAnswer:
    """A chain's plan, and how a program takes it.

    Attributes:
        problem: What was asked.
        comparison: The plans.
        delivery: Arguments of the program.
    """

    problem: ChainProblem
    comparison: PlanComparison
    delivery: ProgramArguments | DeliveryRefusal


def table(answer: TransformerAnswer | ChainAnswer) -> Table:
    """The plan, what comes next, what binds it, and where time and memory go."""
    if isinstance(answer, ChainAnswer):
        return _chain_table(answer)
    plan, choice = answer.choice.chosen, answer.choice
    low, high = answer.bounds(plan)
    step, memory = plan.estimate, plan.memory
    basis = "" if answer.measured else "; --efficiency is not stated, so the range is wide"
    return facts(
        {
            "plan": transformer_line(plan),
            "layers": _counts(plan.stages),
            "step": f"predicted {step.step_s:.3g} s, between {low:.3g} and {high:.3g} s{basis}",
            "time": _parts(_seconds(plan), step.step_s),
            "bubble": f"{step.bubble_s / step.step_s:.1%} of the step",
            "memory": f"{memory.total / GIB:.1f} of {answer.problem.memory_bytes / GIB:.1f} GiB"
            f" on a device of rank {plan.largest_rank}: {_gib(_bytes(plan))}",
            "next": "" if choice.runner_up is None else transformer_line(choice.runner_up),
            "equal": f"{len(choice.within)} spreads are within the error of the prediction"
            if len(choice.within) > 1
            else "",
            "bound by": "" if choice.binding is None else refusal_line(choice.binding),
            "executed by": ", ".join(plan.executable_by) or "no framework: it is advice",
        }
    )


def delivery_lines(delivery: ProgramArguments | DeliveryRefusal) -> list[str]:
    """Arguments of the program as a shell takes them, or why there are none."""
    if isinstance(delivery, DeliveryRefusal):
        return [f"not for {delivery.framework}: {delivery.message}"]
    lines = [f"arguments for {delivery.framework}:", shlex.join(delivery.arguments)]
    if not delivery.arguments:
        lines = [f"files for {delivery.framework}, which --files DIR writes:"]
    lines += [f"  {file.name}, {len(file.text):,} characters" for file in delivery.files]
    return [*lines, *(f"note: {note}" for note in delivery.notes)]


def body(answer: TransformerAnswer | ChainAnswer) -> dict[str, object]:
    """The answer for scripts; seconds, bytes, parts of 1."""
    if isinstance(answer, ChainAnswer):
        comparison, layers = answer.comparison, answer.problem.layers
        runner_up = comparison.runner_up
        return {
            "plan": _chain_body(comparison.chosen, layers),
            "runnerUp": None if runner_up is None else _chain_body(runner_up, layers),
            "singleDeviceStepSeconds": comparison.single_device_s,
            "dataParallelStepSeconds": comparison.data_parallel_s,
            "binding": _binding(comparison.binding),
            "delivery": _delivery_body(answer.delivery),
        }
    choice = answer.choice
    next_best = choice.runner_up
    return {
        "plan": _transformer_body(choice.chosen, answer),
        "runnerUp": None if next_best is None else _transformer_body(next_best, answer),
        "withinError": len(choice.within),
        "error": answer.problem.error,
        "binding": _binding(choice.binding),
        "delivery": _delivery_body(answer.delivery),
    }


def refusal_body(refusal: PlanRefusal) -> dict[str, object]:
    """A refusal for scripts."""
    return {
        "constraint": refusal.constraint.value,
        "stage": refusal.stage,
        "need": refusal.need,
        "have": refusal.have,
        "message": refusal_line(refusal),
    }


def _binding(binding: PlanRefusal | None) -> dict[str, object] | None:
    return None if binding is None else refusal_body(binding)


def _chain_table(answer: ChainAnswer) -> Table:
    comparison, layers = answer.comparison, answer.problem.layers
    plan = comparison.chosen
    runner_up, alone, wide = (
        comparison.runner_up,
        comparison.single_device_s,
        comparison.data_parallel_s,
    )
    memory = [f"{stage.memory_bytes / GIB:.1f}" for stage in plan.stages]
    return facts(
        {
            "plan": pipeline_line(plan),
            "stages": "; ".join(
                f"{layers[stage.first].name} to {layers[stage.last].name}"
                + (f" on {stage.replicas} devices" if stage.replicas > 1 else "")
                for stage in plan.stages
            ),
            "step": f"predicted {plan.step_s:.3g} s, from the times of the table",
            "bubble": f"{plan.bubble:.1%} of the devices' time",
            "memory": f"{', '.join(memory)} of {answer.problem.memory_bytes / GIB:.1f} GiB",
            "next": "" if runner_up is None else pipeline_line(runner_up),
            "one device": "" if alone is None else f"predicted {alone:.3g} s",
            "replicas alone": "" if wide is None else f"predicted {wide:.3g} s",
            "bound by": "" if comparison.binding is None else refusal_line(comparison.binding),
            "executed by": ", ".join(plan.executable_by) or "no framework: it is advice",
        }
    )


def _seconds(plan: TransformerPlan) -> dict[str, float]:
    step = plan.estimate
    return {
        "computing": step.compute_s,
        "tensor ranks": step.tensor_s,
        "sends": step.pipeline_s,
        "bubble": step.bubble_s,
        "gradients": step.gradient_s,
        "optimizer": step.optimizer_s,
    }


def _bytes(plan: TransformerPlan) -> dict[str, float]:
    memory = plan.memory
    return {
        "weights": memory.weights,
        "gradients": memory.gradients,
        "optimizer": memory.optimizer,
        "activations": memory.activations,
    }


def _parts(parts: dict[str, float], whole: float) -> str:
    return ", ".join(f"{name} {part / whole:.1%}" for name, part in parts.items() if part)


def _gib(parts: dict[str, float]) -> str:
    return ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts.items())


def _counts(stages: Sequence[int]) -> str:
    """Layers of the stages, runs of equal ones together."""
    runs: list[list[int]] = []
    for layers in stages:
        if runs and runs[-1][0] == layers:
            runs[-1][1] += 1
        else:
            runs.append([layers, 1])
    return ", ".join(
        f"{number} stages of {layers}" if number > 1 else f"1 stage of {layers}"
        for layers, number in runs
    )


def _transformer_body(plan: TransformerPlan, answer: TransformerAnswer) -> dict[str, object]:
    degrees = plan.degrees
    return {
        "tensor": degrees.tensor,
        "pipeline": degrees.pipeline,
        "data": degrees.data,
        "context": degrees.context,
        "expert": degrees.expert,
        "chunks": degrees.chunks,
        "microbatch": degrees.microbatch,
        "microbatches": plan.microbatches,
        "schedule": plan.schedule.value,
        "recomputation": degrees.recomputation.value,
        "stages": list(plan.stages),
        "predictedStepSeconds": plan.estimate.step_s,
        "predictedStepSecondsBetween": list(answer.bounds(plan)),
        "partsOfStepSeconds": _seconds(plan),
        "bubble": plan.estimate.bubble_s / plan.estimate.step_s,
        "memoryBytes": _bytes(plan) | {"total": plan.memory.total},
        "largestRank": plan.largest_rank,
        "executableBy": [framework.value for framework in plan.executable_by],
    }


def _chain_body(plan: PipelinePlan, layers: Sequence[LayerCost]) -> dict[str, object]:
    return {
        "stages": [
            {
                "layers": [layer.name for layer in layers[stage.first : stage.last + 1]],
                "replicas": stage.replicas,
                "microbatchesInFlight": stage.in_flight,
                "seconds": stage.seconds,
                "memoryBytes": stage.memory_bytes,
            }
            for stage in plan.stages
        ],
        "microbatches": plan.microbatches,
        "schedule": plan.schedule.value,
        "predictedStepSeconds": plan.step_s,
        "bubble": plan.bubble,
        "gap": plan.gap,
        "executableBy": [framework.value for framework in plan.executable_by],
    }


def _delivery_body(delivery: ProgramArguments | DeliveryRefusal) -> dict[str, object]:
    if isinstance(delivery, DeliveryRefusal):
        return {
            "framework": delivery.framework.value,
            "refused": {"reason": delivery.fault.value, "message": delivery.message},
        }
    return {
        "framework": delivery.framework.value,
        "arguments": list(delivery.arguments),
        "files": [{"name": file.name, "text": file.text} for file in delivery.files],
        "notes": list(delivery.notes),
    }
