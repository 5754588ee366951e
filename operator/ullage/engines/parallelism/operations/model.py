# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Operations of one step, their placement, and the time that a placement and an order take.

A device runs one operation at a time. Each direction between two devices carries one transfer at a
time, in the order in which their consumers come (Pesto, Middleware 2021: congested links).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ullage.engines.parallelism.records import NAME, LinkSpeed, not_negative, positive, whole

MOST_OPERATIONS: Final = 4_096
MOST_EDGES: Final = 32_768
MOST_NODE_DEVICES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A call of a module, forward and backward.

    Attributes:
        name: Unique in its graph.
        seconds: On any of the devices.
        memory_bytes: Weights, state and what is kept; a device has to hold the sum (an upper bound
            of its peak).

    Raises:
        ValueError: the name cannot be an argument, or a figure is negative or not a number.
    """

    name: str
    seconds: float
    memory_bytes: float = 0.0

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(
                f"names of operations have letters, digits, _ and . only, not {self.name[:80]!r}"
            )
        not_negative(self.seconds, f"seconds of operation {self.name}")
        not_negative(self.memory_bytes, f"memory of operation {self.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationEdge:
    """Bytes that one operation gives to another, by their indices."""

    producer: int
    consumer: int
    size: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationGraph:
    """Operations without cycles; at most one edge from one to another.

    Raises:
        ValueError: there are none or too many, two share a name, or edges are wrong or go round.
    """

    operations: tuple[Operation, ...]
    edges: tuple[OperationEdge, ...]

    def __post_init__(self) -> None:
        count = len(self.operations)
        if not 0 < count <= MOST_OPERATIONS:
            raise ValueError(f"a graph has 1 to {MOST_OPERATIONS} operations, not {count}")
        if len(self.edges) > MOST_EDGES:
            raise ValueError(f"a graph has at most {MOST_EDGES} edges, not {len(self.edges)}")
        if len({operation.name for operation in self.operations}) < count:
            raise ValueError("two operations have one name")
        seen = set()
        for edge in self.edges:
            ends = (edge.producer, edge.consumer)
            if not all(0 <= end < count for end in ends) or edge.producer == edge.consumer:
                raise ValueError(f"no edge goes from operation {ends[0]} to {ends[1]}")
            not_negative(edge.size, f"bytes from operation {ends[0]} to {ends[1]}")
            if ends in seen:
                raise ValueError(f"two edges go from operation {ends[0]} to {ends[1]}")
            seen.add(ends)
        if len(self.sorted()) < count:
            raise ValueError("operations wait for each other in a circle")

    def sorted(self) -> tuple[int, ...]:
        """Indices in a topological order, the smallest first; short if there is a cycle."""
        waits = [0] * len(self.operations)
        after = self.outgoing()
        for edge in self.edges:
            waits[edge.consumer] += 1
        ready = [index for index, number in enumerate(waits) if not number]
        order = []
        while ready:
            order.append(index := heapq.heappop(ready))
            for edge in after[index]:
                waits[edge.consumer] -= 1
                if not waits[edge.consumer]:
                    heapq.heappush(ready, edge.consumer)
        return tuple(order)

    def incoming(self) -> list[list[OperationEdge]]:
        """Edges into each operation."""
        into: list[list[OperationEdge]] = [[] for _ in self.operations]
        for edge in self.edges:
            into[edge.consumer].append(edge)
        return into

    def outgoing(self) -> list[list[OperationEdge]]:
        """Edges out of each operation."""
        out: list[list[OperationEdge]] = [[] for _ in self.operations]
        for edge in self.edges:
            out[edge.producer].append(edge)
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationProblem:
    """A graph and equal devices of one node.

    Attributes:
        graph: The operations.
        devices: That may be used.
        link: From any device to any other, in one direction.
        memory_bytes: Of a device.
    """

    graph: OperationGraph
    devices: int
    link: LinkSpeed
    memory_bytes: float

    def __post_init__(self) -> None:
        whole(self.devices, "devices of a node", most=MOST_NODE_DEVICES)
        positive(self.memory_bytes, "memory of a device")

    def fits(self, placement: Sequence[int]) -> bool:
        """Every device holds what is placed on it."""
        return max(self.memories(placement)) <= self.memory_bytes

    def memories(self, placement: Sequence[int]) -> list[float]:
        """Bytes on each device."""
        held = [0.0] * self.devices
        for operation, device in zip(self.graph.operations, placement, strict=True):
            held[device] += operation.memory_bytes
        return held


class OperationTimeline:
    """Times of operations that are appended one by one, each on a device.

    Attributes:
        ends_s: End of each operation that was appended.
    """

    def __init__(self, problem: OperationProblem) -> None:
        self.ends_s: dict[int, float] = {}
        self._problem = problem
        self._incoming = problem.graph.incoming()
        self._device_of: dict[int, int] = {}
        self._free = [0.0] * problem.devices
        self._links: dict[tuple[int, int], float] = {}

    def end_on(self, index: int, device: int) -> float:
        """End of an operation if it came next, on a device.

        Raises:
            KeyError: an operation that it needs has not been appended.
        """
        return self._times(index, device)[0]

    def append(self, index: int, device: int) -> float:
        """Append an operation; its end. Errors as of :meth:`end_on`."""
        end, links = self._times(index, device)
        self._links.update(links)
        self._free[device] = self.ends_s[index] = end
        self._device_of[index] = device
        return end

    @property
    def makespan_s(self) -> float:
        """End of the last operation."""
        return max(self.ends_s.values(), default=0.0)

    def _times(self, index: int, device: int) -> tuple[float, dict[tuple[int, int], float]]:
        start = self._free[device]
        links: dict[tuple[int, int], float] = {}
        edges = sorted(
            self._incoming[index], key=lambda edge: (self.ends_s[edge.producer], edge.producer)
        )
        for edge in edges:
            came, end = self._device_of[edge.producer], self.ends_s[edge.producer]
            if came != device and edge.size:
                way = (came, device)
                begin = max(end, links.get(way, self._links.get(way, 0.0)))
                end = links[way] = begin + self._problem.link.send_s(edge.size)
            start = max(start, end)
        return start + self._problem.graph.operations[index].seconds, links


def placed_s(problem: OperationProblem, placement: Sequence[int], order: Sequence[int]) -> float:
    """Makespan of a placement in an order; replay of a plan.

    Args:
        problem: The problem.
        placement: Device of each operation.
        order: Indices of the operations, topological.

    Raises:
        ValueError: the order is not topological, or lacks or repeats an operation.
    """
    if sorted(order) != list(range(len(problem.graph.operations))):
        raise ValueError("an order has each operation once")
    timeline = OperationTimeline(problem)
    for index in order:
        try:
            timeline.append(index, placement[index])
        except KeyError as error:
            raise ValueError(f"operation {index} comes before operation {error.args[0]}") from error
    return timeline.makespan_s
