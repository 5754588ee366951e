# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The most members of an elastic gang that its budget pays for.

A gang takes what there is room for, so without this it would grow out of its budget and be stopped
for it. A pool without a price says nothing; the fewest members are never cut here.
"""

from __future__ import annotations

from collections.abc import Mapping

from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.scheduling.capacity.capacity_choice import CapacityChoices
from ullage.scheduling.capacity.market import affordable


def limits_of(
    spending: CapacityChoices,
    workloads: Mapping[str, WorkloadRecord],
    pools: Mapping[str, PoolRecord],
) -> dict[str, int]:
    """Most members of elastic jobs within their budgets, by uid; who may have all is left out.

    In the dearest of the pools that a job may be placed in, since it may go to any of them.

    Args:
        spending: What this cycle decided about pools.
        workloads: By uid.
        pools: By name.
    """
    found: dict[str, int] = {}
    for uid, pool_choice in spending.choices.items():
        job = workloads[uid]
        if job.elasticity is None or job.cost is None or job.cost.budget_per_hour is None:
            continue
        said = [affordable(pools[name], job) for name in pool_choice.pools if name in pools]
        most = min((one for one in said if one is not None), default=None)
        if most is not None and most < job.elasticity.max_replicas:
            found[uid] = most
    return found
