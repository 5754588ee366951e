# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One store per stream: keys, stores and compares its objects.

A store reports for every change if a decision could see it; changes only relevant to its own
bookkeeping (a heartbeat, the echo of our own write) trigger no decision. An unreadable object never
stops its stream: the last good record stays and the error is counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

from ullage import ports
from ullage.api.readers import section, text
from ullage.api.reasons import ConditionType
from ullage.cluster.cache.overlay import Overlay, ProfileSet, seen_profile
from ullage.cluster.cache.refusals import NodeRefusals, Refusals
from ullage.cluster.codecs.objects import (
    Sharer,
    identity,
    optional_text,
    read_conditions,
    read_meta,
)
from ullage.cluster.projection.pod_template import Seen
from ullage.cluster.projection.policy import project_policy
from ullage.cluster.projection.rest import project_profile
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.profile import ProfileRecord
from ullage.cluster.records.snapshot import Unread
from ullage.cluster.values.readable import called, complaint
from ullage.ports import JsonObject

Key = TypeVar("Key", bound=Hashable)
Record = TypeVar("Record")


class Table(Generic[Key, Record]):
    """Records by key; copy-on-write: after ``view`` the next change makes a new dict."""

    def __init__(self) -> None:
        self._items: dict[Key, Record] = {}
        self._lent = False

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: Key) -> Record | None:
        """The record, if there is one."""
        return self._items.get(key)

    def keys(self) -> Iterable[Key]:
        """Every key."""
        return self._items.keys()

    def values(self) -> Iterable[Record]:
        """Every record."""
        return self._items.values()

    def put(self, key: Key, record: Record) -> None:
        """Add or replace a record."""
        self._unshare()
        self._items[key] = record

    def pop(self, key: Key) -> Record | None:
        """Remove a record."""
        if key not in self._items:
            return None
        self._unshare()
        return self._items.pop(key)

    def view(self) -> Mapping[Key, Record]:
        """The current records, unaffected by later changes."""
        self._lent = True
        return self._items

    def _unshare(self) -> None:
        if self._lent:
            self._items = dict(self._items)
            self._lent = False


class UnreadBook:
    """Problems of unreadable objects, and the conditions of these objects."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, Hashable], Unread] = {}

    def note(self, kind: str, key: Hashable, raw: JsonObject, text: str) -> bool:
        """Record an object's error, ``text`` empty if it is readable; True if it changed."""
        entry = _entry(kind, raw, text)
        if entry is None or not (entry.text or entry.condition):
            return self.forget(kind, key)
        if self._entries.get((kind, key)) == entry:
            return False
        self._entries[kind, key] = entry
        return True

    def forget(self, kind: str, key: Hashable) -> bool:
        """Drop an object that is deleted or readable; returns True if it was recorded."""
        return self._entries.pop((kind, key), None) is not None

    def keep(self, kind: str, keys: Set[Hashable]) -> bool:
        """Keep only entries of these objects of a kind; returns True if another was recorded."""
        gone = [entry for entry in self._entries if entry[0] == kind and entry[1] not in keys]
        for entry in gone:
            del self._entries[entry]
        return bool(gone)

    def shown(self) -> tuple[Unread, ...]:
        """Every entry, in a fixed order."""
        entries = self._entries.values()
        return tuple(
            sorted(entries, key=lambda entry: (entry.ref.kind, entry.ref.namespace, entry.ref.name))
        )


def _entry(kind: str, raw: JsonObject, text: str) -> Unread | None:
    try:
        meta = identity(raw)
        conditions = read_conditions(section(raw, "status"))
    except Exception:  # already counted when it could not be read
        return None
    ref = ObjectRef(kind=kind, namespace=meta.namespace, name=meta.name, uid=meta.uid)
    invalid = (condition for condition in conditions if condition.type == ConditionType.INVALID)
    return Unread(ref=ref, generation=meta.generation, text=text, condition=next(invalid, None))


BINDING_POLICY: Final = "default"
"""Name of the SchedulingPolicy in force."""
_DEFAULTS: Final = PolicyRecord()
"""A single object: caches across cycles depend on the identity of the policy."""


Complain = Callable[[str, str, str], None]
"""Called with a stream, one of its objects and the error."""


def _silent(stream: str, item: str, error: str) -> None:
    """Ignore the error."""


