# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Node and amounts that one of our pods is charged with: one rule for charges and refunds.

An occupancy must be refunded what was charged to it, or room is invented or lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from ullage.cluster.records.pod_shape import Resources
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.model.view import Member


def where_charged(member: Member) -> str:
    """The node of a pod: by binding, or by the pin of its slice."""
    return member.pod.node or (member.held[0].node if member.held else "")


def charged(
    inventory: Inventory, members: Sequence[Member], *, staying: bool = False
) -> list[tuple[int, Resources]]:
    """Nodes where pods are charged, and the amounts.

    Args:
        inventory: Nodes by name.
        members: The pods.
        staying: Exclude pods that are leaving, for an occupancy without them.
    """
    charges = []
    for member in members:
        node = inventory.node_index.get(where_charged(member))
        if node is not None and member.live and not (staying and member.pod.deleting):
            charges.append((node, member.pod.shape.requests))
    return charges
