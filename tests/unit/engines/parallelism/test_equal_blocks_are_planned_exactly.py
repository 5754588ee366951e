# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Plans of equal blocks are the best of all candidates; 2BW is faster, larger and only advice."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fakes.examples import seeds
from ullage.engines.parallelism.blocks import (
    BlockCosts,
    BlockPlan,
    BlockProblem,
    block_candidates,
    block_plan,
)
from ullage.engines.parallelism.records import PipelineSchedule, PlanConstraint, PlanRefusal
from ullage.engines.parallelism.schedules import NOT_EXECUTED
from unit.engines.parallelism.chains import links

FLUSH = PipelineSchedule.ONE_FORWARD_ONE_BACKWARD
TWO = PipelineSchedule.TWO_BUFFERED_WEIGHTS


def drawn(seed: int) -> BlockProblem:
    """Blocks whose time grows less than their microbatch."""
    rng = np.random.default_rng(seed)
    fixed, sample = rng.uniform(0.01, 1, 2)
    return BlockProblem(
        blocks=int(rng.choice([4, 6, 8, 12, 24])),
        block_bytes=1e9,
        version_bytes=1e9,
        state_bytes=float(rng.uniform(1, 8) * 1e9),
        costs=tuple(
            BlockCosts(
                microbatch=size,
                forward_s=fixed + sample * size,
                backward_s=2 * (fixed + sample * size),
                kept_bytes=1e9 * size,
                sent_bytes=1e8 * size,
            )
            for size in (1, 2, 4)
        ),
        batch=int(rng.choice([64, 96, 128])),
        devices=int(rng.choice([1, 2, 4, 8])),
        links=links(in_node=int(rng.integers(1, 9))),
        memory_bytes=float(rng.uniform(10, 100) * 1e9),
    )


@pytest.mark.parametrize("schedule", [FLUSH, TWO])
@pytest.mark.parametrize("seed", seeds(60, many=300))
def test_the_plan_is_the_fastest_that_fits(seed: int, schedule: PipelineSchedule) -> None:
    problem = drawn(seed)
    best = math.inf
    for depth in (1, 2, 3, 4, 6, 8):
        for cost in problem.costs:
            for recompute in (1, 2):
                width = problem.devices // depth
                if depth * width != problem.devices or problem.blocks % depth:
                    continue
                count = problem.batch // (width * cost.microbatch)
                if count * width * cost.microbatch != problem.batch or count < depth:
                    continue
                blocks = problem.blocks // depth
                stage = blocks * (cost.forward_s * recompute + cost.backward_s)
                if depth > 1:
                    link = problem.links.between(0, problem.devices - 1)
                    stage += 2 * link.send_s(cost.sent_bytes)
                reduced = problem.links.between(0, width - 1).all_reduce_s(blocks * 1e9, width)
                kept = blocks * cost.kept_bytes
                held = depth * kept if recompute == 1 else kept + depth * cost.sent_bytes
                versions = 1 if schedule is FLUSH else 2
                held += blocks * (versions * 1e9 + problem.state_bytes)
                step = (count + depth - 1) * stage + reduced
                if schedule is TWO:
                    step = max(count * stage, reduced)
                if held <= problem.memory_bytes:
                    best = min(best, step)
    plan = block_plan(problem, schedule)
    if isinstance(plan, BlockPlan):
        assert plan.step_s == pytest.approx(best)
    else:
        assert best == math.inf


@pytest.mark.parametrize("seed", range(20))
def test_two_versions_are_never_slower_and_never_smaller(seed: int) -> None:
    problem = drawn(seed)
    pairs = list(zip(block_candidates(problem, TWO), block_candidates(problem, FLUSH), strict=True))
    assert pairs
    for two, flush in pairs:
        assert two.step_s <= flush.step_s
        assert two.memory_bytes >= flush.memory_bytes
        assert (two.executable_by, two.why_not) == ((), NOT_EXECUTED)
        assert flush.executable_by
        assert not flush.why_not


def test_what_fits_nowhere_is_refused_with_its_need() -> None:
    problem = replace(drawn(1), memory_bytes=1.0)
    refusal = block_plan(problem, FLUSH)
    assert isinstance(refusal, PlanRefusal)
    assert refusal.constraint is PlanConstraint.DEVICE_MEMORY
    assert refusal.need == min(plan.memory_bytes for plan in block_candidates(problem, FLUSH))
    undivided = replace(drawn(1), batch=1, devices=7)
    refusal = block_plan(undivided, FLUSH)
    assert isinstance(refusal, PlanRefusal)
    assert refusal.constraint is PlanConstraint.DEGREES


def test_only_its_two_schedules_are_planned() -> None:
    with pytest.raises(ValueError, match="not GPipe"):
        block_plan(drawn(1), PipelineSchedule.GPIPE)
    with pytest.raises(ValueError, match="one cost"):
        replace(drawn(1), costs=())
    with pytest.raises(ValueError, match="blocks"):
        replace(drawn(1), blocks=10**6)
