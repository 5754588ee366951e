# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Places operations by their earliest end, and never worse than one device or halves of the order.

List schedule: operations by falling length of the path behind them, each on the device where it
ends first, transfers queued on their links. Beside it stand all operations on one device and every
cut of the topological order into contiguous parts of equal work; the best that fits is the plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ullage.engines.parallelism.operations.model import (
    OperationProblem,
    OperationTimeline,
    placed_s,
)
from ullage.engines.parallelism.records import PlanConstraint, PlanRefusal


class PlacementMethod(StrEnum):
    """Source of a placement."""

    SINGLE_DEVICE = "SingleDevice"
    TOPOLOGICAL_PARTS = "TopologicalParts"
    LIST_SCHEDULE = "ListSchedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationPlan:
    """A placement and an order.

    Attributes:
        placement: Device of each operation.
        order: Operations, topological.
        step_s: Predicted step.
        lower_bound_s: No plan is faster: the longest path, or the work by the devices.
        method: Where it comes from.
        memory_bytes: On each device.
    """

    placement: tuple[int, ...]
    order: tuple[int, ...]
    step_s: float
    lower_bound_s: float
    method: PlacementMethod
    memory_bytes: tuple[float, ...]

    @property
    def gap(self) -> float:
        """Upper bound of what another plan could save, a part of the step."""
        return max(0.0, 1 - self.lower_bound_s / self.step_s) if self.step_s else 0.0


def placement_plan(problem: OperationProblem) -> OperationPlan | PlanRefusal:
    """The best of the methods; equal steps go to the simpler one."""
    rank = path_behind(problem)
    order = tuple(sorted(problem.graph.sorted(), key=lambda index: -rank[index]))
    order = _topological(problem, order)
    best: tuple[float, PlacementMethod, tuple[int, ...]] | None = None
    for method, placement in _placements(problem, order):
        if problem.fits(placement):
            step = placed_s(problem, placement, order)
            if best is None or step < best[0]:
                best = step, method, placement
    if best is None:
        total = math.fsum(operation.memory_bytes for operation in problem.graph.operations)
        largest = max(operation.memory_bytes for operation in problem.graph.operations)
        return PlanRefusal(
            constraint=PlanConstraint.DEVICE_MEMORY,
            stage=None,
            need=max(largest, total / problem.devices),
            have=problem.memory_bytes,
        )
    step, method, placement = best
    return OperationPlan(
        placement=placement,
        order=order,
        step_s=step,
        lower_bound_s=lower_bound_s(problem),
        method=method,
        memory_bytes=tuple(problem.memories(placement)),
    )


def path_behind(problem: OperationProblem) -> list[float]:
    """Longest path from each operation to the end, with half of the transfers (derived).

    Whether an edge is cut is not known before operations are placed.
    """
    graph, behind = problem.graph, [0.0] * len(problem.graph.operations)
    after = graph.outgoing()
    for index in reversed(graph.sorted()):
        behind[index] = graph.operations[index].seconds + max(
            (behind[edge.consumer] + problem.link.send_s(edge.size) / 2 for edge in after[index]),
            default=0.0,
        )
    return behind


def lower_bound_s(problem: OperationProblem) -> float:
    """The longest path without transfers, or all work by the devices."""
    graph, behind = problem.graph, [0.0] * len(problem.graph.operations)
    after = graph.outgoing()
    for index in reversed(graph.sorted()):
        following = (behind[edge.consumer] for edge in after[index])
        behind[index] = graph.operations[index].seconds + max(following, default=0.0)
    work = math.fsum(operation.seconds for operation in graph.operations)
    return max(*behind, work / problem.devices)


def topological_parts(problem: OperationProblem, parts: int) -> tuple[int, ...]:
    """The placement of contiguous parts of the topological order, of about equal work."""
    operations = problem.graph.operations
    work = math.fsum(operation.seconds for operation in operations)
    placement, done = [0] * len(operations), 0.0
    for index in problem.graph.sorted():
        middle = done + operations[index].seconds / 2
        placement[index] = min(parts - 1, int(parts * middle / work)) if work else 0
        done += operations[index].seconds
    return tuple(placement)


def _topological(problem: OperationProblem, wanted: tuple[int, ...]) -> tuple[int, ...]:
    """The wanted order, each operation after those that it needs."""
    place = {index: number for number, index in enumerate(wanted)}
    into, after = problem.graph.incoming(), problem.graph.outgoing()
    waits = [len(edges) for edges in into]
    ready = {index for index, number in enumerate(waits) if not number}
    order = []
    while ready:
        index = min(ready, key=place.__getitem__)
        ready.remove(index)
        order.append(index)
        for edge in after[index]:
            waits[edge.consumer] -= 1
            if not waits[edge.consumer]:
                ready.add(edge.consumer)
    return tuple(order)


def _placements(
    problem: OperationProblem, order: tuple[int, ...]
) -> Iterator[tuple[PlacementMethod, tuple[int, ...]]]:
    yield PlacementMethod.SINGLE_DEVICE, (0,) * len(order)
    for parts in range(2, problem.devices + 1):
        yield PlacementMethod.TOPOLOGICAL_PARTS, topological_parts(problem, parts)
    listed = _earliest_ends(problem, order)
    if listed is not None:
        yield PlacementMethod.LIST_SCHEDULE, listed


def _earliest_ends(problem: OperationProblem, order: tuple[int, ...]) -> tuple[int, ...] | None:
    """Each operation where it ends first and fits; ``None`` = one fits nowhere any more."""
    timeline = OperationTimeline(problem)
    free = [problem.memory_bytes] * problem.devices
    placement = [0] * len(order)
    for index in order:
        size = problem.graph.operations[index].memory_bytes
        able = [device for device in range(problem.devices) if free[device] >= size]
        if not able:
            return None
        device = min(able, key=lambda candidate: (timeline.end_on(index, candidate), candidate))
        timeline.append(index, device)
        free[device] -= size
        placement[index] = device
    return tuple(placement)
