# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The published trace of 96 jobs: fidelity to the published figures, and the operator's own rounds.

Baselines stand in the same table: first come first served in fixed type order, and policies that do
not know the types. The cost of restarts is shown beside the free ones.
"""

from __future__ import annotations

import sys
from statistics import fmean
from typing import Final

from bench import gavel_tables, report
from ullage.engines.allocation import waterfill
from ullage.engines.allocation.agnostic import all_alike
from ullage.engines.allocation.policies import finish_time, max_min
from ullage.simulate.gavel import AWARE, GavelPolicy, run_trace
from ullage.simulate.gavel_rounds import Solve, run_in_order, run_rounds

DEVICES: Final = {"v100": 8, "p100": 16, "k80": 24}
SEEDS: Final = 8
HOUR: Final = 3600.0
GOLDEN_H: Final = {
    GavelPolicy.FIFO_PERF: (20.09, 5.42),
    GavelPolicy.MAX_MIN_FAIRNESS: (21.43, 5.55),
    GavelPolicy.MAX_MIN_FAIRNESS_PERF: (17.76, 4.06),
    GavelPolicy.MIN_TOTAL_DURATION: (20.93, 5.86),
    GavelPolicy.MIN_TOTAL_DURATION_PERF: (17.09, 6.38),
    GavelPolicy.FINISH_TIME_FAIRNESS: (20.98, 5.44),
    GavelPolicy.FINISH_TIME_FAIRNESS_PERF: (18.05, 4.17),
    GavelPolicy.WATER_FILLING_PERF: (17.94, 3.99),
}
"""Makespan and mean completion time that the published simulator gives, in hours."""
OWN: Final[dict[str, Solve]] = {
    "agnostic_las": lambda problem: max_min.solve(all_alike(problem)),
    "las": max_min.solve,
    "water_filling": waterfill.solve,
    "finish_time_fairness": finish_time.solve,
}
RESTARTS_S: Final = (0.0, 30.0, 120.0)


def main() -> int:
    figures: dict[str, report.Figure] = {}
    rows: list[report.Row] = []
    jobs = gavel_tables.trace()
    for policy, (span, jct) in GOLDEN_H.items():
        seeds = 1 if policy in AWARE else SEEDS
        runs = [run_trace(jobs, DEVICES, policy, seed=seed) for seed in range(seeds)]
        ours = fmean(r.makespan_s for r in runs) / HOUR, fmean(r.mean_jct_s for r in runs) / HOUR
        figures |= {
            f"{policy.value}_makespan_h": ours[0],
            f"{policy.value}_mean_jct_h": ours[1],
            f"golden_{policy.value}_makespan_h": span,
            f"golden_{policy.value}_mean_jct_h": jct,
        }
        rows.append(
            report.Row(
                what=f"published rounds, {policy.value}",
                ours=f"{ours[0]:.2f} / {ours[1]:.2f} h",
                baseline=f"{span} / {jct} h",
                limit="3 %" if policy in AWARE else "",
            )
        )
    plain = run_in_order(jobs, DEVICES)
    figures |= {
        "fifo_order_makespan_h": plain.makespan_s / HOUR,
        "fifo_order_mean_jct_h": plain.mean_jct_s / HOUR,
    }
    order = f"{plain.makespan_s / HOUR:.2f} / {plain.mean_jct_s / HOUR:.2f} h"
    rows.append(report.Row(what="by arrival in fixed type order", ours=order))
    for name, solve in OWN.items():
        for restart in RESTARTS_S:
            found, stops = run_rounds(jobs, DEVICES, solve, restart_s=restart)
            key = f"rounds_{name}_restart_{restart:.0f}s"
            figures |= {
                f"{key}_makespan_h": found.makespan_s / HOUR,
                f"{key}_mean_jct_h": found.mean_jct_s / HOUR,
                f"{key}_stops": stops,
            }
            rows.append(
                report.Row(
                    what=f"own rounds, {name}, restart {restart:.0f} s",
                    ours=f"{found.makespan_s / HOUR:.2f} / {found.mean_jct_s / HOUR:.2f} h",
                    baseline=f"{plain.mean_jct_s / found.mean_jct_s:.2f}x by arrival",
                    limit=f"{stops} stops",
                )
            )
    report.write("simulate_gavel", figures, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
