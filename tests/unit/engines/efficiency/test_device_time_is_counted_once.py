# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What nodes count grows the ledger once, whoever reads it and however often."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ullage.api.usage import DeviceTime, ObservedUsage
from ullage.engines.efficiency.ledger import NO_TIME, growth, mark_of, plus, total_of

HOUR = 3_600_000


def usage(allocated: int, used: int, withheld: int = 0, unmeasured: int = 0) -> ObservedUsage:
    return ObservedUsage(
        allocated_ms=allocated, used_ms=used, withheld_ms=withheld, unmeasured_ms=unmeasured
    )


def test_the_difference_of_the_counters_is_added() -> None:
    mark = mark_of([usage(1000, 400), usage(2000, 100, withheld=50)])
    now = [usage(5000, 1400), usage(2500, 600, withheld=70, unmeasured=5)]
    grown = growth(mark, now, held_ms=5000, slack_ms=0)
    assert grown == DeviceTime(allocated_ms=4500, used_ms=1500, withheld_ms=20, unmeasured_ms=5)
    assert grown.wasted_ms == 3000
    assert grown.held_ms == 4525


def test_a_second_entry_of_the_same_counters_adds_nothing() -> None:
    reports = [usage(5000, 1400)]
    assert growth(mark_of(reports), reports, held_ms=0, slack_ms=0) == NO_TIME


def test_time_that_no_counter_covers_is_unmeasured() -> None:
    mark = mark_of([usage(1000, 400), usage(1000, 400)])
    lost = DeviceTime(unmeasured_ms=700)
    missing = [usage(1500, 500), None]
    assert growth(mark, missing, held_ms=700, slack_ms=0) == lost
    another_member = [usage(1500, 500), usage(1100, 500), usage(1, 0)]
    assert growth(mark, another_member, held_ms=700, slack_ms=0) == lost
    backwards = [usage(1500, 500), usage(900, 400)]
    assert growth(mark, [backwards[1]] * 2, held_ms=700, slack_ms=0) == lost
    too_much = [usage(9 * HOUR, 500), usage(1100, 500)]
    assert growth(mark, too_much, held_ms=700, slack_ms=0) == lost
    more_used_than_allocated = [usage(1010, 900), usage(1000, 400)]
    assert growth(mark, more_used_than_allocated, held_ms=700, slack_ms=0) == lost


def test_a_slice_that_came_back_is_not_counted_again() -> None:
    whole = [usage(8 * HOUR, HOUR), usage(8 * HOUR, HOUR)]
    away = mark_of([whole[0], None])
    assert growth(away, whole, held_ms=60_000, slack_ms=0) == DeviceTime(unmeasured_ms=60_000)


COUNTS = st.integers(0, 2**53)
TIMES = st.builds(
    DeviceTime, allocated_ms=COUNTS, used_ms=COUNTS, withheld_ms=COUNTS, unmeasured_ms=COUNTS
)
STEPS = st.lists(
    st.tuples(st.integers(0, 5000), st.floats(0, 1), st.integers(0, 99), st.integers(0, 99)),
    min_size=1,
    max_size=12,
)


@given(st.lists(TIMES, max_size=5))
def test_used_and_wasted_are_the_allocated_time_whatever_is_stored(times: list[DeviceTime]) -> None:
    total = total_of(times)
    assert total.used_ms + total.wasted_ms == total.allocated_ms
    assert total.allocated_ms == sum(time.allocated_ms for time in times)


@given(st.lists(STEPS, min_size=1, max_size=4), st.sets(st.integers(0, 11)))
def test_entries_at_any_moments_add_up_to_the_counters(
    members: list[list[tuple[int, float, int, int]]], entries: set[int]
) -> None:
    """However often a row is entered, by whichever operator, it holds what the nodes counted."""
    now = [ObservedUsage() for _ in members]
    row, mark, held = NO_TIME, mark_of(now), 0
    rounds = max(map(len, members))
    for at in range(rounds):
        for member, steps in enumerate(members):
            if at < len(steps):
                allocated, part, withheld, unmeasured = steps[at]
                before = now[member]
                now[member] = replace(
                    before,
                    allocated_ms=before.allocated_ms + allocated,
                    used_ms=before.used_ms + int(allocated * part),
                    withheld_ms=before.withheld_ms + withheld,
                    unmeasured_ms=before.unmeasured_ms + unmeasured,
                )
                held += allocated + withheld + unmeasured
        if at in entries or at == rounds - 1:
            row = plus(row, growth(mark, now, held_ms=held, slack_ms=0))
            mark, held = mark_of(now), 0
    assert row == total_of(now)
    assert row.used_ms + row.wasted_ms == row.allocated_ms
