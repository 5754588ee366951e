# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Books of turns say what was had, what is owed and what time alone it was worth, to the second."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import NOW, a_job
from fakes.toy_rounds import FAST, SLOW, Turns, a_turn_policy, rates
from ullage.cluster.records.status import AllocationRecord, PairRecord
from ullage.engines.allocation.round_records import MEMORY_ROUNDS
from ullage.scheduling.timeslicing.round_records import (
    Entry,
    beside,
    closed,
    isolated_now,
    owed_s,
    pairs_owed_s,
    received_s,
    written,
)

ROUND_S = 60.0
LONG_S = 10_000.0
"""A round so long that no debt reaches what is remembered."""
WORTH = {FAST: 2.0, SLOW: 0.5}
"""Seconds alone on an equal part that a second on a type is worth."""


@dataclass(frozen=True)
class Stretch:
    """From a moment on a job holds a type and is promised a part of each."""

    seconds: int
    holds: str
    promised: int


STRETCHES = st.lists(
    st.builds(
        Stretch,
        seconds=st.integers(1, 500),
        holds=st.sampled_from(["", FAST, SLOW]),
        promised=st.sampled_from([1, 25, 50]),
    ),
    min_size=1,
    max_size=8,
)


def fractions(percent: int) -> tuple[tuple[str, str], ...]:
    return tuple((kind, f"{percent / 100:g}") for kind in (FAST, SLOW))


@given(stretches=STRETCHES)
def test_books_add_up_every_second_once(stretches: list[Stretch]) -> None:
    books: AllocationRecord | None = None
    now, began, before = NOW, 0.0, ""
    had: dict[str, float] = defaultdict(float)
    owed: dict[str, float] = defaultdict(float)
    alone = 0.0
    for stretch in stretches:
        began = began if stretch.holds == before else now
        entry = Entry(
            fractions=fractions(stretch.promised),
            holds=stretch.holds,
            began=began,
            worth=WORTH,
        )
        books = written(books, entry, now, LONG_S)
        now, before = now + stretch.seconds, stretch.holds
        for kind in (FAST, SLOW):
            owed[kind] += stretch.promised / 100 * stretch.seconds
        if stretch.holds:
            had[stretch.holds] += stretch.seconds
            owed[stretch.holds] -= stretch.seconds
            alone += stretch.seconds * WORTH[stretch.holds]
        assert received_s(books, now) == dict(had)
        said = owed_s(books, now, MEMORY_ROUNDS * LONG_S)
        for kind in (FAST, SLOW):
            assert said.get(kind, 0.0) == pytest.approx(owed[kind], abs=1.0)
        assert isolated_now(books, WORTH, now) == pytest.approx(alone, abs=1.0)


def test_a_debt_is_bounded_by_what_is_remembered() -> None:
    starved = written(None, Entry(fractions=fractions(50)), NOW, ROUND_S)
    rich = written(None, Entry(fractions=fractions(1), holds=FAST, began=NOW), NOW, ROUND_S)
    most_s = MEMORY_ROUNDS * ROUND_S
    later = NOW + 100 * most_s
    assert owed_s(starved, later, most_s) == {FAST: most_s, SLOW: most_s}
    assert owed_s(rich, later, most_s)[FAST] == -most_s


def test_a_debt_lapses_where_nothing_is_promised_any_more() -> None:
    books = written(None, Entry(fractions=fractions(50)), NOW, LONG_S)
    other = written(books, Entry(fractions=fractions(50)[:1]), NOW + 100, LONG_S)
    assert other.deficit_seconds == ((FAST, "50"),)


def test_books_say_what_a_promise_amounts_to() -> None:
    entry = Entry(fractions=fractions(50), effective=2.5, normalised=0.75)
    books = written(None, entry, NOW, ROUND_S)
    assert (books.effective_throughput, books.normalised_share) == ("2.5", "0.75")
    nothing = written(books, Entry(effective=2.5, normalised=0.75), NOW + 60, ROUND_S)
    assert (nothing.effective_throughput, nothing.normalised_share) == ("", "")


