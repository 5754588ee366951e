# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Queues writes: lanes by urgency, one entry per object, one write at a time on each.

The newest action on an object replaces an older waiting one, so the queue is bounded by the number
of objects; Events, which have no such bound, are dropped oldest first. Two writes on one object are
never in flight together, else the older might arrive last. A transitional status waits a little, so
that the next one can replace it. A pod is deleted after the status that counts its failure, and not
when that is not accepted: with the pod, the failure would be gone uncounted.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.reasons import Reason
from ullage.kube.requests import ObjectKey, key_of, status_key
from ullage.kube.writer.limits import WriteLimits
from ullage.scheduling.model.plan import (
    Action,
    ApplyGPUNode,
    CreateDeviceProfile,
    CreateProfile,
    CreateProfileRequest,
    CreateReservedPod,
    DeleteChild,
    DeletePod,
    DeleteWorkload,
    Emit,
    EvictPod,
    SetConditions,
    SetDeviceModel,
    SetPoolStatus,
    SetProfile,
    SetProfileRequestStatus,
    SetQuotaStatus,
    SetStatus,
    SetTuningStatus,
    UngatePod,
)

LANES: Final = 6
TELL: Final = 3
"""Lane of statuses and conditions."""
PASSING: Final = 4
"""Lane of transitional statuses."""
EVENTS: Final = LANES - 1
"""Lane of Events."""
TELL_EVERY: Final = 4
"""One write in this many is a status, whatever more urgent waits: a workload needs about three
other writes, so that the statuses of a burst are written while it is served."""


def lane_of(action: Action) -> int:
    """Urgency: free room, record decisions and finish, start, statuses, transitional ones, Events.

    An acknowledgement of observations is no decision: it counts as a status.
    """
    match action:
        case EvictPod() | DeletePod() | DeleteChild() | DeleteWorkload():
            return 0
        case ApplyGPUNode() if action.reason is Reason.MEASURED:
            return TELL
        case ApplyGPUNode() | UngatePod() | CreateReservedPod():
            return 1
        case SetStatus():
            return PASSING if action.passing else TELL
        case SetConditions() | SetQuotaStatus() | CreateProfile() | SetProfile():
            return TELL
        case CreateDeviceProfile() | SetDeviceModel() | SetPoolStatus() | SetTuningStatus():
            return TELL
        case SetProfileRequestStatus() | CreateProfileRequest():
            return TELL
        case Emit():
            return EVENTS
        case _:
            return 2


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingWrite:
    """An action and its position."""

    key: ObjectKey
    lane: int
    action: Action
    due: float = 0.0
    """Earliest time of the write, monotonic seconds; an Event yields until then."""
    after: ObjectKey | None = None
    """A status that is written first."""


