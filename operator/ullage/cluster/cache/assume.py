# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes that were sent and not yet observed: the overlay on the observed cluster.

A placement that is on its way counts as used, so that no slot is given twice. Every assumption
ends by itself: when the watch shows its result, when the write failed, or after its time to live;
the durable record of a decision is always the API's. Refused creates live here too, with the time
of the next try.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from ullage.api.contract import DesiredSlice
from ullage.api.lanes import IterationPolicy
from ullage.cluster.records.profile import ProfileStatus
from ullage.cluster.records.snapshot import RefusedWrite
from ullage.cluster.records.status import WorkloadStatus
from ullage.process.doubling import doubled_s

ASSUME_TTL_S: Final = 30.0
BACKOFF_FIRST_S: Final = 10.0
BACKOFF_MOST_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCreated:
    """A pod of this name was asked for."""

    namespace: str
    name: str

    @property
    def target(self) -> Hashable:
        """The object that the assumption is about."""
        return (self.namespace, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUngated:
    """Our gate was removed from this pod."""

    uid: str

    @property
    def target(self) -> Hashable:
        """The object that the assumption is about."""
        return self.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLeaving:
    """This pod was deleted or evicted."""

    uid: str

    @property
    def target(self) -> Hashable:
        """The object that the assumption is about."""
        return self.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicesSet:
    """A GPUNode's slice list was written; ``slices`` in the order of their keys."""

    node: str
    epoch: int
    slices: tuple[DesiredSlice, ...]
    observations_read: str = ""
    lane_policy: IterationPolicy = IterationPolicy.FAIR

    @property
    def target(self) -> Hashable:
        """The object that the assumption is about."""
        return self.node


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadLeaving:
    """This workload was deleted."""

    uid: str

    @property
    def target(self) -> Hashable:
        """The object that the assumption is about."""
        return self.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSet:
    """This workload's status was written."""

    uid: str
    status: WorkloadStatus

    @property
    def target(self) -> Hashable:
        """The object that the assumption is about."""
        return self.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSet:
    """A WorkloadProfile was asked for (``status`` ``None``), or its status was written.

    ``target`` is its namespace and name.
    """

    target: tuple[str, str]
    workload_class: str
    status: ProfileStatus | None


Effect = PodCreated | PodUngated | PodLeaving | SlicesSet | WorkloadLeaving | StatusSet | ProfileSet
"""Effect of one action on the next snapshot."""

Kept = TypeVar(
    "Kept",
    PodCreated,
    PodUngated,
    PodLeaving,
    SlicesSet,
    WorkloadLeaving,
    StatusSet,
    ProfileSet,
)

EffectOf = Callable[[object], Effect | None]
"""Names the effect of an action; ``None`` where the snapshot need not change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """An effect and when it was assumed."""

    effect: Effect
    since: float


class Overlay:
    """Assumptions by kind of effect and target; the newest of a target counts."""

    def __init__(self, ttl_s: float = ASSUME_TTL_S) -> None:
        self._kept: dict[type[Effect], dict[Hashable, Assumption]] = {}
        self._ttl_s = ttl_s

    def __len__(self) -> int:
        return sum(len(kept) for kept in self._kept.values())

    def add(self, effect: Effect, now: float) -> None:
        """Assume an effect from now on."""
        kept = self._kept.setdefault(type(effect), {})
        kept[effect.target] = Assumption(effect=effect, since=now)

    def drop(self, effect: Effect) -> bool:
        """Forget an effect, but not a newer one on the same target; says whether it stood."""
        kept = self._kept.get(type(effect), {})
        found = kept.get(effect.target)
        if found is None or found.effect != effect:
            return False
        del kept[effect.target]
        return True

    def drop_target(self, kind: type[Effect], target: Hashable) -> bool:
        """Forget whatever is assumed of a target; says whether something was."""
        return self._kept.get(kind, {}).pop(target, None) is not None

    def get(self, kind: type[Kept], target: Hashable) -> tuple[Kept, float] | None:
        """The assumption about a target, and its time."""
        found = self._kept.get(kind, {}).get(target)
        if found is None or not isinstance(found.effect, kind):
            return None
        return found.effect, found.since

    def assumptions(self, target: Hashable, *kinds: type[Effect]) -> tuple[Assumption | None, ...]:
        """Assumptions about a target, by kind; the same objects as long as nothing changed."""
        return tuple(self._kept.get(kind, {}).get(target) for kind in kinds)

    def all(self, kind: type[Kept]) -> Iterator[Kept]:
        """Everything assumed of one kind."""
        for assumption in self._kept.get(kind, {}).values():
            if isinstance(assumption.effect, kind):
                yield assumption.effect

    def targets(self, *kinds: type[Effect]) -> set[str]:
        """Objects, by uid or name, of which something of these kinds is assumed."""
        return {
            target
            for kind in kinds
            for target in self._kept.get(kind, {})
            if isinstance(target, str)
        }

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()

    def expire(self, now: float, backpressure_ended_at: float = 0.0) -> int:
        """Forget what was not seen within the time to live; returns how many.

        Time before ``backpressure_ended_at`` does not count, up to ten times the time to live: what
        still waits to be written cannot be seen.
        """
        ttl_s = self._ttl_s if now - backpressure_ended_at >= self._ttl_s else 10 * self._ttl_s
        late = [
            (kept, target)
            for kept in self._kept.values()
            for target, assumption in kept.items()
            if now - assumption.since >= ttl_s
        ]
        for kept, target in late:
            del kept[target]
        return len(late)


RefusalKey = tuple[str, str, str]
"""Kind, namespace and name of the object that was not written."""


@dataclass(slots=True, kw_only=True)
class _Refusal:
    refused: RefusedWrite
    owner_uid: str
    generation: int
    tries: int
    until: float
    waiting: bool = True


MOST_CHARACTERS: Final = 1024
"""Kept of a refusal's text: every decision is sent all of them."""


class Refusals:
    """Writes that the API refused for a reason the user must see, and when to try again."""

    def __init__(self, first_s: float = BACKOFF_FIRST_S, most_s: float = BACKOFF_MOST_S) -> None:
        self._kept: dict[RefusalKey, _Refusal] = {}
        self._of: dict[str, set[RefusalKey]] = {}
        """By uid of the owner: every event of a workload asks for its own."""
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
        """End the waits that are over; returns how many. Long-idle records are forgotten."""
        ended = 0
        for key, refusal in list(self._kept.items()):
            if refusal.waiting and now >= refusal.until:
                refusal.waiting = False
                ended += 1
            elif not refusal.waiting and now >= refusal.until + 2 * self._most_s:
                self._forget(key)
        return ended

    def settle(self, key: RefusalKey, owner_uid: str) -> bool:
        """An object of this name and owner was seen; says whether a refusal was shown for it.

        Someone else's object of the same name settles nothing: it may be the very obstacle.
        """
        refusal = self._kept.get(key)
        if refusal is None or refusal.owner_uid != owner_uid:
            return False
        self._forget(key)
        return refusal.waiting

    def owner_changed(self, uid: str, generation: int | None) -> bool:
        """A workload has a new generation, or is gone (``None``): try again at once."""
        stale = [key for key in self._of.get(uid, ()) if self._kept[key].generation != generation]
        gone = [self._forget(key) for key in stale]
        return any(refusal is not None and refusal.waiting for refusal in gone)

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._of.clear()

    def shown(self) -> Mapping[RefusalKey, RefusedWrite]:
        """Writes that are refused now."""
        return {key: refusal.refused for key, refusal in self._kept.items() if refusal.waiting}

    def next_end(self) -> float | None:
        """When the next wait is over."""
        return min((r.until for r in self._kept.values() if r.waiting), default=None)
