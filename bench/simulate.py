# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The simulator: faithful to published figures, the operator's own rounds on traces, and its speed.

The published trace and a synthetic one come with the package; others are read from ``--data`` where
that folder is. Baselines and the cost of restarts stand in the same table.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Final

from bench import report
from bench.gavel_rules import AWARE, GavelPolicy, run_trace
from bench.progress import Progress
from bench.simulate_data import public_traces
from ullage.engines.allocation.round_records import RoundSettings
from ullage_simulate.choosers import RoundsChooser
from ullage_simulate.decided import run_decided
from ullage_simulate.events import TraceSettings, run
from ullage_simulate.fleets import STUDY_PRICES
from ullage_simulate.policies import BASELINES, POLICIES
from ullage_simulate.readers import published
from ullage_simulate.speeds import built_in
from ullage_simulate.synthetic import gap_for, generate
from ullage_simulate.trace import Fleet, JobTrace, fitted
from ullage_simulate.work import Costs, begun

HOUR: Final = 3600.0
FLEET: Final = Fleet(devices={"v100": 8, "p100": 16, "k80": 24})
SEEDS: Final = 8
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
BY_MAKESPAN: Final = frozenset({GavelPolicy.MIN_TOTAL_DURATION_PERF})
"""Their completion times depend on which optimum a solver finds."""
DECIDED: Final = ("fifo", "las", "finish-time-fairness", "makespan")
BARE: Final = {"fifo": "fifo-fastest"}
"""What plays an objective without the operator, where that is not its name: the baseline ``fifo``
knows nothing of speeds and keeps nothing for those that were passed over."""
SHORT_JOBS: Final = 60
"""Of the longer traces: every decision is the operator's, which takes its time."""
OWN: Final = ("las", "water-filling", "finish-time-fairness", "makespan")
RESTARTS_S: Final = (0.0, 30.0, 120.0)
STEADY_JOBS: Final = 96
"""So many that no device idles: time that no one was promised would count as a gap, too."""
STEADY_ROUNDS: Final = 50
SCALE_JOBS: Final = 100_000
SCALE_FLEET: Final = Fleet(devices={"v100": 800, "p100": 1600, "k80": 2400})
SCALE_LENGTH: Final = 0.3
"""Factor of the generator's durations: the mean is then that of Philly, five hours."""
SCALE_LOAD: Final = 0.8
BARS: Final[report.Bars] = {
    "operator_gap": lambda gap: gap <= 0.02,
    "received_gap_restart_0s": lambda gap: gap <= 0.05,
}


@dataclass(slots=True)
class Sheet:
    """Figures and lines as they are found."""

    progress: Progress
    figures: dict[str, report.Figure] = field(default_factory=dict)
    rows: list[report.Row] = field(default_factory=list)

    def say(self, what: str, ours: str, baseline: str = "", limit: str = "") -> None:
        """One line of the table, told at once."""
        self.progress.say(f"{what}: {ours}")
        self.rows.append(report.Row(what=what, ours=ours, baseline=baseline, limit=limit))


def published_figures(sheet: Sheet) -> None:
    """The published simulator's rules, and its own figures beside ours."""
    jobs = published().jobs
    mean: dict[GavelPolicy, tuple[float, float]] = {}
    for policy, golden in GOLDEN_H.items():
        seeds = 1 if policy in AWARE else SEEDS
        runs = [run_trace(jobs, FLEET.devices, policy, seed=seed) for seed in range(seeds)]
        ours = fmean(r.makespan_s for r in runs) / HOUR, fmean(r.mean_jct_s for r in runs) / HOUR
        mean[policy] = ours
        for at, name in enumerate(("makespan_h", "mean_jct_h")):
            sheet.figures[f"compat_{policy}_{name}"] = ours[at]
            sheet.figures[f"golden_{policy}_{name}"] = golden[at]
        limit = "3 %" if policy in AWARE else f"{SEEDS} seeds"
        sheet.say(
            f"published rounds, {policy}" + (" (makespan)" if policy in BY_MAKESPAN else ""),
            f"{ours[0]:.2f} / {ours[1]:.2f} h",
            f"{golden[0]} / {golden[1]} h",
            limit,
        )
    las = mean[GavelPolicy.MAX_MIN_FAIRNESS][1] / mean[GavelPolicy.MAX_MIN_FAIRNESS_PERF][1]
    span = mean[GavelPolicy.MIN_TOTAL_DURATION][0] / mean[GavelPolicy.MIN_TOTAL_DURATION_PERF][0]
    sheet.figures |= {"aware_las_jct_ratio": las, "aware_makespan_ratio": span}
    sheet.say("knowing types, LAS: mean JCT", f"{las:.2f}x", "types not known", "1.25x")
    sheet.say("knowing types, makespan", f"{span:.2f}x", "types not known", "1.15x")


