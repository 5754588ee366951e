# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What became of a node request: its node comes, its agent speaks, members hold it, or it failed.

A placeholder that no node serves in time is a failed launch of its pool. A node that came is none
while its agent starts: large images take longer to pull than machines take to boot.
"""

from __future__ import annotations

from typing import Final

from ullage.cluster.records.snapshot import PodRecord, Snapshot

ORDER_S: Final = 600.0
"""How long a node may take to come (our choice; clouds rarely need five minutes)."""
AGENT_S: Final = 3600.0
"""How long the agent of a node that came may take to speak (our choice)."""


def serves(snapshot: Snapshot, order: PodRecord) -> bool:
    """Whether members of its job hold slices on the node that a request brought."""
    record = snapshot.gpu_nodes.get(order.node)
    pods = snapshot.pods
    return record is not None and any(
        part.key.pod_uid in pods and pods[part.key.pod_uid].owner.uid == order.owner.uid
        for part in record.desired
    )


def failed(snapshot: Snapshot, order: PodRecord, now: float, grace_s: float = 0.0) -> bool:
    """Whether a request brought no node in time, or one that the members do not take.

    Args:
        snapshot: The snapshot.
        order: The placeholder pod.
        now: Seconds since the epoch.
        grace_s: For so much longer it has not.
    """
    if now < order.created + ORDER_S + grace_s:
        return False
    if not order.node:
        return True
    if serves(snapshot, order):
        return False
    # a gang waits for the last of its nodes
    alike = (
        pod
        for pod in snapshot.pods.values()
        if pod.order == order.order and pod.owner.uid == order.owner.uid
    )
    return not any(_starts(snapshot, pod, now) for pod in alike)


def _starts(snapshot: Snapshot, order: PodRecord, now: float) -> bool:
    """Whether the node of a request is there, and its agent has not spoken yet."""
    node, record = snapshot.nodes.get(order.node), snapshot.gpu_nodes.get(order.node)
    silent = record is None or not record.heartbeat
    return node is not None and node.managed and silent and now < order.created + AGENT_S
