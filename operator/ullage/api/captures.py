# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The files by which the node agent orders traces of steps, and ranks of a program answer.

They lie in one directory of a container, which its user may write: :data:`TRACE_MOUNT` inside, and
``trace`` in the directory of its step records on the node. Standard library only: agent and
programs read the same words.

Rank i of a container keeps its record in ``record-<i>`` (:class:`~ullage.api.steps.RankRecord`).
The agent writes :data:`ORDER_FILE`, then changes the word in :data:`ARMED_FILE`, which programs map
and compare at each step. The rank answers with ``<id>-<i>.json.gz``, the trace as
torch writes it, or with ``<id>-<i>.refused``, a :class:`CaptureRefusal`. Both appear whole, by a
rename.
"""

from __future__ import annotations

import enum
from typing import Final

from ullage.api.environment import STEPS_MOUNT

TRACE_FOLDER: Final = "trace"
TRACE_MOUNT: Final = f"{STEPS_MOUNT}/{TRACE_FOLDER}"
ORDER_FILE: Final = "order"
ARMED_FILE: Final = "armed"
ARMED_BYTES: Final = 8
"""One little-endian word: another value is another order, or none."""
ORDER_BYTES_MOST: Final = 1024
REFUSAL_BYTES_MOST: Final = 512
CAPTURE_STEPS_MOST: Final = 50
TRACE_BYTES_MOST: Final = 512 << 20
"""Largest trace, before compression."""
RANKS_MOST: Final = 16
"""Ranks of one container that are told apart."""
RANK_FILES: Final = tuple(f"record-{index}" for index in range(RANKS_MOST))
LOADER_FILES: Final = tuple(f"loader-{index}" for index in range(RANKS_MOST))
"""Reports of the tuner of a rank's data loader, JSON."""
LOADER_BYTES_MOST: Final = 512
TRACE_SUFFIX: Final = ".json.gz"
REFUSED_SUFFIX: Final = ".refused"
UNFINISHED_SUFFIX: Final = ".tmp"
"""After the name of an answer that is being written."""
RAW_PREFIX: Final = ".ullage-trace-"
"""Begins the name of a trace before it is compressed, in a container without /tmp."""
METADATA: Final = "ullage"
"""Key of a trace's own metadata: id, rank, world, step, steps, monotonicNs."""


class CaptureRefusal(enum.StrEnum):
    """Reasons why a rank has no trace of the ordered steps."""

    LATE = "Late"
    """It was past the first step when it read the order."""
    ALREADY_PROFILING = "AlreadyProfiling"
    """The program's own profiler is running."""
    NO_PROFILER = "NoProfiler"
    """Its torch has no profiler."""
    DISK_FULL = "DiskFull"
    """No room for the file."""
    FAILED = "Failed"
    """Anything else; the text says what."""
