# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""HolisticTraceAnalysis on one trace, in its own environment: prints its figures as JSON.

Seconds are of this process's CPU, from the parsing to the last figure; imports do not count.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time

os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"

from hta.trace_analysis import TraceAnalysis

logging.disable(logging.CRITICAL)


def main() -> None:
    path = sys.argv[1]
    before = time.process_time()
    analysis = TraceAnalysis(trace_files={0: path}, include_last_profiler_step=True)
    shares = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    has_collectives = len(sys.argv) < 3 or sys.argv[2] != "no-collectives"
    overlap = None
    if has_collectives:
        overlap = analysis.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"].iloc[0]
    seconds = time.process_time() - before
    with open("/proc/self/status") as file:
        status = file.read()
    total = float(shares["kernel_time(us)"])
    print(
        json.dumps(
            {
                "idle": 100 * float(shares["idle_time(us)"]) / total,
                "compute": 100 * float(shares["compute_time(us)"]) / total,
                "overlap": None if overlap is None or overlap != overlap else float(overlap),
                "seconds": seconds,
                "peak_mib": int(status.partition("VmHWM:")[2].split()[0]) / 1024,
            }
        )
    )


main()
