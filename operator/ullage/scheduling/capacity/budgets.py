# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Maximum members of an elastic gang by its budget, its chosen pools and its aim.

A gang grows into all free room, so without a limit it would exceed its budget and be stopped for
it, or exceed the size that was chosen with its pools or serves its aim best. A pool without a price
sets no limit; the minimum of members is never cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.capacity.capacity_choice import CapacityChoices, PoolChoice
from ullage.scheduling.capacity.market import affordable
from ullage.scheduling.model.device_choice import DeviceChoice
from ullage.scheduling.model.phases import Phase


@dataclass(frozen=True, slots=True)
class Limit:
    """Maximum members of a gang, and the reason, as text that ends with their number."""

    members: int
    why: str


def limits_of(
    capacity_choices: CapacityChoices,
    workloads: Mapping[str, WorkloadRecord],
    pools: Mapping[str, PoolRecord],
    choose: Callable[[WorkloadRecord], DeviceChoice],
) -> dict[str, Limit]:
    """Maximum members of elastic jobs, by uid; jobs without a limit are left out.

    A budget counts in the most expensive of the pools that a job may be placed in, since it may go
    to any of them. A size that was chosen with the pools has precedence over the recommended one.

    Args:
        capacity_choices: Choices of pools of this cycle.
        workloads: By uid.
        pools: By name.
        choose: Function for the choice of devices of a job.
    """
    limits: dict[str, Limit] = {}
    for uid, job in workloads.items():
        if job.elasticity is None or job.cost is None:
            continue
        pool_choice, candidates = capacity_choices.choices.get(uid), list[Limit | None]()
        chosen = None
        if pool_choice is not None:
            chosen = _chosen(pool_choice)
            candidates = [_paid(job, pool_choice, pools), chosen]
        if chosen is None:
            candidates.append(_recommended(job, choose(job).members))
        limit = min(filter(None, candidates), key=lambda limit: limit.members, default=None)
        if limit is not None and limit.members < job.elasticity.max_replicas:
            limits[uid] = limit
    return limits


def _recommended(job: WorkloadRecord, members: int) -> Limit | None:
    """The number that serves the job's aim best; a running gang is not shrunk for it."""
    if not members:
        return None
    if job.status.phase == Phase.RUNNING and job.replicas > members:
        return Limit(job.replicas, f"it runs with {job.replicas}, spec.cost recommends {members}")
    return Limit(members, f"spec.cost recommends {members}")


def _paid(
    job: WorkloadRecord, pool_choice: PoolChoice, pools: Mapping[str, PoolRecord]
) -> Limit | None:
    paid = [affordable(pools[name], job) for name in pool_choice.pools if name in pools]
    most = min((members for members in paid if members is not None), default=None)
    return None if most is None else Limit(most, f"spec.cost.budgetPerHour pays for {most}")


def _chosen(pool_choice: PoolChoice) -> Limit | None:
    facts, decision = pool_choice.facts, pool_choice.spend.decision
    if facts is None or not facts.sized or decision is None or not decision.chosen.pools:
        return None
    members = sum(pool.replicas for pool in decision.chosen.pools)
    return Limit(
        members, f"instances and delay (spec.cost.delayCostPerHour) cost least with {members}"
    )
