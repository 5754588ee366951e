# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Joins operations that had better stay together, until few are left (Pesto, section 5.3).

An edge is contracted only where no cycle can come of it: the consumer is its producer's only one,
or the producer its consumer's only one. Edges with many bytes beside little work go first; an
operation never grows beyond its part of work and memory, or it could not be balanced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ullage.engines.parallelism.operations.model import (
    Operation,
    OperationEdge,
    OperationGraph,
    OperationProblem,
)
from ullage.engines.parallelism.records import whole

LARGEST_PART: Final = 0.25
"""Of a device's work and memory that a joined operation may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoarseGraph:
    """A smaller graph.

    Attributes:
        graph: Its operations have the name of the first of theirs.
        members: Indices in the graph before, for each operation.
    """

    graph: OperationGraph
    members: tuple[tuple[int, ...], ...]

    def expanded(self, placement: tuple[int, ...]) -> tuple[int, ...]:
        """The placement of the operations before."""
        device_of = {
            index: device
            for members, device in zip(self.members, placement, strict=True)
            for index in members
        }
        return tuple(device_of[index] for index in range(len(device_of)))


def coarsen(problem: OperationProblem, target: int) -> CoarseGraph:
    """Join operations until ``target`` are left, or none may be joined.

    Raises:
        ValueError: the target is below 1.
    """
    whole(target, "operations after coarsening", most=2**31)
    graph = problem.graph
    coarse = CoarseGraph(graph=graph, members=tuple((n,) for n in range(len(graph.operations))))
    work = sum(operation.seconds for operation in graph.operations) / problem.devices
    limits = LARGEST_PART * work, LARGEST_PART * problem.memory_bytes
    while len(coarse.members) > target:
        smaller = _joined(coarse, limits, len(coarse.members) - target)
        if smaller is None:
            break
        coarse = smaller
    return coarse


def _joined(coarse: CoarseGraph, limits: tuple[float, float], most: int) -> CoarseGraph | None:
    """Contract up to ``most`` edges that share no operation; ``None`` = there are none."""
    graph = coarse.graph
    into, out = graph.incoming(), graph.outgoing()
    able = []
    for edge in graph.edges:
        first, second = graph.operations[edge.producer], graph.operations[edge.consumer]
        seconds = first.seconds + second.seconds
        small = seconds <= limits[0] and first.memory_bytes + second.memory_bytes <= limits[1]
        if small and (len(out[edge.producer]) == 1 or len(into[edge.consumer]) == 1):
            able.append((-edge.size / seconds if seconds else -edge.size, edge))
    able.sort(key=lambda item: (item[0], item[1].producer, item[1].consumer))
    touched: set[int] = set()
    joined: dict[int, int] = {}
    for _, edge in able:
        # what a contraction of this round touches has other neighbours now: it waits a round
        near = {edge.producer, edge.consumer}
        near |= {other.producer for index in near for other in into[index]}
        near |= {other.consumer for index in (edge.producer, edge.consumer) for other in out[index]}
        if len(joined) < most and not near & touched:
            joined[edge.consumer] = edge.producer
            touched |= near
    return _contracted(coarse, joined) if joined else None


def _contracted(coarse: CoarseGraph, joined: dict[int, int]) -> CoarseGraph:
    """The graph with consumers joined to their producers."""
    graph = coarse.graph
    kept = [index for index in range(len(graph.operations)) if index not in joined]
    number = {index: position for position, index in enumerate(kept)}
    number |= {consumer: number[producer] for consumer, producer in joined.items()}
    members: list[list[int]] = [list(coarse.members[index]) for index in kept]
    seconds = [graph.operations[index].seconds for index in kept]
    memory = [graph.operations[index].memory_bytes for index in kept]
    for consumer in joined:
        members[number[consumer]] += coarse.members[consumer]
        seconds[number[consumer]] += graph.operations[consumer].seconds
        memory[number[consumer]] += graph.operations[consumer].memory_bytes
    sizes: dict[tuple[int, int], float] = {}
    for edge in graph.edges:
        ends = number[edge.producer], number[edge.consumer]
        if ends[0] != ends[1]:
            sizes[ends] = sizes.get(ends, 0.0) + edge.size
    return CoarseGraph(
        graph=OperationGraph(
            operations=tuple(
                Operation(name=graph.operations[index].name, seconds=time, memory_bytes=size)
                for index, time, size in zip(kept, seconds, memory, strict=True)
            ),
            edges=tuple(
                OperationEdge(producer=producer, consumer=consumer, size=size)
                for (producer, consumer), size in sizes.items()
            ),
        ),
        members=tuple(tuple(sorted(item)) for item in members),
    )
