# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How fast writes may leave: a token bucket that halves when the API server says it is too much.

The rate comes back by doubling once the server has been content for a while. It never falls to
zero: an operator that stops writing strands reservations.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiolimiter import AsyncLimiter

LEAST_PER_SECOND: Final = 1.0


class Bucket:
    """Hands out permissions to write."""

    def __init__(
        self,
        per_second: float,
        *,
        recover_s: float,
        monotonic: Callable[[], float],
        rest: Callable[[float], Awaitable[bool]],
    ) -> None:
        """``rest`` sleeps; it ends early and says so when the writer stops."""
        self._most = max(per_second, LEAST_PER_SECOND)
        self._recover_s = recover_s
        self._monotonic = monotonic
        self._rest = rest
        self._paused_until = 0.0
        self._changed = 0.0
        self.per_second = self._most
        """Writes a second that may leave now."""
        self._limiter = AsyncLimiter(self._most, 1.0)

    async def acquire(self) -> None:
        """Wait for one permission; none is needed once the writer stops."""
        while (wait := self._paused_until - self._monotonic()) > 0:
            if await self._rest(wait):
                return
        if self.per_second < self._most and self._monotonic() - self._changed >= self._recover_s:
            self._set(min(self._most, self.per_second * 2))
        await self._limiter.acquire()

    def slow_down(self, wait_s: float) -> None:
        """The server asked for a pause: keep it, and write half as fast afterwards.

        Complaints about requests that left before the last change halve nothing again.
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
