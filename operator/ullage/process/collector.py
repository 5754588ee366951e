# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Python's cycle collector, kept out of work that makes many records."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Run without the collector, for work that makes many records and no cycles.

    Every 700 new objects start a collection, and some of those visit everything: they took more
    than half of the time to send 10,000 jobs, and half of that to report on their device time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
