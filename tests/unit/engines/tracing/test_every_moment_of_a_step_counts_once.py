# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Breakdowns of traces with known truth, and of drawn ones beside a time line of moments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.kineto_traces import (
    copy,
    event,
    fetch,
    gloo,
    kernel,
    launch,
    nccl,
    operation,
    step,
    summary,
    wait,
)
from ullage.api.rank_traces import CriticalPath, RankTrace, TimeBreakdown
from ullage.engines.tracing.limits import TraceError

SPAN = 60
TIMES = st.lists(st.tuples(st.integers(0, SPAN - 1), st.integers(0, 15)), max_size=6)


def moments(pairs: list[tuple[int, int]]) -> set[int]:
    return {at for start, length in pairs for at in range(start, start + length) if at < SPAN}


def parts(breakdown: TimeBreakdown) -> tuple[int, ...]:
    return (
        breakdown.compute_micros,
        breakdown.communication_micros,
        breakdown.copies_micros,
        breakdown.data_wait_micros,
        breakdown.idle_micros,
        breakdown.overlapped_micros,
    )


@given(TIMES, TIMES, TIMES, TIMES)
def test_a_device_is_divided_by_priority(
    kernels: list[tuple[int, int]],
    collectives: list[tuple[int, int]],
    copies: list[tuple[int, int]],
    fetches: list[tuple[int, int]],
) -> None:
    events = [step(1, 0, SPAN), kernel(0, 0)]
    for make, times in ((kernel, kernels), (nccl, collectives), (copy, copies), (fetch, fetches)):
        events += [make(start, length) for start, length in times]
    found = summary(events).step
    compute, communication = moments(kernels), moments(collectives)
    moved, waited = moments(copies), moments(fetches)
    exposed = communication - compute
    assert found.span_micros == SPAN
    assert parts(found) == (
        len(compute),
        len(exposed),
        len(moved - compute - exposed),
        len(waited - compute - exposed - moved),
        SPAN - len(compute | exposed | moved | waited),
        len(compute & communication),
    )


@given(TIMES, TIMES, TIMES, TIMES)
def test_a_cpu_is_divided_by_its_operations(
    operations: list[tuple[int, int]],
    other_thread: list[tuple[int, int]],
    collectives: list[tuple[int, int]],
    fetches: list[tuple[int, int]],
) -> None:
    events = [step(1, 0, SPAN), operation(SPAN + 1, 1)]
    events += [operation(start, length) for start, length in operations]
    events += [operation(start, length, thread=99) for start, length in other_thread]
    events += [gloo(start, length) for start, length in collectives]
    events += [fetch(start, length) for start, length in fetches]
    found = summary(events).step
    waited = moments(fetches)
    own = [(start, length) for start, length in operations if start not in waited]
    compute = moments(own) | moments(other_thread)
    exposed = moments(collectives) - compute
    assert parts(found) == (
        len(compute),
        len(exposed),
        0,
        len(waited - compute - exposed),
        SPAN - len(compute | exposed | waited),
        len(compute & moments(collectives)),
    )


def two_steps() -> RankTrace:
    """Two steps; the device still works on the second one when the program has left it."""
    return summary(
        [
            step(7, 1000, 100),
            fetch(1000, 20),
            launch(1025, 1),
            kernel(1030, 50, 1),
            launch(1026, 2),
            nccl(1070, 30, 2),
            step(8, 1100, 100),
            launch(1190, 3),
            kernel(1195, 45, 3),
        ],
        baseTimeNanoseconds=5_000_000,
        ullage={"id": "abc", "rank": 3, "world": 4, "step": 1200},
    )


def test_work_that_the_last_step_started_belongs_to_it() -> None:
    found = two_steps()
    assert found.step.span_micros == 240
    assert parts(found.step) == (95, 20, 0, 20, 105, 10)
    assert found.steps.starts_micros == (0, 100)
    assert found.steps.spans_micros == (100, 140)
    assert found.steps.compute_micros == (50, 45)
    assert found.steps.communication_micros == (20, 0)
    assert found.steps.data_wait_micros == (20, 0)


def test_the_device_span_is_from_its_first_to_its_last_work() -> None:
    span = two_steps().device_span
    assert span is not None
    assert span.span_micros == 210
    assert parts(span) == (95, 20, 0, 0, 95, 10)


def test_what_the_hook_writes_is_taken() -> None:
    found = two_steps()
    assert (found.trace_id, found.rank, found.world_size) == ("abc", 3, 4)
    assert (found.first_step, found.step_marks, found.events) == (1200, 2, 9)
    assert found.start_micros == 6000


