# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the times of requests from a file of the user."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np

from ullage.engines.scaling.forecast import Floats
from ullage_simulate.table import TableRow, opened, rows
from ullage_simulate.trace import JobTraceError

MOST_REQUESTS: Final = 5_000_000
FEWEST_REQUESTS: Final = 2


def arrivals(path: Path) -> Floats:
    """The times of requests in a file, seconds from the first, in order.

    Args:
        path: A table with the column ``arrival_s``, or ``timestamp`` with instants.

    Raises:
        TraceError: it cannot be read, or has another form; the text names line and column.
    """
    moments = []
    for row in rows(str(path), opened(path)):
        moments.append(_moment(row))
        if len(moments) > MOST_REQUESTS:
            raise JobTraceError(f"{path}: more than {MOST_REQUESTS:,} requests: take a part of it")
    if len(moments) < FEWEST_REQUESTS:
        raise JobTraceError(f"{path}: at least {FEWEST_REQUESTS} requests are needed")
    times = np.sort(np.asarray(moments))
    return np.asarray(times - times[0])


def _moment(row: TableRow) -> float:
    if "timestamp" not in row.cells:
        return row.number("arrival_s", "seconds, as 12.5")
    try:
        return datetime.fromisoformat(row.text("timestamp")[:26]).timestamp()
    except (ValueError, OverflowError):
        raise row.wrong("timestamp", "is no instant: write 2026-01-31T12:00:00") from None
