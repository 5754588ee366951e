# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pictures of a comparison: utilisation, completion times, fairness, cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from ullage_simulate.outcome import PolicyOutcome
from ullage_simulate.plotter import Axes, drawn

HOUR: Final = 3600.0
FAIR: Final = 3.0
"""End of the fairness axis; larger values appear only in the table."""
POINTS: Final = 400
"""Maximum points of a curve over time."""


def draw(outcomes: Sequence[PolicyOutcome], where: Path, title: str) -> tuple[Path, ...]:
    """Write one PNG for each panel, and one with all of them.

    Args:
        outcomes: One per policy, in the order of the legend.
        where: A file that ends in ``.png`` for the one with all, or a folder for each of them.
        title: Title of the combined figure.

    Returns:
        The files.

    Raises:
        NoPlotter: matplotlib is missing.
    """
    return drawn(PANELS, outcomes, where, title, "overview")


def _utilisation(axes: Axes, outcomes: Sequence[PolicyOutcome]) -> None:
    for outcome in outcomes:
        hours, parts = busy_parts(outcome)
        axes.plot(hours, parts, label=outcome.policy, linewidth=1.2, drawstyle="steps-post")
    axes.set(xlabel="hours", ylabel="devices held", ylim=(0.0, 1.02))
    axes.set_title("utilisation", fontsize=9)
    axes.legend(fontsize=7)


def _completion(axes: Axes, outcomes: Sequence[PolicyOutcome]) -> None:
    for outcome in outcomes:
        values = sorted(job.jct_s / HOUR for job in outcome.jobs)
        axes.plot(*_cumulated(values), label=outcome.policy, linewidth=1.2)
    axes.set(xlabel="completion time, hours", ylabel="part of the jobs", xscale="log")
    axes.set_title("completion times (left is better)", fontsize=9)
    axes.legend(fontsize=7)


def _fairness(axes: Axes, outcomes: Sequence[PolicyOutcome]) -> None:
    for outcome in outcomes:
        values = sorted(job.jct_s / job.isolated_s for job in outcome.jobs if job.isolated_s > 0)
        axes.plot(*_cumulated(values), label=outcome.policy, linewidth=1.2)
    axes.plot((1.0, 1.0), (0.0, 1.0), color="#888888", linewidth=0.8, linestyle="--")
    axes.set(xlabel="completion time / time on an equal part", ylabel="part of the jobs")
    axes.set(xlim=(0.0, FAIR))
    axes.set_title("fairness (left of the line: better than alone on a part)", fontsize=9)
    axes.legend(fontsize=7)


def _cost(axes: Axes, outcomes: Sequence[PolicyOutcome]) -> None:
    priced = any(outcome.dollars > 0 for outcome in outcomes)
    names = [outcome.policy for outcome in reversed(outcomes)]
    if priced:
        widths = [outcome.dollars for outcome in reversed(outcomes)]
    else:
        widths = [sum(outcome.held_s.values()) / HOUR for outcome in reversed(outcomes)]
    bars = axes.barh(names, widths, color="#4878a8")
    axes.bar_label(bars, fmt="%.0f", fontsize=7)
    axes.set(xlabel="dollars" if priced else "device hours")
    axes.set_title("cost of the time held", fontsize=9)


Panel = Callable[[Axes, Sequence[PolicyOutcome]], None]
PANELS: Final[Mapping[str, Panel]] = MappingProxyType(
    {
        "utilisation": _utilisation,
        "completion": _completion,
        "fairness": _fairness,
        "cost": _cost,
    }
)


def busy_parts(outcome: PolicyOutcome) -> tuple[list[float], list[float]]:
    """Fraction of the devices in use over time, in hours; means of at most 400 intervals."""
    total = sum(outcome.devices.values())
    end = outcome.makespan_s
    at = np.array([moment.at_s for moment in outcome.moments] + [end])
    busy = np.array([sum(moment.busy) for moment in outcome.moments], float)
    if not len(busy) or end <= at[0]:
        return [0.0], [0.0]
    area = np.concatenate([[0.0], np.cumsum(busy * np.diff(at))])
    edges = np.linspace(at[0], end, min(POINTS, 4 * len(busy)) + 1)
    means = np.diff(np.interp(edges, at, area)) / np.diff(edges) / total
    return (edges / HOUR).tolist(), [*means.tolist(), 0.0]


def _cumulated(values: Sequence[float]) -> tuple[list[float], list[float]]:
    return list(values), [(place + 1) / len(values) for place in range(len(values))]
