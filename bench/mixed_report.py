# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The table and the figures of a comparison. It prints what was judged and judges nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.mixed_judge import Outcome
from bench.report import Figure, Row, write

Cell = Callable[[Outcome], str]


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


LINES: Final[Sequence[tuple[str, Cell]]] = (
    ("windows that kept their objective", lambda o: _ratio(o.attainment)),
    ("... judged / broken", lambda o: f"{o.judged_windows} / {o.broken_windows}"),
    ("goodput, tenants at full speed", lambda o: f"{o.goodput:.2f}"),
    ("jobs finished / failed, of", lambda o: f"{o.finished_jobs} / {o.failed_jobs}, {o.jobs}"),
    ("training done, seconds of computing alone", lambda o: f"{o.work_s:.0f}"),
    ("waiting, mean / p90 s", lambda o: f"{o.wait_mean_s:.1f} / {o.wait_p90_s:.1f}"),
    ("... never began", lambda o: f"{o.never_began}"),
    ("service: p99 ms of all requests", lambda o: _milliseconds(o.service_p99_ms)),
    ("service: windows in time", lambda o: _ratio(o.service_attainment)),
    ("service: began after s", lambda o: f"{o.service_wait_s:.1f}"),
    ("service: requests lost", lambda o: f"{o.lost_requests}"),
    ("|predicted - observed| / observed, median", lambda o: _ratio(o.prediction_error)),
    ("load average of the machine", lambda o: f"{o.load_mean:.1f}"),
    ("its slowest over its fastest", lambda o: f"{o.speed_range:.2f}" if o.speed_range else "-"),
)


def table(outcomes: Sequence[Outcome], title: str) -> Table:
    """All rules side by side."""
    found = Table("", *(one.rule for one in outcomes), title=title, title_justify="left")
    for what, cell in LINES:
        found.add_row(what, *(cell(one) for one in outcomes))
    return found


def figures(outcomes: Sequence[Outcome]) -> dict[str, Figure]:
    """Flat figures by rule, and ours against each of the others."""
    flat: dict[str, Figure] = {}
    for one in outcomes:
        values: Mapping[str, Figure] = {k: v for k, v in asdict(one).items() if k != "rule"}
        flat |= {f"{one.rule}_{name}": _rounded(value) for name, value in values.items()}
    rules = {one.rule: one for one in outcomes}
    ours, alone, free = rules.get("ours"), rules.get("exclusive"), rules.get("uncontrolled")
    if ours and alone:
        flat["goodput_vs_exclusive"] = _over(ours.goodput, alone.goodput)
    if ours and free:
        flat["goodput_vs_uncontrolled"] = _over(ours.goodput, free.goodput)
        flat["violations_vs_uncontrolled"] = _over(_violation_rate(ours), _violation_rate(free))
    return flat


def tell(outcomes: Sequence[Outcome], title: str, settings: Mapping[str, Figure]) -> None:
    """Print the table and write ``build/bench/mixed.json``."""
    Console(highlight=False).print(table(outcomes, title))
    found = figures(outcomes)
    rows = [
        Row(what=name.replace("_", " "), ours="-" if value is None else f"{value}")
        for name, value in found.items()
        if "_vs_" in name
    ]
    write("mixed", {**settings, **found}, rows)


def _violation_rate(one: Outcome) -> float:
    return one.broken_windows / one.judged_windows if one.judged_windows else 0.0


def _over(value: float, other: float) -> float | None:
    return round(value / other, 3) if other else None


def _rounded(value: Figure) -> Figure:
    return round(value, 4) if isinstance(value, float) else value
