# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Draws promised against observed risk, from the figures of ``bench.admission``.

A file of its own makes the picture of the docs without measuring again. It holds rates alone, no
row of any table.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from bench.report import Figure, draw

SIDE: Final = 360
"""Pixels of the square in which the points lie."""
LEFT: Final = 60
TOP: Final = 20
MOST: Final = 0.25
"""Largest risk on both axes."""
TICK: Final = 0.05
APART: Final = 0.0025
"""Between points of the same budget, so that their intervals do not lie on one another."""
COLOURS: Final = ("#1b6ca8", "#c8553d", "#5b8c5a", "#6d597a", "#8d6a1f", "#444444")
_KEY: Final = re.compile(r"live_(?P<play>.+)_eps(?P<percent>\d+)_violation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What one budget promised and what was observed, as shares of the admitted."""

    promised: float
    observed: float
    upper: float


def points_of(figures: Mapping[str, Figure]) -> dict[str, list[Point]]:
    """The points of every replay that admitted anything, by rising budget.

    Args:
        figures: Of ``bench.admission``.
    """
    found: dict[str, list[Point]] = {}
    for key, value in figures.items():
        told = _KEY.fullmatch(key)
        admitted = figures.get(key.replace("_violation", "_admitted"))
        if told is None or not admitted:
            continue
        point = Point(
            promised=int(told["percent"]) / 100,
            observed=float(value or 0),
            upper=float(figures[f"{key}_upper95"] or 0),
        )
        found.setdefault(told["play"], []).append(point)
    return {play: sorted(own, key=lambda one: one.promised) for play, own in sorted(found.items())}


def drawn(plays: Mapping[str, Sequence[Point]], splits: int) -> str:
    """The picture as SVG.

    Args:
        plays: Points by replay.
        splits: Random splits of each, for the caption.
    """
    parts = [*_axes(splits)]
    for place, (play, points) in enumerate(plays.items()):
        colour = COLOURS[place % len(COLOURS)]
        parts += _series(points, (place - (len(plays) - 1) / 2) * APART, colour)
        y = TOP + 18 + 18 * place
        parts.append(f'<circle cx="{LEFT + 14}" cy="{y - 4}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + 24}" y="{y}">{escape(_said(play))}</text>')
    width, height = LEFT + SIDE + 20, TOP + SIDE + 70
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        'font-family="sans-serif" font-size="12" fill="#222">'
    )
    ground = f'<rect width="{width}" height="{height}" fill="#fff"/>'
    return "\n".join([head, ground, *parts, "</svg>"]) + "\n"


def _said(play: str) -> str:
    source, kind, observed = play.rsplit("_", 2)
    return f"{source.upper()}, {observed} pairs of {kind} observed"


def _axes(splits: int) -> Iterable[str]:
    bottom, right = TOP + SIDE, LEFT + SIDE
    for step in range(round(MOST / TICK) + 1):
        risk = step * TICK
        x, y = _x(risk), _y(risk)
        yield f'<path d="M{x:g} {bottom}V{TOP}M{LEFT} {y:g}H{right}" stroke="#ddd"/>'
        yield f'<text x="{x:g}" y="{bottom + 16}" text-anchor="middle">{risk:.0%}</text>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:g}" text-anchor="end">{risk:.0%}</text>'
    yield f'<path d="M{LEFT} {bottom}L{right} {TOP}" stroke="#222" stroke-dasharray="4 3"/>'
    middle = LEFT + SIDE / 2
    yield f'<text x="{middle:g}" y="{bottom + 36}" text-anchor="middle">promised risk</text>'
    note = f"observed risk with its 95 % bound; {splits} random splits"
    yield f'<text x="{middle:g}" y="{bottom + 56}" text-anchor="middle">{note}</text>'


def _series(points: Sequence[Point], shift: float, colour: str) -> Iterable[str]:
    for one in points:
        x = _x(one.promised + shift)
        line = f"M{x:g} {_y(one.observed):g}V{_y(one.upper):g}m-4 0h8"
        yield f'<path d="{line}" stroke="{colour}" fill="none"/>'
        yield f'<circle cx="{x:g}" cy="{_y(one.observed):g}" r="4" fill="{colour}"/>'


def _x(risk: float) -> float:
    return round(LEFT + SIDE * min(risk, MOST) / MOST, 1)


def _y(risk: float) -> float:
    return round(TOP + SIDE * (1 - min(risk, MOST) / MOST), 1)


def _of(figures: Mapping[str, Figure]) -> str:
    return drawn(points_of(figures), int(figures["splits"] or 0))


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the picture of the newest run.

    Args:
        argv: Command line; ``None`` = that of the process.
    """
    return draw("admission", __doc__, _of, argv)


if __name__ == "__main__":
    sys.exit(main())
