# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lists and watches for kopf: objects with external resources, from our own streams.

A reflector reads each kind once from the API server; kopf reads the reflector's data. So a change
of the leader costs no list, and the reflector handles watches that end, stall or are corrupt. Only
metadata is kept, the newest of each object: however fast a tenant edits, kopf sees as many changes
as it has time for. Must never keep an object without a handler.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ullage.api.readers import section
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.values.lives import FINALIZER, MOST, MOST_OF_NAMESPACE, finalizers_of
from ullage.cluster.values.streams import Sink, Stream
from ullage.ports import JsonObject, Kind

MOST_FINALIZERS: Final = 32
"""Foreign finalizers, beside which an object gets ours: they are kept unchanged."""
_KEPT: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "finalizers",
)

HasLife = Callable[[JsonObject], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One line of a watch: the newest state of an object, or its last."""

    body: JsonObject
    deleted: bool = False


@dataclass(slots=True)
class _MirroredKind:
    """Objects of one kind."""

    has_life: HasLife
    followed: bool
    """True when objects without external resources are shown, too."""
    bodies: dict[str, JsonObject] = field(default_factory=dict)
    """Shown objects, by uid."""
    of_namespace: Counter[str] = field(default_factory=Counter)
    unheld: dict[str, ObjectRef] = field(default_factory=dict)
    """Objects beyond the limit, which are not shown, by uid."""
    news: dict[str, Change] | None = None
    """Changes pending for the watch, by uid; ``None`` = nothing was listed, or watched."""
    wake: Callable[[], None] | None = None

    def has_room(self, namespace: str) -> bool:
        if namespace and self.of_namespace[namespace] >= MOST_OF_NAMESPACE:
            return False
        return len(self.bodies) < MOST

    def show(self, uid: str, change: Change) -> None:
        if self.news is not None:
            self.news[uid] = change  # keeps its position: edits do not delay it
        if self.wake is not None:
            self.wake()


class Mirror:
    """Written by the operator's loop, read by kopf's thread; a kind has one watch."""

    def __init__(
        self, kinds: Mapping[Kind, HasLife], followed: Container[Kind] = frozenset()
    ) -> None:
        """``kinds`` maps a kind to the test for objects with external resources.

        Objects of the kinds ``followed`` are shown without any, too.
        """
        self._lock = threading.Lock()
        self._kinds = {
            kind: _MirroredKind(has_life, followed=kind in followed)
            for kind, has_life in kinds.items()
        }

    @property
    def kinds(self) -> Sequence[Kind]:
        """Kinds that can be listed and watched."""
        return tuple(self._kinds)

    def tee(self, stream: Stream, sink: Sink) -> Sink:
        """The sink of a stream: it and, where the kind is mirrored, this mirror."""
        return _Tee(self, sink) if stream.kind in self._kinds else sink

    # -- fed -----------------------------------------------------------------------------------

    def replace(self, kind: Kind, items: Sequence[JsonObject]) -> None:
        """Process a full list: adds, changes and removals follow from it."""
        kept = self._kinds[kind]
        # a list may be decoded item by item, and be larger than fits decoded
        shown = {_uid(item): body for item in items if (body := _shown(kind, kept, item))}
        with self._lock:
            for uid in (kept.bodies.keys() | kept.unheld.keys()) - shown.keys():
                _remove(kept, uid)
            for uid, body in shown.items():
                _upsert(kind, kept, uid, body)

    def upsert(self, kind: Kind, item: JsonObject) -> None:
        """Process an added or changed object."""
        kept, uid = self._kinds[kind], _uid(item)
        body = _shown(kind, kept, item)
        with self._lock:
            if body is None:
                _remove(kept, uid)
            else:
                _upsert(kind, kept, uid, body)

    def remove(self, kind: Kind, item: JsonObject) -> None:
        """Process the deletion of an object."""
        with self._lock:
            _remove(self._kinds[kind], _uid(item))

    # -- read ----------------------------------------------------------------------------------

    def listed(self, kind: Kind) -> list[JsonObject]:
        """All objects of a kind; a watch continues from here.

        Raises:
            KeyError: the kind is not mirrored.
        """
        with self._lock:
            kept = self._kinds[kind]
            kept.news = {}
            return list(kept.bodies.values())

    def watch(self, kind: Kind, wake: Callable[[], None]) -> None:
        """Call back after each change of a kind, in any thread.

        Raises:
            KeyError: the kind is not mirrored.
        """
        with self._lock:
            self._kinds[kind].wake = wake

    def change(self, kind: Kind) -> Change | None:
        """The next change that was not shown yet; ``None`` = there is none now.

        Raises:
            LookupError: the kind must be listed first, or is not mirrored.
        """
        with self._lock:
            news = self._kinds[kind].news
            if news is None:
                raise LookupError(f"{kind.plural} were not listed")
            return news.pop(next(iter(news))) if news else None

    def repeat(self, uid: str) -> None:
        """Show an object once more, unchanged."""
        with self._lock:
            for kept in self._kinds.values():
                if uid in kept.bodies:
                    kept.show(uid, Change(body=kept.bodies[uid]))

    def rest(self) -> None:
        """End all watches: no changes are kept."""
        with self._lock:
            for kept in self._kinds.values():
                kept.news = kept.wake = None

    def unheld(self) -> list[ObjectRef]:
        """Objects whose ends are unordered: there are too many of their kind or namespace."""
        with self._lock:
            return [ref for kept in self._kinds.values() for ref in kept.unheld.values()]


def _upsert(kind: Kind, kept: _MirroredKind, uid: str, body: JsonObject) -> None:
    metadata = section(body, "metadata")
    name, namespace = (str(metadata.get(key, "")) for key in ("name", "namespace"))
    before = kept.bodies.get(uid)
    if before is None and FINALIZER not in finalizers_of(body) and not kept.has_room(namespace):
        kept.unheld[uid] = ObjectRef(kind=kind.kind, namespace=namespace, name=name, uid=uid)
        return
    kept.unheld.pop(uid, None)
    if before is None:
        kept.of_namespace[namespace] += 1
    if before != body:
        kept.bodies[uid] = body
        kept.show(uid, Change(body=body))


def _remove(kept: _MirroredKind, uid: str) -> None:
    kept.unheld.pop(uid, None)
    body = kept.bodies.pop(uid, None)
    if body is None:
        return
    metadata = section(body, "metadata")
    kept.of_namespace.subtract([str(metadata.get("namespace", ""))])
    kept.of_namespace = +kept.of_namespace  # a namespace without objects is dropped
    # kopf ends the timers of deleted objects, and needs nothing else
    last = {"deletionTimestamp": "", **metadata}
    kept.show(uid, Change(body={**body, "metadata": last}, deleted=True))


class _Tee:
    """Passes a stream's objects to a sink, then to the mirror."""

    def __init__(self, mirror: Mirror, sink: Sink) -> None:
        self._mirror = mirror
        self._sink = sink

    def replace(self, stream: Stream, items: Sequence[JsonObject], now: float) -> bool:
        changed = self._sink.replace(stream, items, now)
        self._mirror.replace(stream.kind, items)
        return changed

    def upsert(self, stream: Stream, item: JsonObject, now: float) -> bool:
        changed = self._sink.upsert(stream, item, now)
        self._mirror.upsert(stream.kind, item)
        return changed

    def remove(self, stream: Stream, item: JsonObject, now: float) -> bool:
        changed = self._sink.remove(stream, item, now)
        self._mirror.remove(stream.kind, item)
        return changed


def _uid(item: JsonObject) -> str:
    metadata = item.get("metadata")
    return str(metadata.get("uid", "")) if isinstance(metadata, Mapping) else ""


def _shown(kind: Kind, kept: _MirroredKind, item: JsonObject) -> JsonObject | None:
    """The part of an object for kopf: metadata that ends depend on; ``None`` = none.

    Annotations are excluded: tenants write them, and they can be a quarter of a megabyte.
    """
    raw, finalizers = item.get("metadata"), finalizers_of(item)
    if not isinstance(raw, dict):
        return None
    ours, crowded = FINALIZER in finalizers, len(finalizers) > MOST_FINALIZERS
    life = kept.has_life(item) and (ours or not crowded)
    if not (ours or life or kept.followed):
        return None
    metadata = {name: raw[name] for name in _KEPT if name in raw}
    if crowded and not ours:
        metadata["finalizers"] = []
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "life": life}
