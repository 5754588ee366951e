# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage cost``: the cost of work, the same on on-demand, and the cost of losses.

Pure, apart from the files that options name: records in, renderables, JSON and figures out.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ullage.cli.forms import CostBy as By
from ullage.cli.tables import BAD, GOOD, QUIET, age, table_of
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.accounting.bills import Bill, bill_of, party_of, total

if TYPE_CHECKING:
    from ullage_simulate.plotter import Axes

NOTHING: Final = (
    "nothing has a price: give DeviceProfiles a pricePerHour, or make CapacityPools with a"
    " priceSource"
)
_COLUMNS: Final = (
    "SPENT",
    "ON-DEMAND",
    "SAVED",
    "LOST WORK",
    "LOSSES",
    "PER 1000 STEPS",
    "NOW/H",
)
_EXPECTED: Final = "TO SAVE"
"""Shown if it is known for any line: it needs chosen pools, and the remaining work."""
_BAR: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """One line: its name, and its cost."""

    name: str
    kind: str
    tenant: str
    bill: Bill


def lines(
    workloads: Iterable[WorkloadRecord], by: By, now: float, policy: PolicyRecord
) -> list[CostLine]:
    """Bills, the most expensive first; workloads without accounts have none.

    Args:
        workloads: Workloads of the requested namespaces.
        by: Grouping of a line.
        now: End time of the bills.
        policy: Maps workloads to tenants.
    """
    entries = []
    for workload in workloads:
        bill = bill_of(workload, now)
        if bill is not None:
            name = f"{workload.ref.namespace}/{workload.ref.name}"
            party = party_of(policy, workload)
            entries.append(CostLine(name=name, kind=workload.kind.value, tenant=party, bill=bill))
    if by is By.TENANT:
        parties: dict[str, list[Bill]] = defaultdict(list)
        for line in entries:
            parties[line.tenant].append(line.bill)
        entries = [
            CostLine(name=party, kind="", tenant=party, bill=total(bills))
            for party, bills in parties.items()
        ]
    return sorted(entries, key=lambda line: (-(line.bill.spent or Decimal(0)), line.name))


def table(entries: Sequence[CostLine], by: By) -> RenderableType:
    """The lines, and their sum if there are several."""
    if not entries:
        return Text(NOTHING, style=QUIET)
    expects = any(line.bill.expected is not None for line in entries)
    shown = table_of(
        *(("JOB", "TENANT") if by is By.JOB else ("TENANT", "WORKLOADS")),
        numbers=(*_COLUMNS, *((_EXPECTED,) if expects else ())),
    )
    for line in entries:
        second = line.tenant if by is By.JOB else str(line.bill.workloads)
        shown.add_row(line.name, second, *_cells(line.bill, expects))
    if len(entries) > 1:
        bill = total(line.bill for line in entries)
        shown.add_row("all", "" if by is By.JOB else str(bill.workloads), *_cells(bill, expects))
    notes = [
        Text(f"{line.name}: {line.bill.message or _UNPRICED}", style=QUIET)
        for line in entries
        if line.bill.unpriced
    ]
    return Group(shown, *notes)


_UNPRICED: Final = "some of its time had no price and is in no sum"


def bars(entries: Sequence[CostLine]) -> RenderableType:
    """Spent beside on-demand, as bars of text."""
    if not entries:
        return Text(NOTHING, style=QUIET)
    most = max(max(line.bill.spent or 0, line.bill.on_demand or 0) for line in entries) or 1
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_header=False)
    shown.add_column(no_wrap=True)
    shown.add_column(no_wrap=True)
    shown.add_column(justify="right", no_wrap=True)
    for line in entries:
        for word, value, style in (
            (line.name, line.bill.spent, GOOD),
            ("  on-demand", line.bill.on_demand, QUIET),
        ):
            length = round(_BAR * float((value or 0) / most))
            shown.add_row(word, Text("█" * length or "▏", style=style), _money(value))
    return shown


def picture(entries: Sequence[CostLine], where: Path) -> Path:
    """Spent beside on-demand, as a PNG: the file ``where``, or ``cost.png`` in that folder.

    Raises:
        NoPlotter: matplotlib is missing.
        OSError: the file cannot be written.
    """
    from ullage_simulate.plotter import place, plotter, saved

    plots = plotter()
    figure, axes = plots.subplots(1, 1, figsize=(7.2, 1.2 + 0.5 * max(1, len(entries))))
    _draw(axes, entries)
    return saved(plots, figure, place(where, "cost"))


def _draw(axes: Axes, entries: Sequence[CostLine]) -> None:
    names: list[str] = []
    widths: list[float] = []
    colours: list[str] = []
    for line in reversed(entries):
        names += [f"{line.name} on-demand", line.name]
        widths += [float(line.bill.on_demand or 0), float(line.bill.spent or 0)]
        colours += ["#c8c8c8", "#4878a8"]
    drawn = axes.barh(names, widths, color=colours)
    axes.bar_label(drawn, fmt="%.2f", fontsize=7)
    axes.set(xlabel="dollars")
    axes.set_title("spent, and what on-demand would have taken", fontsize=9)


def to_json(entries: Sequence[CostLine], by: By, now: float) -> str:
    """Output for scripts; money is decimal text, unknown values are null."""
    body = {
        "asOf": int(now),
        "by": by.value,
        "lines": [
            {
                by.value: line.name,
                **({"kind": line.kind, "tenant": line.tenant} if line.kind else {}),
            }
            | _figures(line.bill)
            for line in entries
        ],
        "total": _figures(total(line.bill for line in entries)),
    }
    return json.dumps(body, indent=2, allow_nan=False) + "\n"


def _figures(bill: Bill) -> dict[str, object]:
    ratio = bill.savings_ratio
    return {
        "spent": _text(bill.spent),
        "onDemand": _text(bill.on_demand),
        "saved": _text(bill.saved),
        "expectedSavings": _text(bill.expected),
        "savingsRatio": None if ratio is None else round(ratio, 4),
        "perHour": _text(bill.per_hour),
        "perThousandSteps": _text(bill.per_thousand_steps),
        "steps": bill.steps,
        "lostSeconds": bill.lost_seconds,
        "lostSteps": bill.lost_steps,
        "evictions": bill.evictions,
        "workloads": bill.workloads,
        "unpriced": bill.unpriced,
        "message": bill.message,
    }


def _cells(bill: Bill, expects: bool) -> tuple[RenderableType, ...]:
    ratio = bill.savings_ratio
    saved: RenderableType = "?"
    if bill.saved is not None and ratio is not None:
        saved = Text(f"{bill.saved:.2f} ({ratio:.0%})", style=GOOD if ratio >= 0 else BAD)
    unit = bill.per_thousand_steps
    lost = f"{age(bill.lost_seconds)}" if bill.lost_seconds else "-"
    return (
        _money(bill.spent),
        _money(bill.on_demand),
        saved,
        f"{lost} ({bill.lost_steps} steps)" if bill.lost_steps else lost,
        str(bill.evictions),
        f"{float(unit):.4g}" if unit is not None else "-",
        f"{bill.per_hour:.2f}" if bill.per_hour else "-",
        *(("-" if bill.expected is None else f"{bill.expected:.2f}",) if expects else ()),
    )


def _money(value: Decimal | None) -> str:
    return "?" if value is None else f"{value:.2f}"


def _text(value: Decimal | None) -> str | None:
    return None if value is None else f"{value:.6f}"
