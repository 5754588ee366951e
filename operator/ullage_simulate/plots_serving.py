# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of a simulated load: requests, replicas, latencies, devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from ullage_simulate.plotter import Axes, drawn
from ullage_simulate.serving import HOUR, ServingAnswer, rates

POINTS: Final = 240


def draw(result: ServingAnswer, where: Path) -> tuple[Path, ...]:
    """Write one PNG for each panel, and one with all of them.

    Raises:
        NoPlotter: matplotlib is missing.
    """
    return drawn(PANELS, result, where, result.question.name, "serving")


def _load(axes: Axes, result: ServingAnswer) -> None:
    hours, per_s = rates(result.question.arrival_s, POINTS)
    axes.plot(hours.tolist(), per_s.tolist(), linewidth=1.2)
    axes.set(xlabel="hours", ylabel="requests per second")
    axes.set_title("load", fontsize=9)


def _replicas(axes: Axes, result: ServingAnswer) -> None:
    end = float(result.question.arrival_s[-1])
    for outcome in result.outcomes:
        times = [at / HOUR for at, _ in outcome.played.changes] + [end / HOUR]
        counts = [count for _, count in outcome.played.changes] + [outcome.played.changes[-1][1]]
        axes.plot(times, counts, label=outcome.name, linewidth=1.2, drawstyle="steps-post")
    axes.set(xlabel="hours", ylabel="replicas")
    axes.set_title("replicas", fontsize=9)
    axes.legend(fontsize=7)


def _latency(axes: Axes, result: ServingAnswer) -> None:
    parts = np.linspace(0.0, 1.0, POINTS + 1)
    limit_ms = result.question.target.limit_s * 1e3
    for outcome in result.outcomes:
        times_ms = np.quantile(outcome.played.latency_s, parts) * 1e3
        axes.plot(times_ms.tolist(), parts.tolist(), label=outcome.name, linewidth=1.2)
    axes.plot((limit_ms, limit_ms), (0.0, 1.0), color="#888888", linewidth=0.8, linestyle="--")
    axes.set(xlabel="latency, ms", ylabel="part of the requests", xscale="log")
    axes.set_title("latency (left of the line: kept)", fontsize=9)
    axes.legend(fontsize=7)


def _devices(axes: Axes, result: ServingAnswer) -> None:
    names = [outcome.name for outcome in reversed(result.outcomes)]
    bars = axes.barh(names, [outcome.device_s / HOUR for outcome in reversed(result.outcomes)])
    axes.bar_label(bars, fmt="%.1f", fontsize=7)
    axes.set(xlabel="device hours")
    axes.set_title("devices held", fontsize=9)


Panel = Callable[[Axes, ServingAnswer], None]
PANELS: Final[Mapping[str, Panel]] = MappingProxyType(
    {"load": _load, "replicas": _replicas, "latency": _latency, "devices": _devices}
)
