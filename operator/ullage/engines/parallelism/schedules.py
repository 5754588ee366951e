# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Orders of forward and backward passes: what each rank does, what frameworks admit, their time.

Stage s of p ranks with v chunks each lies on rank s % p. 1F1B is PipeDream-Flush (ICML 2021);
Interleaved1F1B is that of PTD-P (SC 2021, section 2.2) with the rounds of torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from ullage.engines.parallelism.records import (
    MOST_DEVICES,
    MOST_MICROBATCHES,
    PipelineSchedule,
    TrainingFramework,
    not_negative,
    whole,
)

MOST_CHUNKS: Final = 64
NOT_EXECUTED: Final = (
    "2BW is simulated only: schedules of maintained frameworks have no optimizer step inside"
)
"""torch's schedule actions end with REDUCE_GRAD; Megatron and DeepSpeed step after the flush."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePass:
    """One pass of a microbatch through a stage.

    Attributes:
        stage: The stage, 0 is the first.
        microbatch: The microbatch.
        backward: Its backward pass.
    """

    stage: int
    microbatch: int
    backward: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Seconds of a microbatch in each stage.

    Raises:
        ValueError: there are no stages, or the lists differ in length or hold no times.
    """

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.forward_s or len(self.forward_s) != len(self.backward_s):
            raise ValueError("each stage has one forward and one backward time")
        for seconds in (*self.forward_s, *self.backward_s):
            not_negative(seconds, "seconds of a stage")

    @property
    def both_s(self) -> tuple[float, ...]:
        """Forward and backward of each stage."""
        pairs = zip(self.forward_s, self.backward_s, strict=True)
        return tuple(forward + backward for forward, backward in pairs)


def passes(
    schedule: PipelineSchedule, ranks: int, microbatches: int, chunks: int = 1
) -> tuple[tuple[SchedulePass, ...], ...]:
    """Passes of every rank, in order.

    Args:
        schedule: The schedule; of 2BW the passes of its first two updates, a flush after them.
        ranks: Of the pipeline.
        microbatches: Of a step.
        chunks: Stages on each rank; more than one for Interleaved1F1B only.

    Raises:
        ValueError: a number is out of range, or no such schedule exists.
    """
    whole(ranks, "ranks of a pipeline", most=MOST_DEVICES)
    whole(microbatches, "microbatches of a step", most=MOST_MICROBATCHES)
    whole(chunks, "chunks of a rank", most=MOST_CHUNKS)
    if chunks > 1 and schedule is not PipelineSchedule.INTERLEAVED:
        raise ValueError(f"{schedule} has one stage on each rank, not {chunks}")
    match schedule:
        case PipelineSchedule.GPIPE:
            return tuple(_in_turn(rank, microbatches, microbatches) for rank in range(ranks))
        case PipelineSchedule.ONE_FORWARD_ONE_BACKWARD:
            return tuple(_in_turn(rank, microbatches, ranks - rank) for rank in range(ranks))
        case PipelineSchedule.TWO_BUFFERED_WEIGHTS:
            return tuple(_in_turn(rank, 2 * microbatches, ranks - rank) for rank in range(ranks))
        case PipelineSchedule.INTERLEAVED:
            if microbatches % _rounds(ranks, microbatches):
                raise ValueError(
                    f"{microbatches} microbatches do not divide into rounds of {ranks} ranks"
                )
            return tuple(_interleaved(rank, ranks, microbatches, chunks) for rank in range(ranks))
        case _:
            assert_never(schedule)


def _in_turn(rank: int, microbatches: int, ahead: int) -> tuple[SchedulePass, ...]:
    """So many forward passes ahead of the backward passes, then both in turn."""
    ahead = min(ahead, microbatches)
    order = [SchedulePass(stage=rank, microbatch=n, backward=False) for n in range(ahead)]
    for number in range(microbatches):
        order.append(SchedulePass(stage=rank, microbatch=number, backward=True))
        if (following := number + ahead) < microbatches:
            order.append(SchedulePass(stage=rank, microbatch=following, backward=False))
    return tuple(order)


def _interleaved(rank: int, ranks: int, microbatches: int, chunks: int) -> tuple[SchedulePass, ...]:
    group = microbatches // _rounds(ranks, microbatches)
    total = microbatches * chunks

    def numbered(number: int, *, backward: bool) -> SchedulePass:
        chunk = number // group % chunks
        if backward:
            chunk = chunks - 1 - chunk
        microbatch = number // (group * chunks) * group + number % group
        return SchedulePass(stage=chunk * ranks + rank, microbatch=microbatch, backward=backward)

    ahead = ahead_of_backward(PipelineSchedule.INTERLEAVED, rank, ranks, microbatches, chunks)
    order = [numbered(number, backward=False) for number in range(ahead)]
    for number in range(total):
        order.append(numbered(number, backward=True))
        if number + ahead < total:
            order.append(numbered(number + ahead, backward=False))
    return tuple(order)


