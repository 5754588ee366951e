# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Spread of a service's replicas over spot pools, so that an interruption takes few of them.

Machines of on-demand and reserved pools, and those without a pool, are never interrupted. An
interruption takes the mean lost fraction of a spot pool; before the first one, all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.capacity.records import CapacityType
from ullage.engines.capacity.spread import pools_to_join, replicas_to_survive
from ullage.scheduling.inventory.held_shares import accelerators_asked
from ullage.scheduling.inventory.interruptions import termination
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.inventory.pool_membership import PoolMembership
from ullage.scheduling.model.view import Member

STAYS: Final = ""
"""Name for all machines other than spot."""


@dataclass(slots=True)
class SpotPools:
    """The spot pool of every node, looked up once per cycle."""

    snapshot: Snapshot
    inventory: Inventory
    _of: dict[str, str] = field(init=False)
    """Name of the spot pool by node."""
    _outside: dict[frozenset[str], frozenset[int]] = field(default_factory=dict)
    """Devices outside of a set of pools, by the names of the pools."""

    def __post_init__(self) -> None:
        membership = PoolMembership.of(self.snapshot.pools)
        self._of = {}
        for node in self.inventory.nodes:
            pool = membership.pool_of(node.labels)
            spot = pool is not None and pool.capacity_type is CapacityType.SPOT
            self._of[node.name] = pool.name if pool is not None and spot else STAYS

    def of(self, node: str) -> str:
        """The spot pool of a node; empty = not spot."""
        return self._of.get(node, STAYS)

    def lost(self, pool: str) -> float:
        """Fraction of a pool's instances that an interruption takes, 0..1."""
        if pool == STAYS:
            return 0.0
        seen = self.snapshot.pools[pool].status.mean_lost_fraction
        return 1.0 if seen is None else min(1.0, max(0.0, seen))

    def held(self, members: Sequence[Member]) -> Counter[str]:
        """Replicas by pool, without those on machines that are being terminated."""
        return Counter(
            self.of(slice_.node)
            for member in members
            if member.live and not member.pod.deleting
            for slice_ in member.held[:1]
            if termination(self.snapshot, slice_.node) is None
        )

    def less_safe(self, nodes: Iterable[int], replicas: Mapping[str, int]) -> frozenset[int]:
        """Devices that another replica avoids, because other pools are safer.

        Args:
            nodes: Indices of the nodes that have room for it.
            replicas: Replicas by pool.

        Returns:
            Indices of devices; empty where all pools with room are equally safe.
        """
        pools = {self.of(self.inventory.nodes[node].name) for node in nodes}
        safest = pools_to_join(replicas, {pool: self.lost(pool) for pool in pools})
        if safest == pools:
            return frozenset()
        outside = self._outside.get(safest)
        if outside is None:
            outside = self._outside[safest] = frozenset(
                site
                for node, sites in zip(self.inventory.nodes, self.inventory.sites_on, strict=True)
                if self.of(node.name) not in safest
                for site in sites
            )
        return outside

    def spare(
        self, service: WorkloadRecord, members: Sequence[Member], needed: int, within_s: float
    ) -> int:
        """Replicas beyond those needed, so that enough are left after one interruption.

        As many as the worst interruption takes now, but no more than an even spread over all
        machines requires.

        Args:
            service: The service.
            members: Its replicas.
            needed: Replicas that the load needs.
            within_s: Seconds from a request for a replica until it serves. With a notice at least
                this long nothing is lost; pools without a declared notice are assumed to give it.
        """
        asked = accelerators_asked(service)
        quick = {
            name
            for name, pool in self.snapshot.pools.items()
            if pool.notice_s is not None
            and pool.notice_s < within_s
            and (not asked or pool.accelerator in asked)
        }
        replicas = self.held(members)
        worst = max(
            (ceil(replicas[name] * self.lost(name)) for name in quick & set(replicas)), default=0
        )
        if not worst:
            return 0
        groups = len({pool for pool in self._of.values() if pool == STAYS or pool in quick})
        return min(worst, replicas_to_survive(needed, groups) - needed)
