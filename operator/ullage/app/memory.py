# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Returns unused memory: holes kept by glibc, and errors kept by Python.

Large templates and pages of lists leave holes. glibc keeps them, and raises the size above which a
block is returned at once whenever one is freed: 0.8 MiB a minute in a soak, all of which a trim
returned. Errors of failed connections refer to one another through their tracebacks; the collector
visits old objects ever less often the more there are, so an unavailable API server cost 20 MiB a
minute. Records have no cycles, yet every full collection walks them all, 0.2 s at 10,000 jobs:
objects that survived a minute are excluded until memory grows, or half an hour has passed.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import itertools
import os
from pathlib import Path
from typing import Final

import structlog

from ullage.app.times import MEMORY_TRIM_S
from ullage.process.threads import in_thread

log = structlog.get_logger("ullage.memory")

LARGE_BYTES: Final = 128 * 1024
"""Size above which freed blocks are always returned: glibc's default at start."""
WHOLE_EVERY: Final = 30
"""Rounds after which the collector visits everything in any case."""
GROWN: Final = 1.05
"""Growth after which the collector visits everything (not measured)."""
STATM: Final = Path("/proc/self/statm")
_M_MMAP_THRESHOLD: Final = -3


def settle() -> bool:
    """Fix the size above which blocks are returned at once; True when the C library supports it."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim") or not STATM.exists():
        log.info("memory is given back where glibc and Linux are")
        return False
    library.mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
    return True


def freeze_survivors() -> None:
    """Collect new objects, and exclude survivors from later collections."""
    gc.collect()
    gc.freeze()


async def give_back() -> None:
    """Return free memory every minute, until cancelled.

    All objects are visited rarely, or when that was not enough: it stops the process for a time
    that grows with their number.
    """
    if not settle():
        return
    trim = ctypes.CDLL(None).malloc_trim
    least = resident_bytes()
    for number in itertools.count(1):
        await asyncio.sleep(MEMORY_TRIM_S)
        freeze_survivors()
        await in_thread(trim, 0)
        if resident_bytes() > GROWN * least or not number % WHOLE_EVERY:
            gc.unfreeze()
            freeze_survivors()
            await in_thread(trim, 0)
            least = resident_bytes()
        least = min(least, resident_bytes())


def resident_bytes() -> int:
    """Memory in use by this process, by Linux's accounting."""
    return int(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
