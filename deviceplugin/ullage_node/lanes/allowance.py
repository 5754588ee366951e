# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rate limits per container: lines, connections and log lines, each with its own rate.

A container that exhausts its allowance waits in the kernel; others are unaffected.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

LINES_PER_SECOND: Final = 1000.0
LINES_BURST: Final = 200.0
"""A step takes two lines; a program that sends more is delayed, others are not."""
DIALS_PER_SECOND: Final = 10.0
DIALS_BURST: Final = 20.0
"""A program connects once, and once more after a restart of the agent."""
LOGS_PER_SECOND: Final = 1 / 60
LOGS_BURST: Final = 5.0


@dataclass(slots=True)
class TokenBucket:
    """A bucket that fills with time, ``since`` in seconds."""

    per_second: float = LINES_PER_SECOND
    burst: float = LINES_BURST
    since: float = 0.0
    left: float = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.burst

    def wait_s(self, now: float) -> float:
        """Take a token; returns the time to wait before the next."""
        self._fill(now)
        self.left -= 1
        return max(0.0, -self.left / self.per_second)

    def takes(self, now: float) -> bool:
        """Take a token if available; false if there is none."""
        self._fill(now)
        if self.left < 1:
            return False
        self.left -= 1
        return True

    def _fill(self, now: float) -> None:
        grown = max(0.0, now - self.since) * self.per_second
        self.left, self.since = min(self.burst, self.left + grown), now


@dataclass(slots=True)
class ContainerAllowance:
    """Limits of one container over all its connections; ``now`` in seconds."""

    now: float
    lines: TokenBucket = field(init=False)
    dials: TokenBucket = field(init=False)
    logs: TokenBucket = field(init=False)
    unlogged: int = 0
    """Lines suppressed since the last logged one."""

    def __post_init__(self) -> None:
        self.lines = TokenBucket(since=self.now)
        self.dials = TokenBucket(DIALS_PER_SECOND, DIALS_BURST, self.now)
        self.logs = TokenBucket(LOGS_PER_SECOND, LOGS_BURST, self.now)

    def logs_now(self, now: float) -> bool:
        """True if one more line about the container may be logged."""
        if self.logs.takes(now):
            return True
        self.unlogged += 1
        return False
