# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Node and amounts that a pod of ours is charged with: one rule for charges and refunds.

An occupancy must get back what was charged to it, or room is invented or lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from ullage.cluster.records.pod_shape import Resources
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.model.view import Member


def where_charged(member: Member) -> str:
    """The node that a pod counts on: where it is bound, or where its slice pins it to."""
    return member.pod.node or (member.held[0].node if member.held else "")


def charged(
    inventory: Inventory, members: Sequence[Member], *, staying: bool = False
) -> list[tuple[int, Resources]]:
    """Nodes where pods are charged, and the amounts.

    Args:
        inventory: knows the nodes by name.
        members: whose pods.
        staying: leave out those that are on their way out, for an occupancy as it will be
            without them.
    """
    charges = []
    for member in members:
        node = inventory.node_index.get(where_charged(member))
        if node is not None and member.live and not (staying and member.pod.deleting):
            charges.append((node, member.pod.shape.requests))
    return charges
