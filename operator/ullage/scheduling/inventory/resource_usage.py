# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which node a pod of ours counts on, and with what: the one rule for all who charge or refund.

What is refunded to an occupancy must be what was charged there, or room is invented or lost.
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
    """Where pods are charged, and with what.

    Args:
        inventory: knows the nodes by name.
        members: whose pods.
        staying: leave out those that are on their way out, for an occupancy as it will be
            without them.
    """
    found = []
    for member in members:
        node = inventory.node_index.get(where_charged(member))
        if node is not None and member.live and not (staying and member.pod.deleting):
            found.append((node, member.pod.shape.requests))
    return found
