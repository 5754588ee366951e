# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the bounds of the gain from more devices hold, for families that they never saw.

Each family is left out in turn, the model of communication is fitted on all others, and the
operator's own forecast is asked for every step of the family on more devices than it was measured
on. It must never fit on a row that it is judged by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from bench.devicechoice_tables import PARAMETERS, Steps
from bench.report import Row
from ullage.engines.devicechoice.comm import FITTED, StepScaling, ring
from ullage.engines.devicechoice.features import Floats
from ullage.engines.devicechoice.intervals import LEVEL, around
from ullage.engines.devicechoice.offers import Source, StepForecast
from ullage.scheduling.learning.recommend import forecast_at

LOSSES = tuple(np.round(np.arange(0.0, 0.61, 0.05), 2).tolist())
STILLS = (0.01, 0.02, 0.03, 0.05, 0.08)
WIDTHS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8)
"""Coefficients that a fit chooses from."""
SiaSteps = Mapping[tuple[str, str, int], Mapping[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRow:
    """One job on one type, measured on two numbers of devices with the same work for each.

    Attributes:
        table: Where from.
        family: Model.
        few: Devices known.
        many: Devices asked for.
        few_s: Seconds of a step on the few.
        many_s: The same on the many.
    """

    table: str
    family: str
    few: int
    many: int
    few_s: float
    many_s: float


def rows_of(gavel: Steps, sia: SiaSteps) -> list[CountRow]:
    """All pairs of numbers of both tables, in both directions."""
    jobs: dict[tuple[str, str, str], dict[int, float]] = {}
    for (job, kind), step_s in gavel.items():
        if job.family in PARAMETERS and step_s > 0:
            jobs.setdefault(("gavel", job.family, f"{job.name} {kind}"), {})[job.gpus] = step_s
    for (application, cluster, batch), took in sia.items():
        jobs["sia", application, f"{cluster} {batch}"] = dict(took)
    return [
        CountRow(table=table, family=family, few=few, many=many, few_s=took[few], many_s=took[many])
        for (table, family, _), took in sorted(jobs.items())
        for few, many in permutations(sorted(took), 2)
    ]


def fit_scaling(rows: Sequence[CountRow]) -> StepScaling:
    """The coefficients of highest likelihood, and bounds for ``LEVEL`` of the rows.

    Errors count as Laplace's: some jobs are far off. Every family has the same weight; rows of
    more devices than known are used alone, for the others mirror them.

    Raises:
        ValueError: no rows.
    """
    up = [row for row in rows if row.few < row.many]
    if not up:
        raise ValueError("no job was measured on two numbers of devices")
    often = Counter(row.family for row in up)
    weight = np.array([1 / often[row.family] for row in up])
    apart = np.array([ring(row.many) - ring(row.few) for row in up])
    longer = np.log([row.many_s / row.few_s for row in up])

    def standardised(choice: tuple[float, float, float]) -> tuple[Floats, Floats]:
        loss, still, wide = choice
        width = np.hypot(still, wide * apart)
        return (longer - loss * apart) / width, width

    def unlikely(choice: tuple[float, float, float]) -> float:
        off, width = standardised(choice)
        return float(weight @ (np.abs(off) + np.log(width)))

    best = min(product(LOSSES, STILLS, WIDTHS), key=unlikely)
    off, _ = standardised(best)
    order = np.argsort(off)
    up_to = np.cumsum(weight[order]) / weight.sum()
    tail = (1 - LEVEL) / 2
    low, high = (float(off[order][np.searchsorted(up_to, part)]) for part in (tail, 1 - tail))
    return StepScaling(loss=best[0], still=best[1], wide=best[2], low=low, high=high)


def held(rows: Sequence[CountRow], scaling: StepScaling) -> list[bool]:
    """Whether each measured step lies within the bounds that the operator gives it."""
    return [_holds(row, scaling) for row in rows]


def _holds(row: CountRow, scaling: StepScaling) -> bool:
    known = StepForecast(step=around(row.few_s, 1.0), source=Source.MEASURED)
    said = forecast_at(known, row.few, row.many, scaling=scaling).step
    assert said is not None  # a known step stays known
    return said.low_s <= row.many_s <= said.high_s


def left_out(rows: Sequence[CountRow]) -> Iterator[tuple[CountRow, bool]]:
    """Every row, and whether bounds fitted without its family hold."""
    for family in sorted({row.family for row in rows}):
        mine = [row for row in rows if row.family == family]
        scaling = fit_scaling([row for row in rows if row.family != family])
        yield from zip(mine, held(mine, scaling), strict=True)


def measure(gavel: Steps, sia: SiaSteps) -> tuple[dict[str, float], list[Row]]:
    """Figures and table of this section."""
    rows = rows_of(gavel, sia)
    judged = list(left_out(rows))
    more = [(row, inside) for row, inside in judged if row.few < row.many]
    fewer = [(row, inside) for row, inside in judged if row.few > row.many]
    families = sorted({row.family for row in rows})
    by_family = {name: _part(_where(more, family=name)) for name in families}
    fitted = fit_scaling(rows)
    shipped = held([row for row, _ in more], FITTED)
    figures = {
        "count_interval_coverage": _part(more),
        "count_interval_coverage_gavel": _part(_where(more, table="gavel")),
        "count_interval_coverage_sia": _part(_where(more, table="sia")),
        "count_interval_coverage_by_family": float(np.mean(list(by_family.values()))),
        "count_interval_coverage_fewer": _part(fewer),
        "count_interval_coverage_shipped": float(np.mean(shipped)),
    }
    cells = ", ".join(f"{name} {part:.0%}" for name, part in by_family.items())
    tables = ", ".join(
        f"{name} {figures[f'count_interval_coverage_{name}']:.0%}" for name in ("gavel", "sia")
    )
    return figures, [
        Row(what=f"gain from more devices, {len(more)} rows, family left out", ours=""),
        Row(
            what="  bounds hold (each family alike)",
            ours=f"{figures['count_interval_coverage']:.1%}"
            f" ({figures['count_interval_coverage_by_family']:.1%})",
            baseline=f"nominal {LEVEL:.0%}",
            limit="75 to 85 %",
        ),
        Row(what="    by table", ours=tables),
        Row(what="    by family", ours=cells),
        Row(what="  of fewer devices", ours=f"{figures['count_interval_coverage_fewer']:.1%}"),
        Row(
            what="  the operator's coefficients, fitted over all rows",
            ours=f"{figures['count_interval_coverage_shipped']:.1%}: {_told(FITTED)}",
            baseline=f"now {_told(fitted)}",
        ),
    ]


Judged = Sequence[tuple[CountRow, bool]]


def _where(judged: Judged, *, table: str = "", family: str = "") -> Judged:
    """The rows of a table, or of a family."""
    return [
        (row, inside)
        for row, inside in judged
        if table in ("", row.table) and family in ("", row.family)
    ]


def _part(judged: Judged) -> float:
    return float(np.mean([inside for _, inside in judged]))


def _told(scaling: StepScaling) -> str:
    return (
        f"loss {scaling.loss:.2f}, still {scaling.still:.2f}, wide {scaling.wide:.2f},"
        f" from {scaling.low:.3f} to {scaling.high:.3f} widths"
    )
