# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Measures request latencies, and renders them in the Prometheus text format.

::

    ullage_run.requests.observe(seconds)           # once for every request answered
    text = ullage_run.requests.metrics_text()      # the body of the server's GET /metrics

The node agent reads that page and judges the objective of an InferenceDeployment by it. It runs in
the user's request path, so it must never raise there, never block for long, and needs nothing but
the standard library. Each process counts separately: a server of several processes needs a page
that sums them.
"""

from __future__ import annotations

import math
import os
import threading
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

METRIC: Final = "ullage_request_seconds"
"""Name of the histogram; the node agent reads it where the objective names no other."""
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of the page."""
BOUNDS_SECONDS: Final = (
    *(0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.0075),
    *(0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0),
)
"""Upper bounds of the buckets. A percentile is only as exact as its bucket."""


class RequestHistogram:
    """A latency histogram; safe to use from several threads.

    Args:
        name: Name of the histogram.
        bounds_seconds: Upper bounds of the buckets, rising.
    """

    def __init__(
        self, name: str = METRIC, bounds_seconds: Sequence[float] = BOUNDS_SECONDS
    ) -> None:
        self._name = name
        self._bounds = tuple(bounds_seconds)
        self._buckets = [0] * (len(self._bounds) + 1)
        self._seconds = 0.0
        self._lock = threading.Lock()

    def observe(self, seconds: float) -> None:
        """Count one answered request; an invalid time is ignored."""
        try:
            took = float(seconds)
        except (TypeError, ValueError, OverflowError):
            return
        if not 0 <= took < math.inf:
            return
        with self._lock:
            self._buckets[bisect_left(self._bounds, took)] += 1
            self._seconds += took

    def metrics_text(self) -> str:
        """The histogram in the Prometheus text format."""
        with self._lock:
            buckets, seconds = tuple(self._buckets), self._seconds
        lines = [
            f"# HELP {self._name} Time from a request's arrival to its answer.",
            f"# TYPE {self._name} histogram",
        ]
        total = 0
        for bound, count in zip((*self._bounds, "+Inf"), buckets, strict=True):
            total += count
            lines.append(f'{self._name}_bucket{{le="{bound}"}} {total}')
        lines += [f"{self._name}_sum {seconds:.9f}", f"{self._name}_count {total}", ""]
        return "\n".join(lines)

    def forget(self) -> None:
        """In a forked child: reset to zero, with a fresh lock."""
        self._lock = threading.Lock()
        self._buckets = [0] * (len(self._bounds) + 1)
        self._seconds = 0.0


_histogram = RequestHistogram()
observe = _histogram.observe
metrics_text = _histogram.metrics_text

os.register_at_fork(after_in_child=_histogram.forget)
