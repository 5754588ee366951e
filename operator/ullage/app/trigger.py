# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Decides when to run a cycle: shortly after a burst of changes, never too late or too often.

After Karpenter's batcher: a window opens at the first poke, each further poke extends it by the
idle time, and the maximum caps it. The gap between decisions is twice the duration of the last one,
so that short ones take a third of a core at most; its limit prevents a visible pause after one
decision on a busy machine, or one that included the child's imports. Never reads cluster state.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter


class Trigger:
    """Collects pokes and waits for the time of the next decision."""

    def __init__(
        self, *, idle_s: float, max_s: float, resync_s: float, rest_most_s: float = 5.0
    ) -> None:
        """Times in seconds; ``rest_most_s`` is the longest pause after a decision."""
        self._idle_s = idle_s
        self._max_s = max_s
        self._resync_s = resync_s
        self._rest_most_s = rest_most_s
        self._poked = asyncio.Event()
        self._reasons: set[str] = set()
        self._last_poke = 0.0
        self._not_before = 0.0
        self._wake_at = float("inf")
        self.pokes: Counter[str] = Counter()

    def poke(self, reason: str) -> None:
        """Record a change; call from the loop's own thread only."""
        self.pokes[reason] += 1
        self._reasons.add(reason)
        self._last_poke = asyncio.get_running_loop().time()
        self._poked.set()

    def wake_in(self, seconds: float) -> None:
        """Decide again after this time even if nothing changes (a timeout or a back-off)."""
        self._wake_at = asyncio.get_running_loop().time() + max(0.0, seconds)

    def rest(self, seconds: float) -> None:
        """Wait twice the time of a decision before the next one, up to a limit."""
        pause = min(2 * seconds, self._rest_most_s)
        self._not_before = asyncio.get_running_loop().time() + pause

    def retry_in(self, seconds: float) -> None:
        """Decide again this long after a failure, whatever changes meanwhile."""
        at = asyncio.get_running_loop().time() + seconds
        self._wake_at = self._not_before = at

    async def wait(self) -> frozenset[str]:
        """Wait until a decision is due; returns the reasons of the pokes it answers."""
        loop = asyncio.get_running_loop()
        due = min(loop.time() + self._resync_s, self._wake_at)
        try:
            async with asyncio.timeout_at(due):
                await self._poked.wait()
        except TimeoutError:
            self._reasons.add("timer" if due == self._wake_at else "resync")
        else:
            await self._settle(loop)
        if (pause := self._not_before - loop.time()) > 0:
            await asyncio.sleep(pause)
        reasons = frozenset(self._reasons)
        self._reasons.clear()
        self._poked.clear()
        self._wake_at = float("inf")
        return reasons

    async def _settle(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let a burst end: idle time since the last poke, at most the maximum in all."""
        end = loop.time() + self._max_s
        while (quiet_at := min(self._last_poke + self._idle_s, end)) > loop.time():
            self._poked.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(quiet_at):
                    await self._poked.wait()
