# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Text of plans and refusals, one line each, with the figures behind them.

It must never state more than the records contain: predictions are called so.
"""

from __future__ import annotations

from typing import assert_never

from ullage.engines.parallelism.dimensions import Recomputation
from ullage.engines.parallelism.records import (
    PipelinePlan,
    PlanComparison,
    PlanConstraint,
    PlanRefusal,
)
from ullage.engines.parallelism.transformer import TransformerChoice, TransformerPlan

GIB = 2**30


def refusal_line(refusal: PlanRefusal) -> str:
    """The constraint that no plan keeps, with need and have."""
    match refusal.constraint:
        case PlanConstraint.DEVICE_MEMORY:
            place = "the plan" if refusal.stage is None else f"stage {refusal.stage}"
            need, have = refusal.need / GIB, refusal.have / GIB
            return f"{place} needs {need:.1f} GiB on a device, which has {have:.1f} GiB"
        case PlanConstraint.MICROBATCHES:
            return (
                f"a step has {refusal.have:.0f} microbatches or samples; the next number that "
                f"divides among the pipelines and fills them is {refusal.need:.0f}"
            )
        case PlanConstraint.STAGES:
            return f"{refusal.have:.0f} layers are no {refusal.need:.0f} stages"
        case PlanConstraint.DEGREES:
            return (
                f"the model spreads over {refusal.have:.0f} devices at most, "
                f"and {refusal.need:.0f} are to be used"
            )
        case _:
            assert_never(refusal.constraint)


def pipeline_line(plan: PipelinePlan) -> str:
    """A chain's stages by their layers and replicas, and its predicted step."""
    stages = " ".join(
        f"{stage.first}-{stage.last}" + (f" x{stage.replicas}" if stage.replicas > 1 else "")
        for stage in plan.stages
    )
    advice = f"; advice: {plan.why_not}" if plan.why_not else ""
    return (
        f"layers {stages}, {plan.microbatches} microbatches, {plan.schedule}, "
        f"predicted {plan.step_s:.3g} s, bubble {plan.bubble:.0%}{advice}"
    )


def transformer_line(plan: TransformerPlan) -> str:
    """A transformer's degrees, and its predicted step and memory."""
    degrees = plan.degrees
    parts = [
        f"tensor {degrees.tensor}",
        f"pipeline {degrees.pipeline}",
        f"data {degrees.data}",
        *([f"context {degrees.context}"] if degrees.context > 1 else []),
        *([f"expert {degrees.expert}"] if degrees.expert > 1 else []),
        *([f"{degrees.chunks} chunks"] if degrees.chunks > 1 else []),
        f"{plan.microbatches} microbatches of {degrees.microbatch}",
    ]
    if degrees.recomputation is not Recomputation.NONE:
        parts.append(f"{degrees.recomputation.lower()} recomputation")
    parts.append(f"predicted {plan.estimate.step_s:.3g} s")
    parts.append(f"{plan.memory.total / GIB:.1f} GiB")
    return ", ".join(parts)


def comparison_lines(comparison: PlanComparison) -> list[str]:
    """The plan of a chain, the next best, and the memory that keeps a faster one out."""
    lines = [pipeline_line(comparison.chosen)]
    if comparison.runner_up is not None:
        lines.append(f"next: {pipeline_line(comparison.runner_up)}")
    if comparison.binding is not None:
        lines.append(f"a faster plan is excluded: {refusal_line(comparison.binding)}")
    return lines


def choice_lines(choice: TransformerChoice) -> list[str]:
    """The plan of a transformer, those that cannot be told from it, and what binds it."""
    lines = [transformer_line(choice.chosen)]
    if choice.runner_up is not None:
        ratio = choice.runner_up.estimate.step_s / choice.chosen.estimate.step_s
        lines.append(f"next, {ratio:.2f} of its step: {transformer_line(choice.runner_up)}")
    if len(choice.within) > 1:
        lines.append(f"{len(choice.within)} spreads are within the error of the prediction")
    if choice.binding is not None:
        lines.append(f"a faster plan is excluded: {refusal_line(choice.binding)}")
    estimate = choice.chosen.estimate
    parts = {
        "computing": estimate.compute_s,
        "waits of tensor ranks": estimate.tensor_s,
        "sends between stages": estimate.pipeline_s,
        "bubble": estimate.bubble_s,
        "all-reduce of gradients": estimate.gradient_s,
        "update of weights": estimate.optimizer_s,
    }
    shown = sorted(parts.items(), key=lambda item: -item[1])[:3]
    lines.append(
        "most of the step: "
        + ", ".join(f"{name} {seconds / estimate.step_s:.0%}" for name, seconds in shown)
    )
    return lines