@dataclass(slots=True)
class Context:
    """Context that all stores share."""

    overlay: Overlay
    refusals: Refusals
    node_refusals: NodeRefusals = field(default_factory=NodeRefusals)
    share: Sharer = field(default_factory=Sharer)
    version: int = 1
    errors: Counter[str] = field(default_factory=Counter)
    messages: dict[str, str] = field(default_factory=dict)
    """The latest projection error of each stream."""
    unread: UnreadBook = field(default_factory=UnreadBook)
    complain: Complain = _silent
    seen: dict[tuple[str, str, str], Seen] = field(default_factory=dict)
    """By (kind, namespace, name)."""

    def touch(self) -> None:
        """Record a change visible in a snapshot."""
        self.version += 1

    def failed(self, stream: str, error: Exception, raw: JsonObject) -> None:
        """Count an unreadable object, with any kind of error."""
        self.errors[stream] += 1
        self.messages[stream] = complaint(error)
        self.complain(stream, called(raw), self.messages[stream])

    def remember(self, kind: str, raw: JsonObject) -> None:
        """Store the identity of an object that we apply."""
        meta = read_meta(raw)
        self.seen[kind, meta.namespace, meta.name] = Seen(
            uid=meta.uid,
            generation=meta.generation,
            owner_uid=meta.owner_uid,
        )


def uid_of(raw: JsonObject) -> str:
    """The object's uid: the key of what may be re-created under one name."""
    return text(section(raw, "metadata"), "uid")


def name_of(raw: JsonObject) -> str:
    """The object's name: the key of cluster-scoped objects."""
    return text(section(raw, "metadata"), "name")


def full_name_of(raw: JsonObject) -> tuple[str, str]:
    """Namespace and name: the key of namespaced objects."""
    metadata = section(raw, "metadata")
    return optional_text(metadata, "namespace"), text(metadata, "name")


class Store(ABC, Generic[Key]):
    """Processes one stream; subclasses handle one kind."""

    tells: str = ""
    """Kind whose unreadable objects get a condition; empty = they get none."""

    def __init__(self, stream: str, context: Context) -> None:
        self.stream = stream
        self.context = context

    def replace(self, items: Sequence[JsonObject], now: float) -> bool:
        """Process a full list: objects missing in it are deleted."""
        gone, listed = set(self.keys()), set[Hashable]()
        changed = False
        for raw in items:
            try:
                key = self.key(raw)
                gone.discard(key)
                listed.add(key)
            except Exception as error:  # of this object alone
                self.context.failed(self.stream, error, raw)
                continue
            changed |= self.upsert(raw, now)
        for key in gone:
            changed |= self.drop(key)
        if self.tells and self.context.unread.keep(self.tells, listed):
            self.context.touch()
        return changed

    def upsert(self, raw: JsonObject, now: float) -> bool:
        """Process an added or changed object."""
        try:
            changed = self.put(raw, now)
        except Exception as error:  # the last good record stays
            self.context.failed(self.stream, error, raw)
            return self._note(raw, complaint(error))
        return self._note(raw, "") or changed

    def remove(self, raw: JsonObject) -> bool:
        """Process a deletion; an object recreated under its name stays."""
        try:
            key, uid = self.key(raw), uid_of(raw)
        except Exception as error:  # of this object alone
            self.context.failed(self.stream, error, raw)
            return False
        if self.tells and self.context.unread.forget(self.tells, key):
            self.context.touch()
        return self.drop(key) if self.held_uid(key) in ("", uid) else False

    def _note(self, raw: JsonObject, text: str) -> bool:
        """Record an object's problem, empty if none; returns True if it changed."""
        if not self.tells:
            return False
        try:
            new = self.context.unread.note(self.tells, self.key(raw), raw, text)
        except Exception:  # it has no key, which is already counted
            return False
        if new:
            self.context.touch()
        return new

    @abstractmethod
    def __len__(self) -> int:
        """Number of stored objects."""

    @abstractmethod
    def keys(self) -> Iterable[Key]:
        """Key of every stored object."""

    @abstractmethod
    def key(self, raw: JsonObject) -> Key:
        """Key of an object."""

    def held_uid(self, key: Key) -> str:
        """Uid of the stored object, empty where the key has it already."""
        return ""

    @abstractmethod
    def put(self, raw: JsonObject, now: float) -> bool:
        """Store an object; returns True if a decision could see the change."""

    @abstractmethod
    def drop(self, key: Key) -> bool:
        """Remove an object; returns True if it was stored."""


