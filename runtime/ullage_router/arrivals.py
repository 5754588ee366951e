# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Arrivals of requests, for the autoscaler of the replicas."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from ullage_router.times import ARRIVALS_WINDOW_S

MOST_WAITERS: Final = 8
"""Most callers waiting for the next request; one more is answered at once."""


class ArrivalRate:
    """Counts requests, on the router's clock."""

    def __init__(self, now_s: float) -> None:
        self.total = 0
        self._began_s = now_s
        self._last_s = now_s
        self._seconds: deque[tuple[int, int]] = deque()
        """Seconds of the clock and their requests, oldest first, over the window."""
        self._waiters: set[asyncio.Future[None]] = set()

    def arrived(self, now_s: float) -> None:
        """Count a request, and notify the waiting callers."""
        self.total += 1
        self._last_s = now_s
        second = int(now_s)
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1] = (second, self._seconds[-1][1] + 1)
        else:
            self._seconds.append((second, 1))
            self._forget(second)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def worked(self, now_s: float) -> None:
        """Record that a request was still under way."""
        self._last_s = max(self._last_s, now_s)

    def per_s(self, now_s: float) -> float:
        """Requests per second over the last whole seconds of the window, or since the start."""
        second = int(now_s)
        self._forget(second)
        counted = sum(count for at, count in self._seconds if at < second)
        return counted / min(float(ARRIVALS_WINDOW_S), max(1.0, now_s - self._began_s))

    def idle_s(self, now_s: float) -> float:
        """Seconds since a request arrived or was under way; since the start where none was."""
        return max(0.0, now_s - self._last_s)

    async def beyond(self, total: int, most_s: float) -> None:
        """Wait until the number of arrived requests is not ``total``, or for the time."""
        if self.total != total or len(self._waiters) >= MOST_WAITERS:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait([waiter], timeout=most_s)
        finally:
            self._waiters.discard(waiter)

    def _forget(self, second: int) -> None:
        while self._seconds and self._seconds[0][0] < second - ARRIVALS_WINDOW_S:
            self._seconds.popleft()
