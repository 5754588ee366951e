# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of simulated trials: widths over time, devices in use, ends, resizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ullage_simulate.plotter import Axes, drawn
from ullage_simulate.tuning import HOUR, OURS, TuningAnswer, in_use, labels

COLOURS: Final = ("#c6dbef", "#9ecae1", "#4292c6", "#08519c", "#fdae6b", "#e6550d", "#a63603")


def draw(result: TuningAnswer, where: Path) -> tuple[Path, ...]:
    """Write one PNG for each panel, and one with all of them.

    Raises:
        NoPlotter: matplotlib is missing.
    """
    return drawn(PANELS, result, where, result.question.name, "tuning")


def _widths(axes: Axes, result: TuningAnswer) -> None:
    """One line per trial, in the order of their first start; the colour is the width."""
    widths = result.question.rules.widths
    played = next(outcome.played for outcome in result.outcomes if outcome.planner == OURS)
    line: dict[int, int] = {}
    for segment in sorted(played.segments, key=lambda segment: segment.start_s):
        place = widths.sizes.index(segment.size)
        axes.broken_barh(
            [(segment.start_s / HOUR, (segment.end_s - segment.start_s) / HOUR)],
            (line.setdefault(segment.trial, len(line)), 0.9),
            facecolors=_colour(place, len(widths.sizes)),
        )
    for place, label in enumerate(labels(widths)):
        axes.plot((), (), color=_colour(place, len(widths.sizes)), linewidth=5, label=label)
    axes.set(xlabel="hours", ylabel="trials")
    axes.set_title("widths of the planned run, devices", fontsize=9)
    axes.legend(fontsize=7)


def _colour(place: int, count: int) -> str:
    return COLOURS[place * (len(COLOURS) - 1) // max(1, count - 1)]


def _in_use(axes: Axes, result: TuningAnswer) -> None:
    for outcome in result.outcomes:
        hours, held = in_use(outcome.played, result.question.rules.widths.parts)
        axes.plot(hours, held, label=outcome.planner, linewidth=1.2, drawstyle="steps-post")
    axes.set(xlabel="hours", ylabel="devices")
    axes.set_title("devices in use", fontsize=9)
    axes.legend(fontsize=7)


def _ends(axes: Axes, result: TuningAnswer) -> None:
    for outcome in result.outcomes:
        ends = sorted(outcome.played.ends_s.values())
        hours = [0.0, *(end / HOUR for end in ends)]
        axes.plot(hours, list(range(len(hours))), label=outcome.planner, drawstyle="steps-post")
    axes.set(xlabel="hours", ylabel="trials that ended")
    axes.set_title("ends", fontsize=9)
    axes.legend(fontsize=7)


def _makespans(axes: Axes, result: TuningAnswer) -> None:
    names = [outcome.planner for outcome in reversed(result.outcomes)]
    bars = axes.barh(
        names, [outcome.played.makespan_s / HOUR for outcome in reversed(result.outcomes)]
    )
    axes.bar_label(bars, fmt="%.2f", fontsize=7)
    axes.set(xlabel="hours")
    axes.set_title("last end", fontsize=9)


Panel = Callable[[Axes, TuningAnswer], None]
PANELS: Final[Mapping[str, Panel]] = MappingProxyType(
    {"widths": _widths, "in-use": _in_use, "ends": _ends, "makespan": _makespans}
)
