# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pools as placing takes them: a flag per node, one object for all jobs of the same pools."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ullage.scheduling.capacity.capacity_choice import CapacityChoices
from ullage.scheduling.feasibility.allowed_nodes import Place
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.inventory.reliable_machines import stays


def places(spending: CapacityChoices, ground: Inventory) -> Mapping[str, Place]:
    """Where jobs may be placed, by uid; jobs that are not in it may go anywhere."""
    if spending.market is None:
        return {}
    pool_of, pools = spending.market.pool_of, spending.market.view.snapshot.pools
    of_node = [pool_of.get(node.name, "") for node in ground.nodes]
    known: dict[tuple[frozenset[str], bool], Place] = {}
    found: dict[str, Place] = {}
    for uid, stand in spending.stands.items():
        key = (stand.pools, stand.grows)
        if key not in known:
            flags = np.array([name in stand.pools for name in of_node], dtype=np.bool_)
            names = " or ".join(sorted(stand.pools)) or "none"
            steady = any(name in pools and stays(pools[name]) for name in stand.pools)
            known[key] = Place(nodes=flags, names=names, grows=stand.grows, stays=steady)
        found[uid] = known[key]
    return found
