# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Terminal output that the simulator's comparisons share: progress, table, notes, files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

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

from ullage.simulate.progress import Follow

Found = TypeVar("Found")


def followed(compare: Callable[[Follow], Found], console: Console) -> Found:
    """Compare, with a progress bar for each piece of work."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:

        def follow(name: str, length: int) -> Callable[[int], None]:
            return partial(_show, bar, bar.add_task(name, total=length))

        return compare(follow)


def tell(
    table: Table,
    notes: Iterable[str],
    json_file: str,
    as_json: Callable[[], str],
    pictures: Callable[[], Iterable[Path]] | None,
) -> None:
    """Print the table and write what was asked for.

    Args:
        table: The figures.
        notes: Below it.
        json_file: Where the JSON goes; ``-`` = standard output, empty = nowhere.
        as_json: Makes it.
        pictures: Draws them; ``None`` = none were asked for.
    """
    out = Console(highlight=False, stderr=json_file == "-")
    out.print(table)
    for note in notes:
        out.print(f"note: {note}", markup=False)
    if json_file == "-":
        sys.stdout.write(as_json())
    elif json_file:
        Path(json_file).write_text(as_json(), encoding="utf-8")
    for path in pictures() if pictures is not None else ():
        out.print(f"wrote {path}", markup=False)


def figures_table(
    title: str, caption: str, numbers: Iterable[str], *, first: str = "policy"
) -> Table:
    """An empty table of figures; ``first`` is what its lines are."""
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


def _show(bar: Progress, task: TaskID, done: int) -> None:
    bar.update(task, completed=done)