def _rounds(ranks: int, microbatches: int) -> int:
    return max(1, microbatches // ranks)


def ahead_of_backward(
    schedule: PipelineSchedule, rank: int, ranks: int, microbatches: int, chunks: int = 1
) -> int:
    """Microbatches (of chunks) whose activations a rank keeps at most.

    p - r for 1F1B and 2BW, m for GPipe, 2 (p - r - 1) + (v - 1) * group + 1 for Interleaved1F1B
    (Megatron's and torch's warm-up, and the pass that follows it), never more than there are.
    """
    match schedule:
        case PipelineSchedule.GPIPE:
            return microbatches
        case PipelineSchedule.ONE_FORWARD_ONE_BACKWARD:
            return min(microbatches, ranks - rank)
        case PipelineSchedule.TWO_BUFFERED_WEIGHTS:
            return min(2 * microbatches, ranks - rank)
        case PipelineSchedule.INTERLEAVED:
            group = microbatches // _rounds(ranks, microbatches)
            warm = 2 * (ranks - rank - 1) + (chunks - 1) * group
            return min(microbatches * chunks, warm + 1)
        case _:
            assert_never(schedule)


def schedule_fault(
    schedule: PipelineSchedule,
    framework: TrainingFramework,
    *,
    ranks: int,
    microbatches: int,
    chunks: int = 1,
) -> str:
    """Reason of a framework to refuse a schedule; empty = it takes it.

    Args:
        schedule: The schedule.
        framework: The framework.
        ranks: Of the pipeline.
        microbatches: Of each pipeline in a step.
        chunks: Stages on each rank.
    """
    torch = framework in (TrainingFramework.TORCHTITAN, TrainingFramework.TORCH_PIPELINING)
    if chunks > 1 and schedule is not PipelineSchedule.INTERLEAVED:
        return f"{schedule} has one stage on each rank, not {chunks}"
    if schedule is PipelineSchedule.TWO_BUFFERED_WEIGHTS:
        return NOT_EXECUTED
    if ranks == 1 and chunks == 1:
        return ""
    if not torch and framework is not TrainingFramework.MEGATRON:
        if framework is TrainingFramework.DEEPSPEED:
            known = schedule is PipelineSchedule.ONE_FORWARD_ONE_BACKWARD
            return "" if known else f"DeepSpeed has no {schedule}"
        return f"{framework} has no pipelines"
    match schedule:
        case PipelineSchedule.GPIPE:
            return "" if torch else "Megatron has no GPipe"
        case PipelineSchedule.ONE_FORWARD_ONE_BACKWARD:
            if torch and microbatches < ranks:
                return f"1F1B needs {ranks} microbatches, not {microbatches}"
            return ""
        case PipelineSchedule.INTERLEAVED:
            if torch:
                rounds = _rounds(ranks, microbatches)
                fits = microbatches % rounds == 0
                return "" if fits else f"{microbatches} microbatches are not {rounds} equal rounds"
            if microbatches % ranks:
                return f"{microbatches} microbatches are no multiple of {ranks} ranks"
            return ""
        case _:
            assert_never(schedule)


def executable_by(
    schedule: PipelineSchedule, *, ranks: int, microbatches: int, chunks: int = 1
) -> tuple[TrainingFramework, ...]:
    """Frameworks that take a schedule; arguments of :func:`schedule_fault`."""
    return tuple(
        framework
        for framework in TrainingFramework
        if not schedule_fault(
            schedule, framework, ranks=ranks, microbatches=microbatches, chunks=chunks
        )
    )


def step_s(
    schedule: PipelineSchedule, times: StageTimes, microbatches: int, chunks: int = 1
) -> float:
    """Predicted step; exact for equal stages (derived).

    GPipe: the forward and the backward passes are two flow shops, each sum + (m - 1) * largest,
    exact. 1F1B: sum of the stages + (m - 1) * the slowest, an upper bound where all stages have one
    ratio of backward to forward. Interleaved1F1B: (sum of the ranks - the slowest) / v + m * the
    slowest, near for chunks that are nearly equal. 2BW: m * the slowest: nothing is flushed.

    Args:
        schedule: The schedule.
        times: Of the stages, ranks times chunks of them, chunk by chunk.
        microbatches: Of a step.
        chunks: Stages on each rank.

    Raises:
        ValueError: the chunks do not divide the stages.
    """
    if len(times.forward_s) % chunks:
        raise ValueError(f"{len(times.forward_s)} stages are not {chunks} on each rank")
    ranks = len(times.forward_s) // chunks
    both = [math.fsum(times.both_s[rank::ranks]) for rank in range(ranks)]
    match schedule:
        case PipelineSchedule.GPIPE:
            return _flow_s(times.forward_s, microbatches) + _flow_s(times.backward_s, microbatches)
        case PipelineSchedule.ONE_FORWARD_ONE_BACKWARD:
            return _flow_s(both, microbatches)
        case PipelineSchedule.INTERLEAVED:
            return (math.fsum(both) - max(both)) / chunks + microbatches * max(both)
        case PipelineSchedule.TWO_BUFFERED_WEIGHTS:
            return microbatches * max(both)
        case _:
            assert_never(schedule)


def _flow_s(stages: Sequence[float], microbatches: int) -> float:
    return math.fsum(stages) + (microbatches - 1) * max(stages)