def test_a_trace_of_the_cpu_has_no_device_span() -> None:
    found = summary([step(1, 0, 10), operation(2, 4)], deviceProperties=[{"name": "H200"}])
    assert found.device_span is None
    assert found.device == ""
    assert parts(found.step) == (4, 0, 0, 0, 6, 0)


def test_a_trace_without_steps_counts_as_one() -> None:
    found = summary([operation(10, 5), operation(20, 10)])
    assert (found.step_marks, len(found.steps), found.step.span_micros) == (0, 1, 20)


def test_a_trace_without_work_is_refused() -> None:
    with pytest.raises(TraceError, match="no operation"):
        summary([step(1, 0, 10)])


def test_a_collective_of_the_cpu_is_no_computation() -> None:
    found = summary([step(1, 0, 100), operation(10, 50, "c10d::allreduce_"), operation(40, 30)])
    assert parts(found.step) == (30, 30, 0, 0, 40, 20)


def test_the_last_fifty_steps_are_kept() -> None:
    events = [step(number, number * 10, 10) for number in range(60)]
    events += [operation(number * 10, 1 + number % 3) for number in range(60)]
    found = summary(events, ullage={"step": 100})
    assert (found.step_marks, len(found.steps), found.first_step) == (60, 50, 110)
    assert found.steps.starts_micros[0] == 100
    assert found.steps.compute_micros[:3] == (2, 3, 1)
    assert found.step.span_micros == 600


def test_counters_rest_on_the_steps_alone() -> None:
    found = summary(
        [
            step(1, 0, 100),
            operation(5, 20),
            operation(6, 3, "aten::empty"),
            operation(30, 5, "aten::_local_scalar_dense"),
            operation(31, 2, "aten::item", thread=99),
            launch(6, 1),
            kernel(8, 5, 1),
            kernel(20, 15, 2),
            wait(40, 7),
            wait(200, 50),
            event("cuda_runtime", "cudaMalloc", 50, 4),
            copy(60, 9, "Pageable -> Device"),
            operation(300, 5),
        ]
    ).counters
    assert (found.kernels, found.short_kernels) == (2, 1)
    assert found.operations == 3
    assert found.scalar_reads == 1
    assert (found.synchronisations, found.synchronisation_micros) == (1, 7)
    assert (found.allocations, found.pageable_micros) == (1, 9)
    assert found.unlaunched_permille == 667


def test_operations_count_without_those_inside_them() -> None:
    found = summary(
        [
            step(1, 0, 100),
            operation(0, 50, "outer"),
            operation(10, 20, "inner"),
            operation(12, 5, "innermost"),
            operation(40, 10, "inner"),
            gloo(60, 30),
        ]
    ).operations
    assert {(one.name, one.micros, one.count) for one in found} == {
        ("inner", 25, 2),
        ("outer", 20, 1),
        ("innermost", 5, 1),
        ("gloo:all_reduce", 30, 1),
    }
    assert [one.micros for one in found] == [30, 25, 20, 5]


def test_the_critical_path_follows_the_later_predecessor() -> None:
    """Launches are early: the device is behind; then the program waits and launches late."""
    found = summary(
        [
            step(1, 0, 300),
            launch(10, 1),
            launch(12, 2),
            launch(14, 3),
            kernel(20, 60, 1),
            kernel(85, 40, 2),
            nccl(130, 30, 3),
            wait(20, 140),
            fetch(160, 50),
            launch(230, 4),
            kernel(240, 50, 4),
            wait(250, 42),
        ]
    ).critical_path
    # back: 300..290 program, 290..240 kernel 4, to its launch at 230, program to 160, where the
    # wait for the collective ended; collective, gap of 5, kernel 2, gap of 5, kernel 1, its launch
    assert found == CriticalPath(
        compute_micros=150,
        communication_micros=30,
        copies_micros=0,
        data_wait_micros=50,
        host_micros=60,
        idle_micros=10,
    )


WORK = st.lists(
    st.tuples(st.integers(0, 190), st.integers(0, 30), st.integers(0, 40), st.integers(0, 3)),
    min_size=1,
    max_size=12,
)
WAITS = st.lists(st.tuples(st.integers(0, 190), st.integers(0, 40)), max_size=5)


@given(WORK, WAITS)
def test_the_critical_path_fills_the_steps(
    work: list[tuple[int, int, int, int]], waits: list[tuple[int, int]]
) -> None:
    events = [step(1, 0, 200), *(wait(start, length) for start, length in waits)]
    for number, (start, later, length, stream) in enumerate(work):
        if stream:
            events.append(launch(start, number))
        events.append(kernel(start + later, length, number, stream=stream))
    found = summary(events)
    path = found.critical_path
    whole = path.compute_micros + path.host_micros + path.idle_micros
    assert abs(whole - found.step.span_micros) <= 2
