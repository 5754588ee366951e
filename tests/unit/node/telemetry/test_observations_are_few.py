# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace

import orjson
import pytest

from ullage.api.observations import Fingerprint, Observation, ObservedPartner
from ullage_node.publisher import Publisher
from ullage_node.telemetry.observations import (
    BURST,
    MIXTURE_MOST,
    MOST_WAITING,
    STATUS_BYTES,
    ObservationBook,
)

ROW = Observation(
    id="0",
    workload_class="resnet",
    namespace="team",
    accelerator="emulated",
    percent=40,
    step_micros=10_000,
    at_s=1_700_000_000,
    partners=(
        ObservedPartner(workload_class="bert", percent=60),
        ObservedPartner(workload_class="gpt", percent=20),
    ),
)


class Book:
    """A book and its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.book = ObservationBook(clock=lambda: self.now)
        self.ids = iter(range(1, 10**6))

    def offer(self, row: Observation = ROW, **change: object) -> bool:
        return self.book.offer(replace(row, id=str(next(self.ids)), **change))  # type: ignore[arg-type]


def test_the_same_of_a_mixture_is_told_again_after_ten_minutes() -> None:
    book = Book()
    told = []
    for minute in range(21):
        book.now = minute * 60.0
        told.append(book.offer(step_micros=10_000 + minute))
    assert [minute for minute, kept in enumerate(told) if kept] == [0, 10, 20]
    assert book.book.left_out == {"same": 18}


@pytest.mark.parametrize(
    ("change", "new"),
    [
        ({"step_micros": 10_190}, False),
        ({"step_micros": 10_300}, True),
        ({"partners": ROW.partners[::-1]}, False),
        ({"partners": ROW.partners[:1]}, True),
        ({"percent": 50}, True),
        ({"image": "sha256:other"}, True),
        ({"violated": True}, True),
        ({"fingerprint": Fingerprint(sm_permille=3)}, True),
        ({"requests_milli": 5000}, True),
        ({"solo_step_micros": 5000}, True),
        ({"latency_micros": 5000}, False),
        ({"latency_micros": 5000, "percentile": "99"}, True),
    ],
)
def test_what_makes_a_row_new(change: dict[str, object], new: bool) -> None:
    book = Book()
    assert book.offer()
    assert book.offer(**change) is new


def test_a_mixture_that_never_settles_is_told_a_few_times_only() -> None:
    book = Book()
    dice = random.Random(7)
    for half_minute in range(120):
        book.now = half_minute * 30.0
        book.offer(step_micros=dice.randrange(1000, 100_000))
    assert book.book.left_out["flood"] > 0
    assert book.book.taken <= 6 * (MIXTURE_MOST + 1)


def test_a_flood_is_held_back_and_room_comes_again() -> None:
    book = Book()
    kept = sum(book.offer(workload_class=f"class-{number}") for number in range(10_000))
    assert kept == BURST
    assert len(book.book) == BURST
    book.now = 20.0
    assert [book.offer(workload_class=f"more-{number}") for number in range(11)].count(True) == 10


def waiting(count: int) -> Book:
    book = Book()
    for number in range(count):
        book.now += 10.0
        assert book.offer(workload_class=f"class-{number}")
    return book


def test_while_the_operator_is_away_rows_wait_and_the_oldest_go_first() -> None:
    book = waiting(MOST_WAITING + 88)
    assert len(book.book) == MOST_WAITING
    assert book.book.left_out == {"unread": 88}
    assert book.book.rows[0].workload_class == "class-88"


def test_the_status_holds_the_oldest_that_keep_it_small() -> None:
    book = waiting(100)
    said = [row.to_wire() for row in book.book.rows]
    assert [row["class"] for row in said] == [f"class-{number}" for number in range(len(said))]
    assert STATUS_BYTES - 400 < len(orjson.dumps(said)) - 2 * len(said) <= STATUS_BYTES


def test_a_row_of_any_size_is_told() -> None:
    book = Book()
    book.book = ObservationBook(clock=lambda: book.now, status_bytes=10)
    book.offer()
    book.offer(percent=10)
    assert len(book.book.rows) == 1


def test_every_row_is_told_until_it_is_taken_in_and_none_is_lost() -> None:
    book, told = waiting(MOST_WAITING), list[str]()
    while book.book.rows:
        rows = book.book.rows
        told += [row.workload_class for row in rows]
        book.book.taken_in(rows[-1].id)
        book.book.taken_in(rows[-1].id)  # the same word again
    assert told == [f"class-{number}" for number in range(MOST_WAITING)]
    assert len(book.book) == 0


@pytest.mark.parametrize("word", ["", "unknown", "x" * 10_000])
def test_an_acknowledgement_of_nothing_that_waits_changes_nothing(word: str) -> None:
    book = waiting(5)
    book.book.taken_in(word)
    assert len(book.book.rows) == 5


def test_rows_of_the_guard_are_taken_whatever_was_said() -> None:
    book = Book()
    book.offer()
    book.book.take(replace(ROW, id="guard-1", frozen=True))
    book.book.take(replace(ROW, id="guard-2"))
    book.book.take(replace(ROW, id="guard-2"))
    assert [row.id for row in book.book.rows] == ["1", "guard-1", "guard-2"], "no id twice"


def test_a_new_agent_goes_on_where_the_last_one_was() -> None:
    book = Book()
    earlier = [replace(ROW, id=f"old-{n}", workload_class=f"class-{n}") for n in range(200)]
    assert book.offer(workload_class="young")
    book.book.restore(earlier)
    assert len(book.book) == 201
    assert book.book.rows[0].id == "old-0"
    book.book.taken_in("old-199")
    assert [row.workload_class for row in book.book.rows] == ["young"]
    assert not book.offer(workload_class="class-5"), "said by the agent before"


def test_whoever_publishes_is_told_of_every_new_row() -> None:
    book, changes = Book(), list[int]()
    book.book.on_change = lambda: changes.append(len(book.book.rows))
    book.offer()
    book.offer()
    book.offer(percent=10)
    assert changes == [1, 2]


class Status:
    """A status with rows, and the API server's side of it."""

    def __init__(self) -> None:
        self.book = ObservationBook()
        self.message = ""
        self.written: list[tuple[str, ...]] = []

    def compose(self) -> Mapping[str, object]:
        status = {
            "slices": [],
            "devices": [],
            "totals": {"usedSlots": 0},
            "message": self.message,
            "heartbeat": "t",
            "observations": [row.to_wire() for row in self.book.rows],
        }
        return {"metadata": {}, "status": status}

    async def apply_status(self, name: str, body: Mapping[str, object]) -> None:
        status = body["status"]
        assert isinstance(status, dict)
        self.written.append(tuple(row["id"] for row in status["observations"]))

    def publisher(self, rows_seconds: float) -> Publisher:
        made = Publisher(self, "node-a", self.compose, 1000.0, rows_seconds=rows_seconds)
        self.book.on_change = made.poke
        return made

    def add(self, number: int) -> None:
        self.book.take(replace(ROW, id=f"row-{number}"))


