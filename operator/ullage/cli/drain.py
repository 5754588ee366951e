# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage drain``: sharing work leaves a node as before a termination.

Writes one taint of the Node, against the version read; the operator moves the work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ullage.cli.look import inside, snapshot_of
from ullage.cluster.projection.notice import DRAIN_KEY
from ullage.cluster.values.streams import GPU_NODES, PODS
from ullage.ports import GPU_NODE, NODE, ApiError, ClusterPort, Selector
from ullage.scheduling.lifecycle.taints import taint_patch

DRAINING = "Requested"
"""Value of the taint."""
_MOST_TRIES = 5
_CHANGED = (409, 422)
"""Answers to a patch of an outdated version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOnNode:
    """Work that is still on a node.

    Attributes:
        pods: Pods with slices there, as ``namespace/name``, sorted.
    """

    pods: tuple[str, ...]

    def text(self, node: str) -> str:
        """Text to print."""
        if not self.pods:
            return f"{node} holds no slice any more"
        many = "1 pod has" if len(self.pods) == 1 else f"{len(self.pods)} pods have"
        return f"{node}: {many} slices: {', '.join(self.pods)}"


async def has_agent(cluster: ClusterPort, node: str) -> bool:
    """True if Ullage has a node with this name.

    Raises:
        ApiError: the API server refused or did not answer.
    """
    async for page in cluster.list_paged(GPU_NODE, Selector(fields=f"metadata.name={node}")):
        if page.items:
            return True
    return False


async def mark(cluster: ClusterPort, node: str, *, drain: bool) -> bool:
    """Set the taint that requests a drain, or remove it; true if anything changed.

    Raises:
        ApiError: the API server refused or did not answer, or the Node kept changing.
    """
    for tries_left in reversed(range(_MOST_TRIES)):
        patch = taint_patch(await cluster.get(NODE, node), DRAINING if drain else "", DRAIN_KEY)
        if patch is None:
            return False
        try:
            await cluster.json_patch(NODE, node, patch)
        except ApiError as error:
            if error.status not in _CHANGED or not tries_left:
                raise
        else:
            return True
    raise AssertionError("the last try returns or raises")


async def left_on(cluster: ClusterPort, node: str) -> HeldOnNode:
    """Work that is still on a node, desired or observed.

    Pods say which reservation they took: desired slices may bear its id, where observed ones bear
    the uid of the pod.

    Raises:
        ApiError: the API server refused or did not answer.
    """
    pods = replace(PODS, selector=replace(PODS.selector, fields=f"spec.nodeName={node}"))
    snapshot = await snapshot_of(cluster, (*inside((GPU_NODES,), "", node), pods))
    record = snapshot.gpu_nodes.get(node)
    if record is None:
        return HeldOnNode(pods=())
    wanted = {f"{part.pod_namespace}/{part.pod_name}" for part in record.desired}
    known = {part.key for part in record.desired}
    gone = {f"a pod of uid {part.key.pod_uid}" for part in record.observed if part.key not in known}
    return HeldOnNode(pods=tuple(sorted(wanted | gone)))
