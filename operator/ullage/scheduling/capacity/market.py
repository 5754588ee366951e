# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pools as seen by a job: price, speed and room of one member, by class of job.

Built once per cycle, and only where there are pools and jobs that need them. A price is that of one
member: whole instances are bought, so members pay for the idle part of an instance. Room held by
other jobs must never be offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from ullage.api.devices import Health
from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.profile import Source
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.capacity.records import CapacityType, Pool
from ullage.scheduling.accounting.rates import declared_price, on_demand_price, reliable_prices
from ullage.scheduling.inventory.inventory import node_trouble
from ullage.scheduling.inventory.pool_membership import PoolMembership
from ullage.scheduling.learning.throughput import Throughputs
from ullage.scheduling.model.view import View
from ullage.scheduling.times import NODE_AGENT_S

WHOLE: Final = 100
_ANY: Final = (1 << 31) - 1
"""Number of members without a limit."""
_EXACT: Final = 1e-9
"""Fraction by which a sum of prices may exceed the budget by rounding alone."""
_KNOWN: Final = (Source.MEASURED, Source.DECLARED)
"""Sources of speed that a deadline may rely on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitedPool:
    """A pool as seen by one job.

    Attributes:
        pool: The engine's record; one instance of the engine is one member.
        record: The pool itself.
        per_node: Members per node.
        grows: More nodes can be bought.
    """

    pool: Pool
    record: PoolRecord
    per_node: int
    grows: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitedPools:
    """All suitable pools of a class of jobs.

    Attributes:
        by_name: Pools in order of their names.
        speeds_known: False = all unknown, and counted as equal.
        steps_per_second: Of one member at speed 1, measured or declared; 0 = unknown.
        unsuitable: Reasons for excluded pools, as text.
    """

    by_name: Mapping[str, SuitedPool]
    speeds_known: bool
    steps_per_second: float
    unsuitable: str

    def pools(self) -> list[Pool]:
        """The pools as input of the engine."""
        return [candidate.pool for candidate in self.by_name.values()]


@dataclass
class Market:
    """The pools of one cycle."""

    view: View
    growing: bool
    """Nodes can be requested."""
    _suited: dict[tuple[object, ...], SuitedPools] = field(default_factory=dict)
    _rooms: dict[tuple[str, int, int], int] = field(default_factory=dict)
    _speeds: Throughputs | None = None

    @cached_property
    def pool_of(self) -> Mapping[str, str]:
        """Pool by node; nodes outside of pools are missing."""
        members = PoolMembership.of(self.view.snapshot.pools)
        return {
            name: pool.name
            for name, node in self.view.snapshot.nodes.items()
            if node.managed and (pool := members.pool_of(node.labels)) is not None
        }

    @cached_property
    def nodes(self) -> Mapping[str, Sequence[str]]:
        """Nodes by pool, sorted."""
        by_pool: dict[str, list[str]] = {name: [] for name in self.view.snapshot.pools}
        for node in sorted(self.pool_of):
            by_pool[self.pool_of[node]].append(node)
        return by_pool

    @cached_property
    def reliable(self) -> Mapping[tuple[str, str], float]:
        """Prices of on-demand and reserved devices, by type."""
        return reliable_prices(self.view.snapshot)

    def on_demand(self, record: PoolRecord) -> float | None:
        """Dollars per hour of an on-demand instance equal to a pool's; ``None`` = unknown."""
        count, price = max(1, record.gpus_per_instance), record.status.price
        declared = declared_price(self.view.snapshot, record.accelerator)
        price_each = None if price is None else price / count
        each = on_demand_price(record, price_each, declared, self.reliable)
        return None if each is None else each * count

    @cached_property
    def free(self) -> Mapping[str, Sequence[Sequence[int]]]:
        """Free percent of every device by node and pool, where new work is allowed."""
        return {
            pool: [percents for node in nodes if (percents := self._free_on(node))]
            for pool, nodes in self.nodes.items()
        }

    def suited_to(self, job: WorkloadRecord, members: int) -> SuitedPools:
        """The suitable pools of a job; equal jobs share the result."""
        cost, share = job.cost, job.gpu.share
        if cost is None:
            raise ValueError(f"{job.ref.name} has no spec.cost")
        key = (
            job.ref.namespace,
            job.profile_ref,
            job.workload_class,
            job.family,
            job.accelerators,
            job.gpu,
            job.shape.node_selector,
            cost.allow_spot,
            cost.on_demand_fallback,
            members,
        )
        suited = self._suited.get(key)
        if suited is None:
            least = share.min_percent if share is not None else WHOLE
            suited = self._suited[key] = self._look(job, members, least)
        return suited

    def _look(self, job: WorkloadRecord, members: int, least: int) -> SuitedPools:
        records, reasons = [], dict[str, str]()
        for name in sorted(self.view.snapshot.pools):
            record = self.view.snapshot.pools[name]
            refused = unsuited(record, job)
            if refused:
                reasons.setdefault(refused, name)
            else:
                records.append(record)
        speeds, steps, are_known = self._speeds_of(job, records)
        suited = {}
        for record in records:
            per_node = members_per_node(record, job)
            speed = speeds.get(record.accelerator, 0.0) if are_known else 1.0
            room = self._room(record, job.gpu.count, least if job.gpu.share else 0)
            more = self._more_nodes(record)
            suited[record.name] = SuitedPool(
                pool=Pool(
                    name=record.name,
                    capacity_type=record.capacity_type,
                    price_per_hour=member_price(record, job, members),
                    hazard_per_hour=hazard(record),
                    speed=speed,
                    most=None if more is None else room + more * per_node,
                ),
                record=record,
                per_node=per_node,
                grows=more is None or more > 0,
            )
        text = "; ".join(f"{name}: {refused}" for refused, name in sorted(reasons.items()))
        return SuitedPools(
            by_name=suited, speeds_known=are_known, steps_per_second=steps, unsuitable=text
        )

    def _speeds_of(
        self, job: WorkloadRecord, pools: Sequence[PoolRecord]
    ) -> tuple[Mapping[str, float], float, bool]:
        """Speed by accelerator against the fastest, its steps per second, and if any is known."""
        if self._speeds is None:
            self._speeds = Throughputs(self.view.snapshot)
        kinds = {pool.accelerator for pool in pools}
        by_type = {
            name: entry
            for name, entry in self._speeds.of(job).items()
            if name in kinds and entry.steps_per_second > 0
        }
        if not by_type:
            return {}, 0.0, False
        fastest = max(entry.steps_per_second for entry in by_type.values())
        sure = [entry.steps_per_second for entry in by_type.values() if entry.source in _KNOWN]
        reference = fastest if sure and fastest in sure else 0.0
        return (
            {name: entry.steps_per_second / fastest for name, entry in by_type.items()},
            reference,
            True,
        )

    def _more_nodes(self, record: PoolRecord) -> int | None:
        """Nodes that can still be bought; ``None`` = no limit."""
        if not self.growing or not record.status.available:
            return 0
        if record.most is None:
            return None
        # a node that was bought and whose agent still starts is future room
        present = [name for name in self.nodes[record.name] if not self._is_coming(name)]
        return max(0, record.most - len(present))

    def _is_coming(self, name: str) -> bool:
        """True while the agent of a new node has not reported its devices."""
        node, record = self.view.snapshot.nodes[name], self.view.snapshot.gpu_nodes.get(name)
        silent = record is None or not record.devices
        return silent and not node.unschedulable and self.view.now - node.created < NODE_AGENT_S

    def _room(self, record: PoolRecord, count: int, least: int) -> int:
        """Members that fit the free devices of the pool now; ``least`` 0 = whole devices."""
        key = (record.name, count, least)
        room = self._rooms.get(key)
        if room is None:
            free = self.free[record.name]
            if least:
                room = sum(percent // least for node in free for percent in node)
            else:
                room = sum(node.count(WHOLE) // count for node in free)
            self._rooms[key] = room
        return room

    def _free_on(self, name: str) -> list[int]:
        record = self.view.snapshot.gpu_nodes.get(name)
        node = self.view.snapshot.nodes[name]
        if record is None or node.unschedulable or node_trouble(self.view, record, node):
            return []
        taken: dict[str, int] = {}
        for part in record.desired:
            taken[part.gpu] = taken.get(part.gpu, 0) + part.percent
        return [
            max(0, WHOLE - taken.get(device.uuid, 0))
            for device in record.devices
            if device.health is Health.HEALTHY
        ]


def unsuited(record: PoolRecord, job: WorkloadRecord) -> str:
    """Reason why a pool cannot serve a job; empty = it can."""
    cost = job.cost
    if job.accelerators and record.accelerator not in job.accelerators:
        return f"has {record.accelerator}, which spec.accelerators leaves out"
    if record.gpus_per_instance < job.gpu.count:
        return f"has {record.gpus_per_instance} devices on a node, {job.gpu.count} are needed"
    for key, value in job.shape.node_selector:
        if record.node_selector.get(key, value) != value:
            return f"has {key}={record.node_selector[key]}, the template asks for {value}"
    spot = record.capacity_type is CapacityType.SPOT
    if cost is not None and spot and not cost.allow_spot:
        return "is spot, which spec.cost.allowSpot rules out"
    if cost is not None and not spot and not may_use_on_demand(job):
        return "is no spot, which spec.cost.onDemandFallback rules out"
    return ""


def may_use_on_demand(job: WorkloadRecord) -> bool:
    """True when a job may run on on-demand or reserved capacity."""
    cost = job.cost
    return cost is None or cost.on_demand_fallback or not cost.allow_spot


def members_per_node(record: PoolRecord, job: WorkloadRecord) -> int:
    """Members that fit an empty node of a pool."""
    share = job.gpu.share
    if share is not None:
        return record.gpus_per_instance * max(1, WHOLE // share.min_percent)
    return max(1, record.gpus_per_instance // job.gpu.count)


def member_price(record: PoolRecord, job: WorkloadRecord, members: int) -> float | None:
    """Dollars per hour of one of this many members; ``None`` = the pool has no price.

    Whole devices: all required instances, divided among the members. A share: its part of one
    device, because others use the rest.
    """
    price = record.status.price
    if price is None:
        return None
    share = job.gpu.share
    if share is not None:
        return price / record.gpus_per_instance * share.min_percent / WHOLE
    nodes = -(-members // members_per_node(record, job))
    return price * nodes / max(1, members)


def affordable(record: PoolRecord, job: WorkloadRecord) -> int | None:
    """Members in one pool within the budget of a job; ``None`` = unknown.

    Whole devices: members of as many whole instances as it pays for. A share: by its part of one
    device.
    """
    budget = job.cost.budget_per_hour if job.cost is not None else None
    price = record.status.price
    if budget is None or price is None:
        return None
    if not price:
        return _ANY
    budget *= 1 + _EXACT
    share = job.gpu.share
    if share is not None:
        return int(budget / (price / record.gpus_per_instance * share.min_percent / WHOLE))
    return int(budget / price) * members_per_node(record, job)


def most_affordable(pools: Iterable[PoolRecord], job: WorkloadRecord) -> int | None:
    """Members within the budget in the best of the suitable pools."""
    counts = [affordable(pool, job) for pool in pools if not unsuited(pool, job)]
    return max((members for members in counts if members is not None), default=None)


def hazard(record: PoolRecord) -> float:
    """Loss events per hour; 0 for capacity other than spot."""
    rate = record.status.hazard_per_hour
    if record.capacity_type is not CapacityType.SPOT or rate is None:
        return 0.0
    return rate
