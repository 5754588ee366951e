# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.api.steps import STEP_RECORD_BYTES, StepRecord
from ullage_run import record as step_record
from ullage_run.record import MAX_ITEMS, StepWriter

ReadRecord = Callable[[], StepRecord | None]


def test_a_record_no_one_wrote_is_not_begun(read: ReadRecord) -> None:
    assert read() is None


def test_steps_and_items_add_up(record: Path, read: ReadRecord) -> None:
    writer = StepWriter(str(record))
    for items in (1, 32, 32):
        writer.step(items)
    written = read()
    assert written is not None
    assert (written.steps, written.items) == (3, 65)


def test_times_are_on_the_monotonic_clock_of_the_host(record: Path, read: ReadRecord) -> None:
    writer = StepWriter(str(record))
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    writer.step()
    writer.checkpointed()
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    written = read()
    assert written is not None
    assert before <= written.last_step_ns <= written.last_checkpoint_ns <= after


def test_step_time_is_the_time_between_steps(
    record: Path, read: ReadRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter((1, 1000, 1800, 4200))  # opening, then three steps 800 and 2400 ns apart
    monkeypatch.setattr(step_record, "monotonic_ns", lambda: next(ticks))
    writer = StepWriter(str(record))
    times = []
    for _ in range(3):
        writer.step()
        written = read()
        assert written is not None
        times.append(written.ewma_ns)
    assert times == [0, 800, 800 + (2400 - 800) // 8]


def test_a_server_states_the_time_of_its_request(record: Path, read: ReadRecord) -> None:
    writer = StepWriter(str(record))
    for _ in range(5):
        writer.step(took_ns=4_000_000)
    written = read()
    assert written is not None
    assert written.ewma_ns == 4_000_000
    assert written.busy_ns == 20_000_000


def test_times_beyond_what_a_word_holds_never_raise(record: Path, read: ReadRecord) -> None:
    writer = StepWriter(str(record))
    for _ in range(5):
        writer.step(took_ns=1 << 62)
    written = read()
    assert written is not None
    assert written.steps == 5
    assert written.busy_ns < 1 << 63


def test_sm_count_shares_its_word_with_nothing(record: Path, read: ReadRecord) -> None:
    StepWriter(str(record)).sm_count(132)
    written = read()
    assert written is not None
    assert (written.sm_count, written.steps) == (132, 0)
    assert record.read_bytes()[44:48] == bytes(4)


def test_a_restart_begins_at_zero(record: Path, read: ReadRecord) -> None:
    # Locks belong to processes, so a predecessor that is gone is one that ran in another process.
    predecessor = (
        "import sys; from ullage_run.record import StepWriter as W;"
        "w = W(sys.argv[1]); w.step(10); w.step(10); w.checkpointed()"
    )
    subprocess.run([sys.executable, "-c", predecessor, str(record)], check=True)
    written = read()
    assert written is not None
    assert (written.steps, written.items) == (2, 20)
    assert written.last_checkpoint_ns > 0
    StepWriter(str(record)).step(3)
    written = read()
    assert written is not None
    assert (written.steps, written.items, written.ewma_ns) == (1, 3, 0)
    assert written.last_checkpoint_ns == 0


def test_the_bytes_of_a_record_are_those_of_every_agent(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter((1, 1_000, 5_000, 6_000))  # opening, two steps, a checkpoint
    monkeypatch.setattr(step_record, "monotonic_ns", lambda: next(ticks))
    writer = StepWriter(str(record))
    assert writer.resumed(5_000)
    writer.step(32)
    writer.step(32)
    writer.sm_count(66)
    writer.checkpointed()
    assert record.read_bytes().hex(" ", 8) == (
        "554c535401000000 0200000000000000 8813000000000000 a00f000000000000"
        " 4000000000000000 4200000088130000 7017000000000000 a00f000000000000"
    )


def test_what_was_resumed_is_said_with_the_first_step(record: Path, read: ReadRecord) -> None:
    writer = StepWriter(str(record))
    assert writer.resumed(5_000)
    assert read() is None  # who loads need not be who trains
    writer.sm_count(66)
    writer.step()
    written = read()
    assert written is not None
    assert (written.resumed_at, written.steps, written.sm_count) == (5_000, 1, 66)


def test_saying_again_where_it_stands_changes_nothing(record: Path) -> None:
    writer = StepWriter(str(record))
    writer.resumed(5_000)
    writer.resumed(5_000)
    for _ in range(3):
        writer.step()
    before = record.read_bytes()
    assert writer.resumed(5_003)
    assert record.read_bytes() == before


def test_a_program_that_goes_back_counts_on_from_there(record: Path, read: ReadRecord) -> None:
    writer = StepWriter(str(record))
    writer.resumed(5_000)
    writer.sm_count(7)
    for _ in range(100):
        writer.step()
    assert writer.resumed(4_990)
    written = read()
    assert written is not None
    assert (written.resumed_at, written.steps, written.sm_count) == (4_990, 0, 7)
    writer.step()
    written = read()
    assert written is not None
    assert (written.resumed_at, written.steps) == (4_990, 1)
    assert writer.resumed(0)
    writer.step()
    written = read()
    assert written is not None
    assert (written.resumed_at, written.steps) == (0, 1)


def test_loading_is_no_part_of_a_step(
    record: Path, read: ReadRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter((1, 1_000, 9_000_000, 9_000_800))
    monkeypatch.setattr(step_record, "monotonic_ns", lambda: next(ticks))
    writer = StepWriter(str(record))
    writer.step()
    writer.resumed(500)
    writer.step()
    writer.step()
    written = read()
    assert written is not None
    assert (written.busy_ns, written.ewma_ns) == (800, 800)


@pytest.mark.parametrize("step", [-1, 1 << 32, 10**200, 5.0, "5", None, [5]])
def test_what_no_record_holds_is_refused_at_the_call(
    record: Path, read: ReadRecord, capsys: pytest.CaptureFixture[str], step: object
) -> None:
    writer = StepWriter(str(record))
    assert writer.resumed(40)
    assert not writer.resumed(step)  # type: ignore[arg-type]
    (line,) = capsys.readouterr().err.splitlines()
    assert "whole number of 0 to 4294967295; steps go on counting from 40" in line
    writer.step()
    written = read()
    assert written is not None
    assert (written.resumed_at, written.steps) == (40, 1)


def test_the_greatest_step_and_numbers_of_other_libraries_are_taken(
    record: Path, read: ReadRecord
) -> None:
    class Number:
        def __index__(self) -> int:
            return (1 << 32) - 1

    writer = StepWriter(str(record))
    assert writer.resumed(Number())
    writer.step()
    written = read()
    assert written is not None
    assert written.resumed_at == (1 << 32) - 1


def test_threads_lose_no_step_and_never_count_backwards(record: Path, read: ReadRecord) -> None:
    writer = StepWriter(str(record))

    def work() -> None:
        for _ in range(5000):
            writer.step(2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    seen = [0]
    while any(thread.is_alive() for thread in threads):
        written = read()
        if written is not None:
            seen.append(written.steps)
    for thread in threads:
        thread.join()
    written = read()
    assert written is not None
    assert (written.steps, written.items) == (20_000, 40_000)
    assert seen == sorted(seen)


@given(
    steps=st.lists(
        st.one_of(
            st.integers(),
            st.floats(),
            st.none(),
            st.text(max_size=3),
            st.booleans(),
            st.complex_numbers(),
        ),
        min_size=1,
        max_size=8,
    ),
    took=st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=3)),
)
def test_whatever_a_program_passes_its_step_counts(
    tmp_path_factory: pytest.TempPathFactory, steps: list[object], took: object
) -> None:
    path = tmp_path_factory.mktemp("run") / "record"
    path.write_bytes(bytes(STEP_RECORD_BYTES))
    writer = StepWriter(str(path))
    for items in steps:
        writer.step(items, took_ns=took)  # type: ignore[arg-type]
        writer.sm_count(items)  # type: ignore[arg-type]
    written = StepRecord.unpack(path.read_bytes())
    assert written is not None
    assert written.steps == len(steps)
    whole = [n for n in steps if isinstance(n, int) and 0 <= n <= MAX_ITEMS]
    assert written.items >= sum(whole)
    writer.forget()
