# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rates and waits of the writer."""

from __future__ import annotations

from dataclasses import dataclass, field

from ullage.kube.coordinators import Coordinators


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteLimits:
    """Rate, number and pauses of writes."""

    per_second: float = 50.0
    """Writes per second, on average; the burst is a second's worth."""
    in_flight: int = 20
    """Maximum writes in flight; fewer while the server answers late."""
    tries: int = 3
    """Attempts of one write while the server does not answer or is too busy."""
    retry_s: float = 0.2
    """Wait before the second attempt, doubling, with jitter."""
    throttle_s: float = 1.0
    """Pause after a 429 without a duration."""
    throttle_most_s: float = 30.0
    """Longest pause accepted from ``Retry-After``."""
    recover_s: float = 30.0
    """A halved rate doubles again after this long without a 429."""
    moved_on_s: float = 0.5
    """Time for which an object is not written after a conflict; keeps a decision on stale data from
    retrying in a hot loop."""
    strikes: int = 3
    """Equal consecutive refusals of one object before its back-off."""
    backoff_s: float = 10.0
    """First back-off of an object; doubles."""
    backoff_most_s: float = 300.0
    """Longest back-off of an object."""
    passing_s: float = 3.0
    """Time for which a transitional status waits for the next one."""
    passing_most_s: float = 12.0
    """Additional wait of such a status while other writes are in flight."""
    event_s: float = 60.0
    """Time for which an Event yields to other writes."""
    events_most: int = 10_000
    """Maximum of waiting Events."""
    remembered: int = 50_000
    """Maximum of objects with counted failures."""
    remembered_bytes: int = 32 * 2**20
    """Memory of the last applies, for specs and for statuses each: about 30,000 objects."""
    stop_s: float = 3.0
    """Time for which ``stop`` waits for writes in flight."""
    pre_stop_sleep_s: int = 5
    """Sleep before SIGTERM set in serving pods."""
    order_image: str = ""
    """Image of the placeholder pods that request nodes."""
    coordinators: Coordinators = field(default_factory=Coordinators)
    """Image of the coordinator pods of jobs in tiers."""
