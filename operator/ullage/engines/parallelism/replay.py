# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replays a schedule event by event: its makespan, idle time and activations that are kept.

A pass begins when its rank has ended the one before and what it needs has come: a forward pass the
one of the stage before, a backward pass its own forward pass and the backward pass of the stage
after. It must never end in a deadlock without an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ullage.engines.parallelism.schedules import SchedulePass, StageTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleReplay:
    """A replayed schedule.

    Attributes:
        makespan_s: From the first pass to the end of the last.
        bubble: Idle time of the ranks beside the time that the busiest one computes.
        kept: Most microbatches (of chunks) whose activations each rank keeps at once.
        ends_s: End of every pass.
    """

    makespan_s: float
    bubble: float
    kept: tuple[int, ...]
    ends_s: dict[SchedulePass, float]


def replay(order: Sequence[Sequence[SchedulePass]], times: StageTimes) -> ScheduleReplay:
    """Replay the passes of all ranks.

    Args:
        order: Of each rank.
        times: Of the stages.

    Raises:
        ValueError: the order deadlocks, does a pass twice, or names a stage without times.
    """
    stages = len(times.forward_s)
    ends: dict[SchedulePass, float] = {}
    following = [0] * len(order)
    free = [0.0] * len(order)
    kept, most = [0] * len(order), [0] * len(order)
    ready = list(range(len(order)))
    # the rank that waits for a pass to end: passes are needed by one other rank at most
    waiting: dict[SchedulePass, int] = {}
    while ready:
        rank = ready.pop()
        while following[rank] < len(order[rank]):
            item = order[rank][following[rank]]
            if not 0 <= item.stage < stages:
                raise ValueError(f"stage {item.stage} has no times")
            if item in ends:
                raise ValueError(f"{_said(item)} is there twice")
            needs = _needs(item, stages)
            missing = next((need for need in needs if need not in ends), None)
            if missing is not None:
                waiting[missing] = rank
                break
            begin = max((ends[need] for need in needs), default=0.0)
            seconds = times.backward_s if item.backward else times.forward_s
            free[rank] = max(begin, free[rank]) + seconds[item.stage]
            ends[item] = free[rank]
            kept[rank] += -1 if item.backward else 1
            most[rank] = max(most[rank], kept[rank])
            following[rank] += 1
            if (woken := waiting.pop(item, None)) is not None:
                ready.append(woken)
    stuck = [rank for rank, items in enumerate(order) if following[rank] < len(items)]
    if stuck:
        item = order[stuck[0]][following[stuck[0]]]
        raise ValueError(f"the schedule deadlocks: rank {stuck[0]} waits for {_said(item)}")
    makespan = max(free, default=0.0)
    busy = [
        sum((times.backward_s if item.backward else times.forward_s)[item.stage] for item in items)
        for items in order
    ]
    largest = max(busy, default=0.0)
    return ScheduleReplay(
        makespan_s=makespan,
        bubble=makespan / largest - 1 if largest else 0.0,
        kept=tuple(most),
        ends_s=ends,
    )


def _needs(item: SchedulePass, stages: int) -> list[SchedulePass]:
    """Passes that have to end before one begins."""
    if not item.backward:
        if not item.stage:
            return []
        return [SchedulePass(stage=item.stage - 1, microbatch=item.microbatch, backward=False)]
    needs = [SchedulePass(stage=item.stage, microbatch=item.microbatch, backward=False)]
    if item.stage < stages - 1:
        needs.append(SchedulePass(stage=item.stage + 1, microbatch=item.microbatch, backward=True))
    return needs


def _said(item: SchedulePass) -> str:
    kind = "backward" if item.backward else "forward"
    return f"the {kind} pass of microbatch {item.microbatch} in stage {item.stage}"
