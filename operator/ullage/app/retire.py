# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Takes every node out of service before an uninstall, and back in after an install.

Only this tells an uninstall from a restart: a retired agent removes what it put on its node,
a restarting one must leave it. Running containers are never touched.
"""

from __future__ import annotations

import asyncio
import time

import structlog

from ullage.api.contract import flag, objects, section, text
from ullage.api.reasons import ConditionType
from ullage.ports import GPU_NODE, ClusterPort, JsonObject, NotFound, Selector

log = structlog.get_logger("ullage.retire")


async def set_retired(cluster: ClusterPort, *, retired: bool) -> list[str]:
    """Write ``spec.retire`` on every GPUNode that says otherwise; returns their names."""
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
    """Wait until every agent says it has left its node; returns the names of those that did not."""
    deadline = time.monotonic() + timeout_s
    serving = await _still_serving(cluster)
    while serving and time.monotonic() < deadline:
        await asyncio.sleep(1.0)  # the API is asked again: an agent may answer at any time
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
    return silent


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
