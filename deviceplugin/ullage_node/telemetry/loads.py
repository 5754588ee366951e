# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Load of every serving container over the last seconds, from the pages read for latencies.

A load is always the difference of two pages. Without a fresh page, or if the server restarted
between two, the load is unknown, never 0. No I/O here.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from ullage.api.loads import ObservedLoad
from ullage.api.observations import LatencyObjective
from ullage_node.model.devices import ContainerKey
from ullage_node.telemetry.histograms import LatencyHistogram, quantile
from ullage_node.telemetry.windows import HistogramPage
from ullage_node.times import LOAD_SPAN_LEAST_S, LOAD_SPAN_MOST_S, LOAD_SPAN_S, PAGE_STALE_S

PAGES_MOST: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """Changes between two pages."""

    made: LatencyHistogram
    seconds: float


class Loads:
    """Keeps the last pages of each container."""

    def __init__(self) -> None:
        self._pages: dict[ContainerKey, deque[HistogramPage]] = {}

    def keep(self, containers: Collection[ContainerKey]) -> None:
        """Forget all other containers."""
        self._pages = {key: pages for key, pages in self._pages.items() if key in containers}

    def take(self, key: ContainerKey, page: HistogramPage) -> None:
        """Add a page; a restarted server or a clock jump resets the history."""
        pages = self._pages.setdefault(key, deque(maxlen=PAGES_MOST))
        if pages and (
            page.at_s <= pages[-1].at_s or page.histogram.since(pages[-1].histogram) is None
        ):
            pages.clear()
        pages.append(page)
        while len(pages) > 2 and page.at_s - pages[1].at_s >= LOAD_SPAN_S:
            pages.popleft()

    def of(self, key: ContainerKey, slo: LatencyObjective, now: float) -> ObservedLoad | None:
        """The load of a container; ``None`` = unknown.

        Args:
            key: The container.
            slo: Its objective.
            now: CLOCK_MONOTONIC, seconds.
        """
        span = self._span(key, now)
        if span is None or span.made.requests != span.made.count:
            return None  # a histogram of tokens measures tokens, not requests
        latency = quantile(span.made, slo.quantile)
        return ObservedLoad(
            seconds=max(1, round(span.seconds)),
            requests_milli=round(span.made.requests / span.seconds * 1000),
            request_micros=span.made.mean_micros(),
            latency_micros=0 if latency is None else latency.micros,
            late_milli=late_milli(span.made, slo.latency_ms / 1000),
        )

    def _span(self, key: ContainerKey, now: float) -> _Span | None:
        pages = self._pages.get(key)
        if not pages or len(pages) < 2 or now - pages[-1].at_s > PAGE_STALE_S:
            return None
        first, last = pages[0], pages[-1]
        made, seconds = last.histogram.since(first.histogram), last.at_s - first.at_s
        if made is None or not LOAD_SPAN_LEAST_S <= seconds <= LOAD_SPAN_MOST_S:
            return None
        return _Span(made=made, seconds=seconds)


def late_milli(made: LatencyHistogram, limit_s: float) -> int:
    """Observations above a limit, in thousandths; linear inside the bucket of the limit.

    Args:
        made: The observations.
        limit_s: Seconds.
    """
    if made.count <= 0:
        return 0
    within, below, lower = made.count, 0.0, 0.0
    for bound, cumulative in zip(made.bounds, made.cumulative, strict=True):
        if bound >= limit_s:
            inside = 0.0 if math.isinf(bound) else (limit_s - lower) / (bound - lower)
            within = below + (cumulative - below) * inside
            break
        below, lower = cumulative, bound
    return round(1000 * min(1.0, max(0.0, 1 - within / made.count)))
