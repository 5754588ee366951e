# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A port to the API server that dies at a chosen write, as a killed process would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from ullage import ports
from ullage.kube.client import K8sCluster
from ullage.ports import JsonObject, JsonPatch, Kind, Page, Selector, WatchEvent


@dataclass
class Mortal:
    """A port that works for some writes and then never answers again.

    What was sent before has its answer by then; ``sent`` says whether the last request still
    reaches the server.
    """

    port: K8sCluster
    writes_left: int = 1_000_000
    sent: bool = False
    under_way: int = 0
    died: asyncio.Event = field(default_factory=asyncio.Event)
    done: list[tuple[str, str, str]] = field(default_factory=list)

    async def _write(self, verb: str, kind: Kind, name: str, send: Callable[[], Any]) -> Any:
        if self.died.is_set():
            await asyncio.Event().wait()
        self.writes_left -= 1
        self.done.append((verb, kind.kind, name))
        if self.writes_left < 0:
            while self.under_way:
                await asyncio.sleep(0)
            if self.sent and not self.died.is_set():
                await send()
            self.died.set()
            await asyncio.Event().wait()
        self.under_way += 1
        try:
            return await send()
        finally:
            self.under_way -= 1

    def list_paged(
        self, kind: Kind, selector: Selector, *, limit: int = 500
    ) -> AsyncIterator[Page]:
        return self.port.list_paged(kind, selector, limit=limit)

    def watch(
        self, kind: Kind, selector: Selector, *, resource_version: str, timeout_s: int = 45
    ) -> AsyncIterator[WatchEvent]:
        return self.port.watch(
            kind, selector, resource_version=resource_version, timeout_s=timeout_s
        )

    async def get(self, kind: Kind, name: str, *, namespace: str = "") -> JsonObject:
        return await self.port.get(kind, name, namespace=namespace)

    async def create(self, kind: Kind, body: JsonObject, *, namespace: str = "") -> JsonObject:
        name = str(dict(body)["metadata"]["name"])  # type: ignore[index]
        send = lambda: self.port.create(kind, body, namespace=namespace)  # noqa: E731
        return await self._write("create", kind, name, send)  # type: ignore[no-any-return]

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
        send = lambda: self.port.apply(  # noqa: E731
            kind, name, body, namespace=namespace, subresource=subresource, manager=manager
        )
        verb = f"apply/{subresource}" if subresource else "apply"
        return await self._write(verb, kind, name, send)  # type: ignore[no-any-return]

    async def json_patch(
        self, kind: Kind, name: str, patch: JsonPatch, *, namespace: str = ""
    ) -> JsonObject:
        send = lambda: self.port.json_patch(kind, name, patch, namespace=namespace)  # noqa: E731
        return await self._write("patch", kind, name, send)  # type: ignore[no-any-return]

    async def scale(
        self, kind: Kind, name: str, replicas: int, *, namespace: str = "", resource_version: str
    ) -> JsonObject:
        send = lambda: self.port.scale(  # noqa: E731
            kind, name, replicas, namespace=namespace, resource_version=resource_version
        )
        return await self._write("scale", kind, name, send)  # type: ignore[no-any-return]

    async def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        grace_s: int | None = None,
    ) -> None:
        send = lambda: self.port.delete(kind, name, namespace=namespace, uid=uid)  # noqa: E731
        await self._write("delete", kind, name, send)

    async def evict(
        self, name: str, *, namespace: str, uid: str, grace_s: int | None = None
    ) -> None:
        send = lambda: self.port.evict(  # noqa: E731
            name, namespace=namespace, uid=uid, grace_s=grace_s
        )
        await self._write("evict", ports.POD, name, send)
