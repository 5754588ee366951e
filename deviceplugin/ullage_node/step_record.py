# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a container's step record, a file controlled by the tenant.

The tenant may write anything into it, truncate it, or replace it. So it is never mapped (a
truncated file would kill the reader), only a plain file is ever opened, and implausible numbers are
refused before they reach the API.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Final

from ullage.api.readers import WireError
from ullage.api.steps import STEP_RECORD_BYTES, StepRecord
from ullage_node.times import RECORD_AHEAD_NS, STEP_MOST_NS

TRIES: Final = 3
"""A record that changes while it is read is retried twice, then skipped until the next second."""
COUNT_MAX: Final = (1 << 63) - 1
"""The largest number that the API stores."""
SM_COUNT_MAX: Final = (1 << 31) - 1


def read_step_record(path: Path | str, now_ns: int | None = None) -> StepRecord | None:
    """A container's reported progress; ``None`` when none is usable now.

    The file is missing, no step has begun, or the record changed at every try.

    Args:
        path: The record.
        now_ns: CLOCK_MONOTONIC after the reading; ``None`` = read the clock.

    Raises:
        WireError: it is not a step record; the text says why.
    """
    raw = read_stable(path, STEP_RECORD_BYTES)
    record = StepRecord.unpack(raw) if raw is not None else None
    if record is not None:
        _check(record, time.monotonic_ns() if now_ns is None else now_ns)
    return record


def read_stable(path: Path | str, size: int, folder: int | None = None) -> bytes | None:
    """A record as it stood at one moment; ``None`` if it is missing or changed at every try.

    Args:
        path: The record.
        size: Its bytes; of a longer file one more is returned, which is no record.
        folder: Open directory that ``path`` is relative to.

    Raises:
        WireError: it is no plain file, or cannot be read.
    """
    try:
        descriptor = _open_plain(path, folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WireError(f"step record cannot be opened: {error.strerror}") from error
    try:
        return _read(descriptor, size)
    except OSError as error:
        raise WireError(f"step record cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _open_plain(path: Path | str, folder: int | None) -> int:
    """Open a file for reading if it is a plain one: opening a device file may have side effects."""
    handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise WireError("step record is no plain file")
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(handle)


def _read(descriptor: int, size: int) -> bytes | None:
    # One byte more than a record: a longer file must not pass for one. Two equal readings have the
    # same step count before and after the rest, as the writer's order requires.
    before = os.pread(descriptor, size + 1, 0)
    for _ in range(TRIES):
        after = os.pread(descriptor, size + 1, 0)
        if before == after:
            return after
        before = after
    return None


def _check(record: StepRecord, now_ns: int) -> None:
    """Refuse impossible values: the clock is the host's.

    Raises:
        WireError: the text names the value.
    """
    counts = (
        record.steps + record.resumed_at,
        record.items,
        record.ewma_ns,
        record.last_step_ns,
        record.last_checkpoint_ns,
        record.busy_ns,
    )
    if max(counts) > COUNT_MAX or record.sm_count > SM_COUNT_MAX:
        raise WireError("step record holds a number that no program reaches")
    if max(record.last_step_ns, record.last_checkpoint_ns) > now_ns + RECORD_AHEAD_NS:
        raise WireError("step record holds a time that has not come yet")
    if record.ewma_ns > STEP_MOST_NS:
        raise WireError("step record tells of a step of more than a day")
