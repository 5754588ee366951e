# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tracks how long a repeated operation has been failing, and if the fault is our own.

A success ends a streak of failures only when it lasts: a short success between two failures does
not interrupt the streak.
"""

from __future__ import annotations

from ullage.kube.times import STREAK_SETTLED_S
from ullage.ports import ApiError
from ullage.process.faults import fault_text


class Streak:
    """Failures of one operation; times are monotonic seconds."""

    def __init__(self) -> None:
        """Nothing has failed yet."""
        self._since: float | None = None
        self._own_since: float | None = None
        self._worked_at: float | None = None
        self.text = ""
        """The last failure."""

    def failed(self, now: float, error: Exception) -> None:
        """Count a failure; those of the API server or of the connection are not our own."""
        settled = self._worked_at is not None and now - self._worked_at >= STREAK_SETTLED_S
        if self._since is None or settled:
            self._since, self._own_since = now, None
        self._worked_at = None
        if isinstance(error, ApiError):
            self._own_since = None
        elif self._own_since is None:
            self._own_since = now
        self.text = fault_text(error)

    def worked(self, now: float) -> None:
        """Count a success."""
        if self._since is not None and self._worked_at is None:
            self._worked_at = now

    def seconds(self, now: float) -> float:
        """Seconds for which it has been failing; 0 while it works."""
        return self._length(self._since, now)

    def worked_s(self, now: float) -> float:
        """Seconds since it works again; 0 while it fails, infinite if it never failed."""
        if self._since is None:
            return float("inf")
        return 0.0 if self._worked_at is None else now - self._worked_at

    def own_seconds(self, now: float) -> float:
        """Seconds for which it has been failing by a fault of our own; 0 while it works."""
        return self._length(self._own_since, now)

    def _length(self, since: float | None, now: float) -> float:
        return 0.0 if since is None or self._worked_at is not None else now - since
