# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Scale to zero of a service without requests, and back.

Requests wait in the router meanwhile, so a sleep costs the time to wake, never a request. A wake
soon after falling asleep doubles the idle time required to sleep again, and a long sleep halves it
(derived), so that regular sparse requests do not start a replica each time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

MOST_DOUBLINGS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SleepTerms:
    """Terms of a service for its sleep.

    Attributes:
        idle_s: Seconds without a request after which it may sleep, above 0.
        hold_s: Seconds that a request may wait for a replica; a service that takes longer to wake
            never sleeps.
    """

    idle_s: float
    hold_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SleepMemory:
    """Memory of earlier sleeps.

    Attributes:
        since_s: Time when it fell asleep; 0 = it is awake.
        doublings: Number of doublings of the required idle time, 0 to ``MOST_DOUBLINGS``.
    """

    since_s: float = 0.0
    doublings: int = 0

    @property
    def asleep(self) -> bool:
        """True if it sleeps."""
        return self.since_s > 0

    def awake(self) -> SleepMemory:
        """The memory of a service that has replicas."""
        return replace(self, since_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutersSaid:
    """State of the routers, as of now.

    Attributes:
        waiting: Requests that wait for a replica.
        idle_since_s: Start of the time without arriving or running requests, as far as known; on
            the clock of the memory.
        asked_s: Last time a request arrived or ran; ``None`` = never.
        wake_s: Wait of a request for the first replica, seconds.
    """

    waiting: int
    idle_since_s: float
    asked_s: float | None
    wake_s: float


def idle_needed_s(memory: SleepMemory, terms: SleepTerms) -> float:
    """Seconds without a request after which the service sleeps."""
    return float(terms.idle_s * 2**memory.doublings)


def may_sleep(memory: SleepMemory, terms: SleepTerms, routers: RoutersSaid, now_s: float) -> bool:
    """True if no request waits, the idle time is reached, and it wakes in time for any request."""
    idle = now_s - routers.idle_since_s >= idle_needed_s(memory, terms)
    return idle and not routers.waiting and routers.wake_s <= terms.hold_s


def has_to_wake(memory: SleepMemory, routers: RoutersSaid) -> bool:
    """True if a request waits, or arrived since the service fell asleep."""
    return routers.waiting > 0 or (routers.asked_s is not None and routers.asked_s > memory.since_s)


def fallen_asleep(memory: SleepMemory, now_s: float) -> SleepMemory:
    """The memory of a service that falls asleep now."""
    return replace(memory, since_s=now_s)


def woken(memory: SleepMemory, terms: SleepTerms, now_s: float) -> SleepMemory:
    """The memory of a service that wakes now."""
    slept_s = now_s - memory.since_s
    if 0 <= slept_s < idle_needed_s(memory, terms):
        return SleepMemory(doublings=min(MOST_DOUBLINGS, memory.doublings + 1))
    return SleepMemory(doublings=max(0, memory.doublings - 1))