def own_rounds(
    sheet: Sheet,
    name: str,
    trace: JobTrace,
    fleet: Fleet,
    policies: Sequence[str],
    restarts_s: Sequence[float] = RESTARTS_S,
) -> None:
    """A trace under the operator's rounds, beside the baselines."""
    ready = fitted(trace, fleet)
    sheet.figures[f"{name}_jobs"] = len(ready.jobs)
    plain = 0.0
    for policy in (*BASELINES, *(POLICIES[one] for one in policies)):
        for restart_s in restarts_s:
            settings = TraceSettings(costs=Costs(restart_s=restart_s))
            found = run(ready, fleet, policy, settings)
            if policy is BASELINES[0] and restart_s == restarts_s[0]:
                plain = found.mean_jct_s
            key = f"{name}_{policy.name.replace('-', '_')}"
            key += f"_restart_{restart_s:.0f}s" if restart_s else ""
            sheet.figures |= {
                f"{key}_mean_jct_h": found.mean_jct_s / HOUR,
                f"{key}_makespan_h": found.makespan_s / HOUR,
                f"{key}_p99_jct_h": found.jct_percentile_s(99) / HOUR,
                f"{key}_stops": found.stops,
            }
            sheet.say(
                f"{name}, {policy.name}, restart {restart_s:.0f} s",
                f"{found.makespan_s / HOUR:.2f} / {found.mean_jct_s / HOUR:.2f} h",
                f"{plain / found.mean_jct_s:.2f}x fifo",
                f"{found.stops} stops",
            )


def the_operator(sheet: Sheet, traces: Mapping[str, tuple[JobTrace, Fleet]]) -> None:
    """Traces under the operator's own decisions, beside the bare rounds; how far they differ."""
    worst = 0.0
    settings = TraceSettings(costs=Costs(restart_s=RESTARTS_S[1]))
    for name, (trace, unpriced) in traces.items():
        fleet = replace(unpriced, prices=STUDY_PRICES)
        ready = fitted(trace, fleet)
        for policy in DECIDED:
            found = run_decided(ready, fleet, POLICIES[policy], settings)
            bare = run(ready, fleet, POLICIES[BARE.get(policy, policy)], settings)
            gaps = [found.mean_jct_s / bare.mean_jct_s - 1]
            gaps += [found.dollars / bare.dollars - 1] if bare.dollars else []
            worst = max(worst, *map(abs, gaps))
            key = f"operator_{name}_{policy.replace('-', '_')}"
            sheet.figures |= {
                f"{key}_mean_jct_h": found.mean_jct_s / HOUR,
                f"{key}_makespan_h": found.makespan_s / HOUR,
                f"{key}_decisions": found.decisions,
                f"{key}_gap": max(gaps, key=abs),
            }
            sheet.say(
                f"the operator itself, {name}, {policy}, restart {RESTARTS_S[1]:.0f} s",
                f"{found.makespan_s / HOUR:.2f} / {found.mean_jct_s / HOUR:.2f} h",
                f"{bare.makespan_s / HOUR:.2f} / {bare.mean_jct_s / HOUR:.2f} h bare rounds",
                f"{found.decisions} decisions",
            )
    sheet.figures["operator_gap"] = worst
    sheet.say("the operator against bare rounds, completion or cost", f"{worst:.1%}", "", "2 %")


