# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the 64-byte step record through which a container tells its node how far it came.

It runs inside the user's inner loop, so it must never raise, never block, never make a system call
per step, and do nothing at all where there is no record. One process per record writes: the first
that steps. A record lock keeps the others (a launcher's further ranks, forked workers) silent
until that process is gone, else their counts would overwrite each other.

Order of the stores: everything else first, ``steps`` last, each one aligned 8-byte word. A reader
that sees the same ``steps`` before and after it read the rest therefore has words of that step or
of the next one, and never half a word.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import struct
import threading
from time import monotonic_ns
from typing import Final

from ullage.api.contract import (
    STEP_MAGIC,
    STEP_RECORD_BYTES,
    STEP_VERSION,
    STEP_WORDS,
)

HEADER_WORD: Final = int.from_bytes(struct.pack("<4sI", STEP_MAGIC, STEP_VERSION), "little")
STEPS: Final = STEP_WORDS["steps"]
LAST_STEP_NS: Final = STEP_WORDS["last_step_ns"]
EWMA_NS: Final = STEP_WORDS["ewma_ns"]
ITEMS: Final = STEP_WORDS["items"]
SM_COUNT: Final = 5
LAST_CHECKPOINT_NS: Final = STEP_WORDS["last_checkpoint_ns"]
BUSY_NS: Final = STEP_WORDS["busy_ns"]

EWMA_SHIFT: Final = 3
"""A new step weighs 1/8, as the round-trip time of RFC 6298 does."""
RETRY_NS: Final = 1_000_000_000
"""How long after a failed attempt the record is tried again."""
MAX_ITEMS: Final = 1 << 32
MAX_STEP_NS: Final = 1 << 62
BUSY_MASK: Final = (1 << 63) - 1
"""Invented times may add up to more than a word holds: then the sum begins again."""
MAX_SM_COUNT: Final = (1 << 32) - 1


class StepWriter:
    """The writing end of one step record.

    Args:
        path: The record; ``None`` or empty makes every call do nothing.
    """

    __slots__ = (
        "_busy_ns",
        "_ewma_ns",
        "_file",
        "_items",
        "_last_step_ns",
        "_lock",
        "_path",
        "_steps",
        "_try_at_ns",
        "_words",
    )

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._reset()

    def _reset(self) -> None:
        # Re-entrant, because a signal handler may call us in the middle of a step.
        self._lock = threading.RLock()
        self._words: memoryview | None = None
        self._file = -1
        self._try_at_ns = 0
        self._steps = 0
        self._items = 0
        self._last_step_ns = 0
        self._ewma_ns = 0
        self._busy_ns = 0

    def step(self, items: int = 1, took_ns: int | None = None) -> None:
        """Count one finished step.

        Args:
            items: Samples or tokens of the step. What is no whole number counts as none.
            took_ns: How long the step took. Left out it is the time since the step before, which
                is right for a loop; a server that waits between requests passes its own.
        """
        words = self._words
        if words is None:
            words = self._attach()
            if words is None:
                return
        if type(items) is not int or not 0 <= items <= MAX_ITEMS:
            items = _whole(items, MAX_ITEMS)
        with self._lock:
            now = monotonic_ns()
            if took_ns is None:
                took_ns = now - self._last_step_ns if self._last_step_ns else 0
            else:
                took_ns = _whole(took_ns, MAX_STEP_NS)
            if took_ns:
                ewma = self._ewma_ns
                ewma = ewma + (took_ns - ewma >> EWMA_SHIFT) if ewma else took_ns
                words[EWMA_NS] = self._ewma_ns = ewma
                words[BUSY_NS] = self._busy_ns = self._busy_ns + took_ns & BUSY_MASK
            words[LAST_STEP_NS] = self._last_step_ns = now
            self._items = total = self._items + items
            words[ITEMS] = total
            self._steps = steps = self._steps + 1
            words[STEPS] = steps

    def checkpointed(self) -> None:
        """Note that a checkpoint was written just now; its age chooses victims of preemption."""
        words = self._words or self._attach()
        if words is not None:
            words[LAST_CHECKPOINT_NS] = monotonic_ns()

    def sm_count(self, count: int) -> None:
        """Note how many streaming multiprocessors this process sees; shows that a share holds."""
        words = self._words or self._attach()
        if words is not None:
            words[SM_COUNT] = _whole(count, MAX_SM_COUNT)

    def forget(self) -> None:
        """In a forked child: drop the parent's record, so that only a later step opens it anew."""
        inherited = self._file
        self._reset()
        if inherited >= 0:
            os.close(inherited)

    def _attach(self) -> memoryview | None:
        """Open and begin the record; ``None`` where there is none or another process writes it."""
        if not self._path:
            return None
        with self._lock:
            if self._words is not None:
                return self._words
            now = monotonic_ns()
            if now < self._try_at_ns:
                return None
            self._try_at_ns = now + RETRY_NS
            try:
                self._file, words = _map_exclusively(self._path)
            except (OSError, ValueError):
                # Absent, read-only, too short, taken: outside Ullage that is the normal case.
                return None
            # Without its magic a record is ignored, so nobody sees a predecessor's half-cleared.
            for word in range(STEP_RECORD_BYTES // 8):
                words[word] = 0
            words[0] = HEADER_WORD
            self._words = words
            return words


def _map_exclusively(path: str) -> tuple[int, memoryview]:
    """Map a record and lock it for this process.

    The lock belongs to the process, is not inherited by forked children and would end with *any*
    close of the file, so the returned descriptor stays open as long as the mapping.

    Raises:
        OSError: there is no such file, it is none of ours, or another process holds it.
        ValueError: the path can be none.
    """
    # Without O_NONBLOCK a named pipe in this place would hang the user's program.
    file = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size < STEP_RECORD_BYTES:
            raise OSError(errno.EINVAL, "not a step record", path)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file, memoryview(mmap.mmap(file, STEP_RECORD_BYTES)).cast("Q")
    except (OSError, ValueError):
        os.close(file)
        raise


def _whole(value: object, largest: int) -> int:
    """Read anything as a whole number within 0..largest; what is none counts as 0."""
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return 0
    return number if 0 <= number <= largest else 0
