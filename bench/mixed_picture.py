# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The picture of a comparison: predicted against observed, and how the rules did.

matplotlib is no dependency of the product or of its tests: it is loaded here and nowhere else.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final, Protocol

from bench.mixed_judge import Outcome, Window, predictions
from bench.mixed_plan import SERVICE

COLOURS: Final[Mapping[str, str]] = {
    "ours": "#1b6ca8",
    "uncontrolled": "#c1440e",
    "exclusive": "#7a7a7a",
}
FIGURE: Final = (10.0, 4.2)
DPI: Final = 110
LEAST: Final = 0.9


class Axes(Protocol):
    """What of matplotlib's axes is used here; it carries no types."""

    def scatter(self, x: Sequence[float], y: Sequence[float], **style: object) -> object:
        """Draw points."""
        ...

    def plot(self, x: Sequence[float], y: Sequence[float], **style: object) -> object:
        """Draw a line."""
        ...

    def bar(self, x: Sequence[float], height: Sequence[float], **style: object) -> object:
        """Draw bars."""
        ...

    def bar_label(self, bars: object, **style: object) -> object:
        """Write the heights on bars."""
        ...

    def set(self, **properties: object) -> object:
        """Set limits, scales and labels."""
        ...

    def set_xticks(self, places: Sequence[float], labels: Sequence[str]) -> object:
        """Name places on the axis."""
        ...

    def set_title(self, text: str, **style: object) -> object:
        """Write above."""
        ...

    def legend(self, **style: object) -> object:
        """Explain the signs."""
        ...


class NoPlotter(RuntimeError):
    """matplotlib is not installed; the text says how to get it."""


def draw(
    path: Path, outcomes: Sequence[Outcome], seen: Mapping[str, Sequence[Window]], title: str
) -> None:
    """Write the PNG.

    Args:
        path: Where to.
        outcomes: One per rule, for the bars.
        seen: Windows by rule; those of ``ours`` are the scatter.
        title: Above both.

    Raises:
        NoPlotter: matplotlib is missing.
    """
    plots = _plotter()
    figure, (left, right) = plots.subplots(1, 2, figsize=FIGURE, width_ratios=(1.0, 1.2))
    _scatter(left, seen.get("ours", ()))
    _bars(right, outcomes)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
    plots.close(figure)


def _plotter() -> ModuleType:
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("Agg")
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise NoPlotter(
            f"no picture: {error}; make bench-mixed installs bench/plots.txt, or by hand:"
            " .venv/bin/pip install --require-hashes -r bench/plots.txt"
        ) from error


def _scatter(ax: Axes, seen: Sequence[Window]) -> None:
    groups = (
        ("training", [one for one in seen if one.name != SERVICE], "o"),
        ("serving", [one for one in seen if one.name == SERVICE], "^"),
    )
    most = 2.0
    for label, windows, marker in groups:
        points = predictions(windows)
        if points:
            x, y = zip(*points, strict=True)
            ax.scatter(x, y, s=14, alpha=0.45, marker=marker, label=f"{label} ({len(points)})")
            most = max(most, *x, *y)
    ax.plot((LEAST, most * 1.1), (LEAST, most * 1.1), linewidth=0.8, color="#444444")
    ax.set(xscale="log", yscale="log", xlim=(LEAST, most * 1.1), ylim=(LEAST, most * 1.1))
    ax.set(xlabel="predicted slowdown", ylabel="observed slowdown, per window")
    ax.set_title("ours: predicted against observed", fontsize=9)
    if any(predictions(windows) for _, windows, _ in groups):
        ax.legend(fontsize=7)


def _bars(ax: Axes, outcomes: Sequence[Outcome]) -> None:
    for number, one in enumerate(outcomes):
        heights = (one.attainment or 0.0, one.goodput)
        bars = ax.bar(
            [place + 0.27 * number for place in (0, 1)],
            heights,
            width=0.25,
            color=COLOURS.get(one.rule, "#333333"),
            label=one.rule,
        )
        ax.bar_label(bars, fmt="%.2f", fontsize=7)
    ax.set_xticks(
        [0.27, 1.27], ["attainment\n(part of windows)", "goodput\n(tenants at full speed)"]
    )
    ax.set_title("same arrivals, same work", fontsize=9)
    ax.legend(fontsize=7)
