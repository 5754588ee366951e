# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a job gains by lying about its speeds, under each objective.

One job of a crowd states other speeds than its own, the best of a few lies; everyone else is
honest. Its gain is its true speed under the division that follows, against that of the honest one.
The same seed gives the same figures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from statistics import fmean
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench import report
from bench.progress import Progress
from ullage.engines.allocation.model import JobView, Problem, ThroughputTable, TypeView
from ullage.engines.allocation.policies import Objective, allocate
from ullage_simulate.policies import ISOLATED, Solve
from ullage_simulate.speeds import built_in

JOBS: Final = 12
DEVICES: Final = MappingProxyType({"v100": 2, "p100": 3, "k80": 4})
DOLLARS: Final = MappingProxyType({"v100": 2.48, "p100": 1.46, "k80": 0.45})
FLOOR: Final = 0.1
"""Part of a proportional share that objectives of cost keep for each job, the policy's default."""
MOST: Final = 9.0
"""Larger gains count as this: who is honest may get nothing."""
NOTICED: Final = 0.01
"""Gains below this are rounding."""

Speeds = NDArray[np.float64]
LIES: Final[Mapping[str, Callable[[Speeds], Speeds]]] = MappingProxyType(
    {
        "ten times as fast everywhere": lambda own: own * 10,
        "a tenth as fast everywhere": lambda own: own / 10,
        "alike on all types": lambda own: np.full_like(own, own.mean()),
        "types differ twice as much": lambda own: own**2 / own.max(),
        "types differ half as much": lambda own: np.sqrt(own * own.max()),
        "slow but on its best type": lambda own: np.where(own < own.max(), own / 10, own),
        "slow on its best type": lambda own: np.where(own == own.max(), own / 10, own),
        "best where it is worst": lambda own: own.max() + own.min() - own,
    }
)


def policies() -> Iterator[tuple[str, Solve]]:
    """Equal parts, which no lie moves, and every objective that divides time.

    The operator's own FIFO is a queue; MinCostSLO is MinCost where there are no deadlines.
    """
    assert ISOLATED.solve is not None
    yield "equal parts", ISOLATED.solve
    for objective in Objective:
        if objective not in (Objective.FIFO, Objective.MIN_COST_SLO):
            yield objective.value, partial(allocate, objective)


def crowd(chance: np.random.Generator) -> Problem:
    """Jobs of one device drawn from the published table, with work for one to ten hours."""
    table = built_in()
    kinds = chance.choice(table.kinds(1), JOBS)
    rates = np.array([[table.alone[kind, 1][one] for one in DEVICES] for kind in kinds])
    hours = chance.uniform(1.0, 10.0, JOBS)
    ages = chance.uniform(0.0, 3600.0, JOBS)
    return Problem(
        jobs=tuple(
            JobView(
                name=f"job{at:02d}",
                steps_left=float(rates[at].max() * hours[at] * 3600),
                age_s=float(ages[at]),
            )
            for at in range(JOBS)
        ),
        types=tuple(
            TypeView(name=one, devices=count, dollars_per_hour=DOLLARS[one])
            for one, count in DEVICES.items()
        ),
        throughputs=ThroughputTable(rates=rates),
        min_service=FLOOR,
    )


def gain(problem: Problem, solve: Solve, liar: int, lie: Callable[[Speeds], Speeds]) -> float:
    """True speed with a lie over that without, less 1.

    Args:
        problem: Of honest jobs.
        solve: Divides the time.
        liar: Number of the job.
        lie: From its speeds to those that it states.
    """
    own = problem.throughputs.rates[liar]
    honest = float(solve(problem).fractions[liar] @ own)
    rates = problem.throughputs.rates.copy()
    rates[liar] = lie(own)
    told = float(
        solve(replace(problem, throughputs=ThroughputTable(rates=rates))).fractions[liar] @ own
    )
    if honest <= 0:
        return 0.0 if told <= 0 else float("inf")
    return told / honest - 1


def measure(crowds: int, seed: int, tell: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """Gains of one liar a crowd, by objective: of its best lie, and of each lie on average.

    Args:
        crowds: How many crowds.
        seed: Of the crowds and the liars.
        tell: Hears what is done.
    """
    chance = np.random.default_rng(seed)
    drawn = [(crowd(chance), int(chance.integers(JOBS))) for _ in range(crowds)]
    found: dict[str, dict[str, float]] = {}
    for name, solve in policies():
        rows = [[gain(one, solve, liar, lie) for lie in LIES.values()] for one, liar in drawn]
        best = [min(MOST, max(0.0, *row)) for row in rows]
        means = [fmean(min(MOST, row[at]) for row in rows) for at in range(len(LIES))]
        found[name] = {
            "mean": fmean(best),
            "worst": max(best),
            "part": fmean(one > NOTICED for one in best),
            "lie": float(int(np.argmax(means))),
        }
        tell(f"{name}: the best lie gains {fmean(best):.1%}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--crowds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with Progress() as progress:
        found = measure(options.crowds, options.seed, progress.say)
    names = list(LIES)
    figures: dict[str, report.Figure] = {}
    rows: list[report.Row] = []
    for name, gains in found.items():
        key = name.lower().replace(" ", "_")
        figures |= {f"{key}_{what}": gains[what] for what in ("mean", "worst", "part")}
        rows.append(
            report.Row(
                what=f"{name}: gain of the best lie",
                ours=f"{gains['mean']:.1%} on average, {gains['worst']:.0%} at most",
                baseline=f"{gains['part']:.0%} of liars gain"
                + (f"; most by: {names[int(gains['lie'])]}" if gains["part"] else ""),
            )
        )
    report.write("lies", figures, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
