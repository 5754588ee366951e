# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Windows of every tenant with an objective: latency if it has one, else steps.

A few seconds of requests, always the difference of two pages of a histogram, never an average of
averages. A window without a finished request has no data, nor has one across a restart, a freeze or
a clock jump. Steps are read by :mod:`ullage_node.guard.windows`. No I/O here: pages and times in,
windows out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ullage.api.observations import LatencyObjective
from ullage_node.model.devices import ContainerKey
from ullage_node.model.guard import GuardSubject, ObjectiveWindow, Windows
from ullage_node.telemetry.histograms import LatencyHistogram, quantile
from ullage_node.times import LATENCY_WINDOW_LEAST_S

SLACK: Final = 0.1
"""Fraction of a window by which a page may be early and still end it."""
OVERDUE: Final = 3.0
"""A window this many times longer than planned is discarded."""

Objectives = Callable[[], Mapping[ContainerKey, LatencyObjective]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramPage:
    """A latency histogram at one time, CLOCK_MONOTONIC seconds."""

    at_s: float
    histogram: LatencyHistogram


@dataclass(slots=True, kw_only=True)
class _LatencyTrack:
    """State of one container: the page at the window's start, and the newest."""

    base: HistogramPage | None = None
    newest: HistogramPage | None = None
    cut_at: float = 0.0


class LatencyWindows:
    """Turns pages into windows, one container at a time."""

    def __init__(self) -> None:
        self._tracks: dict[ContainerKey, _LatencyTrack] = {}
        self.problems: dict[ContainerKey, str] = {}
        """Reasons why an objective cannot be judged from the buckets."""

    def keep(self, containers: set[ContainerKey]) -> None:
        """Forget all other containers."""
        self._tracks = {key: track for key, track in self._tracks.items() if key in containers}
        self.problems = {key: why for key, why in self.problems.items() if key in containers}

    def take(self, key: ContainerKey, page: HistogramPage) -> None:
        """Add a page; one older than the newest means a clock jump."""
        track = self._tracks.setdefault(key, _LatencyTrack())
        if track.newest is not None and page.at_s <= track.newest.at_s:
            track.base = None
        track.newest = page
        if track.base is None and page.at_s >= track.cut_at:
            track.base = page

    def cut(self, key: ContainerKey, now: float) -> None:
        """Begin a clean window with the first page from now on."""
        track = self._tracks.setdefault(key, _LatencyTrack())
        track.base, track.cut_at = None, now

    def ended(self, key: ContainerKey, slo: LatencyObjective) -> ObjectiveWindow | None:
        """The window that the newest page ends; ``None`` = it continues, or has no data."""
        track = self._tracks.get(key)
        if track is None or track.base is None or track.newest is None:
            return None
        base, newest = track.base, track.newest
        seconds = max(float(slo.window_seconds), LATENCY_WINDOW_LEAST_S)
        passed = newest.at_s - base.at_s
        if passed < seconds * (1 - SLACK):
            return None
        track.base = newest
        made = newest.histogram.since(base.histogram)
        if passed > OVERDUE * seconds or made is None or made.count < 1:
            return None
        return self._window(key, slo, made, (base.at_s, newest.at_s))

    def _window(
        self,
        key: ContainerKey,
        slo: LatencyObjective,
        made: LatencyHistogram,
        ends: tuple[float, float],
    ) -> ObjectiveWindow:
        """A window of requests, its percentile compared with the objective."""
        begin_s, at_s = ends
        limit = slo.latency_ms * 1000
        latency = quantile(made, slo.quantile)
        assert latency is not None, "a window without requests is none"
        ratio = latency.micros / limit
        self.problems.pop(key, None)
        if latency.floor:
            # Above the last finite bound: certainly above the objective, or undecidable.
            ratio = max(ratio, _JUST_ABOVE) if latency.micros >= limit else 0.0
            if not ratio:
                self.problems[key] = (
                    f"the last bucket ends at {latency.micros / 1e6:g} s, below the objective of "
                    f"{limit / 1e6:g} s; give the histogram buckets above it"
                )
        return ObjectiveWindow(
            key=key,
            begin_s=begin_s,
            at_s=at_s,
            ratio=ratio,
            step_micros=made.mean_micros(),
            latency_micros=latency.micros,
            percentile=slo.percentile,
            requests_milli=round(made.requests / (at_s - begin_s) * 1000),
        )


_JUST_ABOVE: Final = 1.000001


class TenantWindows:
    """A ``Windows``: latency for tenants with a latency objective, steps for the others.

    Args:
        steps: source of windows of steps.
        objectives: the current latency objectives.
        hurry: requests a fresh page of a container.
    """

    def __init__(
        self,
        steps: Windows,
        objectives: Objectives,
        hurry: Callable[[ContainerKey], None] = lambda key: None,
    ) -> None:
        self._steps = steps
        self._objectives = objectives
        self._hurry = hurry
        self.latency = LatencyWindows()

    def next(self, subjects: tuple[GuardSubject, ...], now: float) -> tuple[ObjectiveWindow, ...]:
        """Windows that ended since the last call; state of other containers is dropped."""
        objectives = self._objectives()
        serving = {
            subject.key: objectives[subject.key]
            for subject in subjects
            if subject.key in objectives
        }
        self.latency.keep(set(serving))
        windows = (self.latency.ended(key, slo) for key, slo in sorted(serving.items()))
        others = tuple(subject for subject in subjects if subject.key not in serving)
        return (
            *(window for window in windows if window is not None),
            *self._steps.next(others, now),
        )

    def cut(self, key: ContainerKey, now: float) -> None:
        """End the running window now and begin a clean one."""
        if key in self._objectives():
            self.latency.cut(key, now)
            self._hurry(key)
        else:
            self._steps.cut(key, now)
