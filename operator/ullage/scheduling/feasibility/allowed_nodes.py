# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The nodes that a workload may be placed on, by the pools that were chosen for it."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.scheduling.inventory.inventory import Flags


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """Nodes that a job may be placed on, by what was chosen for it.

    Attributes:
        nodes: By node of the inventory.
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
