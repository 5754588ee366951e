# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""In which pools replicas of a service are, and where another one is safest from interruptions.

Machines of on-demand and reserved pools, and those without a pool, are never interrupted. An
interruption takes the mean lost fraction of a spot pool, or all of it before one was seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.snapshot import Snapshot, WorkloadRecord
from ullage.engines.capacity.records import CapacityType
from ullage.engines.capacity.spread import pools_to_join, replicas_to_survive
from ullage.scheduling.inventory.held_shares import accelerators_asked
from ullage.scheduling.inventory.interruptions import termination
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.inventory.pool_membership import Membership
from ullage.scheduling.model.view import Member

STAYS: Final = ""
"""Stands for all machines that are not spot."""


@dataclass(slots=True)
class SpotPools:
    """The spot pool of every node, looked up once a cycle."""

    snapshot: Snapshot
    inventory: Inventory
    _of: dict[str, str] = field(init=False)
    """Name of the spot pool by node."""
    _outside: dict[frozenset[str], frozenset[int]] = field(default_factory=dict)
    """Devices outside of pools, by the names of these."""

    def __post_init__(self) -> None:
        membership = Membership.of(self.snapshot.pools)
        self._of = {}
        for node in self.inventory.nodes:
            pool = membership.pool_of(node.labels)
            spot = pool is not None and pool.capacity_type is CapacityType.SPOT
            self._of[node.name] = pool.name if pool is not None and spot else STAYS

    def of(self, node: str) -> str:
        """The spot pool of a node; empty = it is not spot."""
        return self._of.get(node, STAYS)

    def lost(self, pool: str) -> float:
        """The part of a pool's instances that an event takes, 0..1."""
        if pool == STAYS:
            return 0.0
        seen = self.snapshot.pools[pool].status.mean_lost_fraction
        return 1.0 if seen is None else min(1.0, max(0.0, seen))

    def held(self, members: Sequence[Member]) -> Counter[str]:
        """Replicas by pool, those on machines that go left out."""
        return Counter(
            self.of(held.node)
            for member in members
            if member.live and not member.pod.deleting
            for held in member.held[:1]
            if termination(self.snapshot, held.node) is None
        )

    def less_safe(self, nodes: Iterable[int], held: Mapping[str, int]) -> frozenset[int]:
        """Devices that another replica avoids, because other pools are safer.

        Args:
            nodes: Indices of the nodes that have room for it.
            held: Replicas by pool.

        Returns:
            Indices of devices; none where all pools with room are as safe.
        """
        pools = {self.of(self.inventory.nodes[node].name) for node in nodes}
        safest = pools_to_join(held, {pool: self.lost(pool) for pool in pools})
        if safest == pools:
            return frozenset()
        known = self._outside.get(safest)
        if known is None:
            known = self._outside[safest] = frozenset(
                site
                for node, sites in zip(self.inventory.nodes, self.inventory.sites_on, strict=True)
                if self.of(node.name) not in safest
                for site in sites
            )
        return known

    def spare(
        self, service: WorkloadRecord, members: Sequence[Member], needed: int, within_s: float
    ) -> int:
        """Replicas beyond those needed, so that enough are left after one interruption.

        As many as the worst event takes now, and no more than an even spread over all machines
        asks for.

        Args:
            service: Whose replicas they are.
            members: Its replicas.
            needed: Replicas that the load needs.
            within_s: From asking for a replica until it serves: a notice as long as this loses
                none. Pools that state no notice are taken to give that much.
        """
        quick = {
            name
            for name, pool in self.snapshot.pools.items()
            if pool.notice_s is not None and pool.notice_s < within_s and _suits(service, pool)
        }
        held = self.held(members)
        worst = max((ceil(held[name] * self.lost(name)) for name in quick & set(held)), default=0)
        if not worst:
            return 0
        groups = len({pool for pool in self._of.values() if pool == STAYS or pool in quick})
        return min(worst, replicas_to_survive(needed, groups) - needed)


def _suits(service: WorkloadRecord, pool: PoolRecord) -> bool:
    asked = accelerators_asked(service)
    return not asked or pool.accelerator in asked
