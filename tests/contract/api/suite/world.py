# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a case of the agreement suite works with, and the list of all cases.

A case asserts how an API server answers the product's own client. It runs on the fake and on a
real server; where they differ, the fake is wrong.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast

from ullage import ports
from ullage.kube.client import APPLY, K8sCluster
from ullage.ports import GPU_NODE, POD, JsonObject, Kind, NotFound, Selector, WatchEvent

Json = dict[str, Any]


@dataclass(kw_only=True)
class World:
    """One server and a corner of it that belongs to the running case."""

    cluster: K8sCluster
    namespace: str
    patience_s: float = 60.0
    """How long something asynchronous on the server may take."""
    tag: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    _made: list[tuple[Kind, str]] = field(default_factory=list)

    def name(self, stem: str) -> str:
        """A name that no other case uses."""
        return f"{stem}-{self.tag}"

    async def create(self, kind: Kind, body: Json) -> Json:
        """Create, and remember for the clean-up."""
        made = await self.cluster.create(kind, body, namespace=self.place(kind))
        self._made.append((kind, cast("Json", made["metadata"])["name"]))
        return cast("Json", made)

    async def apply(
        self, kind: Kind, name: str, body: Json, *, manager: str = "one", subresource: str = ""
    ) -> Json:
        """Server-side apply with force."""
        self._made.append((kind, name))
        done = await self.cluster.apply(
            kind,
            name,
            {**body, "metadata": {"name": name, **body.get("metadata", {})}},
            namespace=self.place(kind),
            manager=manager,
            subresource=subresource,
        )
        return cast("Json", done)

    async def apply_gently(self, kind: Kind, name: str, body: Json, *, manager: str) -> Json:
        """Server-side apply without force: conflicts are refused."""
        place = f"/namespaces/{self.namespace}" if kind.namespaced else ""
        done = await self.cluster._transport.write(
            "PATCH",
            f"/apis/{kind.api_version}{place}/{kind.plural}/{name}",
            {"apiVersion": kind.api_version, "kind": kind.kind, **body, "metadata": {"name": name}},
            query=[("fieldManager", manager)],
            content_type=APPLY,
        )
        return cast("Json", done)

    async def get(self, kind: Kind, name: str) -> Json:
        return cast("Json", await self.cluster.get(kind, name, namespace=self.place(kind)))

    async def patch(self, kind: Kind, name: str, *steps: Json) -> Json:
        done = await self.cluster.json_patch(kind, name, steps, namespace=self.place(kind))
        return cast("Json", done)

    async def delete(self, kind: Kind, name: str, **how: Any) -> None:
        await self.cluster.delete(kind, name, namespace=self.place(kind), **how)

    def place(self, kind: Kind) -> str:
        return self.namespace if kind.namespaced else ""

    async def listed(
        self, kind: Kind, selector: Selector, *, limit: int = 500, version: str = ""
    ) -> tuple[list[str], str]:
        """Names of a list and its version."""
        names: list[str] = []
        at = ""
        pages = self.cluster.list_paged(kind, selector, limit=limit, resource_version=version)
        async with aclosing(pages):
            async for page in pages:
                at = page.resource_version
                names += [cast("Json", item["metadata"])["name"] for item in page.items]
        return names, at

    async def gone(self, kind: Kind, name: str) -> None:
        """Wait until an object is no longer there."""
        async with asyncio.timeout(self.patience_s):
            while True:
                try:
                    await self.get(kind, name)
                except NotFound:
                    return
                await asyncio.sleep(0.02)

    async def events(
        self, kind: Kind, selector: Selector, version: str, count: int
    ) -> list[WatchEvent]:
        """The first events after a version, bookmarks left out."""
        seen: list[WatchEvent] = []
        stream = self.cluster.watch(kind, selector, resource_version=version, timeout_s=10)
        async with aclosing(stream), asyncio.timeout(self.patience_s):
            async for event in stream:
                if event.type != "BOOKMARK":
                    seen.append(event)
                if len(seen) == count:
                    break
        return seen

    async def clean(self) -> None:
        """Delete what the case made."""
        for kind, name in reversed(self._made):
            try:
                obj = await self.get(kind, name)
                if obj["metadata"].get("finalizers"):
                    await self.patch(kind, name, {"op": "remove", "path": "/metadata/finalizers"})
                await self.delete(kind, name, grace_s=0)
            except NotFound:
                continue


Case = Callable[[World], Awaitable[None]]
CASES: list[Case] = []


def case(function: Case) -> Case:
    """Make a function a case of the suite; its name says the behaviour."""
    CASES.append(function)
    return function


def a_profile(*utils: float) -> Json:
    """A WorkloadProfile with a row for each utilisation, all of one key."""
    rows = [{"device": "d", "share": 100, "smUtil": util} for util in utils]
    return {"spec": {"class": "c", "solo": rows}}


def a_slice(uid: str = "pod-1", *, percent: int = 50, epoch: int = 1, **more: Any) -> Json:
    """One entry of ``GPUNode.spec.slices``."""
    return {
        "podUID": uid,
        "container": "main",
        "index": 0,
        "podNamespace": "somewhere",
        "podName": "pod",
        "gpu": "GPU-1",
        "percent": percent,
        "memoryMiB": 1024,
        "epoch": epoch,
        **more,
    }


def a_pod(name: str, *, gates: tuple[str, ...] = ("ullage.dev/placement",), **spec: Any) -> Json:
    """A gated pod that never runs."""
    return {
        "metadata": {"name": name, "labels": {"ullage.dev/managed": "true"}},
        "spec": {
            "schedulingGates": [{"name": gate} for gate in gates],
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "none.invalid/none"}],
            **spec,
        },
    }


def a_job(name: str, **spec: Any) -> Json:
    """A suspended TrainingJob."""
    container = {"name": "main", "image": "none.invalid/none"}
    return {
        "metadata": {"name": name},
        "spec": {
            "suspend": True,
            "template": {"spec": {"containers": [container]}},
            **spec,
        },
    }


def owners(obj: JsonObject) -> dict[tuple[str, str, str], Json]:
    """managedFields by (manager, operation, subresource)."""
    metadata = cast("Json", obj["metadata"])
    return {
        (e["manager"], e["operation"], e.get("subresource", "")): e["fieldsV1"]
        for e in metadata["managedFields"]
    }


def version(obj: JsonObject) -> str:
    found: str = cast("Json", obj["metadata"])["resourceVersion"]
    return found


def uid(obj: JsonObject) -> str:
    found: str = cast("Json", obj["metadata"])["uid"]
    return found


__all__ = [
    "CASES",
    "GPU_NODE",
    "POD",
    "Case",
    "Json",
    "World",
    "a_job",
    "a_pod",
    "a_profile",
    "a_slice",
    "case",
    "owners",
    "ports",
    "uid",
    "version",
]