class WriteQueue:
    """Actions in the order of their writes; times are monotonic seconds."""

    def __init__(self, limits: WriteLimits) -> None:
        self._limits = limits
        self._lanes: tuple[dict[ObjectKey, WaitingWrite], ...] = tuple({} for _ in range(LANES))
        self._place: dict[ObjectKey, int] = {}
        self._busy: set[ObjectKey] = set()
        self._held: dict[ObjectKey, float] = {}
        self._pops = 0
        self.dropped = 0
        """Events dropped for lack of room."""

    def __len__(self) -> int:
        return len(self._place)

    def put(self, action: Action, now: float = 0.0) -> None:
        """Queue an action; an older one on the same object is replaced.

        The replacement of an urgent write is urgent, and that of a transitional one waits no
        longer.
        """
        key, lane = key_of(action), lane_of(action)
        wait_s = {PASSING: self._limits.passing_s, EVENTS: self._limits.event_s}.get(lane)
        due = now + wait_s if wait_s is not None else 0.0
        before = self._place.get(key)
        if before is not None:
            earlier = self._lanes[before][key]
            due = min(due, earlier.due)
            if lane == PASSING and before < PASSING:
                lane = before
            if before != lane:
                del self._lanes[before][key]
        after = self._first(action, now)
        self._lanes[lane][key] = WaitingWrite(
            key=key, lane=lane, action=action, due=due, after=after
        )
        self._place[key] = lane
        events = self._lanes[EVENTS]
        if len(events) > self._limits.events_most:
            oldest = next(iter(events))
            del events[oldest], self._place[oldest]
            self.dropped += 1

    def _first(self, action: Action, now: float) -> ObjectKey | None:
        """The status to write before a pod is deleted, which becomes as urgent as that.

        A transitional one counts nothing. One in a back-off is not waited for: the pod holds a
        device meanwhile.
        """
        if not isinstance(action, DeletePod):
            return None
        key = status_key(action.owner)
        if self._held.get(key, 0.0) > now + self._limits.moved_on_s:
            return None
        if key in self._busy:
            return key
        place = self._place.get(key, PASSING)
        if place >= PASSING:
            return None
        self._lanes[0][key] = replace(self._lanes[place].pop(key), lane=0, due=0.0)
        self._place[key] = 0
        return key

    def drop_after(self, key: ObjectKey) -> list[Action]:
        """Take out what waits for a status that was not accepted."""
        late = [entry for entry in self._lanes[0].values() if entry.after == key]
        for entry in late:
            del self._lanes[0][entry.key], self._place[entry.key]
        return [entry.action for entry in late]

    def _is_free(self, waiting: WaitingWrite) -> bool:
        """True when no write to the object is under way, nor one that goes first."""
        if waiting.key in self._busy:
            return False
        first = waiting.after
        if first is None:
            return True
        return first not in self._busy and self._place.get(first, PASSING) >= PASSING

    def pop(self, now: float) -> WaitingWrite | None:
        """The most urgent action whose object is free; its object is busy until ``done``."""
        self._pops += 1
        entry = self._to_tell(now) if self._pops % TELL_EVERY == 0 else None
        for lane in range(LANES):
            entry = entry or self._free(lane, now, self._due_until(lane, now))
        if entry is not None:
            key = entry.key
            del self._lanes[entry.lane][key], self._place[key]
            self._held.pop(key, None)
            self._busy.add(key)
        return entry

    def _to_tell(self, now: float) -> WaitingWrite | None:
        """A status; every other time a transitional one that yielded for too long."""
        telling, late = (TELL, now), (PASSING, now - self._limits.passing_most_s)
        first, second = (telling, late) if self._pops % (2 * TELL_EVERY) else (late, telling)
        return self._free(first[0], now, first[1]) or self._free(second[0], now, second[1])

    def _free(self, lane: int, now: float, due_until: float) -> WaitingWrite | None:
        """The first due action of a lane whose object is free."""
        for key, waiting in self._lanes[lane].items():
            if waiting.due > due_until:
                return None  # a lane is sorted by time
            if self._is_free(waiting) and self._held.get(key, 0.0) <= now:
                return waiting
        return None

    def _due_until(self, lane: int, now: float) -> float:
        """Allow the due actions of a lane, some of which yield to all others."""
        if lane == EVENTS:
            return now if self._busy else math.inf
        return now - self._limits.passing_most_s if lane == PASSING and self._busy else now

    def ready_at(self, now: float) -> float | None:
        """Time of the next write: now, when a hold ends, or not before a write ends."""
        earliest: float | None = None
        for number, lane in enumerate(self._lanes):
            due_until = self._due_until(number, now)
            for key, waiting in lane.items():
                if not self._is_free(waiting):
                    continue
                begins = now + max(0.0, waiting.due - due_until)
                until = max(self._held.get(key, now), begins)
                if until <= now:
                    return now
                earliest = until if earliest is None else min(earliest, until)
                if begins > now:
                    break  # a lane is sorted by time
        return earliest

    def done(self, key: ObjectKey) -> None:
        """Release the object after its write has ended."""
        self._busy.discard(key)

    def hold(self, key: ObjectKey, until: float, now: float) -> None:
        """Write nothing on this object before a time; new actions wait."""
        self._held = {other: end for other, end in self._held.items() if end > now}
        self._held[key] = until

    def clear(self) -> int:
        """Drop all waiting actions; returns their number."""
        dropped = len(self._place)
        for lane in self._lanes:
            lane.clear()
        self._place.clear()
        self._held.clear()
        return dropped


@dataclass(slots=True)
class _Strike:
    digest: int
    """Hash of the error's text, whose length a tenant may control."""
    count: int
    wait_s: float


class Strikes:
    """Counts consecutive equal failures on one object and computes its back-off.

    After ``limits.strikes`` of them each further one doubles the wait.
    """

    def __init__(self, limits: WriteLimits) -> None:
        self._limits = limits
        self._kept: dict[Hashable, _Strike] = {}

    def strike(self, key: Hashable, text: str, *, at_once: bool = False) -> float:
        """Count a failure; returns the wait in seconds, 0 for the first ones."""
        before = self._kept.pop(key, None)
        digest = hash(text)
        same = before is not None and before.digest == digest
        entry = before if same and before is not None else _Strike(digest, 0, 0.0)
        entry.count += 1
        self._kept[key] = entry
        if len(self._kept) > self._limits.remembered:
            del self._kept[next(iter(self._kept))]
        if entry.count < self._limits.strikes and not at_once:
            return 0.0
        entry.wait_s = min(entry.wait_s * 2 or self._limits.backoff_s, self._limits.backoff_most_s)
        return entry.wait_s

    def clear(self, key: Hashable) -> None:
        """Reset the failures of an object after its write."""
        self._kept.pop(key, None)
