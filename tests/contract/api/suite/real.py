# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A corner of a real API server for one case, cleaned up behind it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from contract.api.suite.world import World
from ullage.kube.client import K8sCluster
from ullage.kube.credentials import find_credentials
from ullage.kube.transport import TransportLimits
from ullage.ports import Kind, NotFound

NAMESPACE = Kind(group="", version="v1", plural="namespaces", kind="Namespace", namespaced=False)
ACCOUNT = Kind(
    group="", version="v1", plural="serviceaccounts", kind="ServiceAccount", namespaced=True
)
SLOW = TransportLimits(write_s=20.0)
"""A busy test machine may take its time; the suite is about answers."""


@asynccontextmanager
async def real_world(kubeconfig: str) -> AsyncIterator[World]:
    """A namespace of its own on the cluster of this kubeconfig; our CRDs are installed there."""
    cluster = K8sCluster(await find_credentials(kubeconfig), limits=SLOW)
    name = f"contract-{uuid.uuid4().hex[:8]}"
    try:
        await cluster.create(NAMESPACE, {"metadata": {"name": name}})
        try:
            await _account(cluster, name)
            world = World(cluster=cluster, namespace=name, patience_s=60.0)
            try:
                yield world
            finally:
                await world.clean()
        finally:
            await cluster.delete(NAMESPACE, name)
    finally:
        await cluster.close()


async def _account(cluster: K8sCluster, namespace: str) -> None:
    """Pods are refused until the namespace has its service account."""
    async with asyncio.timeout(60):
        while True:
            try:
                await cluster.get(ACCOUNT, "default", namespace=namespace)
            except NotFound:
                await asyncio.sleep(0.05)
            else:
                return
