# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pictures of jobs that shared a device: residents, completion times, waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from ullage_simulate.lanes import LaneAnswer
from ullage_simulate.plotter import Axes, drawn

MINUTE: Final = 60.0
PERCENT: Final = 100


def draw(result: LaneAnswer, where: Path) -> tuple[Path, ...]:
    """Write one PNG for each panel, and one with all of them.

    Raises:
        NoPlotter: matplotlib is missing.
    """
    return drawn(PANELS, result, where, result.question.name, "lanes")


def _residents(axes: Axes, result: LaneAnswer) -> None:
    for outcome in result.outcomes:
        times = [at / MINUTE for at, _ in outcome.played.counts]
        counts = [float(count) for _, count in outcome.played.counts]
        axes.plot(times, counts, label=outcome.policy, linewidth=1.2, drawstyle="steps-post")
    axes.set(xlabel="minutes", ylabel="jobs on the device")
    axes.set_title("residents", fontsize=9)
    axes.legend(fontsize=7)


def _completions(axes: Axes, result: LaneAnswer) -> None:
    for outcome in result.outcomes:
        times = np.sort(np.asarray(outcome.completions_s)) / MINUTE
        parts = np.arange(1, times.size + 1) / max(1, times.size)
        axes.plot(times.tolist(), parts.tolist(), label=outcome.policy, linewidth=1.2)
    axes.set(xlabel="minutes from arrival to end", ylabel="part of the jobs", xscale="log")
    axes.set_title("completion times", fontsize=9)
    axes.legend(fontsize=7)


def _means(axes: Axes, result: LaneAnswer) -> None:
    ways = list(reversed(result.outcomes))
    widths = [way.played.mean_completion_s / MINUTE for way in ways]
    bars = axes.barh([way.policy for way in ways], widths)
    axes.bar_label(bars, fmt="%.1f", fontsize=7)
    axes.set(xlabel="minutes")
    axes.set_title("mean completion time", fontsize=9)


def _waits(axes: Axes, result: LaneAnswer) -> None:
    ways = list(reversed(result.outcomes))
    bars = axes.barh([way.policy for way in ways], [PERCENT * way.waits for way in ways])
    axes.bar_label(bars, fmt="%.0f", fontsize=7)
    axes.set(xlabel="% of the time on the device")
    axes.set_title("waiting for the lane", fontsize=9)


Panel = Callable[[Axes, LaneAnswer], None]
PANELS: Final[Mapping[str, Panel]] = MappingProxyType(
    {
        "residents": _residents,
        "completions": _completions,
        "means": _means,
        "waits": _waits,
    }
)