async def test_rows_wait_for_their_pace_and_then_go_together() -> None:
    status = Status()
    publisher = status.publisher(rows_seconds=0.3)
    task = asyncio.create_task(publisher.run())
    while not status.written:
        await asyncio.sleep(0.01)
    status.add(0)
    while len(status.written[-1]) < 1:
        await asyncio.sleep(0.01)
    for number in range(1, 12):
        status.add(number)
    while len(status.written[-1]) < 12:  # no one pokes again: it wakes up by itself
        await asyncio.sleep(0.01)
    assert publisher.writes == 3
    writes = publisher.writes
    for _ in range(20):
        publisher.poke()
        await asyncio.sleep(0.01)
    assert publisher.writes == writes, "nothing new, so nothing is written"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_change_that_is_urgent_takes_the_rows_along() -> None:
    status = Status()
    publisher = status.publisher(rows_seconds=1000.0)
    status.add(1)
    assert await publisher.publish()
    status.add(2)
    assert not await publisher.publish(), "the pace"
    status.message = "a slice has failed"
    assert await publisher.publish()
    assert status.written == [("row-1",), ("row-1", "row-2")]
    assert not await publisher.publish()


async def test_rows_that_are_taken_in_leave_with_the_next_heartbeat_and_cost_no_write() -> None:
    status = Status()
    publisher = status.publisher(rows_seconds=0.0)
    status.add(1)
    status.add(2)
    assert await publisher.publish()
    status.book.taken_in("row-1")
    assert not await publisher.publish()
    assert await publisher.publish(counters=True)
    assert status.written[-1] == ("row-2",)
    assert not await publisher.publish()