def test_a_job_that_is_passed_by_was_passed_by_since_the_first_time() -> None:
    first = written(None, Entry(fractions=fractions(25), skipped=True), NOW, ROUND_S)
    again = written(first, Entry(fractions=fractions(50), skipped=True), NOW + 90, ROUND_S)
    assert (first.skipped_since, again.skipped_since) == (NOW, NOW)
    served = written(again, Entry(fractions=fractions(50), holds=FAST), NOW + 120, ROUND_S)
    assert served.skipped_since == 0.0


def test_what_a_job_had_stays_in_its_books_when_it_takes_no_more_turns() -> None:
    entry = Entry(fractions=fractions(50), holds=FAST, began=NOW, skipped=False)
    books = closed(written(None, entry, NOW, ROUND_S), NOW + 40)
    assert books is not None
    assert received_s(books, NOW + 500) == {FAST: 40}
    assert (books.fractions, books.deficit_seconds, owed_s(books, NOW + 500, 1e6)) == ((), (), {})
    waited = written(None, Entry(fractions=fractions(50), skipped=True), NOW, ROUND_S)
    over = closed(waited, NOW + 40)
    assert over is not None
    assert over.skipped_since == 0


def test_time_alone_begins_at_nothing_where_it_was_not_counted_before() -> None:
    entry = Entry(fractions=fractions(50), holds=FAST, began=NOW)
    books = written(None, entry, NOW, ROUND_S)
    assert books.isolated_seconds == ""
    assert isolated_now(books, WORTH, NOW) == 0
    assert isolated_now(books, WORTH, NOW + 10) == 20


def test_time_alone_is_that_on_an_equal_part_of_the_cluster() -> None:
    turns = Turns.of({"n1": FAST}, rates("a", 4, 1), policy=a_turn_policy("FinishTimeFairness"))
    jobs = (a_job(name).checkpointed().with_(workload_class="a") for name in ("one", "two"))
    turns.add(*(job.with_(work_steps=10**6) for job in jobs))
    turns.run(20 * ROUND_S)
    assert all(turns.counts[f"evicted {name}"] for name in ("one", "two"))
    for name in ("one", "two"):
        books = turns.job(name).status.allocation
        assert books is not None
        had_s = received_s(books, turns.toy.now)[FAST]
        # alone a job has half of the device, so a second of the whole is worth two
        assert isolated_now(books, {FAST: 2.0}, turns.toy.now) == pytest.approx(2 * had_s, abs=3)


def beside_b(fraction: str = "0.25") -> PairRecord:
    return PairRecord(
        partner="default/b", partner_uid="b", accelerator=FAST, fraction=fraction, percent=50
    )


def test_time_beside_another_is_booked_in_both_books() -> None:
    """Promised half of the time, half of that beside another: 100 s together, then 100 s alone."""
    entry = Entry(fractions=fractions(50), pairs=(beside_b(),), holds=FAST, began=NOW, beside="b")
    first = written(None, entry, NOW, LONG_S)
    assert beside(first) == "b"
    assert pairs_owed_s(first, NOW + 100, LONG_S) == {("b", FAST): pytest.approx(-75.0)}
    again = written(first, replace(entry, source="Measured"), NOW + 40, LONG_S)
    assert pairs_owed_s(again, NOW + 100, LONG_S) == {("b", FAST): pytest.approx(-75.0)}
    alone = written(again, replace(entry, beside="", source="Measured"), NOW + 100, LONG_S)
    (pair,) = alone.pairs
    assert (pair.seconds, pair.since, beside(alone)) == (100, 0.0, "")
    assert received_s(alone, NOW + 200)[FAST] == pytest.approx(200.0)
    assert pairs_owed_s(alone, NOW + 200, LONG_S) == {("b", FAST): pytest.approx(-50.0)}
    assert owed_s(alone, NOW + 200, LONG_S)[FAST] == pytest.approx(-100.0)
    assert written(alone, replace(entry, beside="", source="Measured"), NOW + 300, LONG_S) is alone


def test_books_of_pairs_close_with_the_others() -> None:
    entry = Entry(fractions=fractions(50), pairs=(beside_b(),), holds=FAST, began=NOW, beside="b")
    ended = closed(written(None, entry, NOW, LONG_S), NOW + 10)
    assert ended is not None
    assert ended.pairs == ()
    assert closed(ended, NOW + 20) is ended
