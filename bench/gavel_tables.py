# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The published tables that the repository carries: speeds alone, speeds in pairs, one trace."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.report import ROOT
from ullage.engines.allocation.model import PairRow
from ullage_simulate.trace import TraceJob

FOLDER: Final = ROOT / "operator" / "ullage_simulate" / "data"
TYPES: Final = ("k80", "p100", "v100")


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """Speeds beside a partner.

    Attributes:
        kinds: Job types of gang 1.
        families: Model of each.
        rows: Pairs that run on some type.
        table: Speed beside a partner / alone; 0 = does not fit, NaN = not published.
    """

    kinds: tuple[str, ...]
    families: tuple[str, ...]
    rows: tuple[PairRow, ...]
    table: NDArray[np.float64]


@cache
def speeds() -> dict[tuple[str, int], tuple[float, ...]]:
    """Steps/s of each job type and gang on each type."""
    body = json.loads((FOLDER / "solo.json").read_text(encoding="utf-8"))
    return {(kind, int(gang)): tuple(values) for kind, gang, *values in body["rows"]}


@cache
def company() -> Company:
    """The pairs of gang 1."""
    body = json.loads((FOLDER / "pairs.json").read_text(encoding="utf-8"))
    kinds = tuple(str(kind) for kind in body["kinds"])
    size, alone = len(kinds), speeds()
    table = np.full((size, len(TYPES) * size), np.nan)
    rates: dict[tuple[int, int], NDArray[np.float64]] = {}
    for name, left, right, one, two in body["pairs"]:
        column = TYPES.index(name)
        rates.setdefault((left, right), np.zeros((2, len(TYPES))))[:, column] = one, two
        for own, other, speed in ((left, right, one), (right, left, two)):
            base = alone[kinds[own], 1][column]
            table[own, column * size + other] = min(1.0, speed / base) if base > 0 else 0.0
    rows = tuple(
        PairRow(
            left=kinds[left],
            right=kinds[right],
            gang=1,
            left_rates=tuple(both[0].tolist()),
            right_rates=tuple(both[1].tolist()),
        )
        for (left, right), both in sorted(rates.items())
    )
    families = tuple(kind.partition(" (")[0] for kind in kinds)
    return Company(kinds=kinds, families=families, rows=rows, table=table)


def trace() -> tuple[TraceJob, ...]:
    """The 96 jobs with arrivals."""
    with (FOLDER / "jobs_max_min_fairness.csv").open(encoding="utf-8") as lines:
        return tuple(
            TraceJob(
                name=f"{number:03d}",
                gang=int(line["scale_factor"]),
                steps=int(line["total_steps"]),
                arrival_s=float(line["arrival_time_s"]),
                speeds=dict(
                    zip(TYPES, speeds()[line["job_type"], int(line["scale_factor"])], strict=True)
                ),
            )
            for number, line in enumerate(csv.DictReader(lines))
        )
