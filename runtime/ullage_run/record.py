# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the 64-byte step record through which a container reports its progress to its node.

It runs inside the user's inner loop, so it must never raise, never block, never make a system call
per step, and do nothing where there is no record. One process per record writes: the first that
steps. A record lock keeps the others (a launcher's further ranks, forked workers) from writing
until that process is gone, else their counts would overwrite each other.

Order of the stores: everything else first, ``steps`` last, each one aligned 8-byte word. A reader
that sees the same ``steps`` before and after the rest therefore has words of that step or of the
next one, and never a torn word. When a program resumes from another step, ``steps`` becomes 0
before the new base is stored, so that no reader adds the steps of one to the base of the other.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import operator
import os
import stat
import struct
import sys
import threading
from time import monotonic_ns
from typing import Final, SupportsIndex

from ullage.api.steps import RESUMED_AT_MAX, STEP_MAGIC, STEP_RECORD_BYTES, STEP_VERSION, STEP_WORDS
from ullage_run.times import RECORD_RETRY_NS


def header_word(magic: bytes, version: int) -> int:
    """The first word of a record."""
    return int.from_bytes(struct.pack("<4sI", magic, version), "little")


HEADER_WORD: Final = header_word(STEP_MAGIC, STEP_VERSION)
STEPS: Final = STEP_WORDS["steps"]
LAST_STEP: Final = STEP_WORDS["last_step_ns"]
EWMA: Final = STEP_WORDS["ewma_ns"]
ITEMS: Final = STEP_WORDS["items"]
SM_COUNT: Final = 5
"""Lower half of the word; the upper one is the step from which the start resumed."""
LAST_CHECKPOINT: Final = STEP_WORDS["last_checkpoint_ns"]
BUSY: Final = STEP_WORDS["busy_ns"]

EWMA_SHIFT: Final = 3
"""A new step weighs 1/8, as a round-trip time in RFC 6298."""
MAX_ITEMS: Final = 1 << 32
MAX_STEP_NS: Final = 1 << 62
BUSY_MASK: Final = (1 << 63) - 1
"""A caller's times may exceed a word: then the sum wraps around."""
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
        "_resumed_at",
        "_sm_count",
        "_steps",
        "_try_at_ns",
        "_words",
    )

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._resumed_at = 0
        self._reset()

    def _reset(self) -> None:
        # Re-entrant, because a signal handler may call in the middle of a step.
        self._lock = threading.RLock()
        self._words: memoryview | None = None
        self._file = -1
        self._try_at_ns = 0
        self._steps = 0
        self._items = 0
        self._last_step_ns = 0
        self._ewma_ns = 0
        self._busy_ns = 0
        self._sm_count = 0

    def step(self, items: int = 1, took_ns: int | None = None) -> None:
        """Count one finished step.

        Args:
            items: Samples or tokens of the step. Anything but a whole number counts as none.
            took_ns: Duration of the step. The default is the time since the previous step, which is
                correct for a loop; a server that waits between requests must pass it.
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
                words[EWMA] = self._ewma_ns = ewma
                words[BUSY] = self._busy_ns = self._busy_ns + took_ns & BUSY_MASK
            words[LAST_STEP] = self._last_step_ns = now
            self._items = total = self._items + items
            words[ITEMS] = total
            self._steps = steps = self._steps + 1
            words[STEPS] = steps

    def checkpointed(self) -> None:
        """Record that a checkpoint was written just now; its age selects victims of preemption."""
        words = self._words or self._attach()
        if words is not None:
            words[LAST_CHECKPOINT] = monotonic_ns()

    def sm_count(self, count: int, *, keep: bool = True) -> None:
        """Record the number of streaming multiprocessors seen, as proof of a share.

        Args:
            count: Streaming multiprocessors.
            keep: False leaves the record to the process that counts steps, which may be a different
                one.
        """
        held = self._words
        words = held or self._attach()
        if words is not None:
            with self._lock:
                self._sm_count = _whole(count, MAX_SM_COUNT)
                words[SM_COUNT] = self._sm_count | self._resumed_at << 32
                if not keep and held is None:
                    self.forget()

    def resumed(self, step: SupportsIndex) -> bool:
        """Set the current step within the whole training.

        Call it after a checkpoint was loaded, before the next step: progress, deadlines and the
        cost of losses then count from there and not from 0. 0 means that nothing was loaded.
        Repeating it has no effect; a program that rolls back within one start sets its new step,
        and counts on from there.

        Args:
            step: Steps done by this and all earlier starts, 0..4294967295.

        Returns:
            False if refused, with a message on standard error: not a whole number in that range.
            The start then counts from its previous step.
        """
        try:
            base = operator.index(step)
        except (TypeError, ValueError, RuntimeError):  # the last is raised for a lost device
            base = -1
        if not 0 <= base <= RESUMED_AT_MAX:
            _complain(
                f"ullage_run.resumed is refused ({type(step).__name__}): it takes the number of"
                f" steps done so far, a whole number of 0 to {RESUMED_AT_MAX}; steps go on counting"
                f" from {self._resumed_at}"
            )
            return False
        with self._lock:
            if base == self._resumed_at + self._steps:
                return True
            # the next step would include the time of loading
            self._steps = self._last_step_ns = 0
            self._resumed_at = base
            words = self._words
            if words is not None:
                words[STEPS] = 0
                words[SM_COUNT] = self._sm_count | base << 32
        return True

    def forget(self) -> None:
        """Close the record, so that only a later step reopens it.

        In a forked child it is the parent's. The loaded checkpoint is the child's too, so it
        resumes from the same step.
        """
        inherited = self._file
        self._reset()
        if inherited >= 0:
            os.close(inherited)

    def _attach(self) -> memoryview | None:
        """Open and initialise the record; ``None`` if missing or written by another process."""
        if not self._path:
            return None
        with self._lock:
            if self._words is not None:
                return self._words
            now = monotonic_ns()
            if now < self._try_at_ns:
                return None
            self._try_at_ns = now + RECORD_RETRY_NS
            try:
                self._file, words = map_exclusively(self._path, STEP_RECORD_BYTES)
            except (OSError, ValueError):
                # Absent, read-only, too short, taken: outside Ullage that is the normal case.
                return None
            # Without its magic a record is ignored, so no reader sees it half-cleared.
            for word in range(STEP_RECORD_BYTES // 8):
                words[word] = 0
            # resumed() does not open it: the loader of a checkpoint need not be the trainer
            words[SM_COUNT] = self._resumed_at << 32
            words[0] = HEADER_WORD
            self._words = words
            return words


def map_exclusively(path: str, size: int, *, create: bool = False) -> tuple[int, memoryview]:
    """Map a record as 8-byte words and lock it for this process.

    The lock belongs to the process, is not inherited by forked children and would end with *any*
    close of the file, so the returned descriptor stays open as long as the mapping.

    Args:
        path: The record.
        size: Its bytes.
        create: Create it if it is missing.

    Raises:
        OSError: the file is missing, not a record, or held by another process.
        ValueError: the path is invalid.
    """
    # Without O_NONBLOCK a named pipe in this place would hang the user's program.
    flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(path, flags | os.O_CREAT if create else flags, 0o666)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or (status.st_size < size and not create):
            raise OSError(errno.EINVAL, "not a record", path)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if create:
            os.ftruncate(file, size)
            os.posix_fallocate(file, 0, size)  # a full file system would end the program later
        return file, memoryview(mmap.mmap(file, size)).cast("Q")
    except (OSError, ValueError):
        os.close(file)
        raise


def _complain(text: str) -> None:
    """Write a line to standard error, if there is one."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def _whole(value: object, largest: int) -> int:
    """Convert any value to a whole number within 0..largest; invalid ones count as 0."""
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return 0
    return number if 0 <= number <= largest else 0
