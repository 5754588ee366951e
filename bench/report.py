# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The one way in which a benchmark reports: a table for people, a JSON file for machines.

It measures nothing; the benchmark says what its figures mean and which bars they must meet.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "build" / "bench"
DATA: Final = ROOT.parent / "shared" / "data"
"""Public tables, unless ``--data`` names another folder."""

Figure = float | int | None | bool
Bars = Mapping[str, Callable[[float], bool]]
"""What each figure must be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table; cells are texts with their unit, empty where there is none."""

    what: str
    ours: str
    baseline: str = ""
    limit: str = ""


def write(
    name: str, figures: Mapping[str, Figure], rows: Sequence[Row], *, folder: Path = FOLDER
) -> Path:
    """Print the table and write ``NAME.json``.

    Args:
        name: The benchmark; also the name of the file.
        figures: Flat, with units in the names; ``None`` for what could not be measured.
        rows: The table's lines.
        folder: Where the file goes.

    Returns:
        The file.
    """
    table = Table("", "ours", "baseline", "limit", title=f"bench {name}", title_justify="left")
    for row in rows:
        table.add_row(row.what, row.ours, row.baseline, row.limit)
    Console(highlight=False).print(table)
    return save(name, figures, folder=folder)


def save(name: str, figures: Mapping[str, Figure], *, folder: Path = FOLDER) -> Path:
    """Write ``NAME.json`` alone; arguments and result as of :func:`write`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    body = {"name": name, "figures": dict(figures), "machine": machine()}
    file.write_text(json.dumps(body, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return file


def figures_before(name: str, *, folder: Path = FOLDER) -> dict[str, Figure]:
    """The figures of an earlier run, for benchmarks that measure parts of one table; or none."""
    file = folder / f"{name}.json"
    if not file.exists():
        return {}
    found: dict[str, Figure] = json.loads(file.read_text(encoding="utf-8"))["figures"]
    return found


def draw(
    name: str,
    about: str | None,
    drawn: Callable[[Mapping[str, Figure]], str],
    argv: Sequence[str] | None = None,
) -> int:
    """Run a program that draws the newest figures of a benchmark.

    Args:
        name: The benchmark.
        about: What the picture shows, for its help.
        drawn: Makes the SVG from the figures.
        argv: Command line; ``None`` = that of the process.

    Returns:
        The exit code of the program.
    """
    parser = argparse.ArgumentParser(prog=f"bench.{name}_picture", description=about)
    parser.add_argument("picture", type=Path, help="the SVG to write")
    parser.add_argument("--figures", type=Path, default=FOLDER / f"{name}.json")
    given = parser.parse_args(argv)
    try:
        figures = json.loads(given.figures.read_text(encoding="utf-8"))["figures"]
    except OSError as error:
        parser.error(f"{error}; make bench-{name} writes it")
    given.picture.write_text(drawn(figures), encoding="utf-8")
    return 0


def counted(figures: Mapping[str, Figure], bars: Bars) -> list[Row]:
    """A row for each figure; those with a bar have to be 0."""
    return [
        Row(what=name, ours=str(value), limit="0" if name in bars else "")
        for name, value in figures.items()
    ]


def missed(figures: Mapping[str, Figure], bars: Bars) -> list[str]:
    """The bars that are not met; a figure that is not there misses its bar."""
    return [
        name
        for name, met in bars.items()
        if figures.get(name) is None or not met(float(figures[name] or 0))
    ]


def judge(figures: Mapping[str, Figure], bars: Bars) -> int:
    """Name every bar that is missed.

    Returns:
        The exit status: 0, or 1 when a bar is missed.
    """
    bad = missed(figures, bars)
    for name in bad:
        print(f"bar missed: {name} = {figures.get(name)}", file=sys.stderr)
    return 1 if bad else 0


def machine() -> dict[str, str | int]:
    """What the figures were measured on."""
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "model": _cpu_model(),
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    """The processor's name as Linux gives it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
