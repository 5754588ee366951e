# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Schedules never deadlock, take the predicted time, and keep as many activations as is said."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.parallelism.records import PipelineSchedule, TrainingFramework
from ullage.engines.parallelism.replay import replay
from ullage.engines.parallelism.schedules import (
    NOT_EXECUTED,
    SchedulePass,
    StageTimes,
    ahead_of_backward,
    executable_by,
    passes,
    schedule_fault,
    step_s,
)

GPIPE = PipelineSchedule.GPIPE
FLUSH = PipelineSchedule.ONE_FORWARD_ONE_BACKWARD
INTERLEAVED = PipelineSchedule.INTERLEAVED
TWO = PipelineSchedule.TWO_BUFFERED_WEIGHTS
TORCH = TrainingFramework.TORCH_PIPELINING
MEGATRON = TrainingFramework.MEGATRON


def equal(stages: int) -> StageTimes:
    """Stages that take one and two seconds."""
    return StageTimes(forward_s=(1.0,) * stages, backward_s=(2.0,) * stages)


@pytest.mark.parametrize("schedule", [GPIPE, FLUSH])
@pytest.mark.parametrize("ranks", range(1, 9))
def test_flushed_schedules_have_their_bubble_and_peak(
    schedule: PipelineSchedule, ranks: int
) -> None:
    for microbatches in (*range(1, 13), 32, 64):
        played = replay(passes(schedule, ranks, microbatches), equal(ranks))
        assert played.makespan_s == pytest.approx(step_s(schedule, equal(ranks), microbatches))
        assert played.bubble == pytest.approx((ranks - 1) / microbatches)
        assert played.kept == tuple(
            ahead_of_backward(schedule, rank, ranks, microbatches) for rank in range(ranks)
        )
        if schedule is FLUSH and microbatches >= ranks:
            assert played.kept == tuple(range(ranks, 0, -1))


@pytest.mark.parametrize("chunks", [1, 2, 3, 4])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8, 16])
def test_interleaved_schedules_have_their_bubble_and_peak(ranks: int, chunks: int) -> None:
    for rounds in (1, 2, 4):
        microbatches = ranks * rounds
        order = passes(INTERLEAVED, ranks, microbatches, chunks)
        times = equal(ranks * chunks)
        played = replay(order, times)
        assert played.makespan_s == pytest.approx(step_s(INTERLEAVED, times, microbatches, chunks))
        assert played.bubble == pytest.approx((ranks - 1) / (microbatches * chunks))
        assert played.kept == tuple(
            ahead_of_backward(INTERLEAVED, rank, ranks, microbatches, chunks)
            for rank in range(ranks)
        )


@pytest.mark.parametrize(
    ("ranks", "microbatches", "chunks", "kept"), [(4, 8, 2, 11), (8, 64, 2, 23), (8, 64, 4, 39)]
)
def test_the_first_rank_of_an_interleaved_pipeline_keeps_most(
    ranks: int, microbatches: int, chunks: int, kept: int
) -> None:
    assert ahead_of_backward(INTERLEAVED, 0, ranks, microbatches, chunks) == kept


@given(
    forward=st.lists(st.floats(0.1, 10), min_size=1, max_size=6),
    ratio=st.floats(0.5, 4),
    more=st.integers(0, 8),
)
def test_the_formulas_bound_schedules_of_uneven_stages(
    forward: list[float], ratio: float, more: int
) -> None:
    backward = tuple(time * ratio for time in forward)
    times = StageTimes(forward_s=tuple(forward), backward_s=backward)
    ranks = len(forward)
    microbatches = ranks + more
    gpipe = replay(passes(GPIPE, ranks, microbatches), times)
    assert gpipe.makespan_s == pytest.approx(step_s(GPIPE, times, microbatches))
    played = replay(passes(FLUSH, ranks, microbatches), times)
    assert played.makespan_s >= microbatches * max(times.both_s) * (1 - 1e-9)
    assert played.makespan_s <= step_s(FLUSH, times, microbatches) * (1 + 1e-9)


def test_two_buffers_do_without_the_flush() -> None:
    ranks, microbatches = 4, 8
    played = replay(passes(TWO, ranks, microbatches), equal(ranks))
    last = played.ends_s[SchedulePass(stage=0, microbatch=2 * microbatches - 1, backward=True)]
    first = played.ends_s[SchedulePass(stage=0, microbatch=microbatches - 1, backward=True)]
    assert last - first == pytest.approx(step_s(TWO, equal(ranks), microbatches))
    assert played.kept == (4, 3, 2, 1)
    assert executable_by(TWO, ranks=ranks, microbatches=microbatches) == ()
    assert schedule_fault(TWO, MEGATRON, ranks=4, microbatches=8) == NOT_EXECUTED


def test_frameworks_admit_what_they_can_run() -> None:
    admitted = {
        number
        for number in range(4, 14)
        if not schedule_fault(INTERLEAVED, TORCH, ranks=4, microbatches=number, chunks=2)
    }
    assert admitted == {4, 5, 6, 7, 8, 10, 12}
    assert not schedule_fault(INTERLEAVED, MEGATRON, ranks=4, microbatches=8, chunks=2)
    assert "multiple of 4" in schedule_fault(
        INTERLEAVED, MEGATRON, ranks=4, microbatches=10, chunks=2
    )
    assert "needs 4" in schedule_fault(FLUSH, TORCH, ranks=4, microbatches=3)
    assert not schedule_fault(FLUSH, MEGATRON, ranks=4, microbatches=3)
    assert "no GPipe" in schedule_fault(GPIPE, MEGATRON, ranks=4, microbatches=8)
    assert "one stage" in schedule_fault(FLUSH, TORCH, ranks=4, microbatches=8, chunks=2)
    assert TrainingFramework.FSDP not in executable_by(FLUSH, ranks=4, microbatches=8)
    assert executable_by(FLUSH, ranks=1, microbatches=1) == tuple(TrainingFramework)


def test_orders_that_cannot_end_are_refused() -> None:
    early = SchedulePass(stage=0, microbatch=0, backward=True)
    forward = SchedulePass(stage=0, microbatch=0, backward=False)
    with pytest.raises(ValueError, match="deadlocks: rank 0 waits for the backward pass"):
        replay([[early, forward]], equal(1))
    with pytest.raises(ValueError, match="twice"):
        replay([[forward, forward]], equal(1))
    with pytest.raises(ValueError, match="no times"):
        replay([[SchedulePass(stage=3, microbatch=0, backward=False)]], equal(1))


def test_schedules_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="rounds"):
        passes(INTERLEAVED, 4, 9, 2)
    with pytest.raises(ValueError, match="one stage on each rank"):
        passes(FLUSH, 4, 8, 2)
    with pytest.raises(ValueError, match="microbatches"):
        passes(FLUSH, 4, 10**7)
    with pytest.raises(ValueError, match="chunks"):
        passes(INTERLEAVED, 4, 8, 0)
    with pytest.raises(ValueError, match="on each rank"):
        step_s(INTERLEAVED, equal(5), 8, 2)
    for wrong in ((), (math.nan,)):
        with pytest.raises(ValueError, match="stage"):
            StageTimes(forward_s=wrong, backward_s=wrong)
