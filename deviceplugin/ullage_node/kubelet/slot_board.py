# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tracks the slots that the node offers, and notifies kubelet's streams of changes.

A slot is a token without a device: any of them may become any slice. So a faulty device removes as
many *free* slots as it had room for, no matter which, and never one in use.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ullage.api.slices import slot_id


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRoom:
    """Room of one device: its container limit, and the containers that hold a slot on it."""

    sharers: int
    used: int
    healthy: bool


def offered_slots(rooms: Collection[DeviceRoom], in_use: Collection[str]) -> Mapping[str, bool]:
    """Every slot id; true if it may be allocated (or is in use).

    Args:
        rooms: the devices.
        in_use: slots that kubelet has allocated, with or without a bound slice.
    """
    total = sum(room.sharers for room in rooms)
    ids = sorted({slot_id(number) for number in range(total)} | set(in_use))
    bound = sum(room.used for room in rooms)
    unbound = max(0, len(in_use) - bound)
    room_left = sum(max(0, room.sharers - room.used) for room in rooms if room.healthy) - unbound
    offered: dict[str, bool] = {}
    for slot in ids:
        if slot in in_use:
            offered[slot] = True
        else:
            offered[slot] = room_left > 0
            room_left -= 1
    return MappingProxyType(offered)


class SlotBoard:
    """The list that kubelet streams; every change reaches every listener once."""

    def __init__(self) -> None:
        self._slots: Mapping[str, bool] = MappingProxyType({})
        self._changed = asyncio.Event()
        self._closed = False

    @property
    def slots(self) -> Mapping[str, bool]:
        """Slot ids and their health."""
        return self._slots

    def publish(self, slots: Mapping[str, bool]) -> bool:
        """Set the list; true if it has changed."""
        if dict(slots) == dict(self._slots):
            return False
        self._slots = MappingProxyType(dict(slots))
        self._wake()
        return True

    def close(self) -> None:
        """End all streams; new ones end at once until :meth:`open`."""
        self._closed = True
        self._wake()

    def open(self) -> None:
        """Allow streams again."""
        self._closed = False

    async def frames(self) -> AsyncIterator[Mapping[str, bool]]:
        """The current list, and each changed list, until the board is closed."""
        last: Mapping[str, bool] | None = None
        while not self._closed:
            changed = self._changed
            if last is not self._slots:
                last = self._slots
                yield last
                continue  # it may have changed while the listener was busy
            await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
