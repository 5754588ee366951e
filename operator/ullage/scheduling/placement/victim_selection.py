# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Selects eligible preemption victims by priority, turn and quota.

Inside one tenant, and among workloads without quota, priority decides. Work within its tenant's
nominal quota is not stopped for another tenant, unless its turn is over. Borrowed quota returns to
a tenant of the cohort that needs its nominal quota, as its ``reclaimWithinCohort`` allows, and no
more than was borrowed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

from ullage.scheduling.feasibility.held_quota import HeldQuota
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.placement.attempt import SchedulingAttempt
from ullage.scheduling.placement.placement import Placement, Placer
from ullage.scheduling.placement.preemption import Eviction, Victim, make_room, within_reach

_MOST_WAYS: Final = 16
"""Victims that are tried first, where quota allows only some of them."""
_priority = attrgetter("priority")


@dataclass(slots=True)
class LaterDevices:
    """The devices without everything that is leaving; copied at first use, then kept current."""

    now: Placer
    _placer: Placer | None = None

    @property
    def differ(self) -> bool:
        """True when anything is leaving, or may already have been removed from the copy."""
        return self._placer is not None or self.now.occupancy.leaving()

    @property
    def placer(self) -> Placer:
        """Places on these devices."""
        if self._placer is None:
            self._placer = Placer(self.now.occupancy.later(), self.now.rule)
        return self._placer

    @property
    def quota(self) -> HeldQuota | None:
        """Usage of the quotas on these devices; nothing is copied if nothing is leaving."""
        now = self.now.occupancy.quota
        if now is None or not self.differ:
            return now
        return self.placer.occupancy.quota or now

    def take(self, gang: Sequence[Placement]) -> None:
        """Add members that are placed now."""
        if self._placer is not None:
            for placement in gang:
                self._placer.take(placement)

    def hold(self, sites: Sequence[int], holder: str) -> None:
        """Block devices that are held now."""
        if self._placer is not None:
            self._placer.occupancy.block(sites, holder, held=True)


