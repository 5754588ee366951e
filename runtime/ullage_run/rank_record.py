# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the record of one rank: the parts of the time of its steps.

A container has one directory for the records of its ranks. Rank i of it takes ``record-<i>``, or
the next free one where another process holds that; a lock says which are free. Where the directory
is missing, nothing is written. The same rules as for the step record hold: no exception, no system
call per step, ``steps`` last.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from time import monotonic_ns
from typing import Any, Final, NamedTuple

from ullage.api.captures import RANK_FILES, TRACE_FOLDER
from ullage.api.steps import RANK_MAGIC, RANK_RECORD_BYTES, RANK_VERSION, RANK_WORDS
from ullage_run.record import MAX_ITEMS, header_word, map_exclusively
from ullage_run.times import RECORD_RETRY_NS, THROTTLED_APART_NS

HEADER_WORD: Final = header_word(RANK_MAGIC, RANK_VERSION)
STEPS: Final = RANK_WORDS["steps"]
LAST_STEP: Final = RANK_WORDS["last_step_ns"]
RANK_AND_WORLD: Final = 3
STEP: Final = RANK_WORDS["step_ns"]
COMPUTE: Final = RANK_WORDS["compute_ns"]
WAIT: Final = RANK_WORDS["wait_ns"]
DATA_WAIT: Final = RANK_WORDS["data_wait_ns"]
SAMPLES: Final = RANK_WORDS["samples"]
BATCH_BYTES: Final = RANK_WORDS["batch_bytes"]
TIMED: Final = RANK_WORDS["timed"]
BATCHES: Final = RANK_WORDS["batches"]
EVEN_REASON: Final = RANK_WORDS["even_reason"]
EVEN_STEP: Final = RANK_WORDS["even_step_ns"]
THROTTLED: Final = RANK_WORDS["throttled_ns"]
CPU_STATS: Final = (
    ("/sys/fs/cgroup/cpu.stat", b"throttled_usec", 1000),
    ("/sys/fs/cgroup/cpu/cpu.stat", b"throttled_time", 1),
)
"""Of the container's own cgroup, where it sees that one alone: its file, field and unit in ns, of
cgroup v2 and v1."""
MASK: Final = (1 << 63) - 1


class StepTimes(NamedTuple):
    """Times of one step, nanoseconds, and what its batches held."""

    step_ns: int
    compute_ns: int
    wait_ns: int
    data_wait_ns: int
    samples: int
    batch_bytes: int


class BatchDivision(NamedTuple):
    """Part of a rank in the batches of a job that may divide them unevenly."""

    samples: int
    """Samples of its last batch."""
    even: int
    """Samples that it would have in an even division."""
    reason: int
    """Code of the :class:`~ullage.api.rebalancing.EvenReason`."""
    even_step_ns: int
    """Time from batch to batch while the division was even, nanoseconds; 0 = not known."""


class RankWriter:
    """The writing end of one rank's record.

    Args:
        record: Path of the container's step record; the directory of ranks lies beside it. ``None``
            or empty makes every call do nothing.
    """

    def __init__(self, record: str | None) -> None:
        self.folder = os.path.join(os.path.dirname(record), TRACE_FOLDER) if record else None
        """Directory of records and orders."""
        self._reset()

    def _reset(self) -> None:
        self._words: memoryview | None = None
        self._file = -1
        self._try_at_ns = 0
        self._throttled_at_ns = 0
        self.steps = 0
        """Steps written."""
        self.index = 0
        """Number of this rank in the container."""
        self.rank, self.world = 0, 1
        """Its number in the job, and how many there are."""

    def open(self) -> bool:
        """Take a record; false if there is none to take now."""
        if self._words is not None:
            return True
        now = monotonic_ns()
        if not self.folder or now < self._try_at_ns:
            return False
        self._try_at_ns = now + RECORD_RETRY_NS
        if not os.path.isdir(self.folder):
            return False
        first = _number("LOCAL_RANK", 0)
        for index in (first, *range(len(RANK_FILES))):
            if index >= len(RANK_FILES):
                continue
            path = os.path.join(self.folder, RANK_FILES[index])
            try:
                self._file, words = map_exclusively(path, RANK_RECORD_BYTES, create=True)
            except (OSError, ValueError):
                continue  # another rank's, or not to be written
            break
        else:
            return False
        # Without its magic a record is ignored, so no reader sees it half-cleared.
        for word in range(RANK_RECORD_BYTES // 8):
            words[word] = 0
        self.index = index
        self.rank, self.world = place_in_job()
        words[RANK_AND_WORLD] = self.rank | self.world << 32
        words[0] = HEADER_WORD
        self._words = words
        return True

    def step(self, now_ns: int, times: StepTimes | None) -> None:
        """Count a step that ended at ``now_ns``; ``None`` = it was not timed."""
        words = self._words
        if words is None:
            if not self.open():
                return
            words = self._words
            assert words is not None
        if times is not None:
            words[STEP] = words[STEP] + times.step_ns & MASK
            words[COMPUTE] = words[COMPUTE] + times.compute_ns & MASK
            words[WAIT] = words[WAIT] + times.wait_ns & MASK
            words[DATA_WAIT] = words[DATA_WAIT] + times.data_wait_ns & MASK
            words[SAMPLES] = words[SAMPLES] + min(times.samples, MAX_ITEMS) & MASK
            words[BATCH_BYTES] = words[BATCH_BYTES] + times.batch_bytes & MASK
            words[TIMED] += 1
        if now_ns - self._throttled_at_ns >= THROTTLED_APART_NS:
            self._throttled_at_ns = now_ns
            words[THROTTLED] = throttled_ns() & MASK
        words[LAST_STEP] = now_ns
        self.steps += 1
        words[STEPS] = self.steps

    def divided(self, division: BatchDivision) -> None:
        """Write the part of this rank; nothing happens without a record."""
        words = self._words
        if words is not None:
            most = (1 << 31) - 1
            words[BATCHES] = min(division.samples, most) | min(division.even, most) << 32
            words[EVEN_REASON] = division.reason
            words[EVEN_STEP] = division.even_step_ns & MASK

    def forget(self) -> None:
        """Close the record: in a forked child it is the parent's."""
        inherited = self._file
        self._reset()
        if inherited >= 0:
            os.close(inherited)


def throttled_ns(files: Sequence[tuple[str, bytes, int]] = CPU_STATS) -> int:
    """Time for which the processes of a cgroup were stopped at its CPU limit; 0 = not known."""
    for path, field, unit in files:
        try:
            with open(path, "rb") as file:
                for line in file:
                    name, _, value = line.partition(b" ")
                    if name == field:
                        return int(value) * unit
        except (OSError, ValueError):  # of another version, or not to be seen
            continue
    return 0


def place_in_job() -> tuple[int, int]:
    """Rank and world of this process: from torch where it knows them, else from the launcher."""
    distributed: Any = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank()), int(distributed.get_world_size())
    except (RuntimeError, ValueError, AttributeError):  # being destroyed, or of another shape
        pass
    return _number("RANK", 0), max(_number("WORLD_SIZE", 1), 1)


def _number(variable: str, default: int) -> int:
    """A whole number of 32 bits from the environment."""
    stated = os.environ.get(variable, "")
    return int(stated) if stated.isascii() and stated.isdigit() and len(stated) < 10 else default
