# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Refusals: writes rejected by the API, with back-off, and slices refused by nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.slices import DesiredSlice, ObservedSlice, SlicePhase
from ullage.cluster.records.snapshot import RefusedWrite
from ullage.cluster.times import (
    NODE_REFUSALS_KEPT_S,
    REFUSAL_BACKOFF_FIRST_S,
    REFUSAL_BACKOFF_MOST_S,
)
from ullage.process.doubling import doubled_s

MOST_CHARACTERS: Final = 1024
"""Maximum characters of a refusal's text: every decision receives all of them."""
RefusalKey = tuple[str, str, str]
"""Kind, namespace and name of the object that was not written."""
TIMES_KEPT: Final = 8
MOST_NAMES: Final = 10_000
"""Maximum of pod names with stored refusals; the oldest are dropped."""
PodOnDevice = tuple[str, str]
"""uid of the pod, uuid of the device."""
PodName = tuple[str, str]
"""Namespace and name: identifies a pod that is recreated under its name."""


@dataclass(slots=True, kw_only=True)
class _Refusal:
    refused: RefusedWrite
    owner_uid: str
    generation: int
    tries: int
    until: float
    waiting: bool = True


class Refusals:
    """Writes rejected by the API for a reason for the user, and the times of their retries."""

    def __init__(
        self, first_s: float = REFUSAL_BACKOFF_FIRST_S, most_s: float = REFUSAL_BACKOFF_MOST_S
    ) -> None:
        self._kept: dict[RefusalKey, _Refusal] = {}
        self._of: dict[str, set[RefusalKey]] = {}
        """By uid of the owner: every event of a workload looks up its own."""
        self._first_s = first_s
        self._most_s = most_s

    def refuse(
        self,
        key: RefusalKey,
        refused: RefusedWrite,
        now: float,
        *,
        owner_uid: str,
        generation: int,
    ) -> None:
        """Record a refusal; the wait doubles with every refusal of the same object."""
        before = self._forget(key)
        tries = before.tries + 1 if before is not None else 1
        self._kept[key] = _Refusal(
            refused=replace(refused, message=refused.message[:MOST_CHARACTERS]),
            owner_uid=owner_uid,
            generation=generation,
            tries=tries,
            until=now + doubled_s(self._first_s, tries - 1, self._most_s),
        )
        self._of.setdefault(owner_uid, set()).add(key)

    def _forget(self, key: RefusalKey) -> _Refusal | None:
        gone = self._kept.pop(key, None)
        if gone is not None:
            of = self._of[gone.owner_uid]
            of.discard(key)
            if not of:
                del self._of[gone.owner_uid]
        return gone

    def expire(self, now: float) -> int:
        """End expired waits; returns their number. Long-idle records are dropped."""
        ended = 0
        for key, refusal in list(self._kept.items()):
            if refusal.waiting and now >= refusal.until:
                refusal.waiting = False
                ended += 1
            elif not refusal.waiting and now >= refusal.until + 2 * self._most_s:
                self._forget(key)
        return ended

    def settle(self, key: RefusalKey, owner_uid: str) -> bool:
        """End the refusal of an observed object; returns True if it was shown.

        A foreign object with the same name ends nothing: it may be the obstacle.
        """
        refusal = self._kept.get(key)
        if refusal is None or refusal.owner_uid != owner_uid:
            return False
        self._forget(key)
        return refusal.waiting

    def owner_changed(self, uid: str, generation: int | None) -> bool:
        """End the refusals of a workload with a new generation, or that is gone (``None``)."""
        stale = [key for key in self._of.get(uid, ()) if self._kept[key].generation != generation]
        gone = [self._forget(key) for key in stale]
        return any(refusal is not None and refusal.waiting for refusal in gone)

    def clear(self) -> None:
        """Drop everything."""
        self._kept.clear()
        self._of.clear()

    def shown(self) -> Mapping[RefusalKey, RefusedWrite]:
        """Currently rejected writes."""
        return {key: refusal.refused for key, refusal in self._kept.items() if refusal.waiting}

    def next_end(self) -> float | None:
        """End of the next wait; ``None`` = nothing waits."""
        return min((r.until for r in self._kept.values() if r.waiting), default=None)


class NodeRefusals:
    """Times at which nodes refused a pod's slice on a device, oldest first.

    The only data that no list of objects can restore: it is kept in memory, bounded in time and
    number, and a new leader begins without it.
    """

    def __init__(self) -> None:
        self._times: dict[PodOnDevice, tuple[float, ...]] = {}
        self._by_name: dict[PodName, tuple[float, ...]] = {}

    def compare(
        self,
        before: tuple[ObservedSlice, ...],
        after: tuple[ObservedSlice, ...],
        wanted: tuple[DesiredSlice, ...],
        now: float,
    ) -> bool:
        """Count new refusals of a node; returns True if there were any.

        Args:
            before: The node's previous report of its slices.
            after: The current report.
            wanted: Its desired slices, with the names of the pods.
            now: Seconds since the epoch.
        """
        earlier = set(before)
        fresh = [
            piece for piece in after if piece.phase is SlicePhase.REFUSED and piece not in earlier
        ]
        for piece in fresh:
            key = (piece.key.pod_uid, piece.gpu)
            self._times[key] = (*self._times.get(key, ()), now)[-TIMES_KEPT:]
        refused = {piece.key.pod_uid for piece in fresh}
        for name in {
            (part.pod_namespace, part.pod_name) for part in wanted if part.key.pod_uid in refused
        }:
            self._by_name[name] = (*self._by_name.pop(name, ()), now)[-TIMES_KEPT:]
        while len(self._by_name) > MOST_NAMES:
            del self._by_name[next(iter(self._by_name))]
        return bool(fresh)

    def forget(self, pod_uid: str) -> None:
        """Drop a deleted pod; the refusals of its name stay."""
        for key in [key for key in self._times if key[0] == pod_uid]:
            del self._times[key]

    def expire(self, now: float) -> bool:
        """Drop long-expired entries; returns True if there were any."""
        times, by_name = (
            {key: seen for key, seen in kept.items() if now - seen[-1] < NODE_REFUSALS_KEPT_S}
            for kept in (self._times, self._by_name)
        )
        expired = len(times) < len(self._times) or len(by_name) < len(self._by_name)
        self._times, self._by_name = times, by_name
        return expired

    def shown(self) -> Mapping[PodOnDevice, tuple[float, ...]]:
        """All refusals of pods."""
        return dict(self._times)

    def shown_by_name(self) -> Mapping[PodName, tuple[float, ...]]:
        """All refusals of names."""
        return dict(self._by_name)
