# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Logs objects that cannot be read: each stream's newest, at most one in ten seconds."""

from __future__ import annotations

import structlog

from ullage.app.times import COMPLAINT_QUIET_S
from ullage.ports import Clock

log = structlog.get_logger("ullage.cluster")


class Complaints:
    """Tells of each stream now and then."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def __call__(self, stream: str, item: str, error: str) -> None:
        """An object of this stream could not be read."""
        now = self._clock.monotonic()
        if now - self._told.get(stream, float("-inf")) < COMPLAINT_QUIET_S:
            self._untold[stream] = self._untold.get(stream, 0) + 1
            return
        self._told[stream] = now
        more = self._untold.pop(stream, 0)
        log.warning("object cannot be read", stream=stream, object=item, error=error, untold=more)
