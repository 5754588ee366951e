# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Quota left for jobs that take turns, counted while a round is planned.

Services and adopted pods count first. Jobs that take turns start without devices: the plan assigns
all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ullage.engines.allocation.round_records import Members
from ullage.engines.quota.records import NO_TENANT
from ullage.engines.quota.usage import QuotaUsage
from ullage.scheduling.feasibility.occupancy import Occupancy
from ullage.scheduling.timeslicing.contenders import WHOLE, Arena


@dataclass(slots=True)
class TurnQuota:
    """Quota that is left; it changes while a round fills up."""

    arena: Arena
    usage: QuotaUsage
    tenants: Mapping[str, int]
    """Number of the tenant of each job that takes turns, by uid."""

    def has_room(self, members: Members, kind: str, *, nominal: bool = False) -> bool:
        """True when quota lets jobs have devices of a type; ``nominal`` = without borrowing."""
        demand: dict[int, int] = {}
        for uid in members:
            number = self.tenants[uid]
            demand[number] = demand.get(number, 0) + self._percent(uid, members, kind)
        available = self.usage.nominal_left if nominal else self.usage.available
        if len(demand) == 1:
            ((number, percent),) = demand.items()
            return number == NO_TENANT or percent <= available(number, kind)
        return self._have_room_together(demand, kind, nominal=nominal)

    def take(self, members: Members, kind: str) -> None:
        """Count them as having these devices."""
        for uid in members:
            self.usage.add(self.tenants[uid], kind, self._percent(uid, members, kind))

    def keep(self, uid: str) -> None:
        """Count the devices that a job has and keeps."""
        self._count_held(uid, 1)

    def plan_again(self, uid: str) -> None:
        """Stop counting a job: the planned round counts it itself."""
        self._count_held(uid, -1)

    def could_have(self, uid: str) -> bool:
        """True when a job, if it were alone, would have quota for a type that it can run on."""
        return any(self.has_room((uid,), kind) for kind in self.arena.runners[uid].speeds)

    def _count_held(self, uid: str, sign: int) -> None:
        runner = self.arena.runners[uid]
        percent = runner.percent if runner.percent < WHOLE else runner.points
        self.usage.add(self.tenants[uid], runner.holds, sign * percent)

    def _have_room_together(self, demand: Mapping[int, int], kind: str, *, nominal: bool) -> bool:
        """True when two tenants have room together, even when both borrow from one cohort."""
        usage = self.usage.copy()
        for number, percent in demand.items():
            available = usage.nominal_left if nominal else usage.available
            if number != NO_TENANT and percent > available(number, kind):
                return False
            usage.add(number, kind, percent)
        return True

    def _percent(self, uid: str, members: Members, kind: str) -> int:
        """Percent of devices that a member has."""
        if len(members) == 1:
            return self.arena.runners[uid].points
        (other,) = (member for member in members if member != uid)
        both = self.arena.pairing.together(uid, other, kind)
        return both.percents[0] if both is not None else self.arena.runners[uid].points


def turn_quota(arena: Arena, occupancy: Occupancy) -> TurnQuota | None:
    """Quota before any turn is given; ``None`` = no tenant has quota."""
    quota = occupancy.quota
    if quota is None:
        return None
    usage = QuotaUsage(quota.tenants.quotas)
    for site, occupants in enumerate(occupancy.occupants):
        for occupant in occupants:
            if occupant.owner_uid not in arena.runners and not occupant.leaving:
                number = quota.number_of(occupant.owner_uid)
                usage.add(number, quota.kinds[site], occupant.tenant.percent)
    return TurnQuota(arena, usage, {uid: quota.number_of(uid) for uid in arena.runners})
