# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Free parts of devices, and the placement of a trial of a size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ullage.engines.tuning.records import TrialDevice, TrialHolding


class TrialOccupancy:
    """Free parts by device; a share lies on one device, a wide trial on whole devices."""

    def __init__(self, devices: Sequence[TrialDevice], parts: int) -> None:
        self._parts = parts
        self._numbers = [device.number for device in devices]
        self._place = {number: at for at, number in enumerate(self._numbers)}
        nodes = {
            name: at for at, name in enumerate(dict.fromkeys(device.node for device in devices))
        }
        self._node = np.asarray([nodes[device.node] for device in devices], dtype=np.intp)
        self._free = np.full(len(self._numbers), parts, dtype=np.int64)

    @property
    def largest_free(self) -> int:
        """Number of free parts of the emptiest device."""
        return int(self._free.max(initial=0))

    def knows(self, holding: TrialHolding) -> bool:
        """True when all devices of a holding exist."""
        return all(number in self._place for number in holding.devices)

    def take(self, size: int, devices: tuple[int, ...]) -> None:
        """Occupy parts.

        Raises:
            ValueError: a device has too few free parts.
        """
        for number in devices:
            at = self._place[number]
            self._free[at] -= min(size, self._parts)
            if self._free[at] < 0:
                raise ValueError(f"device {number} holds more than there is")

    def give_back(self, size: int, devices: tuple[int, ...]) -> None:
        """Free parts."""
        for number in devices:
            self._free[self._place[number]] += min(size, self._parts)

    def place(self, size: int, near: tuple[int, ...] = ()) -> tuple[int, ...] | None:
        """Devices for a size, without taking them; ``None`` where it does not fit.

        A share goes to the fullest device with room, or stays on its own where possible. A wide
        trial goes to the node with the fewest sufficient whole devices, else to neighbours.

        Args:
            size: Parts.
            near: Preferred devices, already freed.
        """
        if size < self._parts:
            return self._share(size, near)
        return self._whole(size // self._parts, near)

    def _share(self, size: int, near: tuple[int, ...]) -> tuple[int, ...] | None:
        for number in near:
            if self._free[self._place[number]] >= size:
                return (number,)
        room = np.where(self._free >= size, self._free, self._parts + 1)
        if room.size == 0:
            return None
        at = int(room.argmin())
        return None if room[at] > self._parts else (self._numbers[at],)

    def _whole(self, count: int, near: tuple[int, ...]) -> tuple[int, ...] | None:
        empty = np.flatnonzero(self._free == self._parts)
        if empty.size < count:
            return None
        kept = {self._place[number] for number in near}
        by_node = np.bincount(self._node[empty], minlength=int(self._node.max(initial=0)) + 1)
        fitting = np.flatnonzero(by_node >= count)
        if fitting.size:
            own = [int(self._node[at]) for at in kept if by_node[self._node[at]] >= count]
            node = own[0] if own else int(fitting[by_node[fitting].argmin()])
            empty = empty[self._node[empty] == node]
        order = sorted(empty.tolist(), key=lambda at: at not in kept)
        return tuple(sorted(self._numbers[at] for at in order[:count]))
