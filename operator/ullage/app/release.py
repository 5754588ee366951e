# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Takes the finalizers of the operator away when no operator runs: nothing would end otherwise."""

from __future__ import annotations

import asyncio
from typing import Final

from ullage.api.readers import section, text
from ullage.app.times import FINALIZER_LOOK_S
from ullage.cluster.values.lives import FINALIZER, KINDS_HELD, finalizers_of
from ullage.ports import (
    ClusterPort,
    Invalid,
    JsonObject,
    Kind,
    NotFound,
    Selector,
)

LOOKS: Final = 3
"""Looks in a row that find none: an operator that is about to end may add one more."""


async def release(cluster: ClusterPort) -> list[str]:
    """Take the finalizer away wherever it is; returns the names of the objects, sorted.

    Runs until it has found none for a while; give it a time limit.

    Raises:
        ApiError: the API server refuses or does not answer.
    """
    released: set[str] = set()
    clean = 0
    while clean < LOOKS:
        held = [(kind, item) for kind in KINDS_HELD for item in await _held(cluster, kind)]
        for kind, item in held:
            released |= await _let_go(cluster, kind, item)
        clean = 0 if held else clean + 1
        if clean < LOOKS:
            await asyncio.sleep(FINALIZER_LOOK_S)
    return sorted(released)


async def _held(cluster: ClusterPort, kind: Kind) -> list[JsonObject]:
    found: list[JsonObject] = []
    async for page in cluster.list_paged(kind, Selector()):
        found += [item for item in page.items if FINALIZER in finalizers_of(item)]
    return found


async def _let_go(cluster: ClusterPort, kind: Kind, item: JsonObject) -> set[str]:
    metadata = section(item, "metadata")
    name, namespace = text(metadata, "name"), text(metadata, "namespace", "")
    index = finalizers_of(item).index(FINALIZER)
    path = f"/metadata/finalizers/{index}"
    patch = [{"op": "test", "path": path, "value": FINALIZER}, {"op": "remove", "path": path}]
    try:
        await cluster.json_patch(kind, name, patch, namespace=namespace)
    except (NotFound, Invalid):
        return set()  # gone, or changed meanwhile: the next look sees
    return {f"{kind.plural} {namespace}/{name}"}
