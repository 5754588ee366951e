# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Placed operations keep memory and order, never lose to simple placements, and are replayed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest

from fakes.examples import seeds
from ullage.engines.parallelism.operations.coarsen import coarsen
from ullage.engines.parallelism.operations.list_schedule import (
    OperationPlan,
    PlacementMethod,
    lower_bound_s,
    placement_plan,
    topological_parts,
)
from ullage.engines.parallelism.operations.model import (
    Operation,
    OperationEdge,
    OperationGraph,
    OperationProblem,
    placed_s,
)
from ullage.engines.parallelism.records import LinkSpeed, PlanConstraint, PlanRefusal


def drawn(seed: int, count: int, *, devices: int = 2, memory: float = 1e15) -> OperationProblem:
    """A random graph with windowed edges."""
    rng = np.random.default_rng(seed)
    pairs = [
        (first, second)
        for second in range(count)
        for first in range(max(0, second - 6), second)
        if rng.random() < 0.35
    ]
    return OperationProblem(
        graph=OperationGraph(
            operations=tuple(
                Operation(
                    name=f"op.{number}",
                    seconds=float(rng.uniform(0.1, 2)),
                    memory_bytes=float(rng.uniform(0, 1e9)),
                )
                for number in range(count)
            ),
            edges=tuple(
                OperationEdge(
                    producer=first, consumer=second, size=float(rng.choice([0, 1e8, 1e9]))
                )
                for first, second in pairs
            ),
        ),
        devices=devices,
        link=LinkSpeed(bytes_per_s=1e9, latency_s=0.01),
        memory_bytes=memory,
    )


def orders(problem: OperationProblem) -> Iterator[tuple[int, ...]]:
    """All topological orders."""
    edges = [(edge.producer, edge.consumer) for edge in problem.graph.edges]
    for order in permutations(range(len(problem.graph.operations))):
        place = {index: number for number, index in enumerate(order)}
        if all(place[first] < place[second] for first, second in edges):
            yield order


def planned(problem: OperationProblem) -> OperationPlan:
    """The plan of a problem that has plans."""
    plan = placement_plan(problem)
    assert isinstance(plan, OperationPlan)
    return plan


@pytest.mark.parametrize("seed", seeds(40, many=200))
def test_plans_lie_between_the_best_of_all_and_the_simple_ones(seed: int) -> None:
    problem = drawn(seed, 2 + seed % 4)
    plan = planned(problem)
    best = min(
        placed_s(problem, placement, order)
        for order in orders(problem)
        for placement in product(range(2), repeat=len(order))
    )
    assert lower_bound_s(problem) <= best * (1 + 1e-12)
    assert best <= plan.step_s * (1 + 1e-12)
    assert plan.step_s <= 1.5 * best
    alone = sum(operation.seconds for operation in problem.graph.operations)
    halves = placed_s(problem, topological_parts(problem, 2), plan.order)
    assert plan.step_s <= min(alone, halves) * (1 + 1e-12)


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_large_plans_are_replayed_and_keep_memory(devices: int) -> None:
    for seed in range(5):
        problem = drawn(seed, 60, devices=devices, memory=1.3 * 60e9 / 2 / devices)
        plan = planned(problem)
        assert placed_s(problem, plan.placement, plan.order) == plan.step_s
        assert max(plan.memory_bytes) <= problem.memory_bytes
        assert 0 <= plan.gap < 1
        assert plan == placement_plan(problem)


def test_branches_run_side_by_side() -> None:
    names = ("in", "left", "right", "out")
    graph = OperationGraph(
        operations=tuple(Operation(name=name, seconds=1.0) for name in names),
        edges=tuple(
            OperationEdge(producer=first, consumer=second, size=1e8)
            for first, second in ((0, 1), (0, 2), (1, 3), (2, 3))
        ),
    )
    problem = OperationProblem(
        graph=graph, devices=2, link=LinkSpeed(bytes_per_s=1e9), memory_bytes=1e9
    )
    plan = planned(problem)
    assert plan.method is not PlacementMethod.SINGLE_DEVICE
    assert plan.step_s == pytest.approx(3.1)
    slow = planned(replace(problem, link=LinkSpeed(bytes_per_s=1e7)))
    assert (slow.method, slow.step_s) == (PlacementMethod.SINGLE_DEVICE, 4.0)


