# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pools as placing takes them: a flag per node, one object for all jobs of the same pools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ullage.decide.placement.ground import Flags, Ground
from ullage.decide.spending.spending import Spending
from ullage.decide.tiers.machines import stays


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """Nodes that a job may be placed on, by what was chosen for it.

    Attributes:
        nodes: By node of the ground.
        names: The pools, in words.
        grows: More nodes of them can be bought, so that what is too small now is not too small
            for ever.
        stays: One of them is not taken away. Where none is, reliable members of a job in tiers may
            be on any machine that stays.
    """

    nodes: Flags
    names: str
    grows: bool
    stays: bool = False


def places(spending: Spending, ground: Ground) -> Mapping[str, Place]:
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
