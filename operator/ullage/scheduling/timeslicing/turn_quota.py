# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Quota that is left for jobs that take turns, counted while a round is planned.

What services and adopted pods hold counts first. Jobs that take turns start without devices: the
plan assigns all of them.
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
    """Quota that is left; asked and changed while a round fills up."""

    arena: Arena
    usage: QuotaUsage
    tenants: Mapping[str, int]
    """Number of the tenant of each who takes turns, by uid."""

    def has_room(self, members: Members, kind: str, *, nominal: bool = False) -> bool:
        """Whether jobs may have devices of a type; ``nominal`` = without borrowing."""
        asked: dict[int, int] = {}
        for uid in members:
            number = self.tenants[uid]
            asked[number] = asked.get(number, 0) + self._percent(uid, members, kind)
        left = self.usage.nominal_left if nominal else self.usage.available
        if len(asked) == 1:
            ((number, percent),) = asked.items()
            return number == NO_TENANT or percent <= left(number, kind)
        return self._have_room_together(asked, kind, nominal=nominal)

    def take(self, members: Members, kind: str) -> None:
        """Count them as having these devices."""
        for uid in members:
            self.usage.add(self.tenants[uid], kind, self._percent(uid, members, kind))

    def keep(self, uid: str) -> None:
        """Count what a job has now and keeps."""
        self._count_held(uid, 1)

    def plan_again(self, uid: str) -> None:
        """Count it no more: the round that is planned counts it itself."""
        self._count_held(uid, -1)

    def could_have(self, uid: str) -> bool:
        """Whether a job had quota of any type that it can run on if it were alone."""
        return any(self.has_room((uid,), kind) for kind in self.arena.runners[uid].speeds)

    def _count_held(self, uid: str, sign: int) -> None:
        one = self.arena.runners[uid]
        percent = one.percent if one.percent < WHOLE else one.points
        self.usage.add(self.tenants[uid], one.holds, sign * percent)

    def _have_room_together(self, asked: Mapping[int, int], kind: str, *, nominal: bool) -> bool:
        """Two tenants that share a device may take from one cohort."""
        usage = self.usage.copy()
        for number, percent in asked.items():
            left = usage.nominal_left if nominal else usage.available
            if number != NO_TENANT and percent > left(number, kind):
                return False
            usage.add(number, kind, percent)
        return True

    def _percent(self, uid: str, members: Members, kind: str) -> int:
        """Percent of devices that one of the members has."""
        if len(members) == 1:
            return self.arena.runners[uid].points
        (other,) = (one for one in members if one != uid)
        both = self.arena.pairing.together(uid, other, kind)
        return both.percents[0] if both is not None else self.arena.runners[uid].points


def turn_quota(arena: Arena, occupancy: Occupancy) -> TurnQuota | None:
    """Quota before any turn is given; ``None`` where no tenant has quota."""
    held = occupancy.quota
    if held is None:
        return None
    usage = QuotaUsage(held.tenants.quotas)
    for site, here in enumerate(occupancy.occupants):
        for one in here:
            if one.owner_uid not in arena.runners and not one.leaving:
                number = held.number_of(one.owner_uid)
                usage.add(number, held.kinds[site], one.tenant.percent)
    return TurnQuota(arena, usage, {uid: held.number_of(uid) for uid in arena.runners})
