# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Problems for tests: from the published tables, from stored instances, and small random ones."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from ullage.engines.allocation.model import (
    Allocation,
    Floats,
    Inner,
    JobView,
    PairRow,
    Problem,
    TenantView,
    ThroughputTable,
    TypeView,
)
from ullage_simulate.trace import TraceJob

DATA: Final = Path(__file__).resolve().parents[3] / "data"
GAVEL: Final = DATA.parents[1] / "operator" / "ullage_simulate" / "data"


@cache
def solo() -> dict[str, Any]:
    return json.loads((GAVEL / "solo.json").read_text(encoding="utf-8"))


@cache
def stored() -> list[dict[str, Any]]:
    text = (DATA / "allocation" / "objectives.json").read_text(encoding="utf-8")
    return json.loads(text)["instances"]


def problem_of(body: Mapping[str, Any]) -> Problem:
    """A stored instance; the oldest job first."""
    rows, types = solo()["rows"], solo()["types"]
    owners = body.get("tenant_of", [""] * len(body["jobs"]))
    jobs = tuple(
        JobView(
            name=f"{place:03d}",
            gang=rows[row][1],
            weight=weight,
            steps_left=left,
            age_s=age,
            isolated_s=done,
            tenant=str(owner),
        )
        for place, ((row, weight, left, age, done), owner) in enumerate(
            zip(body["jobs"], owners, strict=True)
        )
    )
    return Problem(
        jobs=jobs,
        types=tuple(
            TypeView(name=name, devices=size)
            for name, size in zip(types, body["devices"], strict=True)
        ),
        throughputs=ThroughputTable(rates=np.array([rows[job[0]][2:] for job in body["jobs"]])),
        tenants=tuple(
            TenantView(
                name=str(number),
                weight=weight,
                inner=Inner.FIFO if rule == "fifo" else Inner.FAIRNESS,
            )
            for number, (weight, rule) in enumerate(body.get("tenants", ()))
        ),
    )


@cache
def trace() -> tuple[TraceJob, ...]:
    """The 96 jobs of the published trace with arrivals."""
    speeds = {
        (kind, gang): dict(zip(solo()["types"], values, strict=True))
        for kind, gang, *values in solo()["rows"]
    }
    with (GAVEL / "jobs_max_min_fairness.csv").open(encoding="utf-8") as lines:
        return tuple(
            TraceJob(
                name=f"{number:03d}",
                gang=int(line["scale_factor"]),
                steps=int(line["total_steps"]),
                arrival_s=float(line["arrival_time_s"]),
                speeds=speeds[line["job_type"], int(line["scale_factor"])],
            )
            for number, line in enumerate(csv.DictReader(lines))
        )


@cache
def company() -> Floats:
    """Normalised speed of each kind beside each partner on each type; NaN = not published."""
    body = json.loads((GAVEL / "pairs.json").read_text(encoding="utf-8"))
    kinds, types = body["kinds"], solo()["types"]
    alone = {
        kind: dict(zip(types, values, strict=True))
        for kind, gang, *values in solo()["rows"]
        if gang == 1
    }
    table = np.full((len(kinds), len(types) * len(kinds)), np.nan)
    for kind, left, right, one, two in body["pairs"]:
        block = types.index(kind) * len(kinds)
        for own, other, speed in ((left, right, one), (right, left, two)):
            base = alone[kinds[own]][kind]
            table[own, block + other] = min(1.0, speed / base) if base > 0 else 0.0
    return table


def families() -> list[str]:
    body = json.loads((GAVEL / "pairs.json").read_text(encoding="utf-8"))
    return [kind.partition(" (")[0] for kind in body["kinds"]]


def random_problem(seed: int, count: int, sizes: Sequence[int]) -> Problem:
    """Jobs with speeds over two decades, some cells impossible; every job has a price and a age."""
    rng = np.random.default_rng(seed)
    rates = 10 ** rng.uniform(-1, 1, (count, 1)) * rng.uniform(0.1, 1, (count, len(sizes)))
    rates[rng.random(rates.shape) < 0.1] = 0.0
    rates[:, 0] = np.maximum(rates[:, 0], 0.05)
    gangs = rng.choice([1, 1, 1, 2, 4], count)
    return Problem(
        jobs=tuple(
            JobView(
                name=f"{number:04d}",
                gang=int(gangs[number]),
                weight=float(rng.choice([1, 2])),
                steps_left=float(rng.uniform(1e3, 1e5)),
                age_s=float(rng.uniform(0, 1e4)),
                isolated_s=float(rng.uniform(0, 1e3)),
                deadline_in_s=float(rng.uniform(1e3, 2e5)) if rng.random() < 0.4 else None,
            )
            for number in range(count)
        ),
        types=tuple(
            TypeView(name=f"t{number}", devices=size, dollars_per_hour=1.0 + number)
            for number, size in enumerate(sizes)
        ),
        throughputs=ThroughputTable(rates=rates),
    )


def table_problem(seed: int, count: int, sizes: Sequence[int]) -> Problem:
    """Jobs of the published types with gangs of 1, 2 and 4, drawn evenly."""
    rng = np.random.default_rng(seed)
    rows = solo()["rows"]
    able = [index for index, row in enumerate(rows) if row[1] in (1, 2, 4) and max(row[2:]) > 0]
    jobs = [
        [int(row), float(rng.choice([1, 1, 2])), float(rng.uniform(1e4, 1e6)), 0.0, 0.0]
        for row in rng.choice(able, count)
    ]
    return problem_of({"devices": list(sizes), "jobs": jobs})


def violation(problem: Problem, allocation: Allocation) -> float:
    """Largest violation of V, counted from the jobs' own fractions and pairs."""
    x = allocation.fractions
    worst = max(0.0, float(-x.min(initial=0.0)), float((x.sum(axis=1) - 1).max(initial=0.0)))
    gang = {job.name: job.gang for job in problem.jobs}
    used: dict[str, float] = {}
    for kind, column in zip(problem.types, x.T, strict=True):
        taken = sum(job.gang * share for job, share in zip(problem.jobs, column, strict=True))
        taken -= sum(gang[p.left] * p.fraction for p in allocation.pairs if p.type == kind.name)
        used[kind.capacity_row] = used.get(kind.capacity_row, 0.0) + taken
        limit = next(t.devices for t in problem.types if t.capacity_row == kind.capacity_row)
        worst = max(worst, used[kind.capacity_row] - limit)
    if not problem.throughputs.pairs:
        worst = max(worst, float(np.where(problem.throughputs.rates > 0, 0.0, x).max(initial=0.0)))
    return worst


def alone(problem: Problem) -> Problem:
    """The same problem without pairs."""
    return replace(problem, throughputs=ThroughputTable(rates=problem.throughputs.rates))


def pair_rows(kinds: Sequence[str], rates: Floats, seed: int, gang: int = 1) -> Iterator[PairRow]:
    """Every pair of kinds with random normalised speeds around a gain of 1.2."""
    rng = np.random.default_rng(seed)
    for i, left in enumerate(kinds):
        for j in range(i, len(kinds)):
            part = rng.uniform(0.35, 0.95, (2, rates.shape[1]))
            if i == j:
                part[1] = part[0]
            yield PairRow(
                left=left,
                right=kinds[j],
                gang=gang,
                left_rates=tuple((rates[i] * part[0]).tolist()),
                right_rates=tuple((rates[j] * part[1]).tolist()),
            )
