# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The fake API server as tests use it: started on loopback, looked into and bent from outside."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import orjson
from aiohttp import web

from fakes.apiserver.access import Access
from fakes.apiserver.errors import expired
from fakes.apiserver.faults import Failure, Faults
from fakes.apiserver.http import Core, Endpoint, Seen
from fakes.apiserver.patches import merge_patch
from fakes.apiserver.reading import Lists
from fakes.apiserver.resources import RESOURCES, Resource
from fakes.apiserver.schema import Schemas
from fakes.apiserver.store import Key, Store
from fakes.apiserver.verbs import Target, Verbs
from fakes.apiserver.watching import Watches
from ullage.ports import Kind


class FakeApiServer:
    """Async context manager; everything but the HTTP side is synchronous and immediate."""

    def __init__(
        self,
        *,
        resources: tuple[Resource, ...] = RESOURCES,
        history: int = 50_000,
        collect_garbage: bool = True,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``resources`` says what is served; ``wall`` the time in seconds since the epoch."""
        self.faults = Faults()
        self.access = Access()
        self._wall = wall
        self._collect_garbage = collect_garbage
        self._store = Store(history)
        verbs = Verbs(self._store, Schemas(), self.timestamp)
        verbs.removed = self._removed
        self._core = Core(
            resources=resources,
            store=self._store,
            verbs=verbs,
            lists=Lists(self._store, self.faults),
            watches=Watches(self._store, self.faults),
            access=self.access,
            faults=self.faults,
        )
        self._by_kind = {(r.kind.group, r.plural): r for r in resources}
        self._web: web.Server | None = None
        self._listener: asyncio.Server | None = None
        self._port = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """Address of the server; stays the same over restarts."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def writes(self) -> Counter[tuple[str, str, str, int]]:
        """Write requests by (verb, plural, subresource, status); apply is a verb of its own."""
        return self._core.writes

    @property
    def requests(self) -> deque[Seen]:
        """Every answered request, oldest first."""
        return self._core.seen

    @property
    def version(self) -> int:
        """The newest resource version."""
        return self._store.version

    @property
    def open_watches(self) -> int:
        """How many watches are open now."""
        return self._core.watches.open

    def write_count(self, verb: str = "", plural: str = "") -> int:
        """Writes that succeeded, all or of one verb or type."""
        return sum(
            count
            for (did, what, _, status), count in self.writes.items()
            if status < 300 and verb in ("", did) and plural in ("", what)
        )

    # Life.

    async def start(self) -> None:
        """Listen; after a stop on the same port as before."""
        self._web = web.Server(
            Endpoint(self._core).handle, handler_cancellation=True, access_log=None
        )
        self._listener = await asyncio.get_running_loop().create_server(
            self._web, "127.0.0.1", self._port, reuse_address=True
        )
        self._port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse connections and cut the open ones."""
        assert self._listener is not None
        assert self._web is not None
        self._listener.close()
        for connection in self._web.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await self._web.shutdown(0)
        await self._listener.wait_closed()

    async def restart(self, *, lose_history: bool = True) -> None:
        """Stop and start; the objects stay, the watch cache may not."""
        await self.stop()
        if lose_history:
            self._store.compact()
        await self.start()

    # Looking in, and acting behind the clients' back. Rules, faults and counters do not apply.

    def objects(self, kind: Kind, namespace: str = "") -> list[dict[str, Any]]:
        """Copies of the objects of a kind, by namespace and name."""
        return [
            orjson.loads(stored.raw)
            for _, stored in self._store.items(self._resource(kind), namespace)
        ]

    def get(self, kind: Kind, name: str, namespace: str = "") -> dict[str, Any] | None:
        """A copy of one object."""
        stored = self._store.get(self._resource(kind), (namespace, name))
        return orjson.loads(stored.raw) if stored else None

    def put(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        """Store an object as given, status included; uid and times are filled in."""
        obj: dict[str, Any] = orjson.loads(orjson.dumps(body))
        meta = obj.setdefault("metadata", {})
        key: Key = (meta.get("namespace", "") if kind.namespaced else "", meta["name"])
        before = self._store.get(self._resource(kind), key)
        old = before.obj["metadata"] if before else {}
        meta.setdefault("uid", old.get("uid", str(uuid.uuid4())))
        meta.setdefault("creationTimestamp", old.get("creationTimestamp", self.timestamp()))
        meta.setdefault("generation", old.get("generation", 1))
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        return orjson.loads(self._store.put(self._resource(kind), key, obj).raw)  # type: ignore[no-any-return]

    def edit(
        self, kind: Kind, name: str, change: dict[str, Any], namespace: str = ""
    ) -> dict[str, Any]:
        """Merge-patch a stored object, status included; another spec is another generation."""
        stored = self._store.get(self._resource(kind), (namespace, name))
        assert stored is not None, f"no {kind.plural} {namespace}/{name}"
        before = orjson.loads(stored.raw)
        obj = merge_patch(before, change)
        if obj.get("spec") != before.get("spec") and "generation" not in change.get("metadata", {}):
            obj["metadata"]["generation"] = before["metadata"].get("generation", 0) + 1
        return orjson.loads(self._store.put(self._resource(kind), (namespace, name), obj).raw)  # type: ignore[no-any-return]

    def remove(self, kind: Kind, name: str, namespace: str = "") -> None:
        """Take an object away at once; its dependents follow."""
        stored = self._store.remove(self._resource(kind), (namespace, name))
        self._removed(stored.obj["metadata"]["uid"])

    # Bending.

    def fail(self, status: int, **how: Any) -> Failure:
        """Answer coming requests with this status; see :class:`Failure`."""
        return self.faults.fail(status, **how)

    def compact(self) -> None:
        """Forget history: lists and watches from before now get 410."""
        self._store.compact()

    def expire_watches(self) -> None:
        """End every open watch with an ERROR line of code 410, and forget history."""
        self._store.compact()
        self._core.watches.end_all(expired(0, self._store.compacted))

    def cut_watches(self) -> None:
        """Drop the connection of every open watch."""
        self._core.watches.end_all()

    def bookmarks_every(self, seconds: float) -> None:
        """Period of bookmarks on watches opened from now on."""
        self._core.watches.bookmark_s = seconds

    def timestamp(self) -> str:
        """Now, as the API writes it, with the skew of the knob."""
        moment = datetime.fromtimestamp(self._wall() + self.faults.clock_skew_s, UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def _resource(self, kind: Kind) -> Resource:
        return self._by_kind[kind.group, kind.plural]

    def _removed(self, uid: str) -> None:
        if self._collect_garbage:
            asyncio.get_running_loop().call_soon(self._collect, uid)

    def _collect(self, uid: str) -> None:
        """Delete what the removed object owned and no one else does."""
        for resource, key in self._store.dependents(uid):
            stored = self._store.get(resource, key)
            if stored is None:
                continue
            refs = stored.obj["metadata"].get("ownerReferences") or []
            if any(self._lives(ref["uid"]) for ref in refs):
                continue
            target = Target(resource=resource, namespace=key[0], name=key[1])
            self._core.verbs.delete(target, {})

    def _lives(self, uid: str) -> bool:
        return self._store.has_uid(uid)
