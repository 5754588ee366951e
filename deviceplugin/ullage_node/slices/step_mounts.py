# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Computes how much room the book of slices leaves on each device for slots.

Pure; it reads the book and changes nothing.
"""

from __future__ import annotations

from ullage_node.kubelet.slot_board import DeviceRoom
from ullage_node.slices.table import SliceTable


def rooms_of(table: SliceTable) -> list[DeviceRoom]:
    """The room of every device."""
    parts = [part for binding in table.bindings for part in binding.slices]
    return [
        DeviceRoom(
            sharers=device.contexts,
            used=sum(part.gpu == device.uuid for part in parts),
            healthy=device.refusal is None,
        )
        for device in table.devices.values()
    ]
