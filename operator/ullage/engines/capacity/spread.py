# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replicas of a service over pools, so that one interruption takes as few as possible.

Instances of a pool are lost together, instances of different pools independently: the same model as
in the hazards and in E_A. The correlation within a pool is the mean fraction of its instances that
an event took; without any event it is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EVEN: Final = 1e-9
"""Losses closer than this are equal."""


def pools_to_join(held: Mapping[str, int], lost: Mapping[str, float]) -> frozenset[str]:
    """The pools with the smallest loss per event once they have one more replica.

    Placing replicas one by one in this way minimises the worst event among all placements of as
    many replicas (derived: a pool's loss grows with its own replicas alone).

    Args:
        held: Replicas by pool, of any pools.
        lost: Fraction of a pool's instances that an event takes, 0..1, of the pools with room.

    Returns:
        Empty without a pool with room.
    """
    loss = {name: (held.get(name, 0) + 1) * fraction for name, fraction in lost.items()}
    least = min(loss.values(), default=0.0)
    return frozenset(name for name, takes in loss.items() if takes <= least + EVEN)


def replicas_to_survive(needed: int, pools: int) -> int:
    """Replicas that leave enough when one of several pools is lost.

    The smallest n with n - ceil(n / pools) >= needed, spread evenly (derived). With one pool no
    number is enough, so none is added.

    Args:
        needed: Replicas that the load needs.
        pools: Pools that are lost independently, at least 1.

    Raises:
        ValueError: ``needed`` is below 0 or ``pools`` below 1.
    """
    if needed < 0 or pools < 1:
        raise ValueError(f"no number of replicas is for {needed} needed in {pools} pools")
    if pools == 1:
        return needed
    return -(-needed * pools // (pools - 1))
