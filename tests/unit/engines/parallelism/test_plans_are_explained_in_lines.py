# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Plans and refusals are explained by their figures, one line each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ullage.engines.parallelism.chain import ChainProblem, chain_plan
from ullage.engines.parallelism.explain import (
    choice_lines,
    comparison_lines,
    pipeline_line,
    refusal_line,
)
from ullage.engines.parallelism.records import (
    PipelinePlan,
    PlanComparison,
    PlanConstraint,
    PlanRefusal,
)
from ullage.engines.parallelism.replicated import replicated_plan
from ullage.engines.parallelism.transformer import (
    TransformerChoice,
    TransformerProblem,
    transformer_plan,
)
from unit.engines.parallelism.chains import layer, links
from unit.engines.parallelism.transformers import A100, NODES, gpt


@pytest.mark.parametrize(
    ("refusal", "line"),
    [
        (
            PlanRefusal(
                constraint=PlanConstraint.DEVICE_MEMORY, stage=2, need=20 * 2**30, have=8 * 2**30
            ),
            "stage 2 needs 20.0 GiB on a device, which has 8.0 GiB",
        ),
        (
            PlanRefusal(constraint=PlanConstraint.MICROBATCHES, stage=None, need=7, have=3),
            "a step has 3 microbatches or samples; the next number that divides among the "
            "pipelines and fills them is 7",
        ),
        (
            PlanRefusal(constraint=PlanConstraint.STAGES, stage=None, need=8, have=3),
            "3 layers are no 8 stages",
        ),
        (
            PlanRefusal(constraint=PlanConstraint.DEGREES, stage=None, need=9, have=4),
            "the model spreads over 4 devices at most, and 9 are to be used",
        ),
    ],
)
def test_refusals_state_need_and_have(refusal: PlanRefusal, line: str) -> None:
    assert refusal_line(refusal) == line


def test_a_chains_plan_is_told_with_what_excludes_a_faster_one() -> None:
    problem = ChainProblem(
        layers=tuple(layer(n, 1.0, weights=1e9) for n in range(4)),
        devices=4,
        links=links(fast=1e12),
        memory_bytes=8e9,
        microbatches=16,
    )
    comparison = chain_plan(problem)
    assert isinstance(comparison, PlanComparison)
    assert comparison_lines(comparison) == [
        "layers 0-1 x2 2-3 x2, 8 microbatches, 1F1B, predicted 18 s, bubble 11%",
        "next: layers 0-0 1-1 2-2 3-3, 16 microbatches, 1F1B, predicted 19 s, bubble 16%",
        "a faster plan is excluded: stage 0 needs 14.9 GiB on a device, which has 7.5 GiB",
    ]
    advice = replicated_plan(replace(problem, memory_bytes=2e10))
    assert isinstance(advice, PipelinePlan)
    assert pipeline_line(advice).endswith("; advice: " + advice.why_not) or not advice.why_not


def test_a_transformers_plan_is_told_with_its_parts() -> None:
    choice = transformer_plan(
        TransformerProblem(
            shape=gpt(48, 8192, 64),
            devices=512,
            batch=1536,
            speed=A100,
            links=NODES,
            memory_bytes=74e9,
        )
    )
    assert isinstance(choice, TransformerChoice)
    lines = choice_lines(choice)
    assert lines[0].startswith("tensor 4, pipeline 4, data 32, 6 chunks, 24 microbatches of 2")
    assert lines[1].startswith("next, 1.0")
    assert lines[2] == f"{len(choice.within)} spreads are within the error of the prediction"
    assert lines[3].startswith("a faster plan is excluded: stage 0 needs ")
    assert lines[4].startswith("most of the step: computing ")
