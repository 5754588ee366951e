# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Records of ranks, and how a step's time is divided, without torch."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from ullage.api.steps import RANK_RECORD_BYTES, RankRecord
from ullage_run import step_clock
from ullage_run.rank_record import RankWriter, StepTimes
from ullage_run.step_clock import (
    FOREIGN_STEPS_MOST,
    SKIPPED_MOST,
    TIMED_APART_NS,
    StepClock,
    contents,
)

TIMES = StepTimes(step_ns=50, compute_ns=30, wait_ns=10, data_wait_ns=5, samples=8, batch_bytes=64)
CHILD = """
import sys
from ullage_run.rank_record import RankWriter
writer = RankWriter(sys.argv[1])
print(writer.open() and writer.index)
"""


class Optimizer:
    """Something that can be referred to weakly, as torch's own are."""


@pytest.fixture
def folder(record: Path) -> Path:
    """The directory of ranks beside a record."""
    folder = record.parent / "trace"
    folder.mkdir()
    return folder


def read(path: Path) -> RankRecord:
    written = RankRecord.unpack(path.read_bytes())
    assert written is not None
    return written


def by_another_process(record: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(record)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_rank_says_who_it_is_and_adds_its_times_up(
    record: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("RANK", "6"), ("LOCAL_RANK", "2"), ("WORLD_SIZE", "8")):
        monkeypatch.setenv(name, value)
    writer = RankWriter(str(record))
    writer.step(100, None)
    writer.step(150, TIMES)
    writer.step(200, TIMES)
    assert read(folder / "record-2") == RankRecord(
        steps=3,
        last_step_ns=200,
        rank=6,
        world=8,
        step_ns=100,
        compute_ns=60,
        wait_ns=20,
        data_wait_ns=10,
        samples=16,
        batch_bytes=128,
        timed=2,
    )
    assert not any(record.read_bytes()), "the record of the container is another writer's"


def test_a_process_takes_no_record_that_another_holds(record: Path, folder: Path) -> None:
    writer = RankWriter(str(record))
    assert writer.open()
    assert by_another_process(record, LOCAL_RANK="0") == "1"
    assert by_another_process(record, LOCAL_RANK="7") == "7"
    writer.step(5, None)
    assert read(folder / "record-0").steps == 1


def test_a_successor_begins_anew_in_the_same_record(record: Path, folder: Path) -> None:
    (folder / "record-0").write_bytes(b"\xff" * RANK_RECORD_BYTES)
    writer = RankWriter(str(record))
    writer.step(5, None)
    assert read(folder / "record-0").steps == 1


def test_a_child_leaves_the_record_to_its_parent(record: Path, folder: Path) -> None:
    writer = RankWriter(str(record))
    writer.step(5, None)
    writer.forget()  # as after a fork
    assert (writer.steps, by_another_process(record)) == (0, "0")


@pytest.mark.parametrize("where", ["", "/nowhere/record"])
def test_without_a_directory_of_ranks_nothing_is_written(where: str, record: Path) -> None:
    for path in (where, str(record)):
        writer = RankWriter(path or None)
        writer.step(5, TIMES)
        assert not writer.open()


@pytest.mark.parametrize("stated", ["-1", "16", "x", "99999999999", ""])
def test_a_wild_local_rank_takes_the_first_free_record(
    record: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, stated: str
) -> None:
    monkeypatch.setenv("LOCAL_RANK", stated)
    monkeypatch.setenv("RANK", stated)
    RankWriter(str(record)).step(5, None)
    assert read(folder / "record-0").steps == 1


def test_what_lies_in_the_place_of_a_record_is_not_waited_for(record: Path, folder: Path) -> None:
    os.mkfifo(folder / "record-0")
    (folder / "record-1").mkdir()
    RankWriter(str(record)).step(5, None)
    assert read(folder / "record-2").steps == 1


UNIT = TIMED_APART_NS
"""So long that every step is timed."""


class Loop:
    """A training loop on a clock of its own."""

    def __init__(self, clock: StepClock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = clock
        self.now = 1000
        monkeypatch.setattr(step_clock, "monotonic_ns", lambda: self.now)

    def batch(self, takes: int, batch: object = None) -> None:
        began = self.now
        self.now += takes * UNIT
        self.clock.batch(began, batch)

    def backward(self, takes: int) -> None:
        self.now += takes * UNIT
        self.clock.gradients_ready()

    def step(self, optimizer: object, waits: int = 0) -> bool:
        self.now += waits * UNIT
        self.clock.optimizer_begins(optimizer)
        self.now += UNIT
        return self.clock.optimizer_ended(optimizer)


@pytest.fixture
def loop(record: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(StepClock(RankWriter(str(record))), monkeypatch)


def times(folder: Path) -> tuple[int, int, int, int, int]:
    found = read(folder / "record-0")
    sums = (found.step_ns, found.data_wait_ns, found.compute_ns, found.wait_ns)
    assert not any(of % UNIT for of in sums)
    return (found.steps, *(of // UNIT for of in sums))  # type: ignore[return-value]


def test_a_step_is_data_then_compute_then_wait(loop: Loop, folder: Path) -> None:
    optimizer = Optimizer()
    assert loop.step(optimizer), "the first step is counted, its start is not known"
    loop.batch(7, SimpleNamespace(shape=(4, 3), nbytes=48))
    loop.backward(20)
    loop.step(optimizer, waits=5)
    assert times(folder) == (2, 33, 7, 20, 5)
    assert (read(folder / "record-0").samples, read(folder / "record-0").batch_bytes) == (4, 48)


def test_accumulated_batches_belong_to_one_step(loop: Loop, folder: Path) -> None:
    optimizer = Optimizer()
    loop.step(optimizer)
    for _ in range(3):
        loop.batch(7)
        loop.backward(20)
    loop.step(optimizer, waits=5)
    assert times(folder) == (2, 87, 21, 60, 5)


def test_the_optimizer_that_stepped_first_ends_a_step(loop: Loop, folder: Path) -> None:
    generator, critic = Optimizer(), Optimizer()
    loop.step(critic)
    for _ in range(2):
        loop.batch(1)
        loop.backward(10)
        assert not loop.step(generator)
        loop.backward(10)
        assert loop.step(critic, waits=2)
    assert times(folder) == (3, 50, 2, 42, 4)


def test_a_new_optimizer_counts_when_the_first_is_gone_or_not_used(loop: Loop) -> None:
    first, second = Optimizer(), Optimizer()
    loop.step(first)
    counted = [loop.step(second) for _ in range(FOREIGN_STEPS_MOST + 2)]
    assert counted == [False] * FOREIGN_STEPS_MOST + [True, True]
    del second
    assert loop.step(Optimizer())


def test_an_optimizer_that_computes_gradients_itself_waits_for_no_one(
    loop: Loop, folder: Path
) -> None:
    optimizer = Optimizer()
    loop.step(optimizer)
    loop.batch(7)
    loop.clock.optimizer_begins(optimizer)
    loop.backward(20)
    loop.clock.optimizer_ended(optimizer)
    assert times(folder) == (2, 27, 7, 20, 0)


def test_a_loader_in_another_thread_takes_no_time_of_the_loop(loop: Loop, folder: Path) -> None:
    optimizer = Optimizer()
    loop.step(optimizer)
    prefetch = threading.Thread(target=loop.batch, args=(40,))
    prefetch.start()
    prefetch.join()
    loop.backward(20)
    loop.step(optimizer)
    assert times(folder) == (2, 61, 0, 60, 0)


@pytest.mark.parametrize(
    ("step_ns", "every"), [(TIMED_APART_NS + 1, 1), (10**7, 5), (10**6, 41), (10, SKIPPED_MOST + 1)]
)
def test_of_short_steps_only_some_are_timed(
    loop: Loop, folder: Path, step_ns: int, every: int
) -> None:
    optimizer = Optimizer()
    for _ in range(10 * every + 1):
        loop.now += step_ns
        loop.clock.optimizer_ended(optimizer)
    found = read(folder / "record-0")
    assert (found.steps, found.timed, found.step_ns) == (10 * every + 1, 10, 10 * step_ns)


TENSOR = SimpleNamespace(shape=(4, 3), nbytes=48)
SCALAR = SimpleNamespace(shape=(), nbytes=4)


@pytest.mark.parametrize(
    ("batch", "holds"),
    [
        (TENSOR, (4, 48)),
        ((TENSOR, SCALAR), (4, 52)),
        ({"x": [TENSOR, TENSOR], "y": SCALAR}, (4, 100)),
        (SCALAR, (1, 4)),
        ("text", (0, 0)),
        (None, (0, 0)),
        ([[[[[[TENSOR]]]]]], (0, 0)),
        ([TENSOR] * 10_000, (4, 63 * 48)),
    ],
)
def test_a_batch_holds_samples_and_bytes(batch: object, holds: tuple[int, int]) -> None:
    assert contents(batch) == holds


def test_a_batch_that_holds_itself_ends() -> None:
    batch: list[object] = [TENSOR]
    batch.append(batch)
    assert contents(batch)[0] == 4
