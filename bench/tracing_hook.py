# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the step hook costs while no trace is ordered: timing, the rank's record, the armed word.

Paired: blocks of one training loop with and without the hooks, in turns in one process, by the CPU
time of its thread. ``TORCH_PYTHON`` names an interpreter with torch where this one has none.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import ullage
import ullage_run
from bench import report
from bench.tracing_hook_loop import STEP_S, STEPS
from ullage.api.steps import STEP_RECORD_BYTES, RankRecord

PAIRS: Final = 30
LIMIT_PERCENT: Final = 0.5
"""Of a step of 10 ms."""


def main() -> int:
    """Measure, and add ``idle_percent`` to the figures of tracing.

    Returns:
        0, or 1 when the cost is above the limit.
    """
    python = os.environ.get("TORCH_PYTHON", sys.executable)
    folders = (Path(ullage_run.__file__).parent.parent, Path(ullage.__file__).parent.parent)
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record"
        record.write_bytes(bytes(STEP_RECORD_BYTES))
        traces = record.with_name("trace")
        traces.mkdir()
        (traces / "armed").write_bytes(bytes(8))
        done = subprocess.run(
            [python, str(Path(__file__).with_name("tracing_hook_loop.py")), str(PAIRS)],
            env={
                **os.environ,
                "PYTHONPATH": ":".join(map(str, folders)),
                "ULLAGE_STEPS": str(record),
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            check=True,
        )
        written = RankRecord.unpack((traces / "record-0").read_bytes())
    told = json.loads(done.stdout)
    if written is None or written.steps != told["steps"]:
        sys.exit(f"the record says {written}, not {told['steps']} steps")
    added = [(on - off) / STEPS / 1000 for on, off in told["pairs"]]
    without = statistics.median(off / STEPS / 1000 for _, off in told["pairs"])
    added_us = statistics.median(added)
    percent = added_us / (STEP_S * 1e6) * 100
    figures = {"idle_percent": round(percent, 4), "idle_step_us": round(added_us, 3)}
    report.write(
        "tracing",
        {**report.figures_before("tracing"), **figures},
        [
            report.Row(
                what="hook, armed and idle, a step",
                ours=f"{added_us:.1f} us",
                baseline=f"{without:.0f} us (the loop's own step)",
            ),
            report.Row(
                what=f"of a step of {STEP_S * 1000:.0f} ms",
                ours=f"{percent:.3f} %",
                limit=f"{LIMIT_PERCENT} %",
            ),
        ],
    )
    return 0 if percent <= LIMIT_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
