# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Things that happen later, in order, on a clock that someone else moves."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from fake_mps.model import Clock


class Timers:
    """A heap of due calls; equal times run in the order they were set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Run ``call`` once that much time has passed, at the earliest at the next ``run``."""
        heapq.heappush(self._heap, (self._clock.monotonic() + seconds, next(self._order), call))

    def run(self) -> None:
        """Run what is due, also what becomes due by it."""
        while self._heap and self._heap[0][0] <= self._clock.monotonic():
            heapq.heappop(self._heap)[2]()

    @property
    def wait_s(self) -> float | None:
        """Seconds to the next call; None when nothing is planned."""
        if not self._heap:
            return None
        return max(0.0, self._heap[0][0] - self._clock.monotonic())
