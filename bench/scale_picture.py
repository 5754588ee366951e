# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Draws how decisions and memory grow with the cluster, from the figures of ``bench.scale``.

A file of its own makes the picture of the docs without measuring again.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.report import Figure, draw

WIDTH: Final = 300
HEIGHT: Final = 220
"""Pixels of the ground of one chart."""
LEFT: Final = 60
TOP: Final = 40
APART: Final = 90
"""Between two charts."""
TICKS: Final = 4
COLOURS: Final = ("#1b6ca8", "#c8553d")
_KEY: Final = re.compile(r"nodes_(?P<nodes>\d+)_(?P<what>\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines over the number of nodes.

    Attributes:
        title: With the unit.
        lines: Points (nodes, value) of each line, by its name.
        places: Decimals of the values on the axis.
    """

    title: str
    lines: Mapping[str, Sequence[tuple[int, float]]]
    places: int = 0


def charts_of(figures: Mapping[str, Figure]) -> tuple[Chart, Chart]:
    """Time of a decision, and memory of both processes.

    Args:
        figures: Of ``bench.scale``.
    """
    found: dict[str, list[tuple[int, float]]] = {}
    for key, value in figures.items():
        if named := _KEY.fullmatch(key):
            found.setdefault(named["what"], []).append((int(named["nodes"]), float(value or 0)))
    lines = {what: sorted(points) for what, points in found.items()}
    return (
        Chart(
            title="seconds of a decision",
            lines={"p50": lines["p50_s"], "p99": lines["p99_s"]},
            places=2,
        ),
        Chart(
            title="resident MiB",
            lines={"operator": lines["operator_mib"], "solver": lines["solver_mib"]},
        ),
    )


def drawn(charts: Sequence[Chart]) -> str:
    """The picture as SVG, the charts side by side."""
    parts: list[str] = []
    for place, chart in enumerate(charts):
        parts += _chart(chart, LEFT + place * (WIDTH + APART))
    width = LEFT + len(charts) * (WIDTH + APART) - APART + 30
    height = TOP + HEIGHT + 50
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        'font-family="sans-serif" font-size="12" fill="#222">'
    )
    ground = f'<rect width="{width}" height="{height}" fill="#fff"/>'
    return "\n".join([head, ground, *parts, "</svg>"]) + "\n"


def _chart(chart: Chart, left: int) -> Iterable[str]:
    points = [point for line in chart.lines.values() for point in line]
    most_nodes = max(nodes for nodes, _ in points)
    most = _rounded(max(value for _, value in points))
    bottom = TOP + HEIGHT

    def at(nodes: float, value: float) -> tuple[float, float]:
        x = left + WIDTH * nodes / most_nodes
        return round(x, 1), round(bottom - HEIGHT * value / most, 1)

    yield f'<text x="{left + WIDTH / 2:g}" y="{TOP - 20}" text-anchor="middle">{chart.title}</text>'
    for step in range(TICKS + 1):
        x, y = at(most_nodes * step / TICKS, most * step / TICKS)
        yield f'<path d="M{x:g} {bottom}V{TOP}M{left} {y:g}H{left + WIDTH}" stroke="#ddd"/>'
        nodes = f"{most_nodes * step / TICKS:,.0f}"
        yield f'<text x="{x:g}" y="{bottom + 16}" text-anchor="middle">{nodes}</text>'
        value = f"{most * step / TICKS:,.{chart.places}f}"
        yield f'<text x="{left - 6}" y="{y + 4:g}" text-anchor="end">{value}</text>'
    note = "nodes, with ten jobs each"
    yield f'<text x="{left + WIDTH / 2:g}" y="{bottom + 36}" text-anchor="middle">{note}</text>'
    for place, (name, line) in enumerate(chart.lines.items()):
        colour = COLOURS[place % len(COLOURS)]
        path = "L".join(f"{x:g} {y:g}" for x, y in (at(*point) for point in line))
        yield f'<path d="M{path}" stroke="{colour}" fill="none"/>'
        for x, y in (at(*point) for point in line):
            yield f'<circle cx="{x:g}" cy="{y:g}" r="4" fill="{colour}"/>'
        y = TOP + 16 + 18 * place
        yield f'<circle cx="{left + 14}" cy="{y - 4}" r="4" fill="{colour}"/>'
        yield f'<text x="{left + 24}" y="{y}">{name}</text>'


def _rounded(most: float) -> float:
    """The next number above of one digit and zeros: the end of an axis."""
    unit = 10.0 ** math.floor(math.log10(most)) if most > 0 else 1.0
    return math.ceil(most / unit) * unit


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the picture of the newest run.

    Args:
        argv: Command line; ``None`` = that of the process.
    """
    return draw("scale", __doc__, lambda figures: drawn(charts_of(figures)), argv)


if __name__ == "__main__":
    sys.exit(main())
