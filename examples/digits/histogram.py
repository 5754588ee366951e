# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Counts request latencies and prints them the way Prometheus reads them."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Final

BOUNDS_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
LATENCY: Final = "digits_request_seconds"
REQUESTS: Final = "digits_requests_total"


class RequestMetrics:
    """Latency histogram and requests by status code; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets = [0] * (len(BOUNDS_SECONDS) + 1)
        self._seconds = 0.0
        self._codes: Counter[int] = Counter()

    def observe(self, seconds: float, code: int) -> None:
        """Count one answered request."""
        with self._lock:
            self._buckets[bisect_left(BOUNDS_SECONDS, seconds)] += 1
            self._seconds += seconds
            self._codes[code] += 1

    def text(self) -> str:
        """Everything so far in the Prometheus text format."""
        with self._lock:
            return "\n".join((*self._lines(), ""))

    def _lines(self) -> Iterator[str]:
        yield f"# HELP {LATENCY} Time from a request's first line to its answer."
        yield f"# TYPE {LATENCY} histogram"
        total = 0
        for bound, count in zip((*BOUNDS_SECONDS, "+Inf"), self._buckets, strict=True):
            total += count
            yield f'{LATENCY}_bucket{{le="{bound}"}} {total}'
        yield f"{LATENCY}_sum {self._seconds:.6f}"
        yield f"{LATENCY}_count {total}"
        yield f"# HELP {REQUESTS} Requests answered, by status code."
        yield f"# TYPE {REQUESTS} counter"
        for code, count in sorted(self._codes.items()):
            yield f'{REQUESTS}{{code="{code}"}} {count}'
