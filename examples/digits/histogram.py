# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Counts request latencies and answers by status code, the way Prometheus reads them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Final

from ullage_run.requests import RequestHistogram

REQUESTS: Final = "digits_requests_total"


class RequestMetrics:
    """Latency histogram and requests by status code; safe to use from several threads."""

    def __init__(self) -> None:
        self._latency = RequestHistogram()
        self._lock = threading.Lock()
        self._codes: Counter[int] = Counter()

    def observe(self, seconds: float, code: int) -> None:
        """Count one answered request."""
        self._latency.observe(seconds)
        with self._lock:
            self._codes[code] += 1

    def text(self) -> str:
        """Everything so far in the Prometheus text format."""
        with self._lock:
            codes = "\n".join((*self._lines(), ""))
        return self._latency.metrics_text() + codes

    def _lines(self) -> Iterator[str]:
        yield f"# HELP {REQUESTS} Requests answered, by status code."
        yield f"# TYPE {REQUESTS} counter"
        for code, count in sorted(self._codes.items()):
            yield f'{REQUESTS}{{code="{code}"}} {count}'
