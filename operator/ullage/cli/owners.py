# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Finds adopted pods by the owner that creates them: ``deploy/web``, ``job/batch``.

Owners are followed inside the namespace, with the user's own credentials.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ullage import ports
from ullage.api.readers import section
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.codecs.objects import Controller, controller_of, identity
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.values import streams
from ullage.ports import ClusterPort, JsonObject, Kind, NotFound, Selector

WORDS: Final[Mapping[str, str]] = {
    word: kind
    for kind, words in {
        "Pod": ("po", "pod", "pods"),
        "Deployment": ("deploy", "deployment", "deployments"),
        "ReplicaSet": ("rs", "replicaset", "replicasets"),
        "StatefulSet": ("sts", "statefulset", "statefulsets"),
        "DaemonSet": ("ds", "daemonset", "daemonsets"),
        "Job": ("job", "jobs"),
        "CronJob": ("cj", "cronjob", "cronjobs"),
        "JobSet": ("jobset", "jobsets"),
        "PyTorchJob": ("pytorchjob", "pytorchjobs"),
        "RayCluster": ("raycluster", "rayclusters"),
    }.items()
    for word in words
}
"""Kinds by the words that kubectl accepts for them."""
_BETWEEN: Final[Mapping[str, Kind]] = {"ReplicaSet": ports.REPLICA_SET, "Job": ports.JOB}
"""Kinds that create pods for a higher kind."""


async def pods_of(cluster: ClusterPort, kind: str, namespace: str, name: str) -> Snapshot:
    """A snapshot of the adopted pods of one owner.

    Args:
        cluster: Cluster with the user's own credentials.
        kind: A kind of ``WORDS``.
        namespace: Namespace of owner and pods.
        name: Name of the owner.

    Raises:
        ApiError: the API server refused or did not answer.
    """
    raws: list[JsonObject] = []
    selector = replace(streams.PODS.selector, namespace=namespace)
    async for page in cluster.list_paged(ports.POD, selector):
        raws += page.items
    above: dict[tuple[str, str], Controller | None] = {}
    state = ClusterState(lambda _: None)  # no assumptions here
    pods = [raw for raw in raws if await _belongs(cluster, raw, (kind, name), above)]
    now = time.time()
    state.replace(streams.PODS, pods, now)
    async for page in cluster.list_paged(ports.WORKLOAD_PROFILE, Selector(namespace=namespace)):
        for raw in page.items:
            state.upsert(streams.WORKLOAD_PROFILES, raw, now)
    return state.freeze(now)


async def predecessors(cluster: ClusterPort, namespace: str, name: str) -> list[str]:
    """Running pods of other revisions of the Deployment that created a pod; by name.

    Args:
        cluster: Cluster with the user's own credentials.
        namespace: Namespace of the pod.
        name: Name of the pod.

    Raises:
        ApiError: the API server refused or did not answer.
    """
    try:
        pod = await cluster.get(ports.POD, name, namespace=namespace)
    except NotFound:
        return []
    holder = identity(pod).controller
    deployment = await _above(cluster, holder, namespace) if holder is not None else None
    if holder is None or deployment is None or deployment.kind != "Deployment":
        return []
    above: dict[tuple[str, str], Controller | None] = {}
    running: list[str] = []
    selector = replace(streams.PODS.selector, namespace=namespace, fields="status.phase=Running")
    async for page in cluster.list_paged(ports.POD, selector):
        for raw in page.items:
            meta = identity(raw)
            of_another = meta.controller is not None and meta.controller.name != holder.name
            if of_another and not meta.deleting:
                wanted = (deployment.kind, deployment.name)
                running += [meta.name] if await _belongs(cluster, raw, wanted, above) else []
    return sorted(running)


async def _belongs(
    cluster: ClusterPort,
    raw: JsonObject,
    wanted: tuple[str, str],
    above: dict[tuple[str, str], Controller | None],
) -> bool:
    """True if a pod is, or was created for, the requested owner."""
    meta = identity(raw)
    if ("Pod", meta.name) == wanted:
        return True
    holder = meta.controller
    if holder is None:
        return False
    at = (holder.kind, holder.name)
    if at == wanted:
        return True
    if at not in above:
        above[at] = await _above(cluster, holder, meta.namespace)
    higher = above[at]
    return higher is not None and (higher.kind, higher.name) == wanted


async def _above(cluster: ClusterPort, holder: Controller, namespace: str) -> Controller | None:
    """The controller of a controller, ``None`` without one."""
    kind = _BETWEEN.get(holder.kind)
    if kind is None:
        return None
    try:
        held = await cluster.get(kind, holder.name, namespace=namespace)
    except NotFound:
        return None
    return controller_of(section(held, "metadata"))