class PlainStore(Store[Key], Generic[Key, Record]):
    """Objects without assumptions: stored as projected."""

    def __init__(
        self,
        stream: str,
        context: Context,
        key: Callable[[JsonObject], Key],
        project: Callable[[JsonObject], Record],
        uid: Callable[[Record], str] = lambda _: "",
    ) -> None:
        super().__init__(stream, context)
        self.table: Table[Key, Record] = Table()
        self._key = key
        self._project = project
        self._uid = uid

    def __len__(self) -> int:
        return len(self.table)

    def keys(self) -> Iterable[Key]:
        """Key of every stored object."""
        return self.table.keys()

    def key(self, raw: JsonObject) -> Key:
        """Key of an object."""
        return self._key(raw)

    def held_uid(self, key: Key) -> str:
        """Uid of the stored object, empty where the record has none."""
        held = self.table.get(key)
        return "" if held is None else self._uid(held)

    def put(self, raw: JsonObject, now: float) -> bool:
        """Store an object."""
        key, record = self._key(raw), self._project(raw)
        if self.table.get(key) == record:
            return False
        self.table.put(key, record)
        return self._changed()

    def drop(self, key: Key) -> bool:
        """Remove an object."""
        return self.table.pop(key) is not None and self._changed()

    def _changed(self) -> bool:
        """Record a change of snapshots; returns True when a decision could see it."""
        self.context.touch()
        return True


class ChildStore(PlainStore[tuple[str, str], Record]):
    """Deployments and Services: also indexed by name for the writer."""

    def __init__(
        self,
        stream: str,
        context: Context,
        kind: str,
        project: Callable[[JsonObject], Record],
        uid: Callable[[Record], str],
    ) -> None:
        super().__init__(stream, context, full_name_of, project, uid)
        self._kind = kind

    def put(self, raw: JsonObject, now: float) -> bool:
        """Store an object."""
        changed = super().put(raw, now)
        self.context.remember(self._kind, raw)
        return changed

    def drop(self, key: tuple[str, str]) -> bool:
        """Remove an object."""
        self.context.seen.pop((self._kind, *key), None)
        return super().drop(key)


class ProfileStore(PlainStore[tuple[str, str], ProfileRecord]):
    """WorkloadProfiles; our own status read back is no change."""

    tells = ports.WORKLOAD_PROFILE.kind

    def __init__(self, stream: str, context: Context) -> None:
        super().__init__(
            stream, context, full_name_of, project_profile, lambda profile: profile.uid
        )

    def put(self, raw: JsonObject, now: float) -> bool:
        """Store a profile."""
        key = self.key(raw)
        held = self.table.get(key)
        changed = super().put(raw, now)
        record = self.table.get(key)
        overlay = self.context.overlay
        assumed = overlay.get(ProfileSet, key)
        if record is None or assumed is None:
            return changed
        if held is None or assumed[0].status == record.status:
            overlay.drop_target(ProfileSet, key)
            self.context.touch()
            return held is None or (changed and replace(held, status=record.status) != record)
        return changed

    def drop(self, key: tuple[str, str]) -> bool:
        """Remove a profile."""
        self.context.overlay.drop_target(ProfileSet, key)
        return super().drop(key)

    def seen(self) -> Mapping[tuple[str, str], ProfileRecord]:
        """Every profile with its assumptions."""
        observed = self.table.view()
        changed = {}
        for assumed in self.context.overlay.all(ProfileSet):
            record = seen_profile(observed.get(assumed.target), assumed)
            if record is not None:
                changed[assumed.target] = record
        return {**observed, **changed} if changed else observed


class PolicyStore(PlainStore[str, PolicyRecord]):
    """SchedulingPolicies; the one named ``default`` is in force, the others get a condition."""

    tells = ports.SCHEDULING_POLICY.kind

    def __init__(self, stream: str, context: Context) -> None:
        super().__init__(
            stream, context, name_of, lambda raw: project_policy(raw)[1], lambda policy: policy.uid
        )

    def _note(self, raw: JsonObject, text: str) -> bool:
        """Record the policy in force; the others get another condition."""
        metadata = raw.get("metadata")
        binds = isinstance(metadata, dict) and metadata.get("name") == BINDING_POLICY
        return super()._note(raw, text) if binds else False

    def binding(self) -> PolicyRecord:
        """The policy in force, or the defaults."""
        return self.table.get(BINDING_POLICY) or _DEFAULTS

    def idle(self) -> tuple[PolicyRecord, ...]:
        """All others, by name."""
        others = (policy for policy in self.table.values() if policy.name != BINDING_POLICY)
        return tuple(sorted(others, key=lambda policy: policy.name))
