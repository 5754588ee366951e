# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Losses, gains and failed launches of each pool's instances, from one snapshot to the next.

A loss is distinguished from an intended removal:

* A provider's notice on a node is a loss at once, whatever marks the node has; so is a node that
  stays unready for five minutes, and one that vanishes without a mark.
* A node that was cordoned, marked by an autoscaler for removal, or being deleted *while it was
  ready* is removed on purpose, which is no loss. Marks set after a node became unready prove
  nothing: cleanup sets them too.
* A node that was moved to another pool by its labels, or whose pool changed its selector, is no
  loss. A node that was counted as lost and returns is a new gain.
* A node that is not ready for the first time within a quarter hour of its creation, or vanishes
  before, is a failed launch.
* Instances that vanished while no process observed may be either: on spot they count as one loss if
  the gap was shorter than two hours, and never on other capacity.

Pure: state and snapshot in, state and sightings out; never writes and never reads the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ullage.api.interruptions import Interruption, InterruptionKind
from ullage.cluster.projection.notice import CHOSEN_TAINTS
from ullage.cluster.records.node import GPUNodeRecord, NodeRecord
from ullage.cluster.records.pool import CapacityType, PoolRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.inventory.node_orders import Fate, ever_ready, judged
from ullage.scheduling.inventory.pool_membership import PoolMembership
from ullage.scheduling.times import INSTANCES_UNSEEN_S, NODE_LOST_S, NODE_READY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """State of one node of a pool."""

    pool: str
    """uid of its pool."""
    was_ready: bool
    gone: bool = False
    """True when counted as lost, existing or not."""
    leaving: bool = False
    """True when it is being removed on purpose."""
    failed: bool = False
    """True when counted as a failed launch."""
    warned: bool = False

    @property
    def held(self) -> bool:
        """True when it counts as an instance of the pool."""
        return self.was_ready and not self.gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """Changes in one pool since the last observation; they have no order."""

    nodes: int = 0
    """Current number of instances."""
    before: int = 0
    """Number of instances at the last observation."""
    lost: int = 0
    gained: int = 0
    launched: int = 0
    """Gained instances that were ready for the first time."""
    failed: int = 0
    """Failed launches."""
    launching: int = 0
    """Instances that are requested, or exist and never were ready."""
    warned: bool = False
    """The provider newly recommends leaving."""
    advised: bool = False
    """Such a recommendation is in force for an instance."""
    held_since_s: float | None = None
    """Creation of the oldest instance; ``None`` = there is none."""
    gap: bool = False
    """The state was lost since the status was written: figures are reconstructed from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """The state between observations."""

    instances: Mapping[str, Instance] = field(default_factory=dict)
    """By uid of the node."""
    pools: frozenset[str] = frozenset()
    """uids of the observed pools."""


@dataclass(slots=True)
class _Count:
    """Sums of one pool during the pass over the nodes."""

    nodes: int = 0
    before: int = 0
    lost: int = 0
    gained: int = 0
    launched: int = 0
    failed: int = 0
    launching: int = 0
    warned: bool = False
    advised: bool = False
    oldest_s: float | None = None
    survivors: int = 0
    """Present instances that existed when the status was written."""


def look(
    watch: Watch, snapshot: Snapshot, written: Iterable[PoolRecord], now: float
) -> tuple[Watch, dict[str, Sighting]]:
    """Compare the snapshot with the previous state.

    Args:
        watch: State after the last observation; empty at the start of a process.
        snapshot: The snapshot.
        written: The pools with the statuses in the API.
        now: Seconds since the epoch.

    Returns:
        The new state, and the changes of each pool by its uid.
    """
    pools = {pool.uid: pool for pool in written if pool.uid}
    counts = {uid: _Count() for uid in pools}
    memory: dict[str, Instance] = {}
    membership = PoolMembership(pools.values())
    in_pool: dict[str, list[NodeRecord]] = {pool.name: [] for pool in pools.values()}
    for name in sorted(snapshot.nodes):
        node = snapshot.nodes[name]
        pool = membership.pool_of(node.labels)
        if pool is None:
            continue
        in_pool[pool.name].append(node)
        met = watch.instances.get(node.uid)
        before = met if met is not None and met.pool == pool.uid else None
        notice = provider_notice(node, snapshot.gpu_nodes.get(name))
        after = memory[node.uid] = _seen(node, before, notice, pool, now)
        count = counts[pool.uid]
        count.advised |= after.held and _is(notice, InterruptionKind.REBALANCE)
        if after.held:
            count.nodes += 1
            oldest_s = count.oldest_s
            count.oldest_s = node.created if oldest_s is None else min(oldest_s, node.created)
        count.launching += not (after.was_ready or after.failed)
        if pool.uid not in watch.pools:
            _recall(count, node, after, pool.status.observed_at_s)
        elif before is None:
            _welcome(count, after, moved=met is not None)
        else:
            _compare(count, before, after)
    orders = [pod for pod in snapshot.pods.values() if pod.order]
    for pool in pools.values() if orders else ():
        nodes = in_pool[pool.name]
        never_ready = [node for node in nodes if memory[node.uid].failed]
        for order in orders:
            if order.order != pool.name:
                continue
            if judged(snapshot, order, orders, nodes, now).fate is not Fate.FAILED:
                continue
            came = next((node for node in never_ready if node.created >= order.created), None)
            if came is not None and not order.node:
                never_ready.remove(came)  # it is already counted
            elif order.uid not in watch.instances:
                counts[pool.uid].failed += 1
            memory[order.uid] = Instance(pool=pool.uid, was_ready=False, failed=True)
        out = [pod for pod in orders if pod.order == pool.name and pod.uid not in memory]
        waiting, count = sum(not order.node for order in out), counts[pool.uid]
        # a booting node is the one of a pending request
        count.launching = max(count.launching, waiting) + len(out) - waiting
    uids = {node.uid for node in snapshot.nodes.values()}
    for uid, instance in watch.instances.items():
        if instance.pool in counts and uid not in uids:
            _vanished(counts[instance.pool], instance)
    sightings = {
        uid: _sighting(count, pools[uid], gap=uid not in watch.pools, now=now)
        for uid, count in counts.items()
    }
    return Watch(instances=memory, pools=frozenset(pools)), sightings


def provider_notice(node: NodeRecord, agent: GPUNodeRecord | None) -> Interruption | None:
    """The provider's notice on a node: from its agent first, or from taints."""
    interruption = agent.interruption if agent is not None else None
    if interruption is not None and interruption.source not in CHOSEN_TAINTS:
        return interruption
    if node.interruption is not None and node.interruption.source not in CHOSEN_TAINTS:
        return node.interruption
    return None


