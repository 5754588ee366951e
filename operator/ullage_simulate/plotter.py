# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The only access to matplotlib, and the parts in use.

matplotlib is no dependency of anything that runs in a cluster: it is loaded only here, and the
error without it has the install command.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final, Protocol, TypeVar

DPI: Final = 110

T = TypeVar("T")


class Axes(Protocol):
    """The used part of matplotlib's axes; matplotlib has no types."""

    def plot(self, x: Sequence[float], y: Sequence[float], **style: object) -> object:
        """Draw a line."""
        ...

    def barh(self, y: Sequence[str], width: Sequence[float], **style: object) -> object:
        """Draw horizontal bars."""
        ...

    def bar_label(self, bars: object, **style: object) -> object:
        """Label bars with their lengths."""
        ...

    def broken_barh(
        self, xranges: Sequence[tuple[float, float]], yrange: tuple[float, float], **style: object
    ) -> object:
        """Draw a segmented bar."""
        ...

    def set(self, **properties: object) -> object:
        """Set limits, scales and labels."""
        ...

    def set_title(self, text: str, **style: object) -> object:
        """Set the title."""
        ...

    def set_yticks(self, ticks: Sequence[float], labels: Sequence[str], **style: object) -> object:
        """Set tick labels."""
        ...

    def legend(self, **style: object) -> object:
        """Draw the legend."""
        ...


class NoPlotter(RuntimeError):
    """matplotlib is not installed; the text has the install command."""


def plotter() -> ModuleType:
    """``matplotlib.pyplot``, with file output only.

    Raises:
        NoPlotter: matplotlib is missing.
    """
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("Agg")
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise NoPlotter(
            f"no pictures: {error}; the extra brings it: pip install 'ullage[simulate]'"
        ) from error


def drawn(
    panels: Mapping[str, Callable[[Axes, T], None]], result: T, where: Path, title: str, whole: str
) -> tuple[Path, ...]:
    """Write one PNG for each of four panels, and one with all of them; or only the latter.

    Args:
        panels: Functions that draw on axes, by file name.
        result: Their input.
        where: A file that ends in ``.png`` for the one with all, or a folder for each of them;
            made where it is missing.
        title: Title of the combined figure.
        whole: Name of its file in a folder.

    Returns:
        The files.

    Raises:
        NoPlotter: matplotlib is missing.
    """
    plots = plotter()
    whole_file = place(where, whole)
    files = []
    for name, panel in panels.items() if whole_file != where else ():
        figure, axes = plots.subplots(1, 1, figsize=(6.4, 4.0))
        panel(axes, result)
        files.append(saved(plots, figure, place(where, name)))
    figure, grid = plots.subplots(2, 2, figsize=(11.0, 7.2))
    for axes, panel in zip((place for row in grid for place in row), panels.values(), strict=True):
        panel(axes, result)
    figure.suptitle(title, fontsize=11)
    files.append(saved(plots, figure, whole_file))
    return tuple(files)


def place(where: Path, name: str) -> Path:
    """The file of a picture: ``where`` if that ends in ``.png``, else one in the folder ``where``.

    Raises:
        OSError: the folder cannot be made.
    """
    path = where if where.suffix == ".png" else where / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def saved(plots: ModuleType, figure: object, path: Path) -> Path:
    """Write a figure, without metadata that differs from run to run."""
    figure.tight_layout()  # type: ignore[attr-defined]
    figure.savefig(path, dpi=DPI, metadata={"Software": None})  # type: ignore[attr-defined]
    plots.close(figure)
    return path
