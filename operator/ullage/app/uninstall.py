# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Work around an uninstall: nodes are retired before it, finalizers removed after it.

Only ``spec.retire`` marks an uninstall, not a restart: a retired agent cleans up its node, a
restarting one must not. Running containers are never touched. After an install nodes serve again.
Without an operator no object with its finalizer would end.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import structlog

from ullage.api.labels import GATE
from ullage.api.readers import flag, objects, section, text
from ullage.api.reasons import ConditionType
from ullage.app.times import FINALIZER_LOOK_S, RETIRE_LOOK_S
from ullage.cluster.values.lives import FINALIZER, KINDS_HELD, finalizers_of
from ullage.cluster.values.streams import PODS
from ullage.ports import GPU_NODE, ClusterPort, Invalid, JsonObject, Kind, NotFound, Selector

log = structlog.get_logger("ullage.retire")

NAMED: Final = 20
"""Pods named in the log; the rest is a number."""
LOOKS: Final = 3
"""Consecutive checks without a finalizer: a terminating operator may add one more."""


async def set_retired(cluster: ClusterPort, *, retired: bool) -> list[str]:
    """Write ``spec.retire`` on every GPUNode with another value; returns their names."""
    changed = []
    async for page in cluster.list_paged(GPU_NODE, Selector()):
        for node in page.items:
            name = text(section(node, "metadata"), "name")
            if flag(section(node, "spec"), "retire") == retired:
                continue
            patch = [{"op": "add", "path": "/spec/retire", "value": retired}]
            try:
                await cluster.json_patch(GPU_NODE, name, patch)
            except NotFound:
                continue
            changed.append(name)
    return changed


async def wait_retired(cluster: ClusterPort, *, timeout_s: float) -> list[str]:
    """Wait until every agent reports it has left its node; returns the names of the others."""
    deadline = time.monotonic() + timeout_s
    serving = await _still_serving(cluster)
    while serving and time.monotonic() < deadline:
        await asyncio.sleep(
            RETIRE_LOOK_S
        )  # the API is asked again: an agent may answer at any time
        serving = await _still_serving(cluster)
    return serving


async def retire(cluster: ClusterPort, *, timeout_s: float) -> list[str]:
    """Retire every node; returns the names of the nodes that did not answer in time."""
    asked = await set_retired(cluster, retired=True)
    log.info("nodes asked to retire", nodes=asked)
    silent = await wait_retired(cluster, timeout_s=timeout_s)
    if silent:
        log.warning(
            "these nodes did not answer; remove /var/run/cdi/ullage.dev-*.json and "
            "/var/lib/ullage there by hand",
            nodes=silent,
        )
    else:
        log.info("all nodes are retired")
    waiting = await gated_pods(cluster)
    if waiting:
        log.warning(
            "pods wait for a device and stay gated until Ullage is installed again; delete them, or"
            " run them without the labels of ullage.dev",
            count=len(waiting),
            pods=waiting[:NAMED],
        )
    return silent


async def gated_pods(cluster: ClusterPort) -> list[str]:
    """Pods that still have our gate, by namespace and name."""
    names = []
    async for page in cluster.list_paged(PODS.kind, PODS.selector):
        for pod in page.items:
            gates = objects(section(pod, "spec"), "schedulingGates")
            if any(gate.get("name") == GATE for gate in gates):
                metadata = section(pod, "metadata")
                names.append(f"{text(metadata, 'namespace', '')}/{text(metadata, 'name')}")
    return sorted(names)


async def _still_serving(cluster: ClusterPort) -> list[str]:
    serving = []
    async for page in cluster.list_paged(GPU_NODE, Selector()):
        serving += [
            text(section(node, "metadata"), "name") for node in page.items if not _retired(node)
        ]
    return serving


def _retired(node: JsonObject) -> bool:
    conditions = objects(section(node, "status"), "conditions")
    return any(
        text(c, "type", "") == ConditionType.RETIRED and text(c, "status", "") == "True"
        for c in conditions
    )


async def release(cluster: ClusterPort) -> list[str]:
    """Remove the finalizer everywhere; returns the names of the objects, sorted.

    Runs until it has found none for a while; call it with a time limit.

    Raises:
        ApiError: the API server rejects a request or does not answer.
    """
    released: set[str] = set()
    clean = 0
    while clean < LOOKS:
        holding = [
            (kind, item)
            for kind in KINDS_HELD
            async for page in cluster.list_paged(kind, Selector())
            for item in page.items
            if FINALIZER in finalizers_of(item)
        ]
        for kind, item in holding:
            released |= await _let_go(cluster, kind, item)
        clean = 0 if holding else clean + 1
        if clean < LOOKS:
            await asyncio.sleep(FINALIZER_LOOK_S)
    return sorted(released)


async def _let_go(cluster: ClusterPort, kind: Kind, item: JsonObject) -> set[str]:
    metadata = section(item, "metadata")
    name, namespace = text(metadata, "name"), text(metadata, "namespace", "")
    index = finalizers_of(item).index(FINALIZER)
    path = f"/metadata/finalizers/{index}"
    patch = [{"op": "test", "path": path, "value": FINALIZER}, {"op": "remove", "path": path}]
    try:
        await cluster.json_patch(kind, name, patch, namespace=namespace)
    except (NotFound, Invalid):
        return set()  # deleted, or changed meanwhile: the next check follows
    return {f"{kind.plural} {namespace}/{name}"}
