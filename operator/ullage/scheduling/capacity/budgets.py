# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The most members of an elastic gang for the sake of money.

A gang takes what there is room for, so without this it would grow out of its budget and be stopped
for it, or beyond the size that was chosen with its pools. A pool without a price says nothing; the
fewest members are never cut here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.scheduling.capacity.capacity_choice import CapacityChoices, PoolChoice
from ullage.scheduling.capacity.market import affordable


@dataclass(frozen=True, slots=True)
class Limit:
    """Most members of a gang, and why, in words that end with their number."""

    members: int
    why: str


def limits_of(
    spending: CapacityChoices,
    workloads: Mapping[str, WorkloadRecord],
    pools: Mapping[str, PoolRecord],
) -> dict[str, Limit]:
    """Most members of elastic jobs, by uid; who may have all is left out.

    A budget counts in the dearest of the pools that a job may be placed in, since it may go to any
    of them.

    Args:
        spending: What this cycle decided about pools.
        workloads: By uid.
        pools: By name.
    """
    found: dict[str, Limit] = {}
    for uid, pool_choice in spending.choices.items():
        job = workloads[uid]
        if job.elasticity is None or job.cost is None:
            continue
        said = [one for one in (_paid(job, pool_choice, pools), _chosen(pool_choice)) if one]
        limit = min(said, key=lambda one: one.members, default=None)
        if limit is not None and limit.members < job.elasticity.max_replicas:
            found[uid] = limit
    return found


def _paid(
    job: WorkloadRecord, pool_choice: PoolChoice, pools: Mapping[str, PoolRecord]
) -> Limit | None:
    said = [affordable(pools[name], job) for name in pool_choice.pools if name in pools]
    most = min((one for one in said if one is not None), default=None)
    return None if most is None else Limit(most, f"spec.cost.budgetPerHour pays for {most}")


def _chosen(pool_choice: PoolChoice) -> Limit | None:
    facts, decision = pool_choice.facts, pool_choice.spend.decision
    if facts is None or not facts.sized or decision is None or not decision.chosen.pools:
        return None
    members = sum(pool.replicas for pool in decision.chosen.pools)
    return Limit(
        members, f"instances and delay (spec.cost.delayCostPerHour) cost least with {members}"
    )
