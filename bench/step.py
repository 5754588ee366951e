# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What one ``ullage_run.step()`` costs the user's loop, beside a call of an empty function."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench import report
from ullage.api.steps import STEP_RECORD_BYTES, StepRecord
from ullage_run.record import StepWriter

LIMIT_US: Final = 2.0
BATCHES: Final = 2000
CALLS: Final = 500


def _empty() -> None:
    """The least a call can cost."""


def _batch_us(call: Callable[[], None]) -> float:
    """Mean time of a call over one batch, without the loop around it."""
    calls = range(CALLS)
    clock = time.perf_counter_ns
    started = clock()
    for _ in calls:
        call()
    ended = clock()
    for _ in calls:
        pass
    return (ended - started - (clock() - ended)) / CALLS / 1000


def main() -> int:
    """Measure in turns, so that a noisy moment meets all alike.

    Returns:
        0, or 1 when the median is above the limit.
    """
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record"
        record.write_bytes(bytes(STEP_RECORD_BYTES))
        step, outside = StepWriter(str(record)).step, StepWriter(None).step
        rounds = [(_batch_us(step), _batch_us(outside), _batch_us(_empty)) for _ in range(BATCHES)]
        written = StepRecord.unpack(record.read_bytes())
    if written is None or written.steps != BATCHES * CALLS:
        sys.exit(f"the record says {written}, not {BATCHES * CALLS} steps")
    ours, unset, empty = (statistics.median(column) for column in zip(*rounds, strict=True))
    p99 = statistics.quantiles((row[0] for row in rounds), n=100)[98]
    report.write(
        "step",
        {
            "median_us": round(ours, 4),
            "p99_us": round(p99, 4),
            "outside_median_us": round(unset, 4),
            "empty_call_median_us": round(empty, 4),
            "steps": BATCHES * CALLS,
        },
        [
            report.Row(
                what="step(), median",
                ours=f"{ours:.3f} us",
                baseline=f"{empty:.3f} us (empty call)",
                limit=f"{LIMIT_US:.0f} us",
            ),
            report.Row(what="step(), p99 of batches", ours=f"{p99:.3f} us"),
            report.Row(what="step() outside Ullage, median", ours=f"{unset:.3f} us"),
        ],
    )
    return 0 if ours <= LIMIT_US else 1


if __name__ == "__main__":
    sys.exit(main())
