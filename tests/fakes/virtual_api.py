# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The fake API server without sockets, so that whole operators run on virtual time.

``VirtualApi`` is the server and how it leaves and comes back; each replica has a ``Client``, the
product's port on it, which may be cut off alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import orjson

from fakes.apiserver import FakeApiServer
from fakes.apiserver import subresources as sub
from fakes.apiserver.errors import Refusal
from fakes.apiserver.reading import discovery
from fakes.apiserver.resources import Resource
from fakes.apiserver.selectors import selection
from fakes.apiserver.verbs import Target
from fakes.apiserver.watching import Cut, WatchQuery
from fakes.virtual_time import LoopClock
from ullage.kube.answers import error_from_status, error_of
from ullage.kube.self_test import ACCESS_REVIEW, SUBJECT_REVIEW
from ullage.ports import (
    LEASE,
    POD,
    ApiError,
    JsonObject,
    JsonPatch,
    Kind,
    Page,
    Selector,
    Unavailable,
    WatchEvent,
)

LATENCY_S = 0.005


class VirtualApi:
    """One API server; ``server`` is for looking in and for acting behind the clients' backs."""

    def __init__(self) -> None:
        self.server = FakeApiServer(wall=LoopClock().now)
        self.core = self.server._core
        self.away = False
        self.denied = False
        """The self-test finds a right missing."""
        self.by_kind = {(r.kind.group, r.plural): r for r in self.core.resources}

    def leave(self) -> None:
        """The server dies: connections are refused, open ones are cut."""
        self.away = True
        self.core.watches.end_all()

    def come_back(self, *, lose_history: bool = True) -> None:
        self.away = False
        if lose_history:
            self.server.compact()

    def resource(self, kind: Kind) -> Resource:
        return self.by_kind[kind.group, kind.plural]


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One write, at the moment it was sent."""

    at: float
    verb: str
    kind: str
    name: str
    arrived: bool


@dataclass
class Client:
    """The product's port of one replica."""

    api: VirtualApi
    cut_off: bool = False
    lose_answers: bool = False
    """Writes are done and their answers lost."""
    on_write: Callable[[Kind], None] = lambda _: None
    """Called as each write but those of the Lease is sent."""
    writes: list[Sent] = field(default_factory=list)
    source: str = "no credentials"

    def _check(self) -> None:
        if self.api.away or self.cut_off:
            raise Unavailable(0, "connection refused")

    async def _ask(self, what: Callable[[], Any]) -> Any:
        await asyncio.sleep(LATENCY_S)
        self._check()
        try:
            found = what()
        except Refusal as refusal:
            raise error_of(
                refusal.status,
                refusal.message,
                refusal.reason,
                retry_after_s=refusal.retry_after_s,
            ) from refusal
        await asyncio.sleep(LATENCY_S)
        self._check()
        return found

    async def _write(
        self, verb: str, kind: Kind, name: str, what: Callable[[], Any]
    ) -> dict[str, Any]:
        if kind is not LEASE:
            self.on_write(kind)
        sent_at, error, answer = asyncio.get_running_loop().time(), None, {}
        try:
            answer = await self._ask(what)
        except ApiError as caught:
            error = caught
        arrived = error is None or error.status != 0
        self.writes.append(Sent(at=sent_at, verb=verb, kind=kind.kind, name=name, arrived=arrived))
        if error is not None:
            raise error
        if self.lose_answers and kind is not LEASE:
            raise Unavailable(0, "the answer was lost")
        return answer

    def _target(self, kind: Kind, namespace: str, name: str, subresource: str = "") -> Target:
        return Target(
            resource=self.api.resource(kind),
            namespace=namespace if kind.namespaced else "",
            name=name,
            subresource=subresource,
        )

    # Reading.

    async def list_paged(
        self, kind: Kind, selector: Selector, *, limit: int = 500, resource_version: str = ""
    ) -> AsyncGenerator[Page]:
        query: dict[str, str] = dict(_selected(selector))
        if resource_version:
            query |= {"resourceVersion": resource_version, "resourceVersionMatch": "Exact"}
        resource = self.api.resource(kind)
        raw = await self._ask(
            lambda: self.api.core.lists.answer(resource, selector.namespace, query)
        )
        found = orjson.loads(raw)
        yield Page(items=found["items"], resource_version=found["metadata"]["resourceVersion"])

    async def watch(
        self,
        kind: Kind,
        selector: Selector,
        *,
        resource_version: str,
        timeout_s: int = 45,
        on_open: Callable[[], None] | None = None,
    ) -> AsyncGenerator[WatchEvent]:
        await self._ask(lambda: None)
        if on_open is not None:
            on_open()
        chosen = _selected(selector)
        query = WatchQuery(
            resource=self.api.resource(kind),
            namespace=selector.namespace,
            selected=selection(chosen.get("labelSelector", ""), chosen.get("fieldSelector", "")),
            version=resource_version,
            bookmarks=True,
            timeout_s=float(timeout_s),
        )
        try:
            async with aclosing(self.api.core.watches.stream(query)) as lines:
                async for line in lines:
                    event = orjson.loads(line)
                    if event["type"] == "ERROR":
                        raise error_from_status(event["object"])
                    if self.cut_off:
                        raise Cut
                    yield WatchEvent(type=event["type"], object=event["object"])
        except Cut:
            raise Unavailable(0, "connection reset") from None

    async def get(self, kind: Kind, name: str, *, namespace: str = "") -> JsonObject:
        target = self._target(kind, namespace, name)
        raw = await self._ask(lambda: self.api.core.verbs.live(target).raw)
        return orjson.loads(raw)  # type: ignore[no-any-return]

    async def served(self, api_version: str) -> frozenset[str]:
        found = await self._ask(lambda: discovery(f"/apis/{api_version}", self.api.core.resources))
        return frozenset(entry["name"] for entry in (found or {"resources": []})["resources"])

    # Writing.

    async def create(self, kind: Kind, body: JsonObject, *, namespace: str = "") -> JsonObject:
        if kind == SUBJECT_REVIEW:
            return await self._ask(lambda: sub.self_subject_review("ullage"))  # type: ignore[no-any-return]
        if kind == ACCESS_REVIEW:
            return await self._ask(lambda: {"status": {"allowed": not self.api.denied}})  # type: ignore[no-any-return]
        made = _typed(kind, body)
        resource, verbs = self.api.resource(kind), self.api.core.verbs
        return await self._write(
            "create",
            kind,
            made["metadata"]["name"],
            lambda: _read(verbs.create(resource, namespace, made, "ullage-operator", strict=True)),
        )

    async def update(
        self, kind: Kind, name: str, body: JsonObject, *, namespace: str = ""
    ) -> JsonObject:
        target, made = self._target(kind, namespace, name), _typed(kind, body)
        verbs = self.api.core.verbs
        return await self._write(
            "update", kind, name, lambda: _read(verbs.update(target, made, "ullage-operator"))
        )

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
        target, made = self._target(kind, namespace, name, subresource), _typed(kind, body)
        verbs = self.api.core.verbs
        return await self._write(
            "apply", kind, name, lambda: _read(verbs.apply(target, made, manager, force=True))
        )

    async def json_patch(
        self, kind: Kind, name: str, patch: JsonPatch, *, namespace: str = ""
    ) -> JsonObject:
        target, steps = self._target(kind, namespace, name), orjson.loads(orjson.dumps(list(patch)))
        verbs = self.api.core.verbs
        return await self._write(
            "patch",
            kind,
            name,
            lambda: _read(verbs.patch(target, steps, "ullage-operator", merge=False)),
        )

    async def scale(
        self, kind: Kind, name: str, replicas: int, *, namespace: str = "", resource_version: str
    ) -> JsonObject:
        target = self._target(kind, namespace, name, "scale")
        body = {"metadata": {"resourceVersion": resource_version}, "spec": {"replicas": replicas}}
        verbs = self.api.core.verbs
        return await self._write(
            "scale",
            kind,
            name,
            lambda: _read(sub.change_scale(verbs, target, body, "ullage-operator")),
        )

    async def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        grace_s: int | None = None,
    ) -> None:
        target, options = self._target(kind, namespace, name), _options(uid, grace_s)
        await self._write(
            "delete", kind, name, lambda: _read(self.api.core.verbs.delete(target, options))
        )

    async def evict(
        self, name: str, *, namespace: str, uid: str, grace_s: int | None = None
    ) -> None:
        target = self._target(POD, namespace, name, "eviction")
        body = {"deleteOptions": _options(uid, grace_s)}
        core = self.api.core
        await self._write(
            "evict", POD, name, lambda: sub.evict(core.verbs, core.faults, target, body)
        )


def _selected(selector: Selector) -> Mapping[str, str]:
    pairs = {"labelSelector": selector.labels, "fieldSelector": selector.fields}
    return {name: value for name, value in pairs.items() if value}


def _typed(kind: Kind, body: JsonObject) -> dict[str, Any]:
    made = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
    return orjson.loads(orjson.dumps(made))  # type: ignore[no-any-return]


def _options(uid: str, grace_s: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {"preconditions": {"uid": uid}} if uid else {}
    return options if grace_s is None else {**options, "gracePeriodSeconds": grace_s}


def _read(stored: Any) -> dict[str, Any]:
    return orjson.loads(stored.raw)  # type: ignore[no-any-return]