def mechanism(sheet: Sheet) -> None:
    """Received part of the time against the promised one, for jobs that come and never go."""
    jobs = fitted(published(), FLEET).jobs[:STEADY_JOBS]
    for restart_s in (0.0, RESTARTS_S[-1]):
        costs, rounds = Costs(restart_s=restart_s), RoundSettings()
        chooser = RoundsChooser(policy=POLICIES["las"], fleet=FLEET, costs=costs, settings=rounds)
        active = {job.name: begun(job, order, FLEET) for order, job in enumerate(jobs)}
        for work in active.values():
            chooser.arrive(work)
        for number in range(STEADY_ROUNDS + 1):
            chooser.choose(active, FLEET.devices, number * rounds.round_s)
        assert chooser.allocation is not None
        elapsed_s = STEADY_ROUNDS * rounds.round_s
        worst = max(
            abs(chooser.state.received_s.get(((name,), kind), 0.0) / elapsed_s - promised)
            for name in active
            for kind, promised in chooser.allocation.of(name).items()
        )
        sheet.figures[f"received_gap_restart_{restart_s:.0f}s"] = worst
        sheet.say(
            f"received - promised, {STEADY_ROUNDS} rounds, restart {restart_s:.0f} s",
            f"{worst:.3f} at most",
            "",
            "0.05" if restart_s == 0 else "",
        )


def speed(sheet: Sheet, jobs: int) -> None:
    """How many jobs a second are simulated, under LAS with a decision in every round."""
    table = built_in()
    gap_s = gap_for(SCALE_LOAD, SCALE_FLEET, table, scale=SCALE_LENGTH)
    trace = fitted(generate(jobs, gap_s, table, seed=1, scale=SCALE_LENGTH), SCALE_FLEET)
    start = time.process_time()
    found = run(trace, SCALE_FLEET, POLICIES["las"])
    took = time.process_time() - start
    sheet.figures |= {
        "jobs_per_s": jobs / took,
        "scale_jobs": jobs,
        "scale_cpu_s": took,
        "scale_decisions": found.decisions,
    }
    sheet.say(
        f"{jobs} jobs on {SCALE_FLEET.total} devices, LAS",
        f"{took:.0f} s of one core",
        f"{jobs / took:.0f} jobs/s",
        "minutes",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=report.DATA)
    parser.add_argument("--jobs", type=int, default=SCALE_JOBS, help="of the test of speed")
    options = parser.parse_args()
    with Progress() as progress:
        sheet = Sheet(progress)
        measure(sheet, options.data, options.jobs)
    report.write("simulate", sheet.figures, sheet.rows)
    return report.judge(sheet.figures, BARS)


def measure(sheet: Sheet, data: Path, jobs: int) -> None:
    """All parts.

    Args:
        sheet: Where figures and lines go.
        data: Folder of the public tables.
        jobs: Of the test of speed.
    """
    published_figures(sheet)
    own_rounds(sheet, "gavel", published(), FLEET, OWN)
    table = built_in()
    gap_s = gap_for(0.7, FLEET, table, scale=SCALE_LENGTH)
    synthetic = generate(200, gap_s, table, seed=0, scale=SCALE_LENGTH)
    own_rounds(sheet, "synthetic", synthetic, FLEET, ("las",), (0.0, 120.0))
    decided = {"gavel": (published(), FLEET), "synthetic": (synthetic.first(SHORT_JOBS), FLEET)}
    for name, trace, fleet in public_traces(data):
        own_rounds(sheet, name, trace, fleet, ("las",), RESTARTS_S[1:2])
        if name == "msr":
            decided[name] = trace.first(SHORT_JOBS), fleet
    the_operator(sheet, decided)
    mechanism(sheet)
    speed(sheet, jobs)


if __name__ == "__main__":
    sys.exit(main())
