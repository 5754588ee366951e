# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of buying on spot: cost, times to the end, one job against its line, the pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from ullage.engines.capacity.records import CapacityType
from ullage_simulate.plotter import Axes, drawn
from ullage_simulate.spot.comparison import SpotComparison, SpotOutcome
from ullage_simulate.spot.play import SpotRun

HOUR: Final = 3600.0
TITLE: Final = "one job on spot"


def draw(comparison: SpotComparison, where: Path) -> tuple[Path, ...]:
    """Write one PNG for each panel, and one with all of them.

    Args:
        comparison: The comparison.
        where: A file that ends in ``.png`` for the one with all, or a folder for each of them.

    Returns:
        The files.

    Raises:
        NoPlotter: matplotlib is missing.
    """
    return drawn(PANELS, comparison, where, TITLE, "spot")


def _cost(axes: Axes, comparison: SpotComparison) -> None:
    outcomes = list(reversed(comparison.outcomes))
    bars = axes.barh(
        [outcome.policy for outcome in outcomes],
        [outcome.dollars for outcome in outcomes],
        color="#4878a8",
    )
    axes.bar_label(bars, fmt="%.0f", fontsize=7)
    axes.set(xlabel="dollars, mean of the starts")
    axes.set_title("cost of the job", fontsize=9)


def _ends(axes: Axes, comparison: SpotComparison) -> None:
    for outcome in comparison.outcomes:
        hours = sorted(run.elapsed_s / HOUR for run in outcome.runs)
        parts = [(place + 1) / len(hours) for place in range(len(hours))]
        axes.plot(hours, parts, label=outcome.policy, linewidth=1.2, drawstyle="steps-post")
    deadline_h = comparison.asked.deadline_h
    axes.plot((deadline_h, deadline_h), (0.0, 1.0), color="#888888", linewidth=0.8, linestyle="--")
    axes.set(xlabel="hours to the end", ylabel="part of the starts")
    axes.set_title("ends (dashed: the deadline)", fontsize=9)
    axes.legend(fontsize=7)


def _line(axes: Axes, comparison: SpotComparison) -> None:
    work_h, deadline_h = comparison.asked.work_h, comparison.asked.deadline_h
    axes.plot((0.0, deadline_h), (0.0, 1.0), color="#888888", linewidth=0.8, linestyle="--")
    for outcome in comparison.outcomes:
        hours, parts = _progress(outcome, work_h)
        axes.plot(hours, parts, label=outcome.policy, linewidth=1.2)
    axes.set(xlabel="hours", ylabel="work done", ylim=(0.0, 1.02))
    axes.set_title("the first start against the line to its deadline", fontsize=9)
    axes.legend(fontsize=7)


def _progress(outcome: SpotOutcome, work_h: float) -> tuple[list[float], list[float]]:
    run = outcome.runs[0]
    hours = [at / HOUR for at, _, _, _ in run.history] + [run.elapsed_s / HOUR]
    parts = [done / HOUR / work_h for _, done, _, _ in run.history] + [1.0]
    return hours, parts


def _pools(axes: Axes, comparison: SpotComparison) -> None:
    """Times of spot availability, and the capacity of each policy's first start."""
    tick_h = comparison.market.tick_s / HOUR
    first = comparison.starts[0]
    last = (
        first
        + int(max(outcome.runs[0].elapsed_s for outcome in comparison.outcomes) / HOUR / tick_h)
        + 1
    )
    names, place = [], 0
    for pool, kind in enumerate(comparison.market.kinds):
        if kind is not CapacityType.SPOT:
            continue
        up: list[bool] = comparison.market.up[pool, first:last].tolist()
        axes.broken_barh(_spans(up, tick_h), (place - 0.35, 0.7), facecolors="#b8b8b8")
        names.append(comparison.market.names[pool])
        place += 1
    for outcome in comparison.outcomes:
        spot, firm = _held(outcome.runs[0])
        axes.broken_barh(_spans(spot, tick_h), (place - 0.35, 0.7), facecolors="#4878a8")
        axes.broken_barh(_spans(firm, tick_h), (place - 0.35, 0.7), facecolors="#c44e52")
        names.append(outcome.policy)
        place += 1
    axes.set_yticks(list(np.arange(len(names), dtype=float)), names, fontsize=7)
    axes.set(xlabel="hours", xlim=(0.0, (last - first) * tick_h))
    axes.set_title("pools that give (grey), held on spot (blue), on-demand (red)", fontsize=9)


def _held(run: SpotRun) -> tuple[list[bool], list[bool]]:
    """Flags of spot and other instances held at each tick."""
    return [spot > 0 for _, _, spot, _ in run.history], [firm > 0 for _, _, _, firm in run.history]


def _spans(there: Sequence[bool], tick_h: float) -> list[tuple[float, float]]:
    """Runs of availability, as (start, length) in hours."""
    spans, at = [], 0
    for value, run in groupby(there):
        length = len(list(run))
        if value:
            spans.append((at * tick_h, length * tick_h))
        at += length
    return spans


Panel = Callable[[Axes, SpotComparison], None]
PANELS: Final[Mapping[str, Panel]] = MappingProxyType(
    {"cost": _cost, "ends": _ends, "line": _line, "pools": _pools}
)
