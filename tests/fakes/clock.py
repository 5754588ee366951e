# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Time that moves only when a test says so."""

from __future__ import annotations


class FakeClock:
    """Wall clock and monotonic clock with one hand; the wall may be wrong by ``skew_s``."""

    def __init__(self, start_s: float = 1_800_000_000.0, *, skew_s: float = 0.0) -> None:
        self._start_s = start_s + skew_s
        self._passed_s = 0.0

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._start_s + self._passed_s

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._passed_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        assert seconds >= 0
        self._passed_s += seconds

    async def sleep(self, seconds: float) -> None:
        """Pass the time instead of waiting for it."""
        self.advance(seconds)
