# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pools as input of placement: a flag per node, one object for all jobs of the same pools."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ullage.scheduling.capacity.capacity_choice import CapacityChoices
from ullage.scheduling.feasibility.resource_requests import Place
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.inventory.reliable_machines import stays


def places(capacity_choices: CapacityChoices, inventory: Inventory) -> Mapping[str, Place]:
    """Allowed nodes of jobs, by uid; missing jobs may be placed anywhere."""
    if capacity_choices.market is None:
        return {}
    pool_of, pools = capacity_choices.market.pool_of, capacity_choices.market.view.snapshot.pools
    of_node = [pool_of.get(node.name, "") for node in inventory.nodes]
    shared: dict[tuple[frozenset[str], bool], Place] = {}
    by_job: dict[str, Place] = {}
    for uid, pool_choice in capacity_choices.choices.items():
        key = (pool_choice.pools, pool_choice.grows)
        if key not in shared:
            flags = np.array([name in pool_choice.pools for name in of_node], dtype=np.bool_)
            names = " or ".join(sorted(pool_choice.pools)) or "none"
            steady = any(name in pools and stays(pools[name]) for name in pool_choice.pools)
            shared[key] = Place(nodes=flags, names=names, grows=pool_choice.grows, stays=steady)
        by_job[uid] = shared[key]
    return by_job
