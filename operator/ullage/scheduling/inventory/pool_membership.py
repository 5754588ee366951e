# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The pool of a node: the first one, by name, whose labels are all on the node.

A node has one pool or none. It must never be guessed from prices or names of types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Self

from ullage.cluster.records.pool import PoolRecord

_NOWHERE: Final[tuple[PoolRecord, ...]] = ()


class PoolMembership:
    """Pools indexed so that a node is looked up by its labels, not pool by pool."""

    def __init__(self, pools: Iterable[PoolRecord]) -> None:
        """Pools without a selector match nothing."""
        self._by_label: dict[tuple[str, str], list[PoolRecord]] = {}
        for pool in sorted(pools, key=lambda pool: pool.name):
            if pool.node_selector:
                # few nodes share a zone label: the last label in order is selective enough
                rarest = max(pool.node_selector.items())
                self._by_label.setdefault(rarest, []).append(pool)

    @classmethod
    def of(cls, pools: Mapping[str, PoolRecord]) -> Self:
        """Index the pools of a snapshot."""
        return cls(pools.values())

    def pool_of(self, labels: Mapping[str, str]) -> PoolRecord | None:
        """The pool of a node with these labels."""
        first: PoolRecord | None = None
        for label in labels.items():
            for pool in self._by_label.get(label, _NOWHERE):
                if first is not None and pool.name >= first.name:
                    break
                if pool.node_selector.items() <= labels.items():
                    first = pool
                    break
        return first


def pool_of(labels: Mapping[str, str], pools: Mapping[str, PoolRecord]) -> PoolRecord | None:
    """The pool of one node; callers with many nodes use a ``Membership``.

    Args:
        labels: The node's labels.
        pools: All pools, by name.
    """
    return PoolMembership(pools.values()).pool_of(labels)
