# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path

from ullage.api.steps import STEP_WORDS

ITEMS = 1_000_003
READS = 200_000
WRITER = f"""
import sys
from ullage_run.record import StepWriter

writer = StepWriter(sys.argv[1])
while True:
    writer.step({ITEMS})
"""


def test_a_reader_beside_a_writing_process_sees_no_torn_record(record: Path) -> None:
    """The reader of the contract: steps, the rest, steps again; accepted when both agree."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(record)])
    try:
        with (
            record.open("rb") as file,
            mmap.mmap(file.fileno(), 64, prot=mmap.PROT_READ) as area,
            memoryview(area) as raw,
            raw.cast("Q") as words,
        ):
            _read_until_enough(words, writer)
    finally:
        writer.kill()
        writer.wait()


def _read_until_enough(words: memoryview, writer: subprocess.Popen[bytes]) -> None:
    steps_at, items_at = STEP_WORDS["steps"], STEP_WORDS["items"]
    last_at, ewma_at = STEP_WORDS["last_step_ns"], STEP_WORDS["ewma_ns"]
    accepted, moves, newest, last_step = 0, 0, 0, 0
    while accepted < READS or moves < 1000:
        assert writer.poll() is None, "the writer died"
        for _ in range(1000):
            steps = words[steps_at]
            items, stamp, ewma = words[items_at], words[last_at], words[ewma_at]
            if words[steps_at] != steps:
                continue
            accepted += 1
            moves += steps != newest
            # Of that step or of the one that was being written: never half a word, never older.
            assert items in (steps * ITEMS, (steps + 1) * ITEMS)
            assert steps >= newest
            assert stamp >= last_step
            assert ewma < 10**9 or steps < 2
            newest, last_step = steps, stamp
