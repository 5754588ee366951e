# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage_node.telemetry.progress import MARKS_MAX, PaceMark, StepPace

SECOND = 10**9


def a_loop(seconds: int, *, step_ms: int, solo_ms: int, start: int = 0) -> list[PaceMark]:
    """Marks of a loop that is looked at every second."""
    marks = []
    for second in range(start, start + seconds):
        steps = second * 1000 // step_ms
        busy = steps * step_ms * 10**6
        solo = steps * solo_ms * 10**6 + 1
        marks.append(PaceMark(steps=steps, last_step_ns=SECOND + busy, busy_ns=busy, solo_ns=solo))
    return marks


def after(marks: list[PaceMark]) -> StepPace:
    pace = StepPace()
    for mark in marks:
        pace.take(mark)
    return pace


def test_both_times_come_from_the_same_steps() -> None:
    pace = after(a_loop(30, step_ms=20, solo_ms=8))
    assert (pace.step_micros(1), pace.solo_step_micros()) == (20_000, 8_000)


@given(step_ms=st.integers(1, 20_000), part=st.integers(1, 100), seconds=st.integers(2, 400))
def test_a_steady_loop_reads_as_itself_at_every_length(
    step_ms: int, part: int, seconds: int
) -> None:
    solo_ms = max(1, step_ms * part // 100)
    pace = after(a_loop(seconds, step_ms=step_ms, solo_ms=solo_ms))
    assert pace.step_micros(step_ms * 10**6) == step_ms * 1000
    assert pace.solo_step_micros() in (0, solo_ms * 1000)


def test_time_alone_is_not_guessed_from_a_short_stretch() -> None:
    assert after(a_loop(5, step_ms=20, solo_ms=8)).solo_step_micros() == 0
    assert after(a_loop(7, step_ms=20, solo_ms=8)).solo_step_micros() == 8_000


def test_time_alone_is_not_guessed_from_few_steps() -> None:
    assert after(a_loop(15, step_ms=6000, solo_ms=8)).solo_step_micros() == 0
    assert after(a_loop(25, step_ms=6000, solo_ms=8)).solo_step_micros() == 8_000


def test_before_two_marks_the_containers_own_average_counts_if_its_steps_are_long() -> None:
    assert StepPace().step_micros(0) == 0
    pace = after([PaceMark(steps=3, last_step_ns=SECOND)])
    assert pace.step_micros(7 * SECOND) == 7_000_000
    assert pace.step_micros(950_000) == 0  # pauses of a quota lie between such steps


def test_a_servers_waiting_between_requests_does_not_count() -> None:
    marks = [
        PaceMark(
            steps=n, last_step_ns=SECOND * n * 10, busy_ns=n * 5_000_000, solo_ns=n * 2_000_000
        )
        for n in range(1, 10)
    ]
    pace = after(marks)
    assert (pace.step_micros(1), pace.solo_step_micros()) == (5_000, 2_000)


def test_a_writer_without_the_sum_is_timed_by_the_clock() -> None:
    marks = [PaceMark(steps=n, last_step_ns=n * 30_000_000) for n in (1, 50, 100)]
    assert after(marks).step_micros(1) == 30_000


def test_a_device_without_a_reference_has_no_time_alone() -> None:
    marks = [PaceMark(steps=n * 50, last_step_ns=n * SECOND) for n in range(1, 60)]
    assert after(marks).solo_step_micros() == 0


def test_steps_that_go_backwards_are_a_new_beginning() -> None:
    pace = after(a_loop(30, step_ms=20, solo_ms=8))
    pace.take(PaceMark(steps=2, last_step_ns=500 * SECOND, busy_ns=2, solo_ns=5))
    assert (pace.step_micros(9 * SECOND), pace.solo_step_micros()) == (9_000_000, 0)
    for n in range(1, 10):
        pace.take(
            PaceMark(
                steps=2 + n,
                last_step_ns=(500 + n) * SECOND,
                busy_ns=2 + n * SECOND,
                solo_ns=5 + n * 10**8,
            )
        )
    assert (pace.step_micros(1), pace.solo_step_micros()) == (1_000_000, 100_000)


@pytest.mark.parametrize(
    "mark",
    [
        PaceMark(steps=5000, last_step_ns=1, busy_ns=10**12, solo_ns=10**12),
        PaceMark(steps=5000, last_step_ns=10**12, busy_ns=1, solo_ns=10**12),
        PaceMark(steps=5000, last_step_ns=10**12, busy_ns=10**12, solo_ns=1),
    ],
)
def test_any_counter_that_goes_backwards_is_a_new_beginning(mark: PaceMark) -> None:
    pace = after(a_loop(30, step_ms=20, solo_ms=8))
    pace.take(mark)
    assert pace.step_micros(4 * SECOND) == 4_000_000


def test_a_counter_of_the_node_that_is_missing_once_changes_nothing() -> None:
    marks = a_loop(30, step_ms=20, solo_ms=8)
    pace = after(marks[:20])
    blind = marks[20]
    pace.take(PaceMark(steps=blind.steps, last_step_ns=blind.last_step_ns, busy_ns=blind.busy_ns))
    assert pace.solo_step_micros() == 8_000
    for mark in marks[21:]:
        pace.take(mark)
    assert pace.solo_step_micros() == 8_000


def test_looking_again_at_the_same_step_changes_nothing() -> None:
    pace = after(a_loop(30, step_ms=20, solo_ms=8))
    last = a_loop(30, step_ms=20, solo_ms=8)[-1]
    for _ in range(1000):
        pace.take(replace(last, solo_ns=last.solo_ns * 9))
    assert (pace.step_micros(1), pace.solo_step_micros()) == (20_000, 8_000)


def test_what_is_long_ago_is_forgotten() -> None:
    marks = a_loop(100, step_ms=20, solo_ms=8)
    last = marks[-1]
    for n in range(1, 91):
        marks.append(
            PaceMark(
                steps=last.steps + n * 10,
                last_step_ns=last.last_step_ns + n * SECOND,
                busy_ns=last.busy_ns + n * SECOND,
                solo_ns=last.solo_ns + n * SECOND // 2,
            )
        )
    pace = after(marks)
    assert (pace.step_micros(1), pace.solo_step_micros()) == (100_000, 50_000)


def test_slow_steps_are_looked_back_at_further() -> None:
    pace = after(a_loop(3000, step_ms=30_000, solo_ms=10_000))
    assert (pace.step_micros(1), pace.solo_step_micros()) == (30_000_000, 10_000_000)


def test_memory_is_bounded_whatever_a_tenant_writes() -> None:
    pace = StepPace()
    for n in range(1, 10 * MARKS_MAX):
        pace.take(PaceMark(steps=n, last_step_ns=n))
    assert len(pace._marks) <= MARKS_MAX
