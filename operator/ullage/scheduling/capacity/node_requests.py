# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests for nodes: a placeholder pod for each node that the chosen pool lacks.

Members stay gated until slices are reserved for them, so autoscalers never see them pending; they
see the placeholder. It requests the CPU and memory of the members that are to run there, and a node
without our label. It is deleted when members have slices on its node, when the plan changes, or
when no node arrived in time, which counts as a failed launch of the pool. Requests must never
exceed the limit of the pool, nor be repeated while they are pending.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ullage.api.labels import LABEL_REGISTERED
from ullage.api.reasons import Reason, Standing
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.names import order_name
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.quota.records import NO_TENANT
from ullage.scheduling.capacity.capacity_choice import CapacityChoices
from ullage.scheduling.capacity.market import members_per_node
from ullage.scheduling.capacity.separate_pools import apart_pools, cheapest
from ullage.scheduling.feasibility.held_quota import HeldQuota
from ullage.scheduling.inventory.node_orders import Fate, judged, serves
from ullage.scheduling.inventory.pool_membership import PoolMembership
from ullage.scheduling.inventory.reliable_machines import terms_of
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import Action, CreatePod, DeletePod, Emit, Order, RegisterNode
from ullage.scheduling.model.view import View
from ullage.scheduling.placement.attempt import Outcome, Refused, Requeue
from ullage.scheduling.times import ORDER_LINGERS_S

MOST_OUT: Final = 64
"""Pending requests per pool at once."""
MOST_A_CYCLE: Final = 32
"""Requests per cycle."""

