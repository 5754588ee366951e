# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks of a job in true time: they meet at the end of each step; each node has its own clock."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fakes.kineto_traces import (
    Event,
    copy,
    fetch,
    gloo,
    kernel,
    launch,
    nccl,
    operation,
    step,
    summary,
)
from ullage.engines.tracing.join import NodeTrace

BASE_NS = 1_790_857_026_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """Microseconds of one rank in each step."""

    compute: float = 3000.0
    data: float = 200.0
    copies: float = 0.0
    host: float = 0.0
    node: str = "a"


@dataclass(slots=True, kw_only=True)
class TracedJob:
    """A job whose ranks meet at two collectives a step."""

    ranks: Sequence[RankPlan]
    clocks: Mapping[str, float] = field(default_factory=dict)
    """Microseconds by which the clock of a node is ahead."""
    steps: int = 5
    transfer: float = 120.0
    """Microseconds from the last arrival to the end."""
    late_ends: float = 0.0
    """A span may end so much later than the collective."""
    luck: float = 30.0
    """Microseconds by which each part of a step may take longer."""
    device: bool = False
    seed: int = 1
    first_step: int = 1200

    def traces(self) -> list[NodeTrace]:
        """The summaries of all ranks."""
        draw = random.Random(self.seed)
        events: list[list[Event]] = [[] for _ in self.ranks]
        now = [draw.uniform(0, self.luck) for _ in self.ranks]
        for number in range(self.steps):
            begun = list(now)
            for half in range(2):
                arrived = []
                for rank, plan in enumerate(self.ranks):
                    now[rank] = self._work(events[rank], now[rank], plan, half, draw)
                    arrived.append(now[rank])
                done = max(arrived) + self.transfer
                for rank, start in enumerate(arrived):
                    end = done + draw.uniform(0, self.late_ends)
                    make = nccl if self.device else gloo
                    events[rank].append(make(start, end - start))
                    now[rank] = done + draw.uniform(0, self.luck)
            for rank, start in enumerate(begun):
                events[rank].append(step(number + 1, start, now[rank] - start))
        return [
            NodeTrace(
                rank=rank,
                node=plan.node,
                trace=summary(
                    [_moved(event, self.clocks.get(plan.node, 0.0)) for event in events[rank]],
                    baseTimeNanoseconds=BASE_NS,
                    ullage={"rank": rank, "world": len(self.ranks), "step": self.first_step},
                ),
            )
            for rank, plan in enumerate(self.ranks)
        ]

    def _work(
        self, events: list[Event], now: float, plan: RankPlan, half: int, draw: random.Random
    ) -> float:
        if half == 0:
            events.append(fetch(now, plan.data))
            now += plan.data + plan.host
        length = plan.compute / 2 + draw.uniform(0, self.luck)
        if self.device:
            events.append(launch(now, len(events)))
            events.append(kernel(now + 1, length - 1, len(events) - 1))
        else:
            events.append(operation(now, length))
        now += length
        if plan.copies:
            events.append(copy(now, plan.copies / 2))
            now += plan.copies / 2
        return now


def _moved(event: Event, ahead: float) -> Event:
    start = event["ts"]
    assert isinstance(start, int | float)
    return event | {"ts": start + ahead}
