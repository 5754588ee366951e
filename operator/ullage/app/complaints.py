# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Logs unreadable objects: each stream's newest, at most one in ten seconds."""

from __future__ import annotations

import structlog

from ullage.app.times import COMPLAINT_QUIET_S
from ullage.ports import Clock

log = structlog.get_logger("ullage.cluster")


class Complaints:
    """Logs unreadable objects of each stream, at a bounded rate."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged_at: dict[str, float] = {}
        self._unlogged: dict[str, int] = {}

    def __call__(self, stream: str, item: str, error: str) -> None:
        """Log that an object of this stream could not be read."""
        now = self._clock.monotonic()
        if now - self._logged_at.get(stream, float("-inf")) < COMPLAINT_QUIET_S:
            self._unlogged[stream] = self._unlogged.get(stream, 0) + 1
            return
        self._logged_at[stream] = now
        more = self._unlogged.pop(stream, 0)
        log.warning("object cannot be read", stream=stream, object=item, error=error, untold=more)
