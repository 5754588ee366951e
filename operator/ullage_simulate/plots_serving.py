# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pictures of a load that was played: requests, replicas, latencies, devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from ullage_simulate.plotter import Axes, drawn
from ullage_simulate.serving import HOUR, ServingAnswer, rates

POINTS: Final = 240


def draw(found: ServingAnswer, where: Path) -> tuple[Path, ...]:
    """Write one PNG for each panel, and one with all of them.

    Raises:
        NoPlotter: matplotlib is missing.
    """
    return drawn(PANELS, found, where, found.question.name, "serving")


def _load(axes: Axes, found: ServingAnswer) -> None:
    hours, per_s = rates(found.question.arrival_s, POINTS)
    axes.plot(hours.tolist(), per_s.tolist(), linewidth=1.2)
    axes.set(xlabel="hours", ylabel="requests per second")
    axes.set_title("load", fontsize=9)


def _replicas(axes: Axes, found: ServingAnswer) -> None:
    end = float(found.question.arrival_s[-1])
    for one in found.outcomes:
        times = [at / HOUR for at, _ in one.played.changes] + [end / HOUR]
        counts = [count for _, count in one.played.changes] + [one.played.changes[-1][1]]
        axes.plot(times, counts, label=one.name, linewidth=1.2, drawstyle="steps-post")
    axes.set(xlabel="hours", ylabel="replicas")
    axes.set_title("replicas", fontsize=9)
    axes.legend(fontsize=7)


def _latency(axes: Axes, found: ServingAnswer) -> None:
    parts = np.linspace(0.0, 1.0, POINTS + 1)
    limit_ms = found.question.target.limit_s * 1e3
    for one in found.outcomes:
        times_ms = np.quantile(one.played.latency_s, parts) * 1e3
        axes.plot(times_ms.tolist(), parts.tolist(), label=one.name, linewidth=1.2)
    axes.plot((limit_ms, limit_ms), (0.0, 1.0), color="#888888", linewidth=0.8, linestyle="--")
    axes.set(xlabel="latency, ms", ylabel="part of the requests", xscale="log")
    axes.set_title("latency (left of the line: kept)", fontsize=9)
    axes.legend(fontsize=7)


def _devices(axes: Axes, found: ServingAnswer) -> None:
    names = [one.name for one in reversed(found.outcomes)]
    bars = axes.barh(names, [one.device_s / HOUR for one in reversed(found.outcomes)])
    axes.bar_label(bars, fmt="%.1f", fontsize=7)
    axes.set(xlabel="device hours")
    axes.set_title("devices held", fontsize=9)


Panel = Callable[[Axes, ServingAnswer], None]
PANELS: Final[Mapping[str, Panel]] = MappingProxyType(
    {"load": _load, "replicas": _replicas, "latency": _latency, "devices": _devices}
)
