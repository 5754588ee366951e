# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Versioned objects with a history: what etcd and the watch cache are to the real server."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from fakes.apiserver.errors import Refusal, expired
from fakes.apiserver.resources import Resource

Key = tuple[str, str]
"""(namespace, name); the namespace of a cluster-scoped object is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One version of an object; never changed in place."""

    obj: dict[str, Any]
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One write: nothing before = created, ``deleted`` = the last state of what is gone."""

    version: int
    key: Key
    before: Stored | None
    after: Stored
    deleted: bool = False


class Store:
    """All objects of all kinds under one version counter."""

    def __init__(self, history: int = 50_000) -> None:
        self.version = 1
        self.compacted = 0
        self._history_length = history
        self._tables: defaultdict[Resource, dict[Key, Stored]] = defaultdict(dict)
        self._history: defaultdict[Resource, deque[Change]] = defaultdict(deque)
        self._dependents: defaultdict[str, set[tuple[Resource, Key]]] = defaultdict(set)
        self._uids: set[str] = set()
        self.listeners: defaultdict[Resource, set[asyncio.Queue[Any]]] = defaultdict(set)

    def get(self, resource: Resource, key: Key) -> Stored | None:
        return self._tables[resource].get(key)

    def items(self, resource: Resource, namespace: str = "") -> Iterator[tuple[Key, Stored]]:
        """Current objects in the order of their keys."""
        table = self._tables[resource]
        return ((k, table[k]) for k in sorted(table) if not namespace or k[0] == namespace)

    def at(self, resource: Resource, version: int) -> list[tuple[Key, Stored]]:
        """Objects as they were at a version; 410 when it is compacted."""
        if version < self.compacted:
            raise expired(version, self.compacted)
        if version > self.version:
            raise Refusal(504, f"Too large resource version: {version}, current: {self.version}")
        table = dict(self._tables[resource])
        for change in reversed(self._history[resource]):
            if change.version <= version:
                break
            if change.before is None:
                table.pop(change.key, None)
            else:
                table[change.key] = change.before
        return sorted(table.items())

    def put(self, resource: Resource, key: Key, obj: dict[str, Any]) -> Stored:
        """Store a new version; ``obj`` belongs to the store from now on."""
        return self._record(resource, key, obj, deleted=False)

    def remove(self, resource: Resource, key: Key) -> Stored:
        """Take an object out; its last state carries the version of the removal."""
        obj = orjson.loads(self._tables[resource][key].raw)
        return self._record(resource, key, obj, deleted=True)

    def _record(
        self, resource: Resource, key: Key, obj: dict[str, Any], *, deleted: bool
    ) -> Stored:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        table = self._tables[resource]
        before = table.get(key)
        stored = Stored(obj=obj, raw=orjson.dumps(obj))
        self._index(resource, key, before, add=False)
        if deleted:
            del table[key]
            self._uids.discard(obj["metadata"]["uid"])
        else:
            table[key] = stored
            self._uids.add(obj["metadata"]["uid"])
            self._index(resource, key, stored, add=True)
        change = Change(version=self.version, key=key, before=before, after=stored, deleted=deleted)
        history = self._history[resource]
        history.append(change)
        if len(history) > self._history_length:
            self.compacted = max(self.compacted, history.popleft().version)
        for queue in self.listeners[resource]:
            queue.put_nowait(change)
        return stored

    def _index(self, resource: Resource, key: Key, stored: Stored | None, *, add: bool) -> None:
        for ref in (stored.obj["metadata"].get("ownerReferences") or ()) if stored else ():
            dependents = self._dependents[ref["uid"]]
            (dependents.add if add else dependents.discard)((resource, key))

    def dependents(self, uid: str) -> list[tuple[Resource, Key]]:
        """Objects with an owner reference to this uid."""
        return sorted(self._dependents.get(uid, ()), key=lambda pair: (pair[0].plural, pair[1]))

    def has_uid(self, uid: str) -> bool:
        """Whether an object with this uid is stored."""
        return uid in self._uids

    def since(self, resource: Resource, version: int) -> list[Change]:
        """Changes after a version; 410 when some are forgotten."""
        if version < self.compacted:
            raise expired(version, self.compacted)
        return [change for change in self._history[resource] if change.version > version]

    def compact(self) -> None:
        """Forget all history: a watch from before now is answered with 410."""
        self.compacted = self.version
        for history in self._history.values():
            history.clear()
