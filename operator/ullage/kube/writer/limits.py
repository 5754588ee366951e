# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Speed and patience of the writer."""

from __future__ import annotations

from dataclasses import dataclass, field

from ullage.kube.coordinators import Coordinators


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteLimits:
    """Rate, number and pauses of writes."""

    per_second: float = 50.0
    """Writes a second, on average; a second's worth may leave at once."""
    in_flight: int = 20
    """Writes under way at once, at most; fewer while the server answers late."""
    tries: int = 3
    """Attempts of one write while the server does not answer or is too busy."""
    retry_s: float = 0.2
    """Wait before the second attempt, doubling, with jitter."""
    throttle_s: float = 1.0
    """Pause after a 429 that names none."""
    throttle_most_s: float = 30.0
    """Longest pause taken from ``Retry-After``."""
    recover_s: float = 30.0
    """A halved rate doubles again after this long without a 429."""
    moved_on_s: float = 0.5
    """How long an object is left alone after a write that found it changed; keeps a decision that
    does not see the change yet from asking in a hot loop."""
    strikes: int = 3
    """Equal refusals in a row of one object before it is left alone."""
    backoff_s: float = 10.0
    """First wait of an object that is left alone; doubles."""
    backoff_most_s: float = 300.0
    """Longest wait of an object that is left alone."""
    passing_s: float = 3.0
    """How long a status that only says that things move waits for the next one."""
    passing_most_s: float = 12.0
    """How much longer such a status waits while other writes are under way."""
    event_s: float = 60.0
    """How long an Event gives way to other writes."""
    events_most: int = 10_000
    """Events that may wait."""
    remembered: int = 50_000
    """Objects whose failures are counted."""
    remembered_bytes: int = 32 * 2**20
    """Memory of what was applied last, for specs and for statuses each: about 30,000 objects."""
    stop_s: float = 3.0
    """How long ``stop`` waits for writes under way."""
    pre_stop_sleep_s: int = 5
    """Sleep before SIGTERM given to serving pods."""
    order_image: str = ""
    """Image of the placeholder pods that order nodes."""
    coordinators: Coordinators = field(default_factory=Coordinators)
    """What the pods that lead jobs in tiers run."""