@dataclass(slots=True)
class VictimSelection:
    """Selects victims for the workloads of one cycle.

    Attributes:
        later: Devices without everything that is leaving.
        victims: Gives all possible victims in order of priority, none while an earlier wave is
            still leaving; called only when a workload does not fit.
        evicted: Uids of workloads that are evicted in this cycle.
    """

    later: LaterDevices
    victims: Callable[[], Sequence[Victim]]
    evicted: set[str] = field(default_factory=set)
    _kept_by_quota: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By tenant: percent and priority at which no victim may leave for it."""
    _holders: Mapping[tuple[int, str], int] | None = None
    """Lowest priority of the victims, by tenant and type."""

    def eviction(
        self,
        attempt: SchedulingAttempt,
        unit: Sequence[Placement],
        near: set[int],
        arrange: Callable[[list[Victim]], list[Victim]],
    ) -> Eviction | None:
        """The fewest victims that make room; ``None`` when all eligible ones do not.

        Args:
            attempt: The workload that needs room.
            unit: Its members.
            near: Preferred nodes.
            arrange: Puts victims into the order in which they are taken.
        """
        for eligible in self._eligible(attempt, unit):
            victims = arrange(eligible)
            eviction = make_room(self.later.placer, unit, near, victims) if victims else None
            if eviction is not None:
                return eviction
        return None

    def _eligible(
        self, attempt: SchedulingAttempt, unit: Sequence[Placement]
    ) -> Iterator[list[Victim]]:
        """Lists of eligible victims to try, each in the order to take them.

        Where quota allows only some of the victims in reach, each of the others is tried first
        once, because its place may be the only one that the newcomer fits in.
        """
        quota = self.later.quota
        if quota is None:
            yield self._by_priority(attempt)
            return
        if self._no_one_leaves(attempt, unit, quota):
            return
        later = self.later.placer
        quota = self.later.quota or quota
        victims = [victim for victim in self.victims() if victim.uid not in self.evicted]
        if attempt.may_stop:
            last = len(attempt.may_stop)
            victims.sort(
                key=lambda victim: (victim.priority, attempt.may_stop.get(victim.uid, last))
            )
        request, members = unit[0].request, len(unit)
        useful = within_reach(later, unit, victims)
        leaving = may_leave_for(attempt, request, members, useful, quota)
        yield leaving
        tried = {victim.uid for victim in leaving}
        for first in useful[:_MOST_WAYS] if leaving else ():
            if first.uid in tried or not may_leave_for(attempt, request, members, [first], quota):
                continue
            others = [victim for victim in useful if victim is not first]
            leaving = may_leave_for(attempt, request, members, [first, *others], quota)
            tried.update(victim.uid for victim in leaving)
            yield leaving

    def _no_one_leaves(
        self, attempt: SchedulingAttempt, unit: Sequence[Placement], quota: HeldQuota
    ) -> bool:
        """True when quota and priority protect all victims; kept by tenant."""
        if attempt.may_stop or attempt.lent_by:
            return False
        if any(attempt.takes_extra(victim) for victim in self.victims()):
            return False
        request = unit[0].request
        asked = request.min_percent * request.count * len(unit)
        kept = self._kept_by_quota.get(request.quota_of)
        if kept is not None and asked >= kept[0] and attempt.priority <= kept[1]:
            return True
        if self._holders is None:
            self._holders = lowest_priorities(self.victims(), quota)
        if anyone_may_leave(attempt, request, len(unit), self._holders, quota):
            return False
        self._kept_by_quota[request.quota_of] = asked, attempt.priority
        return True

    def _by_priority(self, attempt: SchedulingAttempt) -> list[Victim]:
        """Victims of lower priority, in the headroom of the service, or with their turn over."""
        victims = self.victims()
        if not attempt.may_stop:  # victims are in order of priority
            least = 0 if attempt.modest else bisect_left(victims, attempt.priority, key=_priority)
            lower = [victim for victim in victims[:least] if victim.uid not in self.evicted]
            return [*lower, *self._of_equals(attempt, victims[least:])]
        eligible = [
            victim
            for victim in victims
            if victim.uid not in self.evicted
            and (
                (victim.priority < attempt.priority and not attempt.modest)
                or victim.uid in attempt.may_stop
            )
        ]
        last = len(attempt.may_stop)
        eligible.sort(key=lambda victim: (victim.priority, attempt.may_stop.get(victim.uid, last)))
        return eligible

    def _of_equals(self, attempt: SchedulingAttempt, victims: Sequence[Victim]) -> list[Victim]:
        """Victims of equal priority in its headroom, and gangs with spare members."""
        eligible: list[Victim] = []
        for victim in victims:
            if victim.priority > attempt.priority:
                break  # victims are in order of priority
            if victim.uid in self.evicted:
                continue
            if attempt.takes_back(victim):
                eligible.append(replace(victim, given_back=True))
            elif attempt.takes_extra(victim):
                eligible.append(replace(victim, extra=True))
        return eligible


def may_leave_for(
    attempt: SchedulingAttempt,
    request: ResourceRequest,
    members: int,
    victims: Sequence[Victim],
    quota: HeldQuota,
) -> list[Victim]:
    """Victims that quota and priority allow for a workload, in their order.

    Args:
        attempt: The workload.
        request: The request of each of its members.
        members: Number of members that need a place.
        victims: Victims in the order in which they are taken.
        quota: Usage without everything that is leaving.
    """
    usage = quota.usage.copy()
    tenant, asked = request.quota_of, request.min_percent * request.count * members
    leaving: list[Victim] = []
    for victim in victims:
        number = quota.number_of(victim.uid)
        kinds = {quota.kinds[site] for site, _ in victim.slices}
        is_lower = victim.priority < attempt.priority
        if victim.uid in attempt.may_stop:
            leaving.append(victim)
        elif attempt.modest:
            continue
        elif any(usage.reclaims(tenant, asked, number, kind, is_lower=is_lower) for kind in kinds):
            leaving.append(replace(victim, reclaimed=True))
        elif any(usage.protects(tenant, number, kind) for kind in kinds):
            continue
        elif is_lower:
            leaving.append(victim)
        elif attempt.takes_back(victim):
            leaving.append(replace(victim, given_back=True))
        elif attempt.takes_extra(victim):
            leaving.append(replace(victim, extra=True))
            continue  # its spare members are counted when they are taken
        else:
            continue
        for site, occupant in victim.slices:
            usage.add(number, quota.kinds[site], -occupant.tenant.percent)
    return leaving


def lowest_priorities(victims: Sequence[Victim], quota: HeldQuota) -> dict[tuple[int, str], int]:
    """Lowest priority of the victims, by tenant and accelerator type that they hold.

    Args:
        victims: The lowest priority first.
        quota: Maps victims to tenants.
    """
    lowest: dict[tuple[int, str], int] = {}
    for victim in victims:
        number = quota.number_of(victim.uid)
        for site, _ in victim.slices:
            lowest.setdefault((number, quota.kinds[site]), victim.priority)
    return lowest


def anyone_may_leave(
    attempt: SchedulingAttempt,
    request: ResourceRequest,
    members: int,
    holders: Mapping[tuple[int, str], int],
    quota: HeldQuota,
) -> bool:
    """True when any victim may leave, tested once per tenant and type.

    Args:
        attempt: The workload; it may be one that stops no workload whose turn is over.
        request: The request of each of its members.
        members: Number of members that need a place.
        holders: Lowest priority of the victims, by tenant and type.
        quota: Usage without everything that is leaving.
    """
    if attempt.modest:
        return False
    usage, tenant = quota.usage, request.quota_of
    asked = request.min_percent * request.count * members
    return any(
        usage.reclaims(tenant, asked, number, kind, is_lower=priority < attempt.priority)
        or (priority < attempt.priority and not usage.protects(tenant, number, kind))
        for (number, kind), priority in holders.items()
    )
