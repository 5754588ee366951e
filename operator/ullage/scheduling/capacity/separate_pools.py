# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Members of a job in tiers that are excluded from a choice of pools: those on reliable machines.

Without a reliable pool among the chosen ones, reliable members go to any reliable pool, and are
neither counted nor moved by the choice. Other members must never stay in pools that were not
chosen.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.capacity.market import Market, member_price, unsuited
from ullage.scheduling.inventory.reliable_machines import is_reliable, stays, terms_of
from ullage.scheduling.model.view import Member


def apart_pools(
    job: WorkloadRecord, chosen: Collection[str], pools: Mapping[str, PoolRecord]
) -> frozenset[str]:
    """Pools used only by reliable members; none = they go where the others go.

    Args:
        job: Any job; one without tiers has none.
        chosen: Pools that were chosen for it.
        pools: All pools, by name.
    """
    if terms_of(job) is None or not chosen:
        return frozenset()
    staying = frozenset(name for name, pool in pools.items() if stays(pool))
    return frozenset() if staying & frozenset(chosen) else staying


def bound(
    job: WorkloadRecord, members: Sequence[Member], chosen: Collection[str], market: Market
) -> Sequence[Member]:
    """Members that the choice applies to.

    Args:
        job: The job.
        members: All of its members.
        chosen: Pools that were chosen for it.
        market: Maps nodes to pools.
    """
    apart = apart_pools(job, chosen, market.view.snapshot.pools)
    if not apart:
        return members
    return [
        member
        for member in members
        if not (
            is_reliable(job, member.pod.rank)
            and member.held
            and market.pool_of.get(member.held[0].node) in apart
        )
    ]


def cheapest(
    job: WorkloadRecord, names: Collection[str], pools: Mapping[str, PoolRecord]
) -> PoolRecord | None:
    """The pool of a reliable member's machine; ``None`` = none suits the job.

    Args:
        job: A job with reliable members, whose machines stay whatever ``spec.cost`` allows.
        names: Candidate pools.
        pools: All pools, by name.
    """
    anywhere = replace(job, cost=None)
    suited = [
        pools[name]
        for name in names
        if pools[name].status.available and not unsuited(pools[name], anywhere)
    ]
    return min(suited, key=lambda pool: (_price(pool, job), pool.name), default=None)


def _price(pool: PoolRecord, job: WorkloadRecord) -> float:
    price = member_price(pool, job, 1)
    return math.inf if price is None else price
