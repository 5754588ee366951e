# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What kopf lists and watches: objects with a life outside of themselves, out of our own streams.

The API server is asked once for each kind, by a reflector; kopf reads what the reflector has read.
So a change of the leader costs no list, and a watch that ends, stalls or says nonsense is the
reflector's to mend. Only metadata is kept, the newest of each object: however fast a tenant edits,
kopf sees as many changes as it has time for. Must never hold an object that no handler cares for.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ullage.api.contract import section
from ullage.cluster.values.lives import FINALIZER, finalizers_of
from ullage.cluster.values.streams import Sink, Stream
from ullage.ports import JsonObject, Kind

MOST: Final = 1_000
"""Objects of a kind that have lives; the others are placed as ever and end in any order."""
MOST_OF_NAMESPACE: Final = 200
MOST_FINALIZERS: Final = 32
"""Of others, beside which an object gets ours: they are kept here as they are."""
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

    version: int
    body: JsonObject
    deleted: bool = False


@dataclass(slots=True)
class _Kept:
    """Objects of one kind, and when each changed."""

    has_life: HasLife
    followed: bool
    """Objects are shown without a life, too."""
    changes: dict[str, Change] = field(default_factory=dict)
    """By uid, in the order of their versions; the deleted stay until a watch has shown them."""
    of_namespace: Counter[str] = field(default_factory=Counter)
    forgotten: int = 0
    """Version of the newest deletion that is remembered no more."""

    def admits(self, uid: str, namespace: str) -> bool:
        known = self.changes.get(uid)
        if known is not None and not known.deleted:
            return True
        if namespace and self.of_namespace[namespace] >= MOST_OF_NAMESPACE:
            return False
        return self.of_namespace.total() < MOST


class Mirror:
    """Fed by the operator's loop, read by kopf's thread."""

    def __init__(
        self, kinds: Mapping[Kind, HasLife], followed: Container[Kind] = frozenset()
    ) -> None:
        """``kinds`` says of each kind which objects have a life.

        Objects of the kinds ``followed`` are shown without one, too.
        """
        self._lock = threading.Lock()
        self._kinds = {
            kind: _Kept(has_life, followed=kind in followed) for kind, has_life in kinds.items()
        }
        self._version = 0
        self._listeners: list[Callable[[], None]] = []

    @property
    def kinds(self) -> Sequence[Kind]:
        """Kinds that can be listed and watched."""
        return tuple(self._kinds)

    def tee(self, stream: Stream, sink: Sink) -> Sink:
        """The sink of a stream: it and, where the kind is mirrored, this mirror."""
        return _Tee(self, sink) if stream.kind in self._kinds else sink

    # -- fed -----------------------------------------------------------------------------------

    def replace(self, kind: Kind, items: Sequence[JsonObject]) -> None:
        """A full list: adds, changes and removals follow from it."""
        kept = self._kinds[kind]
        # a list may be decoded item by item, and be larger than fits decoded
        shown = {_uid(item): body for item in items if (body := _shown(kind, kept, item))}
        with self._lock:
            for uid in [uid for uid in kept.changes if uid not in shown]:
                self._remove(kept, uid)
            for uid, body in shown.items():
                self._upsert(kept, uid, body)
        self._notify()

    def upsert(self, kind: Kind, item: JsonObject) -> None:
        """An object was added or changed."""
        kept, uid = self._kinds[kind], _uid(item)
        body = _shown(kind, kept, item)
        with self._lock:
            known = uid in kept.changes
            if body is None:
                self._remove(kept, uid)
            else:
                self._upsert(kept, uid, body)
        if known or body is not None:
            self._notify()

    def remove(self, kind: Kind, item: JsonObject) -> None:
        """An object was deleted."""
        with self._lock:
            self._remove(self._kinds[kind], _uid(item))
        self._notify()

    # -- read ----------------------------------------------------------------------------------

    def listed(self, kind: Kind) -> tuple[list[JsonObject], int]:
        """All objects of a kind, and the version from which a watch goes on.

        Raises:
            KeyError: the kind is not mirrored.
        """
        with self._lock:
            kept = self._kinds[kind]
            bodies = [change.body for change in kept.changes.values() if not change.deleted]
            return bodies, self._version

    def since(self, kind: Kind, version: int) -> tuple[list[Change], int] | None:
        """What changed after a version, and the version now; ``None`` = list again.

        Deletions that are shown are forgotten: a kind has one watch.

        Raises:
            KeyError: the kind is not mirrored.
        """
        with self._lock:
            kept = self._kinds[kind]
            if version < kept.forgotten:
                return None
            found = [change for change in kept.changes.values() if change.version > version]
            for change in found:
                if change.deleted:
                    del kept.changes[_uid(change.body)]
                    kept.forgotten = change.version
            return found, self._version

    def listen(self, notify: Callable[[], None]) -> Callable[[], None]:
        """Call back after each change, in any thread; returns what ends that."""
        with self._lock:
            self._listeners.append(notify)

        def end() -> None:
            with self._lock:
                self._listeners.remove(notify)

        return end

    # -- parts ---------------------------------------------------------------------------------

    def _upsert(self, kept: _Kept, uid: str, body: JsonObject) -> None:
        namespace = str(section(body, "metadata").get("namespace", ""))
        if FINALIZER not in finalizers_of(body) and not kept.admits(uid, namespace):
            self._remove(kept, uid)
            return
        before = kept.changes.pop(uid, None)
        if before is not None and not before.deleted and before.body == body:
            kept.changes[uid] = before
            return
        if before is None or before.deleted:
            kept.of_namespace[namespace] += 1
        self._version += 1
        kept.changes[uid] = Change(version=self._version, body=body)

    def _remove(self, kept: _Kept, uid: str) -> None:
        before = kept.changes.get(uid)
        if before is None or before.deleted:
            return
        del kept.changes[uid]
        metadata = before.body["metadata"]
        assert isinstance(metadata, dict)
        # kopf ends the timers of what is being deleted, and asks nothing else
        last = metadata | {"deletionTimestamp": metadata.get("deletionTimestamp") or ""}
        kept.of_namespace.subtract([metadata.get("namespace", "")])
        kept.of_namespace = +kept.of_namespace  # a namespace without objects is not remembered
        self._version += 1
        if self._listeners:
            kept.changes[uid] = Change(
                version=self._version, body={**before.body, "metadata": last}, deleted=True
            )
        else:  # a watch to come begins with a list
            kept.forgotten = self._version

    def _notify(self) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for notify in listeners:
            notify()


class _Tee:
    """Hands what a stream sees to a sink, then to the mirror."""

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


def _shown(kind: Kind, kept: _Kept, item: JsonObject) -> JsonObject | None:
    """What kopf may see of an object: metadata that lives depend on; ``None`` = nothing.

    No annotation is: tenants write them, and they can be a quarter of a megabyte.
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
