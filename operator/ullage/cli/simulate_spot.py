# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``ullage simulate --spot``: ways to buy spot capacity side by side, on the same pools.

Reads files and writes only those that it is told to.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

if TYPE_CHECKING:
    from ullage.simulate.events import Tell
    from ullage.simulate.spot import Asked, Comparison


def watched(asked: Asked, console: Console) -> Comparison:
    """Compare, with a progress bar for every way to buy.

    Raises:
        ValueError: what was asked for makes no sense; the text says what to mend.
    """
    from ullage.simulate.spot import compare

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:

        def follow(policy: str, starts: int) -> Tell:
            return partial(_show, bar, bar.add_task(policy, total=starts))

        return compare(asked, follow)


def _show(bar: Progress, task: TaskID, done: int) -> None:
    bar.update(task, completed=done)


def table_of(found: Comparison) -> Table:
    """The figures of every way to buy; the cheapest that was never late in bold."""
    asked = found.asked
    figures = found.figures()
    table = Table(
        title=(
            f"{asked.replicas} instances, {asked.work_h:g} h of work, deadline {asked.deadline_h:g}"
            f" h, {len(found.starts)} starts"
        ),
        caption=(
            "means of the starts; saved: against on-demand alone; late: starts that missed the\n"
            "deadline; firm h: instance hours on on-demand; lost h: work done again"
        ),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
    )
    table.add_column("policy", no_wrap=True)
    for name in ("$", "saved", "$/work h", "mean h", "max h", "late", "firm h", "spot h", "taken"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("lost h", justify="right", no_wrap=True)
    in_time = [one["dollars"] for one in figures.values() if not one["late"]]
    for policy, one in figures.items():
        best = bool(in_time) and not one["late"] and one["dollars"] == min(in_time)
        table.add_row(
            policy,
            f"{one['dollars']:.0f}",
            f"{one['saved']:.0%}",
            f"{one['dollars_per_work_h']:.2f}",
            f"{one['mean_h']:.1f}",
            f"{one['max_h']:.1f}",
            f"{one['late']}",
            f"{one['on_demand_instance_h']:.1f}",
            f"{one['spot_instance_h']:.1f}",
            f"{one['evictions']:.1f}",
            f"{one['lost_work_h']:.2f}",
            style="bold" if best else "",
        )
    return table


def show(found: Comparison, json_file: str, folder: Path | None, *, each: bool) -> None:
    """Print the table and write what was asked for.

    Raises:
        NoPlotter: pictures were asked for and matplotlib is missing.
    """
    from ullage.simulate.spot import to_json

    out = Console(highlight=False, stderr=json_file == "-")
    out.print(table_of(found))
    for note in found.notes:
        out.print(f"note: {note}", markup=False)
    if json_file == "-":
        sys.stdout.write(to_json(found, each=each))
    elif json_file:
        Path(json_file).write_text(to_json(found, each=each), encoding="utf-8")
    if folder is not None:
        from ullage.simulate.spot_plots import draw

        for path in draw(found, folder):
            out.print(f"wrote {path}", markup=False)