_WAITS: Final = (PodStage.UNSCHEDULED, PodStage.GATED)
_REASONS: Final = {Fate.UNUSED: Reason.POOL_RELEASED, Fate.FAILED: Reason.LAUNCH_FAILED}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequests:
    """Actions of a cycle on node requests.

    Attributes:
        steps: Requests created or withdrawn.
        events: Events for failed or new requests.
        wake_at: Time limit of the first request; 0 = none is pending.
    """

    steps: tuple[Action, ...] = ()
    events: tuple[Emit, ...] = ()
    wake_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Additional members that a gang could have: lost while it runs on, or never placed."""

    members: int
    reliable: int
    """Number of them that need reliable machines."""
    lost: bool
    asks: bool
    """Nodes may be requested for them now, while it runs."""


def order_nodes(
    view: View,
    capacity_choices: CapacityChoices,
    outcomes: Mapping[str, Outcome],
    lacking: Mapping[str, Lack],
    held: HeldQuota | None = None,
) -> NodeRequests:
    """Create and withdraw requests.

    Args:
        view: The cycle's snapshot.
        capacity_choices: Chosen pools.
        outcomes: Placement outcomes of the waiting jobs, by uid.
        lacking: Gangs that could use more members, by uid.
        held: Quota in use by tenants; ``None`` = no tenant has any.
    """
    if not view.orders and (capacity_choices.market is None or not view.settings.orders):
        return NodeRequests()
    context = _Requests(view, capacity_choices, lacking, held)
    for order in view.orders:
        context.review(order)
    if view.settings.orders:
        jobs = sorted(
            (view.snapshot.workloads[uid] for uid in capacity_choices.choices),
            key=lambda workload: (-workload.priority, workload.created, workload.ref.uid),
        )
        for job in jobs:
            context.serve(job, outcomes.get(job.ref.uid))
        for job in jobs:  # extra members of gangs come after the first members of all
            context.grow(job, outcomes.get(job.ref.uid))
    moments = [moment for moment in context.moments if moment > view.now]
    return NodeRequests(
        steps=tuple(context.steps), events=tuple(context.events), wake_at=min(moments, default=0.0)
    )


@dataclass(slots=True)
class _Requests:
    """Counts requests of one cycle."""

    view: View
    capacity_choices: CapacityChoices
    lacking: Mapping[str, Lack]
    held: HeldQuota | None = None
    promised: dict[tuple[int, str], int] = field(default_factory=dict)
    """Percent of devices that jobs served before are about to use, by tenant and type."""
    steps: list[Action] = field(default_factory=list)
    events: list[Emit] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)
    out: dict[str, int] = field(default_factory=dict)
    """Requests by pool that have no node yet."""
    of_job: dict[tuple[str, str], int] = field(default_factory=dict)
    """Requests by uid of the job and pool."""
    oldest: dict[str, float] = field(default_factory=dict)
    """Creation of the oldest request of a pool that waits for its node."""
    named: set[tuple[str, str]] = field(default_factory=set)
    """New requests of this cycle."""
    _nodes: Mapping[str, Sequence[str]] | None = None
    _taken: dict[str, int] = field(default_factory=dict)
    """Nodes that are counted, by pool."""

    def review(self, order: PodRecord) -> None:
        """Withdraw a request that failed or is no longer needed."""
        if order.deleting:
            return
        reason, text = self._why_not(order)
        if reason is not None:
            self.steps.append(
                DeletePod(
                    pod=ObjectRef(
                        kind="Pod", namespace=order.namespace, name=order.name, uid=order.uid
                    ),
                    owner=order.owner,
                    epoch=self.view.settings.epoch,
                    reason=reason,
                    text=text,
                )
            )
            if reason is Reason.LAUNCH_FAILED:
                self.events.append(
                    Emit(
                        target=order.owner,
                        warning=True,
                        epoch=self.view.settings.epoch,
                        reason=reason,
                        text=text,
                    )
                )
            return
        if order.stage in _WAITS:
            self.out[order.order] = self.out.get(order.order, 0) + 1
        key = (order.owner.uid, order.order)
        self.of_job[key] = self.of_job.get(key, 0) + 1
        if order.node:
            self._register(order.node)
        else:
            oldest = self.oldest.get(order.order, order.created)
            self.oldest[order.order] = min(oldest, order.created)

    def _why_not(self, order: PodRecord) -> tuple[Reason | None, str]:
        """Reason to withdraw a request; none = it stays."""
        job = self.view.snapshot.workloads[order.owner.uid]
        pool_choice = self.capacity_choices.choices.get(order.owner.uid)
        if order.order not in self.view.snapshot.pools:
            return Reason.POOL_RELEASED, f"the pool {order.order} was deleted"
        if pool_choice is None or order.order not in pool_choice.pools | self._apart(job):
            return Reason.POOL_RELEASED, "the plan is another by now"
        if job.status.phase == Phase.RUNNING and job.ref.uid not in self.lacking:
            return Reason.PLACED, "it runs, and needs no more members"
        if self._is_registered(order.node) and serves(self.view.snapshot, order):
            return Reason.PLACED, f"members hold slices on {order.node}"
        if order.stage in _WAITS and self._is_full(self.view.snapshot.pools[order.order]):
            return Reason.POOL_RELEASED, f"{order.order} may have fewer instances by now"
        if order.stage.finished:
            return Reason.LAUNCH_FAILED, f"the order {order.name} ended before its time"
        in_pool = [self.view.snapshot.nodes[name] for name in self._in_pool(order.order)]
        verdict = judged(
            self.view.snapshot, order, self.view.orders, in_pool, self.view.now, ORDER_LINGERS_S
        )
        self.moments.append(verdict.until)
        return _REASONS.get(verdict.fate), verdict.text

    def serve(self, job: WorkloadRecord, outcome: Outcome | None) -> None:
        """Request the nodes that a job lacks to start, or lost."""
        lack = self.lacking.get(job.ref.uid)
        refused = _without_room(outcome)
        if refused is not None:
            self._order(job, self._wanted(job, refused.placed), refused.placed)
        elif outcome is None and lack is not None and lack.asks and lack.lost:
            self._order(job, self._replacing(job, lack))

    def grow(self, job: WorkloadRecord, outcome: Outcome | None) -> None:
        """Request the nodes for members that an elastic gang never had."""
        lack = self.lacking.get(job.ref.uid)
        if lack is None or lack.lost:
            return
        refused = _without_room(outcome)
        if refused is not None and not self._apart(job):
            waiting = self._wanted(job, refused.placed)
            more = self._where_others_run(job, lack.members)
            self._order(job, _together([*waiting, *more]), refused.placed)
        elif outcome is None and lack.asks:
            self._order(job, self._replacing(job, lack))

    def _replacing(self, job: WorkloadRecord, lack: Lack) -> list[tuple[PoolRecord, int]]:
        """Pools of the additional members of a running gang.

        In tiers members that need reliable machines come first.
        """
        apart = self._apart(job)
        if lack.reliable and apart:
            steady = cheapest(job, apart, self.view.snapshot.pools)
            return [(steady, lack.reliable)] if steady is not None else []
        return self._where_others_run(job, lack.members)

    def _where_others_run(self, job: WorkloadRecord, members: int) -> list[tuple[PoolRecord, int]]:
        decision = self.capacity_choices.choices[job.ref.uid].spend.decision
        shares = decision.chosen.pools[:1] if decision is not None else ()
        pools = self.view.snapshot.pools
        return [(pools[share.pool], members) for share in shares if share.pool in pools]

    def _order(
        self, job: WorkloadRecord, wanted: Iterable[tuple[PoolRecord, int]], placed: int = 0
    ) -> None:
        for pool, members in self._within_quota(job, wanted, placed):
            if pool.status.available is False or len(self.named) >= MOST_A_CYCLE:
                return
            if not self._all_registered(pool.name):
                continue
            each = members_per_node(pool, job)
            nodes = -(-members // each)
            nodes -= self.of_job.get((job.ref.uid, pool.name), 0)
            nodes = min(nodes, self._left(pool), MOST_A_CYCLE - len(self.named))
            for name in self._names(job, max(0, nodes)):
                self._give(job, pool, name, min(each, members))

    def _within_quota(
        self, job: WorkloadRecord, wanted: Iterable[tuple[PoolRecord, int]], placed: int
    ) -> Iterator[tuple[PoolRecord, int]]:
        """The same, without members that would wait for the quota of the job's tenant.

        Args:
            job: The job of the members.
            wanted: Pools, with the number of members that each lacks.
            placed: Members that already have room; they count against the quota first.
        """
        number = self.held.tenants.number_of(job) if self.held is not None else NO_TENANT
        if self.held is None or number == NO_TENANT:
            yield from wanted
            return
        each = (job.gpu.share.min_percent if job.gpu.share else WHOLE_PERCENT) * job.gpu.count
        for pool, members in wanted:
            key = number, pool.accelerator
            room = self.held.usage.available(*key) - self.promised.get(key, 0)
            fits = min(members, max(0, room // each - placed))
            if not fits or (fits < members and job.elasticity is None):
                continue
            self.promised[key] = self.promised.get(key, 0) + (placed + fits) * each
            placed = 0
            yield pool, fits

    def _wanted(self, job: WorkloadRecord, placed: int) -> Iterator[tuple[PoolRecord, int]]:
        """Pools of the plan with their members without room; others are subtracted first.

        In tiers reliable members are placed first; without a reliable pool in the plan they get
        one.
        """
        apart, terms = self._apart(job), terms_of(job)
        if apart and terms is not None and placed < terms.reliable:
            steady = cheapest(job, apart, self.view.snapshot.pools)
            if steady is not None:
                yield steady, terms.reliable - placed
            return
        spend = self.capacity_choices.choices[job.ref.uid].spend
        seated = placed
        for share in spend.decision.chosen.pools if spend.decision is not None else ():
            pool = self.view.snapshot.pools.get(share.pool)
            missing = max(0, share.replicas - seated)
            seated = max(0, seated - share.replicas)
            if pool is not None and missing:
                yield pool, missing

    def _apart(self, job: WorkloadRecord) -> frozenset[str]:
        """Pools used only by the reliable members of a job in tiers."""
        chosen = self.capacity_choices.choices[job.ref.uid].pools
        return apart_pools(job, chosen, self.view.snapshot.pools)

    def _left(self, pool: PoolRecord) -> int:
        """Nodes of a pool that may still be requested."""
        market, out = self.capacity_choices.market, self.out.get(pool.name, 0)
        room = MOST_OUT - out
        if pool.most is not None and market is not None:
            nodes = max(len(market.nodes[pool.name]), self._counted(pool.name))
            room = min(room, pool.most - nodes - out)
        return room

    def _is_full(self, pool: PoolRecord) -> bool:
        """True when the nodes and earlier requests of a pool reach its limit."""
        most, out = pool.most, self.out.get(pool.name, 0)
        return most is not None and self._counted(pool.name) + out >= most

    def _counted(self, pool: str) -> int:
        """Nodes for which no request waits; any other may be that of a request."""
        if pool not in self._taken:
            self._taken[pool] = sum(map(self._is_registered, self._in_pool(pool)))
        return self._taken[pool]

    def _names(self, job: WorkloadRecord, nodes: int) -> Sequence[str]:
        """Unused names for request pods."""
        names: list[str] = []
        number = 0
        while len(names) < nodes:
            name = order_name(job.ref.name, number)
            key = (job.ref.namespace, name)
            taken = key in self.view.names or key in self.view.snapshot.creating
            if not taken and key not in self.named:
                names.append(name)
            number += 1
        return names

    def _all_registered(self, pool: str) -> bool:
        """True when every node of a pool that could serve a request is labelled.

        A node created after a pending request may be the node of that request.
        """
        before = self.oldest.get(pool, math.inf)
        lacking = [
            name
            for name in self._in_pool(pool)
            if not self._is_registered(name) and self.view.snapshot.nodes[name].created < before
        ]
        for name in lacking[:MOST_OUT]:
            self._register(name)
        return not lacking

    def _in_pool(self, pool: str) -> Sequence[str]:
        """Nodes of a pool, including those without an agent."""
        if self._nodes is None:
            members, by_pool = PoolMembership.of(self.view.snapshot.pools), dict[str, list[str]]()
            for name in sorted(self.view.snapshot.nodes):
                record = members.pool_of(self.view.snapshot.nodes[name].labels)
                if record is not None:
                    by_pool.setdefault(record.name, []).append(name)
            self._nodes = by_pool
        return self._nodes.get(pool, ())

    def _is_registered(self, name: str) -> bool:
        node = self.view.snapshot.nodes.get(name)
        return node is not None and LABEL_REGISTERED in node.labels

    def _register(self, name: str) -> None:
        """Label an existing node, once."""
        node = self.view.snapshot.nodes.get(name)
        if node is None or self._is_registered(name):
            return
        step = RegisterNode(
            node=ObjectRef(kind="Node", namespace="", name=name, uid=node.uid),
            epoch=self.view.settings.epoch,
            reason=Reason.POOL_ORDERED,
            text="counted: orders are for other nodes",
        )
        if step not in self.steps:
            self.steps.append(step)

    def _give(self, job: WorkloadRecord, pool: PoolRecord, name: str, members: int) -> None:
        market = self.capacity_choices.market
        nodes = market.nodes[pool.name] if market is not None else ()
        needs = job.shape.requests
        self.named.add((job.ref.namespace, name))
        self.out[pool.name] = self.out.get(pool.name, 0) + 1
        self.of_job[job.ref.uid, pool.name] = self.of_job.get((job.ref.uid, pool.name), 0) + 1
        self.steps.append(
            CreatePod(
                owner=job.ref,
                name=name,
                rank=-1,
                template_hash=job.template_hash,
                order=Order(
                    pool=pool.name,
                    node_selector=tuple(sorted(pool.node_selector.items())),
                    cpu_milli=needs.cpu_milli * members,
                    memory_bytes=needs.memory_bytes * members,
                ),
                epoch=self.view.settings.epoch,
                reason=Reason.POOL_ORDERED,
                text=f"orders a node of {pool.name}",
            )
        )
        self.events.append(
            Emit(
                target=job.ref,
                warning=False,
                epoch=self.view.settings.epoch,
                reason=Reason.POOL_ORDERED,
                text=f"ordered a node of {pool.name}: none of its {len(nodes)} nodes has room",
            )
        )


def _without_room(outcome: Outcome | None) -> Refused | None:
    """Refusal of a job for which no room will become free; ``None`` = it needs no nodes."""
    refused = outcome.refused if outcome is not None else None
    if refused is None or refused.requeue is Requeue.ROOM_COMING:
        return None
    return None if Standing.NO_NODE_HELPS in refused.reason.standing else refused


def _together(wanted: Iterable[tuple[PoolRecord, int]]) -> list[tuple[PoolRecord, int]]:
    """Members by pool, each pool once."""
    by_pool: dict[str, tuple[PoolRecord, int]] = {}
    for pool, members in wanted:
        by_pool[pool.name] = pool, by_pool.get(pool.name, (pool, 0))[1] + members
    return list(by_pool.values())
