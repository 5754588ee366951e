# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs whose memory is not where a step needs it: on its way, away, or lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ullage.engines.lanes.records import Order, Resume, Suspend
from ullage.engines.lanes.state import Memory, Resident


@dataclass(slots=True, kw_only=True)
class Away:
    """The suspended jobs of a device, by name, and the number of the last order."""

    jobs: dict[str, Resident] = field(default_factory=dict)
    orders: int = 0

    def suspend(self, one: Resident) -> Suspend:
        """A resident without a lease begins to leave."""
        one.memory, one.leaves, one.order = Memory.LEAVING, False, self._next()
        return Suspend(job=one.name, order=one.order)

    def resume(self, one: Resident) -> Resume:
        """A suspended job that has a lane again begins to come back."""
        self.jobs.pop(one.name, None)
        one.memory, one.order = Memory.COMING, self._next()
        return _resume(one)

    def again(self, residents: Iterable[Resident]) -> tuple[Order, ...]:
        """The orders under way, under new numbers: who carried them out is gone."""
        found: list[Order] = []
        for one in residents:
            if one.memory is Memory.LEAVING:
                found.append(self.suspend(one))
            elif one.memory is Memory.COMING:
                one.order = self._next()
                found.append(_resume(one))
        return tuple(found)

    def left(self, one: Resident, holds_mib: int) -> None:
        """All memory of a job is off the device.

        What it keeps beyond what it declared is its own from now on, and missing for its steps: it
        never needs more than it was promised in all.

        Args:
            one: Out of its lane.
            holds_mib: What it kept between steps, as far as known, MiB.
        """
        more = min(max(0, holds_mib - one.persistent_mib), one.ephemeral_mib)
        one.persistent_mib += more
        one.ephemeral_mib -= more
        one.memory, one.lane, one.order = Memory.AWAY, 0, 0
        self.jobs[one.name] = one

    def _next(self) -> int:
        self.orders += 1
        return self.orders


def settled(one: Resident, now_s: float) -> None:
    """A job's memory is on the device from now on."""
    one.memory, one.order, one.served = Memory.HERE, 0, False
    one.came_s = one.quiet_s = now_s


def _resume(one: Resident) -> Resume:
    return Resume(job=one.name, order=one.order, lane=one.lane, persistent_mib=one.persistent_mib)
