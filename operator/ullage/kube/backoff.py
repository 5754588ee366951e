# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pauses between attempts: doubling, with full jitter, reset after a time of health."""

from __future__ import annotations

import random

from ullage.process.doubling import doubled_s


class Backoff:
    """Back-off after each failure of a repeated operation."""

    def __init__(
        self,
        *,
        first_s: float = 0.5,
        max_s: float = 30.0,
        healthy_s: float = 60.0,
        rng: random.Random | None = None,
    ) -> None:
        """``healthy_s`` without a failure resets it."""
        self._first_s = first_s
        self._max_s = max_s
        self._healthy_s = healthy_s
        self._rng = rng or random.Random()
        self._failures = 0
        self._last_at = float("-inf")

    def pause(self, now: float, *, at_least_s: float = 0.0, most_s: float = float("inf")) -> float:
        """Count a failure at this monotonic time; returns seconds to wait.

        Args:
            now: Monotonic time of the failure, seconds.
            at_least_s: Minimum requested by the server.
            most_s: Cap of this pause, where lower than the general one.
        """
        if now - self._last_at >= self._healthy_s:
            self._failures = 0
        ceiling = doubled_s(self._first_s, self._failures, min(self._max_s, most_s))
        self._failures += 1
        self._last_at = now
        return max(at_least_s, self._rng.uniform(0.0, ceiling))
