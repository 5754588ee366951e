# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Scale up at once, scale down only after fewer replicas were enough for a while."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaNeed:
    """Number of replicas needed, and the time of the finding; ``at_s`` on the caller's clock."""

    at_s: float
    replicas: int


def desired_replicas(
    needs: Sequence[ReplicaNeed], now_s: float, hold_s: float, current: int
) -> int:
    """Desired number of replicas.

    As many as are needed now; fewer than current only as far as that was enough throughout the
    hold, so that a square wave faster than it changes nothing. Source: derived (the stabilization
    window of HorizontalPodAutoscaler).

    Args:
        needs: In order of time; the last one is current. While they do not cover the hold, as after
            a restart, the number does not fall.
        now_s: The current time, seconds.
        hold_s: Seconds.
        current: Desired replicas so far.

    Raises:
        ValueError: there is no need.
    """
    if not needs:
        raise ValueError("what is desired follows from at least one need")
    since_s, newest = now_s - hold_s, needs[-1].replicas
    if needs[0].at_s > since_s:
        return max(newest, current)
    recent = max((need.replicas for need in needs if need.at_s > since_s), default=newest)
    return max(newest, min(current, recent))
