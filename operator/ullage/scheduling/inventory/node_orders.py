# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Outcome of a node request: its node arrives, its agent reports, members use it, or it fails.

A placeholder without a node in time is a failed launch of its pool. A node that arrived is no
failure while it boots or its agent starts (large images take longer to pull than machines take to
boot), nor where it is as the pool declares and its job does not use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ullage.api.interruptions import InterruptionKind
from ullage.api.labels import GATE
from ullage.cluster.projection.notice import CHOSEN_TAINTS
from ullage.cluster.records.node import GPUNodeRecord, NodeRecord
from ullage.cluster.records.pod import PodRecord
from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.inventory.interruptions import notice_on
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.times import (
    NODE_AGENT_S,
    NODE_COMES_S,
    NODE_MEMBERS_S,
    NODE_NEVER_READY_S,
    NODE_READY_S,
)

_LIVE: Final = (Phase.RESERVING, Phase.STARTING, Phase.RUNNING, Phase.RESTARTING)


class Fate(StrEnum):
    """State of a node request."""

    WAITS = "Waits"
    UNUSED = "Unused"
    """Its node is unusable for its job, and its pool is not at fault."""
    FAILED = "Failed"
    """Its pool did not provide what it declares."""


@dataclass(frozen=True, slots=True)
class OrderVerdict:
    """The outcome of a request.

    Attributes:
        fate: Outcome.
        text: The reason; empty while it waits.
        until: Time of the next check, seconds since the epoch; 0 = it is over.
    """

    fate: Fate
    text: str = ""
    until: float = 0.0


def ever_ready(node: NodeRecord) -> bool:
    """True when a newly observed node has ever been ready."""
    return node.ready or node.ready_since - node.created > NODE_NEVER_READY_S


def serves(snapshot: Snapshot, order: PodRecord) -> bool:
    """True when members of its job have slices on the node of a request."""
    record = snapshot.gpu_nodes.get(order.node)
    return record is not None and any(
        owner == order.owner.uid for owner in _holders(snapshot, record)
    )


def judged(
    snapshot: Snapshot,
    order: PodRecord,
    orders: Sequence[PodRecord],
    in_pool: Sequence[NodeRecord],
    now: float,
    grace_s: float = 0.0,
) -> OrderVerdict:
    """The outcome of a request that no member uses yet.

    Args:
        snapshot: The snapshot.
        order: The placeholder pod.
        orders: All placeholder pods.
        in_pool: Nodes of its pool.
        now: Seconds since the epoch.
        grace_s: Seconds added to every limit.
    """
    if serves(snapshot, order):
        return OrderVerdict(Fate.WAITS)
    if order.node:
        verdict = _of_no_use(snapshot, order)
        if verdict is not None:
            return verdict
    until = order.created + NODE_COMES_S + grace_s
    if now < until:
        return OrderVerdict(Fate.WAITS, until=until)
    # a gang waits for the last of its nodes
    alike = [pod for pod in orders if (pod.order, pod.owner.uid) == (order.order, order.owner.uid)]
    until = max(_comes_until(snapshot, pod, in_pool) for pod in alike) + grace_s
    if now < until:
        return OrderVerdict(Fate.WAITS, until=until)
    if not order.node and order.gates:
        return OrderVerdict(
            Fate.UNUSED, f"other controllers hold it back: {', '.join(order.gates)}"
        )
    if not order.node:
        message = order.scheduling_message or "no one said why"
        text = f"no usable node of {order.order} within {NODE_COMES_S / 60:.0f} min: {message}"
        return OrderVerdict(Fate.FAILED, text)
    return _unused(snapshot, order, alike, now, grace_s)


def _unused(
    snapshot: Snapshot, order: PodRecord, alike: Sequence[PodRecord], now: float, grace_s: float
) -> OrderVerdict:
    """The outcome where a node arrived, its agent had its time, and no member uses it."""
    record, pool = snapshot.gpu_nodes.get(order.node), snapshot.pools.get(order.order)
    unlike = _unlike(record, pool)
    if not unlike:
        job = snapshot.workloads.get(order.owner.uid)
        if _held_back(snapshot, order.owner.uid):
            return OrderVerdict(Fate.UNUSED, "other controllers hold the members of the job back")
        if job is not None and job.status.phase in _LIVE:
            until = order.created + NODE_AGENT_S + grace_s  # it may still grow onto the node
            if now < until:
                return OrderVerdict(Fate.WAITS, until=until)
            return OrderVerdict(Fate.UNUSED, f"the job has not grown onto {order.node}")
        if any(not pod.node for pod in alike):
            return OrderVerdict(Fate.UNUSED, f"{order.node} came, others of {order.order} did not")
    return OrderVerdict(Fate.FAILED, f"{order.node} came and does not take the members{unlike}")


def _held_back(snapshot: Snapshot, uid: str) -> bool:
    """True when a member of the job waits for a gate of another controller."""
    return any(
        pod.owner.uid == uid
        and not pod.order
        and not pod.stage.finished
        and any(gate != GATE for gate in pod.gates)
        for pod in snapshot.pods.values()
    )


def _of_no_use(snapshot: Snapshot, order: PodRecord) -> OrderVerdict | None:
    """A request that ended before its time."""
    node, record = snapshot.nodes.get(order.node), snapshot.gpu_nodes.get(order.node)
    if node is None:
        return None  # not observed yet, or the pod is about to be deleted
    notice = notice_on(node, record)
    taken = notice is not None and notice.kind is InterruptionKind.TERMINATE
    if taken and notice is not None and notice.source not in CHOSEN_TAINTS:
        return OrderVerdict(Fate.UNUSED, f"the provider takes {order.node} back")  # that is a loss
    if taken or node.deleting:
        return OrderVerdict(
            Fate.FAILED, f"{order.node} is taken away before a member started on it"
        )
    others = record is not None and any(_holders(snapshot, record))
    if others and node.created < order.created:
        return OrderVerdict(Fate.UNUSED, f"{order.node} was there before and is in use")
    return None


def _comes_until(snapshot: Snapshot, order: PodRecord, in_pool: Sequence[NodeRecord]) -> float:
    """Time until which the node of a request may boot, and its agent start."""
    if not order.node:
        # it may be the booting one
        booting = [
            node.created + NODE_READY_S
            for node in in_pool
            if node.created >= order.created and not ever_ready(node)
        ]
        return max(booting, default=0.0)
    node, record = snapshot.nodes.get(order.node), snapshot.gpu_nodes.get(order.node)
    if node is None or not node.managed:
        return 0.0
    if record is None or not record.heartbeat:
        return order.created + NODE_AGENT_S
    reported = min((condition.since for condition in record.conditions), default=0.0)
    return reported + NODE_MEMBERS_S


def _unlike(record: GPUNodeRecord | None, pool: PoolRecord | None) -> str:
    """Difference of a node from its pool; empty = there is none."""
    if record is None or pool is None:
        return ""
    models = [device.model for device in record.devices]
    if models.count(pool.accelerator) >= pool.gpus_per_instance:
        return ""
    has = ", ".join(f"{models.count(model)} x {model}" for model in sorted(set(models)))
    wanted = f"{pool.gpus_per_instance} x {pool.accelerator}"
    return f": it has {has or 'no device'}, {pool.name} is of {wanted}"


def _holders(snapshot: Snapshot, record: GPUNodeRecord) -> Sequence[str]:
    """Uids of the workloads whose pods have slices on a node."""
    pods = snapshot.pods
    return [pods[part.key.pod_uid].owner.uid for part in record.desired if part.key.pod_uid in pods]
