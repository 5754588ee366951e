# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What dividing a cluster costs, what pairs gain, and how well speeds in company are estimated.

Beside the programs stands the same objective in cvxpy with ECOS where both are installed. Times are
the best of a few runs, building included; processor seconds are written beside them.
"""

from __future__ import annotations

import importlib
import importlib.util
import operator
import sys
import time
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench import gavel_tables, report
from bench.progress import Progress
from ullage.engines.allocation.estimator import complete
from ullage.engines.allocation.model import (
    Allocation,
    Inner,
    JobView,
    Problem,
    SolveResult,
    TenantView,
    ThroughputTable,
    TypeView,
)
from ullage.engines.allocation.policies import Objective, allocate
from ullage_simulate.events import TraceSettings, run
from ullage_simulate.policies import POLICIES
from ullage_simulate.readers import published
from ullage_simulate.speeds import built_in
from ullage_simulate.trace import Fleet, JobTrace, fitted
from ullage_simulate.work import Costs


def column_mean(references: NDArray[np.float64], row: NDArray[np.float64]) -> NDArray[np.float64]:
    """The plain baseline: the mean of each column, measured cells kept; NaN where none has it.

    Args:
        references: Speed beside a partner / alone; NaN = not measured, shape (references, columns).
        row: The same of one job, shape (columns,).

    Returns:
        Normalised speeds, shape (columns,).
    """
    known: NDArray[np.bool_] = ~np.isnan(references)
    total = np.where(known, references, 0.0).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / known.sum(axis=0)
    return np.where(np.isnan(row), mean, row)


LIMITS_S: Final = {
    "las_2000": 0.5,
    "las_4000": 1.0,
    "typed_10000": 2.0,
    "packing_1000": 5.0,
    "hierarchical_fair_2000": 5.0,
    "hierarchical_fifo_2000": 5.0,
}
TENANTS: Final = 20
MAE_LIMIT: Final = 0.11
RUNS: Final = 3
SEEDS: Final = 10
FLEET: Final = Fleet(devices={"v100": 8, "p100": 16, "k80": 24})
PACKED_LEAST: Final = 1.08
"""Mean completion time without pairs over that with pairs, all jobs there from the beginning."""
RESTART_S: Final = 30.0


def distinct(count: int, part: float) -> Problem:
    """Jobs that differ from one another, so that nothing can be grouped, on three types."""
    rng = np.random.default_rng(count)
    rates = rng.uniform(0.5, 10, (count, 1)) * rng.uniform(0.1, 1, (count, 3))
    gangs = rng.choice([1, 2, 4, 8], count, p=[0.7, 0.1, 0.15, 0.05]).tolist()
    return Problem(
        jobs=tuple(JobView(name=f"{i:05d}", gang=gang) for i, gang in enumerate(gangs)),
        types=tuple(TypeView(name=f"t{j}", devices=int(part * count)) for j in range(3)),
        throughputs=ThroughputTable(rates=rates),
    )


def of_tenants(problem: Problem, inner: Inner) -> Problem:
    """The same jobs, with weights and ages, of weighted tenants."""
    rng = np.random.default_rng(len(problem.jobs))
    jobs = tuple(
        replace(
            job,
            tenant=f"t{rng.integers(0, TENANTS)}",
            weight=float(rng.choice([1, 2, 4])),
            age_s=float(rng.uniform(0, 1e5)),
        )
        for job in problem.jobs
    )
    tenants = tuple(
        TenantView(name=f"t{one}", weight=float(rng.choice([1, 2, 3])), inner=inner)
        for one in range(TENANTS)
    )
    return replace(problem, jobs=jobs, tenants=tenants)


def typed(count: int) -> Problem:
    """Jobs of 200 types, two weights and gangs to 4, on six accelerator types."""
    rng = np.random.default_rng(count)
    table = rng.uniform(0.5, 10, (200, 1)) * rng.uniform(0.1, 1, (200, 6))
    kinds = rng.integers(0, 200, count)
    gangs = rng.choice([1, 2, 4], count).tolist()
    weights = rng.choice([1.0, 2.0], count).tolist()
    return Problem(
        jobs=tuple(
            JobView(name=f"{i:05d}", gang=gang, weight=weight)
            for i, (gang, weight) in enumerate(zip(gangs, weights, strict=True))
        ),
        types=tuple(TypeView(name=f"t{j}", devices=count // 10) for j in range(6)),
        throughputs=ThroughputTable(rates=table[kinds]),
    )


def packed(count: int) -> Problem:
    """Jobs of the published types with every published pair."""
    company = gavel_tables.company()
    rng = np.random.default_rng(count)
    kinds = rng.integers(0, len(company.kinds), count).tolist()
    rates = [gavel_tables.speeds()[company.kinds[kind], 1] for kind in kinds]
    return Problem(
        jobs=tuple(
            JobView(name=f"{i:05d}", kind=company.kinds[kind]) for i, kind in enumerate(kinds)
        ),
        types=tuple(TypeView(name=name, devices=count // 8) for name in gavel_tables.TYPES),
        throughputs=ThroughputTable(rates=np.array(rates), pairs=company.rows),
    )


def timed(problem: Problem) -> tuple[float, float, Allocation]:
    """Best wall and processor seconds of max-min fairness over a few runs, and the answer.

    With tenants it is the whole vector of levels, as the operator divides among tenants.

    Raises:
        RuntimeError: the solver found no optimum.
    """
    walls, cpus = [], []
    for _ in range(RUNS):
        wall, cpu = time.perf_counter(), time.process_time()
        found = allocate(Objective.MAX_MIN_FAIRNESS, problem)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
        if found.result is not SolveResult.OPTIMAL:
            raise RuntimeError(f"no optimum: {found.result}")
    return min(walls), min(cpus), found


def with_ecos(problem: Problem, expected: float) -> float | None:
    """Seconds of max-min fairness in cvxpy with ECOS; ``None`` where they are not installed.

    Raises:
        RuntimeError: it found another optimum.
    """
    if any(importlib.util.find_spec(name) is None for name in ("cvxpy", "ecos")):
        return None
    cvxpy = importlib.import_module("cvxpy")
    started = time.perf_counter()
    rates = problem.throughputs.rates
    sizes = np.array([float(kind.devices) for kind in problem.types])
    gang = np.array([[float(job.gang)] for job in problem.jobs])
    unit = gang * rates / (rates @ (sizes / sizes.sum()))[:, None]
    x = cvxpy.Variable(rates.shape)
    goal = cvxpy.Maximize(cvxpy.min(cvxpy.sum(cvxpy.multiply(unit, x), axis=1)))
    rows = [x >= 0, cvxpy.sum(cvxpy.multiply(gang, x), axis=0) <= sizes, cvxpy.sum(x, axis=1) <= 1]
    value = float(cvxpy.Problem(goal, rows).solve(solver="ECOS"))
    seconds = time.perf_counter() - started
    if abs(value / expected - 1) > 1e-5:
        raise RuntimeError(f"ECOS reached {value}, ours {expected}")
    return seconds


def estimates(part: float, *, family: bool) -> tuple[float, float]:
    """Mean absolute error on hidden cells: neighbours, and the mean of each column."""
    company = gavel_tables.company()
    table, names = company.table, np.array(company.families)
    ours: list[float] = []
    plain: list[float] = []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        for job in range(len(table)):
            others = names != names[job] if family else np.arange(len(table)) != job
            known = np.flatnonzero(~np.isnan(table[job]))
            seen = rng.choice(known, max(1, round(part * len(known))), replace=False)
            row = np.full(table.shape[1], np.nan)
            row[seen] = table[job, seen]
            found, mean = complete(table[others], row).values, column_mean(table[others], row)
            hidden = np.setdiff1d(known, seen)
            hidden = hidden[~np.isnan(found[hidden])]
            ours += np.abs(found - table[job])[hidden].tolist()
            plain += np.abs(mean - table[job])[hidden].tolist()
    return float(np.mean(ours)), float(np.mean(plain))


def pairs_gain(
    figures: dict[str, report.Figure], rows: list[report.Row], progress: Progress
) -> None:
    """The published trace with and without pairs at the published speeds, under the rounds."""
    arriving = fitted(published(), FLEET)
    at_once = replace(arriving, jobs=tuple(replace(job, arrival_s=0.0) for job in arriving.jobs))
    pairs = built_in().pairs(tuple(FLEET.devices))
    cases: tuple[tuple[str, str, JobTrace, float], ...] = (
        ("packed_gain", "las", at_once, 0.0),
        ("packed_gain_restarts", "las", at_once, RESTART_S),
        ("packed_gain_makespan", "makespan", at_once, 0.0),
        ("packed_gain_arrivals", "las", arriving, 0.0),
    )
    for name, policy, trace, restart_s in cases:
        progress.say(name)
        settings = TraceSettings(costs=Costs(restart_s=restart_s))
        alone = run(trace, FLEET, POLICIES[policy], settings)
        paired = run(trace, FLEET, POLICIES[policy], replace(settings, pairs=pairs))
        by = "makespan_s" if policy == "makespan" else "mean_jct_s"
        before, after = getattr(alone, by) / 3600, getattr(paired, by) / 3600
        figures |= {name: before / after, f"{name}_alone_h": before, f"{name}_paired_h": after}
        rows.append(
            report.Row(
                what=f"pairs, {policy}, {'makespan' if policy == 'makespan' else 'mean JCT'}, "
                f"{'all at once' if trace is at_once else 'arrivals'}, restart {restart_s:.0f} s",
                ours=f"{after:.2f} h ({before / after:.3f}x)",
                baseline=f"{before:.2f} h without pairs",
                limit=f">= {PACKED_LEAST}x" if name == "packed_gain" else "",
            )
        )


def main() -> int:
    figures: dict[str, report.Figure] = {}
    rows: list[report.Row] = []
    with Progress() as progress:
        measure(figures, rows, progress)
        pairs_gain(figures, rows, progress)
    report.write("policy", figures, rows)
    bars: report.Bars = {
        **{f"{name}_s": partial(operator.ge, limit) for name, limit in LIMITS_S.items()},
        "packed_gain": partial(operator.le, PACKED_LEAST),
    }
    return report.judge(figures, bars)


def measure(figures: dict[str, report.Figure], rows: list[report.Row], progress: Progress) -> None:
    """Times of the solver beside its limits, then errors of the estimates."""
    cases: dict[str, tuple[Problem, ...]] = {
        "las_2000": (distinct(2000, 0.15), distinct(2000, 0.5)),
        "las_4000": (distinct(4000, 0.15), distinct(4000, 0.5)),
        "typed_10000": (typed(10000),),
        "packing_1000": (packed(1000),),
        "hierarchical_fair_2000": tuple(
            of_tenants(distinct(2000, part), Inner.FAIRNESS) for part in (0.15, 0.5)
        ),
        "hierarchical_fifo_2000": tuple(
            of_tenants(distinct(2000, part), Inner.FIFO) for part in (0.15, 0.5)
        ),
    }
    for name, problems in cases.items():
        progress.say(name)
        times = [timed(problem) for problem in problems]
        wall, cpu = max(one[0] for one in times), max(one[1] for one in times)
        figures |= {f"{name}_s": wall, f"{name}_cpu_s": cpu}
        baseline = ""
        if name.startswith("las"):
            ecos = with_ecos(problems[-1], times[-1][2].objective)
            figures[f"oracle_{name}_s"] = ecos
            baseline = "cvxpy + ECOS not installed" if ecos is None else f"{ecos:.2f} s by ECOS"
        ours = f"{wall:.3f} s ({cpu:.3f} s of processor)"
        limit = f"<= {LIMITS_S[name]} s"
        rows.append(report.Row(what=name, ours=ours, baseline=baseline, limit=limit))
    for split in ("one", "family"):
        for part in (0.1, 0.3):
            name = f"estimator_leave_{split}_out_{round(100 * part)}"
            progress.say(name)
            ours_mae, mean = estimates(part, family=split == "family")
            figures |= {f"{name}_mae": ours_mae, f"{name}_column_mean_mae": mean}
            rows.append(
                report.Row(
                    what=f"estimate, leave {split} out, {part:.0%} measured",
                    ours=f"{ours_mae:.3f}",
                    baseline=f"{mean:.3f} column mean",
                    limit=f"<= {MAE_LIMIT}" if (split, part) == ("one", 0.1) else "< baseline",
                )
            )


if __name__ == "__main__":
    sys.exit(main())
