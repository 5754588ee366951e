# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Limits the rate of writes, and the number in flight.

A token bucket that halves when the API server throttles, and a window that narrows while it answers
late. The rate doubles again once the server has kept up for a while. It never falls to zero: an
operator that stops writing strands reservations.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import Final

from aiolimiter import AsyncLimiter

from ullage.kube.writer.limits import WriteLimits

LEAST_PER_SECOND: Final = 1.0


class Bucket:
    """Grants permissions to write."""

    def __init__(
        self,
        limits: WriteLimits,
        monotonic: Callable[[], float],
        rest: Callable[[float], Awaitable[bool]],
    ) -> None:
        """``rest`` sleeps; it ends early and returns true when the writer stops."""
        self._most = max(limits.per_second, LEAST_PER_SECOND)
        self._recover_s = limits.recover_s
        self._monotonic = monotonic
        self._rest = rest
        self._paused_until = 0.0
        self._changed = 0.0
        self.per_second = self._most
        """Current rate of writes per second."""
        self._limiter = AsyncLimiter(self._most, 1.0)

    async def acquire(self) -> None:
        """Wait for one permission; not needed once the writer stops."""
        while (wait := self._paused_until - self._monotonic()) > 0:
            if await self._rest(wait):
                return
        if self.per_second < self._most and self._monotonic() - self._changed >= self._recover_s:
            self._set(min(self._most, self.per_second * 2))
        await self._limiter.acquire()

    def slow_down(self, wait_s: float) -> None:
        """The server requested a pause: keep it, and write half as fast afterwards.

        Throttling of requests sent before the last change does not halve the rate again.
        """
        now = self._monotonic()
        fresh = now >= self._paused_until
        self._paused_until = max(self._paused_until, now + wait_s)
        if fresh:
            self._set(max(LEAST_PER_SECOND, self.per_second / 2))

    def _set(self, per_second: float) -> None:
        self.per_second = per_second
        self._changed = self._monotonic()
        self._limiter = AsyncLimiter(per_second, 1.0)


class WriteWindow:
    """Number of writes that may be in flight.

    A server at its limit does not get faster by more concurrent requests: they only wait, and delay
    those of other clients (kubelets, kube-scheduler, the Lease). Additive increase and decrease
    around the width at which answers begin to be late.
    """

    LEAST: Final = 8
    LATE_S: Final = 0.1
    """An answer that takes this much longer than twice the best one is late (not measured)."""
    WIDER: Final = 0.1
    NARROWER: Final = 0.4
    """Steps for an answer in time and a late one: a fifth of the answers are late in
    equilibrium."""
    FORGET: Final = 1.001
    """The best time grows by this with every answer, so that a slower path is detected."""

    def __init__(self, most: int) -> None:
        """``most`` is never exceeded; a smaller number is used unchanged."""
        self._most = float(most)
        self._least = min(float(self.LEAST), self._most)
        self._width = self._most
        self._best_s = inf

    @property
    def width(self) -> int:
        """Writes that may be in flight now."""
        return int(self._width)

    def answered(self, seconds: float) -> None:
        """Record the response time of a write."""
        self._best_s = min(self._best_s * self.FORGET, max(seconds, 0.001))
        late = seconds > self.LATE_S + 2 * self._best_s
        step = -self.NARROWER if late else self.WIDER
        self._width = min(self._most, max(self._least, self._width + step))
