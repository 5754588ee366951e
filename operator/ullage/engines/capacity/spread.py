# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replicas of a service over pools, so that one interruption takes as few as can be.

Instances of a pool are lost together, instances of different pools independently: the same model
as in the hazards and in E_A. What correlates within a pool is the mean fraction of its instances
that an event took; without any event all of them are assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EVEN: Final = 1e-9
"""Losses closer than this are the same."""


def pools_to_join(held: Mapping[str, int], lost: Mapping[str, float]) -> frozenset[str]:
    """The pools of which an event takes least of a service once one replica more is there.

    Joining so one after the other keeps the worst event as small as any placing of as many replicas
    does (derived: a pool's loss grows with its own replicas alone).

    Args:
        held: Replicas by pool, of any pools.
        lost: Fraction of a pool's instances that an event takes, 0..1, of the pools with room.

    Returns:
        Empty where there is no pool with room.
    """
    loss = {name: (held.get(name, 0) + 1) * fraction for name, fraction in lost.items()}
    least = min(loss.values(), default=0.0)
    return frozenset(name for name, takes in loss.items() if takes <= least + EVEN)


def replicas_to_survive(needed: int, pools: int) -> int:
    """Replicas of which enough are left when one pool of several is lost.

    The fewest n with n - ceil(n / pools) >= needed, spread evenly (derived). With one pool none is
    enough, so none is added.

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
