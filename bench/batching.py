# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Batching by distribution beside EDF, FIFO and static batch sizes, in virtual time.

Arrivals are open-loop, the finish rate is over all arrivals, and what is dropped did not finish.
Distributions are learned on the first third of a trace and tried on the second. The public trace
is only read, never copied; without it the seeded generators alone are played.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np

from bench import report
from bench.batching_play import Arrivals, WorkerPool, play
from bench.progress import Progress
from bench.router_gap import Gap, gaps
from ullage.engines.batching.batch_time import BatchCosts
from ullage.engines.batching.chooser import SIZES, BatchChooser, BatchPolicy, BatchRules, SizeRule
from ullage.engines.batching.histogram import Floats, TimeHistogram
from ullage.engines.batching.score import ScoreRow
from ullage.engines.batching.waiting import BatchRequest

COSTS: Final = BatchCosts(fixed_s=0.004, factors={1: 1.0, 2: 1.1, 4: 1.3, 8: 1.7, 16: 2.5})
TOKEN_S: Final = 0.001
"""Time of one generated token; a request's time is its tokens by this."""
LOADS: Final = (0.6, 0.9)
SLOS: Final = (1, 2, 4)
"""Objectives as multiples of the 99th percentile of single requests."""
SYNTHETIC: Final = 20_000
WAITING: Final = 1_000
DECISIONS: Final = 2_000
WARM: Final = 20
"""First decisions, which make tables."""
LEARNED: Final = 300
ROUTED: Final = 1_000
"""Requests that the router learns from, and that it is tried on in each cell."""
PACE_S: Final = 0.05
"""Seconds between two decisions."""
DRAWN: Final = 200_000
BURSTY: Final = "bursty"
POLICIES: Final[Mapping[str, BatchRules]] = {
    "Orloj": BatchRules(),
    "EDF mean": BatchRules(policy=BatchPolicy.EDF),
    "EDF p99": BatchRules(policy=BatchPolicy.EDF, quantile=0.99),
    "EDF mean, head": BatchRules(policy=BatchPolicy.EDF, size_rule=SizeRule.LARGEST_FEASIBLE),
    "EDF p99, head": BatchRules(
        policy=BatchPolicy.EDF, quantile=0.99, size_rule=SizeRule.LARGEST_FEASIBLE
    ),
    "FIFO": BatchRules(policy=BatchPolicy.FIFO),
    **{f"static {size}": BatchRules(policy=BatchPolicy.FIFO, sizes=(size,)) for size in SIZES},
}
ESTIMATES: Final = tuple(name for name in POLICIES if name.startswith("EDF"))
BARS: Final[report.Bars] = {
    "score_error": lambda found: found <= 0.02,
    "worst_vs_edf_points": lambda found: found >= -0.5,
    "fifo_gain_points": lambda found: found >= 10,
    "static_gap_points": lambda found: found <= 1,
    "decide_p99_ms": lambda found: found <= 1,
    "simulator_gap_points": lambda found: found <= 2,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workload:
    """Requests in order of arrival, seconds."""

    arrival_s: Floats
    single_s: Floats

    def part(self, number: int, of: int = 3) -> Workload:
        """A part in order of time."""
        size = self.arrival_s.size // of
        cut = slice(number * size, (number + 1) * size)
        return Workload(arrival_s=self.arrival_s[cut], single_s=self.single_s[cut])


def conversations(file: Path) -> Workload:
    """Azure's trace: a request's time is that of the tokens it generates."""
    with gzip.open(file, "rt", encoding="utf-8", newline="") as text:
        rows = list(csv.DictReader(text))
    came = [datetime.fromisoformat(row["timestamp"][:26]).timestamp() for row in rows]
    tokens = np.array([max(1, int(row["generated_tokens"])) for row in rows])
    return Workload(arrival_s=np.array(came) - came[0], single_s=tokens * TOKEN_S)


def bimodal(seed: int = 1) -> Workload:
    """Short and long requests, Poisson arrivals."""
    rng = np.random.default_rng(seed)
    short, long = rng.lognormal(-4, 0.3, SYNTHETIC), rng.lognormal(-2, 0.3, SYNTHETIC)
    single = np.where(rng.random(SYNTHETIC) < 0.8, short, long)
    return Workload(arrival_s=np.cumsum(rng.exponential(1, SYNTHETIC)), single_s=single)


def bursty(seed: int = 2) -> Workload:
    """Short and long requests that come in bursts: hyper-exponential gaps, CV^2 about 25."""
    rng = np.random.default_rng(seed)
    apart = rng.random(SYNTHETIC) < 0.05
    gaps = np.where(apart, rng.exponential(16, SYNTHETIC), rng.exponential(0.2, SYNTHETIC))
    return Workload(arrival_s=np.cumsum(gaps), single_s=bimodal(seed).single_s)


def static(seed: int = 3) -> Workload:
    """A model whose requests all take the same time."""
    rng = np.random.default_rng(seed)
    times = np.full(SYNTHETIC // 2, 0.05)
    return Workload(arrival_s=np.cumsum(rng.exponential(1, times.size)), single_s=times)


def at_load(asked: Workload, load: float, known: TimeHistogram, slo: float) -> Arrivals:
    """The workload at a part of the capacity at its best batch size, with deadlines."""
    capacity = max(size / COSTS.batch(size, known).mean_s for size in SIZES)
    span = float(asked.arrival_s[-1] - asked.arrival_s[0])
    pace = asked.arrival_s.size / span / (load * capacity)
    came = (asked.arrival_s - asked.arrival_s[0]) * pace
    limit = slo * COSTS.batch_s(1, known.quantile_s(0.99))
    return Arrivals(arrival_s=came, single_s=asked.single_s, deadline_s=came + limit)


def cell(asked: Workload, load: float, slo: float) -> dict[str, float]:
    """Finish rates by policy, learned on the first third and tried on the second."""
    known = TimeHistogram.of(asked.part(0).single_s)
    arrivals = at_load(asked.part(1), load, known, slo)
    rates = {}
    for name, rules in POLICIES.items():
        chooser = BatchChooser(rules=rules, costs=COSTS, histograms={"default": known})
        rates[name] = play(arrivals, chooser, COSTS).finish_rate
    return rates


def score_error() -> float:
    """Worst relative error of the score against drawn batches, sizes 1 to 16."""
    rng = np.random.default_rng(7)
    single = TimeHistogram.of(rng.lognormal(-3, 0.7, DRAWN))
    worst = 0.0
    for size in SIZES:
        row = ScoreRow.of(size, COSTS.batch(size, single))
        longest = rng.lognormal(-3, 0.7, (DRAWN, size)).max(axis=1)
        times = COSTS.fixed_s + COSTS.factors[size] * longest
        rate = row.rate_per_s
        for slack in np.quantile(times, [0.2, 0.5, 0.8, 0.95]):
            gained = np.where(times <= slack, np.exp(-rate * (slack - times)), 0).mean()
            found = float(row.score(np.array([slack]))[0])
            worst = max(worst, abs(found * times.mean() / gained - 1))
    return worst


def decide_p99_ms() -> float:
    """The 99th percentile of one decision of a pool in which many wait, milliseconds.

    What was run or refused is replaced between decisions, as in a router under overload.
    """
    rng = np.random.default_rng(9)
    known = TimeHistogram.of(bimodal().single_s)
    chooser = BatchChooser(rules=BatchRules(), costs=COSTS, histograms={"default": known})
    pool = WorkerPool(chooser=chooser, workers=(0,))
    took = []
    for at in range(DECISIONS):
        now_s = at * PACE_S
        while len(pool.waiting) < WAITING:
            due = now_s + float(rng.uniform(0, 2))
            pool.offer(BatchRequest(number=at, arrival_s=now_s, deadline_s=due))
        started = time.perf_counter()
        pool.dispatch(now_s)
        took.append(time.perf_counter() - started)
        pool.release(0)
    return float(np.quantile(took[WARM:], 0.99)) * 1e3


Cells = dict[tuple[str, float, float], dict[str, float]]


def played(workloads: Mapping[str, Workload], progress: Progress) -> Cells:
    """Finish rates of every workload, load and objective."""
    cells: Cells = {}
    for name, asked in workloads.items():
        for load in LOADS:
            for slo in SLOS:
                progress.say(f"{name}, load {load}, SLO {slo} x p99")
                cells[name, load, slo] = cell(asked, load, slo)
    return cells


def margin(rates: Mapping[str, float], others: Sequence[str]) -> float:
    """Points of finish rate above the best of the others."""
    return 100 * (rates["Orloj"] - max(rates[name] for name in others))


def summary(cells: Cells) -> dict[str, report.Figure]:
    """The figures that have bars, and every cell."""
    moving = {key: rates for key, rates in cells.items() if key[0] != "static"}
    still = [margin(rates, ESTIMATES) for key, rates in cells.items() if key[0] == "static"]
    heavy = [margin(rates, ["FIFO"]) for key, rates in cells.items() if key[:2] == (BURSTY, 0.9)]
    found: dict[str, report.Figure] = {
        "worst_vs_edf_points": min(margin(rates, ESTIMATES) for rates in moving.values()),
        "fifo_gain_points": min(heavy),
        "static_gap_points": max(-gap for gap in still),
    }
    for (name, load, slo), rates in cells.items():
        for policy, rate in rates.items():
            key = f"{name}_load{round(100 * load)}_slo{slo}_{policy}".replace(", ", "_")
            found[key.replace(" ", "_").lower()] = rate
    return found


def routed_cells(count: int) -> tuple[Floats, dict[str, Arrivals]]:
    """Earlier times to learn from, and the first later arrivals of the bimodal workload by cell."""
    asked = bimodal()
    earlier, later = asked.part(0).single_s[:LEARNED], asked.part(1)
    first = Workload(arrival_s=later.arrival_s[:count], single_s=later.single_s[:count])
    known = TimeHistogram.of(earlier)
    return earlier, {
        f"load{round(100 * load)}_slo{slo}": at_load(first, load, known, slo)
        for load in LOADS
        for slo in SLOS
    }


def gap(progress: Progress) -> dict[str, Gap]:
    """Simulator and router on the same arrivals."""
    earlier, cells = routed_cells(ROUTED)
    return gaps(COSTS, earlier, cells, progress)


def gap_figures(found: Mapping[str, Gap]) -> dict[str, report.Figure]:
    """The largest difference, and both rates of each cell."""
    figures: dict[str, report.Figure] = {
        "simulator_gap_points": max(one.points for one in found.values())
    }
    for name, one in found.items():
        figures[f"routed_{name}"] = one.routed
        figures[f"routed_{name}_simulated"] = one.simulated
    return figures


def row_of(key: tuple[str, float, float], rates: Mapping[str, float]) -> report.Row:
    """The table's line of a cell."""
    fixed = max((name for name in rates if name.startswith("static")), key=rates.__getitem__)
    names = (*ESTIMATES, "FIFO", fixed)
    return report.Row(
        what=f"{key[0]}, load {key[1]}, SLO {key[2]} x p99",
        ours=f"{rates['Orloj']:.3f}",
        baseline=", ".join(f"{name} {rates[name]:.3f}" for name in names),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=report.DATA)
    file = parser.parse_args().data / "inference" / "azure_llm_2023_conv.csv.gz"
    workloads = {"bimodal": bimodal(), BURSTY: bursty(), "static": static()}
    if file.is_file():
        workloads["conversations"] = conversations(file)
    else:
        print(f"skipped: conversations; {file} is not there", file=sys.stderr)
    with Progress() as progress:
        cells = played(workloads, progress)
        found = gap(progress)
    figures: dict[str, report.Figure] = {
        "score_error": score_error(),
        **summary(cells),
        "decide_p99_ms": decide_p99_ms(),
        **gap_figures(found),
    }
    rows = [row_of(key, rates) for key, rates in cells.items()]
    rows += [
        report.Row(what=name, ours="not measured" if value is None else f"{value:.4g}")
        for name, value in ((name, figures[name]) for name in BARS)
    ]
    report.write("batching", figures, rows)
    return report.judge(figures, BARS)


if __name__ == "__main__":
    sys.exit(main())