def test_transfers_in_one_direction_wait_for_each_other() -> None:
    graph = OperationGraph(
        operations=tuple(Operation(name=f"op.{n}", seconds=1.0) for n in range(4)),
        edges=(
            OperationEdge(producer=0, consumer=2, size=1e9),
            OperationEdge(producer=0, consumer=3, size=1e9),
        ),
    )
    problem = OperationProblem(
        graph=graph, devices=3, link=LinkSpeed(bytes_per_s=1e9), memory_bytes=1e9
    )
    assert placed_s(problem, (0, 0, 1, 1), (0, 1, 2, 3)) == pytest.approx(4)
    assert placed_s(problem, (0, 0, 1, 2), (0, 1, 2, 3)) == pytest.approx(3)


def test_graphs_are_coarsened_without_cycles() -> None:
    for seed in range(10):
        problem = drawn(seed, 120, devices=2)
        coarse = coarsen(problem, 60)
        assert len(coarse.graph.operations) <= 120
        assert sorted(n for members in coarse.members for n in members) == list(range(120))
        seconds = [operation.seconds for operation in coarse.graph.operations]
        whole = math.fsum(operation.seconds for operation in problem.graph.operations)
        assert math.fsum(seconds) == pytest.approx(whole)
        assert max(seconds) <= max(0.25 * whole / 2, 2.0)
        smaller = planned(replace(problem, graph=coarse.graph))
        expanded = coarse.expanded(smaller.placement)
        assert len(expanded) == 120
        for members, device in zip(coarse.members, smaller.placement, strict=True):
            assert {expanded[index] for index in members} == {device}


def test_a_chain_is_joined_to_as_few_as_are_wanted() -> None:
    graph = OperationGraph(
        operations=tuple(Operation(name=f"op.{n}", seconds=1.0) for n in range(64)),
        edges=tuple(OperationEdge(producer=n, consumer=n + 1, size=1.0) for n in range(63)),
    )
    problem = OperationProblem(
        graph=graph, devices=2, link=LinkSpeed(bytes_per_s=1e9), memory_bytes=1e9
    )
    assert len(coarsen(problem, 16).members) == 16
    with pytest.raises(ValueError, match="coarsening"):
        coarsen(problem, 0)


def test_memory_that_is_too_small_is_a_refusal() -> None:
    refusal = placement_plan(drawn(1, 10, memory=1e8))
    assert isinstance(refusal, PlanRefusal)
    assert refusal.constraint is PlanConstraint.DEVICE_MEMORY
    assert refusal.need > refusal.have == 1e8


def test_graphs_that_cannot_be_are_refused() -> None:
    pair = tuple(Operation(name=name, seconds=1.0) for name in ("a", "b"))
    there = OperationEdge(producer=0, consumer=1, size=1.0)
    for edges, text in (
        ((there, replace(there, producer=1, consumer=0)), "circle"),
        ((replace(there, consumer=0),), "no edge"),
        ((replace(there, consumer=7),), "no edge"),
        ((there, there), "two edges"),
        ((replace(there, size=math.nan),), "bytes"),
    ):
        with pytest.raises(ValueError, match=text):
            OperationGraph(operations=pair, edges=edges)
    with pytest.raises(ValueError, match="one name"):
        OperationGraph(operations=(pair[0], pair[0]), edges=())
    with pytest.raises(ValueError, match="names of operations"):
        Operation(name="a;b", seconds=1.0)
    with pytest.raises(ValueError, match="seconds"):
        Operation(name="a", seconds=-1.0)
    with pytest.raises(ValueError, match="operations, not 0"):
        OperationGraph(operations=(), edges=())
    problem = drawn(1, 5)
    with pytest.raises(ValueError, match="each operation once"):
        placed_s(problem, (0,) * 5, (0, 1, 2, 3))
    chain = OperationGraph(operations=pair, edges=(there,))
    with pytest.raises(ValueError, match="comes before operation 0"):
        placed_s(replace(problem, graph=chain), (0, 0), (1, 0))
