# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A ``ClusterPort`` in memory: remembers every call, stores objects, fails as told.

Far simpler than the fake API server: no selectors, no ownership, no validation. For tests of how
the writer behaves, not of what the API does.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from ullage.ports import (
    ApiError,
    Conflict,
    JsonObject,
    JsonPatch,
    Kind,
    NotFound,
    Page,
    Selector,
    WatchEvent,
)

Stored = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request that reached the server."""

    verb: str
    kind: str
    namespace: str
    name: str
    subresource: str = ""
    body: Any = None
    uid: str = ""
    at: float = 0.0


@dataclass
class Failure:
    """How some coming requests fail."""

    error: ApiError
    verb: str = ""
    kind: str = ""
    name: str = ""
    times: int = 1
    after: bool = False
    """The write is done and its answer lost."""

    def takes(self, call: Call) -> bool:
        wanted = (self.verb, self.kind, self.name)
        return self.times > 0 and all(
            want in ("", have)
            for want, have in zip(wanted, (call.verb, call.kind, call.name), strict=True)
        )


@dataclass
class FakeCluster:
    """The server; ``latency_s`` is what every request takes."""

    latency_s: float = 0.0
    calls: list[Call] = field(default_factory=list)
    objects: dict[tuple[str, str, str], Stored] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    busy: int = 0
    most_busy: int = 0
    version: int = 100

    def fail(self, error: ApiError, **how: Any) -> Failure:
        failure = Failure(error, **how)
        self.failures.append(failure)
        return failure

    def verbs(self) -> list[tuple[str, str]]:
        """Verb and name of every call, in order."""
        return [(call.verb, call.name) for call in self.calls]

    def put(self, kind: Kind, body: Stored) -> Stored:
        """Store an object behind the writer's back."""
        self.version += 1
        meta = body.setdefault("metadata", {})
        meta.setdefault("uid", f"uid-{meta['name']}")
        meta["resourceVersion"] = str(self.version)
        meta.setdefault("generation", 1)
        self.objects[kind.kind, meta.get("namespace", ""), meta["name"]] = body
        return body

    async def _arrive(self, call: Call) -> Failure | None:
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            await asyncio.sleep(self.latency_s)
        finally:
            self.busy -= 1
        self.calls.append(call)
        for failure in self.failures:
            if failure.takes(call):
                failure.times -= 1
                if not failure.after:
                    raise failure.error
                return failure
        return None

    def _call(self, verb: str, kind: Kind, namespace: str, name: str, **more: Any) -> Call:
        at = asyncio.get_running_loop().time()
        return Call(verb=verb, kind=kind.kind, namespace=namespace, name=name, at=at, **more)

    def _held(self, kind: Kind, namespace: str, name: str) -> Stored:
        held = self.objects.get((kind.kind, namespace, name))
        if held is None:
            raise NotFound(404, f"{kind.plural} {name} not found", "NotFound")
        return held

    async def list_paged(
        self, kind: Kind, selector: Selector, *, limit: int = 500
    ) -> AsyncIterator[Page]:
        items = [held for (word, _, _), held in self.objects.items() if word == kind.kind]
        yield Page(items=copy.deepcopy(items), resource_version=str(self.version))

    async def watch(
        self, kind: Kind, selector: Selector, *, resource_version: str, timeout_s: int = 45
    ) -> AsyncIterator[WatchEvent]:
        for event in ():
            yield event

    async def get(self, kind: Kind, name: str, *, namespace: str = "") -> JsonObject:
        await self._arrive(self._call("get", kind, namespace, name))
        return copy.deepcopy(self._held(kind, namespace, name))

    async def create(self, kind: Kind, body: JsonObject, *, namespace: str = "") -> JsonObject:
        made: Stored = copy.deepcopy(dict(body))
        name = made["metadata"]["name"]
        lost = await self._arrive(self._call("create", kind, namespace, name, body=made))
        if (kind.kind, namespace, name) in self.objects:
            raise Conflict(409, f'{kind.plural} "{name}" already exists', "AlreadyExists")
        self.put(kind, made)
        if lost:
            raise lost.error
        return copy.deepcopy(made)

    async def update(
        self, kind: Kind, name: str, body: JsonObject, *, namespace: str = ""
    ) -> JsonObject:
        raise AssertionError("the writer never replaces whole objects")

    async def apply(
        self,
        kind: Kind,
        name: str,
        body: JsonObject,
        *,
        namespace: str = "",
        subresource: str = "",
        manager: str,
    ) -> JsonObject:
        sent: Stored = copy.deepcopy(dict(body))
        call = self._call("apply", kind, namespace, name, subresource=subresource, body=sent)
        lost = await self._arrive(call)
        held = self.objects.get((kind.kind, namespace, name))
        meta = sent["metadata"]
        if held is None:
            if meta.get("uid"):
                raise Conflict(409, "uid precondition on an object that is gone", "Conflict")
            held = self.put(kind, {"metadata": {"name": name, "namespace": namespace}})
        version = meta.get("resourceVersion")
        if version and version != held["metadata"]["resourceVersion"]:
            raise Conflict(409, "the object has been modified", "Conflict")
        part = "status" if subresource else "spec"
        if part == "spec" and held.get("spec") != sent.get("spec"):
            held["metadata"]["generation"] += 1
        held[part] = sent.get(part)
        for kept in ("ownerReferences", "labels"):
            if kept in meta:
                held["metadata"][kept] = meta[kept]
        self.version += 1
        held["metadata"]["resourceVersion"] = str(self.version)
        if lost:
            raise lost.error
        return copy.deepcopy(held)

    async def json_patch(
        self, kind: Kind, name: str, patch: JsonPatch, *, namespace: str = ""
    ) -> JsonObject:
        await self._arrive(self._call("patch", kind, namespace, name, body=list(patch)))
        held = self._held(kind, namespace, name)
        for operation in patch:
            if operation["op"] == "add" and str(operation["path"]).count("/") == 1:
                held[str(operation["path"])[1:]] = operation["value"]
        return copy.deepcopy(held)

    async def scale(
        self, kind: Kind, name: str, replicas: int, *, namespace: str = "", resource_version: str
    ) -> JsonObject:
        await self._arrive(self._call("scale", kind, namespace, name, body={"replicas": replicas}))
        held = self._held(kind, namespace, name)
        if held["metadata"].get("resourceVersion") != resource_version:
            raise Conflict(409, f"{name} has been modified", "Conflict")
        held["spec"]["replicas"] = replicas
        self.version += 1
        held["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(held)

    async def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        grace_s: int | None = None,
    ) -> None:
        await self._arrive(self._call("delete", kind, namespace, name, uid=uid))
        self._held(kind, namespace, name)
        del self.objects[kind.kind, namespace, name]

    async def evict(
        self, name: str, *, namespace: str, uid: str, grace_s: int | None = None
    ) -> None:
        at = asyncio.get_running_loop().time()
        call = Call(verb="evict", kind="Pod", namespace=namespace, name=name, uid=uid, at=at)
        await self._arrive(call)
