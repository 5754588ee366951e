# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Terminal output shared by the simulator's comparisons: progress, table, notes, files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final, TypeVar

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ullage.cli.forms import TERMINAL
from ullage_simulate.progress import Follow, Tell

Found = TypeVar("Found")
BAR: Final = 40
"""Characters of the longest bar."""
_QUIET_S: Final = 10.0
"""Seconds after which a line reports less than a tenth of progress (not measured)."""


def followed(compare: Callable[[Follow], Found], console: Console) -> Found:
    """Compare, with a progress bar for each task; in a pipe with lines."""
    if not console.is_terminal:
        return compare(partial(_in_lines, console))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:

        def follow(name: str, length: int) -> Callable[[int], None]:
            task = bar.add_task(name, total=length)
            return lambda done: bar.update(task, completed=done)

        return compare(follow)


def tell(
    table: Table,
    notes: Iterable[str],
    json_file: str,
    as_json: Callable[[], str],
    plot: str,
    draw: Callable[[Path], Iterable[Path]],
) -> None:
    """Print the table and write the requested files.

    Args:
        table: The figures.
        notes: Notes below it.
        json_file: Path of the JSON; ``-`` = standard output, empty = none.
        as_json: Renders it.
        plot: Path of the figures: ``terminal``, a file, a folder; empty = none.
        draw: Draws them into a file or folder.

    Raises:
        NoPlotter: pictures were asked for and matplotlib is missing.
        OSError: a file cannot be written.
    """
    out = Console(highlight=False, stderr=json_file == "-")
    out.print(table)
    for note in notes:
        out.print(f"note: {note}", markup=False)
    if json_file == "-":
        sys.stdout.write(as_json())
    elif json_file:
        Path(json_file).write_text(as_json(), encoding="utf-8")
    if plot == TERMINAL:
        out.print(bars_of(table))
    elif plot:
        for path in draw(Path(plot)):
            out.print(f"wrote {path}", markup=False)


def bars_of(table: Table) -> Table:
    """The first figure of each line of a table, as bars of text."""
    names, figures = (list(column.cells) for column in table.columns[:2])
    most = max((_number(figure) for figure in figures), default=0.0) or 1.0
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    shown.add_column(table.columns[0].header, no_wrap=True)
    shown.add_column("", no_wrap=True)
    shown.add_column(table.columns[1].header, justify="right", no_wrap=True)
    for name, figure in zip(names, figures, strict=True):
        shown.add_row(name, "█" * round(BAR * _number(figure) / most) or "▏", figure)
    return shown


def _number(figure: object) -> float:
    """A figure of a table, with or without ``%``."""
    return float(str(figure).rstrip("%"))


def figures_table(
    title: str, caption: str, numbers: Iterable[str], *, first: str = "policy"
) -> Table:
    """An empty table of figures; ``first`` names its lines."""
    table = Table(
        title=title,
        caption=caption,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
    )
    table.add_column(first, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _in_lines(console: Console, name: str, length: int) -> Tell:
    """Prints progress without a terminal: each tenth, and changes in between."""
    console.print(f"{name}: begun, {length:,} to do", markup=False)
    shown, shown_at = 0, monotonic()

    def tell(done: int) -> None:
        nonlocal shown, shown_at
        tenth, now = 10 * done // max(1, length), monotonic()
        if tenth > shown or now - shown_at >= _QUIET_S:
            shown, shown_at = tenth, now
            console.print(f"{name}: {done:,} of {length:,}", markup=False)

    return tell
