# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Selects eligible preemption victims by priority, turn and quota."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

from ullage.scheduling.feasibility.held_quota import HeldQuota
from ullage.scheduling.placement.attempt import SchedulingAttempt
from ullage.scheduling.placement.later_devices import LaterDevices
from ullage.scheduling.placement.placement import Placement
from ullage.scheduling.placement.preemption import Eviction, Victim, make_room, within_reach
from ullage.scheduling.placement.reclaim import (
    anyone_may_leave,
    lowest_priorities,
    may_leave_for,
)

_MOST_WAYS: Final = 16
"""Victims that are tried as the first one, where quota lets only some of them leave."""
_priority = attrgetter("priority")


@dataclass(slots=True)
class VictimSelection:
    """Selects victims for the workloads of one cycle.

    Attributes:
        later: Devices when all that is leaving has left.
        victims: Who may be stopped at all, in order of priority; asked only when someone does not
            fit, empty while an earlier wave is still leaving.
        evicted: Uids of those who leave already.
    """

    later: LaterDevices
    victims: Callable[[], Sequence[Victim]]
    evicted: set[str] = field(default_factory=set)
    _kept_by_quota: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By tenant: percent and priority at which no one has to leave for it."""
    _holders: Mapping[tuple[int, str], int] | None = None
    """Lowest priority of those who may be stopped, by tenant and type."""

    def eviction(
        self,
        attempt: SchedulingAttempt,
        unit: Sequence[Placement],
        near: set[int],
        arrange: Callable[[list[Victim]], list[Victim]],
    ) -> Eviction | None:
        """The fewest victims that make room; ``None`` when those who may be stopped do not.

        Args:
            attempt: Who needs room.
            unit: What its members ask for.
            near: Nodes that it would like to be on.
            arrange: Puts those who may be stopped into the order in which they are taken.
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
        """Whom a workload may make leave, in the order to take them.

        Where quota lets only some of those leave who are in reach, each of the others comes first
        once: it may be that the newcomer fits nowhere but in its place.
        """
        held = self.later.quota
        if held is None:
            yield self._by_priority(attempt)
            return
        if self._no_one_leaves(attempt, unit, held):
            return
        later = self.later.placer
        held = self.later.quota or held
        victims = [victim for victim in self.victims() if victim.uid not in self.evicted]
        if attempt.may_stop:
            last = len(attempt.may_stop)
            victims.sort(key=lambda one: (one.priority, attempt.may_stop.get(one.uid, last)))
        request, members = unit[0].request, len(unit)
        useful = within_reach(later, unit, victims)
        found = may_leave_for(attempt, request, members, useful, held)
        yield found
        tried = {victim.uid for victim in found}
        for first in useful[:_MOST_WAYS] if found else ():
            if first.uid in tried or not may_leave_for(attempt, request, members, [first], held):
                continue
            others = [victim for victim in useful if victim is not first]
            found = may_leave_for(attempt, request, members, [first, *others], held)
            tried.update(victim.uid for victim in found)
            yield found

    def _no_one_leaves(
        self, attempt: SchedulingAttempt, unit: Sequence[Placement], held: HeldQuota
    ) -> bool:
        """Whether quota and priority keep all that runs: asked once for what a tenant needs."""
        if attempt.may_stop or attempt.lent_by:
            return False
        if any(attempt.takes_extra(victim) for victim in self.victims()):
            return False
        request = unit[0].request
        asked = request.min_percent * request.count * len(unit)
        known = self._kept_by_quota.get(request.quota_of)
        if known is not None and asked >= known[0] and attempt.priority <= known[1]:
            return True
        if self._holders is None:
            self._holders = lowest_priorities(self.victims(), held)
        if anyone_may_leave(attempt, request, len(unit), self._holders, held):
            return False
        self._kept_by_quota[request.quota_of] = asked, attempt.priority
        return True

    def _by_priority(self, attempt: SchedulingAttempt) -> list[Victim]:
        """Victims of lower priority, those that train in its headroom, those whose turn is over."""
        victims = self.victims()
        if not attempt.may_stop:  # they stand in order of priority
            least = 0 if attempt.modest else bisect_left(victims, attempt.priority, key=_priority)
            lower = [victim for victim in victims[:least] if victim.uid not in self.evicted]
            return [*lower, *self._of_equals(attempt, victims[least:])]
        found = [
            victim
            for victim in victims
            if victim.uid not in self.evicted
            and (
                (victim.priority < attempt.priority and not attempt.modest)
                or victim.uid in attempt.may_stop
            )
        ]
        last = len(attempt.may_stop)
        found.sort(key=lambda victim: (victim.priority, attempt.may_stop.get(victim.uid, last)))
        return found

    def _of_equals(self, attempt: SchedulingAttempt, victims: Sequence[Victim]) -> list[Victim]:
        """Of others those that train in its headroom, and what gangs of others can spare."""
        found: list[Victim] = []
        for victim in victims:
            if victim.priority > attempt.priority:
                break  # they stand in order of priority
            if victim.uid in self.evicted:
                continue
            if attempt.takes_back(victim):
                found.append(replace(victim, given_back=True))
            elif attempt.takes_extra(victim):
                found.append(replace(victim, extra=True))
        return found