def _is(notice: Interruption | None, kind: InterruptionKind) -> bool:
    return notice is not None and notice.kind is kind


def someone_wants_it_gone(node: NodeRecord) -> bool:
    """True when the node is being removed, and not by the provider."""
    chosen = any(taint.key in CHOSEN_TAINTS for taint in node.taints)
    return node.unschedulable or node.deleting or chosen


def _seen(
    node: NodeRecord,
    before: Instance | None,
    notice: Interruption | None,
    pool: PoolRecord,
    now: float,
) -> Instance:
    """The new state of an existing node."""
    was_ready = before.was_ready if before is not None else ever_ready(node)
    unready_s = 0.0 if node.ready or not node.ready_since else now - node.ready_since
    doomed = _is(notice, InterruptionKind.TERMINATE)
    base = before or Instance(pool=pool.uid, was_ready=was_ready)
    leaving = someone_wants_it_gone(node) if node.ready else base.leaving
    lost = unready_s >= NODE_LOST_S and was_ready and not leaving
    back = base.gone and node.ready and not doomed
    return replace(
        base,
        was_ready=was_ready or node.ready,
        gone=(base.gone and not back) or doomed or lost,
        leaving=leaving,
        failed=base.failed
        or (not node.ready and not was_ready and now - node.created >= NODE_READY_S),
        warned=base.warned or _is(notice, InterruptionKind.REBALANCE),
    )


def _welcome(count: _Count, after: Instance, *, moved: bool) -> None:
    """Count a node that is new in the pool."""
    count.gained += after.held
    count.launched += after.was_ready and not moved
    count.failed += after.failed
    count.warned |= after.held and after.warned


def _compare(count: _Count, before: Instance, after: Instance) -> None:
    """Count the changes of a node of the pool."""
    count.before += before.held
    count.lost += before.held and not after.held
    count.gained += after.held and not before.held
    count.launched += after.was_ready and not before.was_ready
    count.failed += after.failed and not before.failed
    count.warned |= after.held and after.warned and not before.warned


def _recall(count: _Count, node: NodeRecord, after: Instance, observed_at_s: float) -> None:
    """Count a node of a pool that this process observes for the first time.

    Changes before ``observed_at_s`` are already in the pool's status.
    """
    if node.created > observed_at_s:
        count.gained += after.held
        count.launched += after.was_ready
    else:
        count.survivors += after.held
    if after.failed and node.created + NODE_READY_S > observed_at_s > 0:
        count.failed += 1


def _vanished(count: _Count, instance: Instance) -> None:
    """Count a node that no longer exists."""
    count.before += instance.held
    if instance.held and not instance.leaving:
        count.lost += 1
    if not instance.was_ready and not instance.failed:
        count.failed += 1


def _sighting(count: _Count, pool: PoolRecord, *, gap: bool, now: float) -> Sighting:
    lost, before, gained = count.lost, count.before, count.gained
    if gap:
        status = pool.status
        before = status.nodes
        lost = max(0, before - count.survivors)
        recent = status.observed_at_s > 0 and now - status.observed_at_s <= INSTANCES_UNSEEN_S
        if pool.capacity_type is not CapacityType.SPOT or not recent:
            lost = 0
    return Sighting(
        nodes=count.nodes,
        before=before,
        lost=lost,
        gained=gained,
        launched=count.launched,
        failed=count.failed,
        launching=count.launching,
        warned=count.warned,
        advised=count.advised,
        held_since_s=count.oldest_s,
        gap=gap,
    )
