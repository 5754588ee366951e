# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tracks when API-server back-pressure last ended.

While our own writes queue up or the server answers late, a silent node or a pod that does not start
proves nothing: time limits count from this time. Never reads the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ullage.app.times import LATE_ANSWER_S, LATE_LOOP_S, STALE_ANSWER_S
from ullage.ports import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """State of the traffic to the API server now."""

    waiting: int
    """Waiting writes."""
    in_flight_most: int
    """Maximum writes in flight; as many waiting again is a queue."""
    answer_s: float
    """Average time of the last answers to writes."""
    answered_at: float
    """Time of the last answer, monotonic seconds."""
    lease_s: float
    """Time of the last access to the Lease, which bypasses our queue and limits."""
    loop_lag_s: float


class ApiBackpressure:
    """Tracks the last time of back-pressure; call at least every few seconds."""

    def __init__(self, traffic: Callable[[], Traffic], clock: Clock) -> None:
        self._traffic = traffic
        self._clock = clock
        self._since = 0.0

    def since(self) -> float:
        """Time at which back-pressure last ended, seconds since the epoch; 0 = there was none."""
        traffic = self._traffic()
        fresh = self._clock.monotonic() - traffic.answered_at < STALE_ANSWER_S
        if (
            traffic.waiting > traffic.in_flight_most
            or (fresh and traffic.answer_s > LATE_ANSWER_S)
            or traffic.lease_s > LATE_ANSWER_S
            or traffic.loop_lag_s > LATE_LOOP_S
        ):
            self._since = self._clock.now()
        return self._since
