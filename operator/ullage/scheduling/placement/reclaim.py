# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whom a workload may make leave where tenants have quota.

Inside one tenant, and among those without quota, priority decides. Work that its tenant holds
inside its nominal quota leaves for no other tenant, unless its turn is over. What a tenant borrowed
goes back to a tenant of its cohort that needs its nominal quota, as far as that one's
`reclaimWithinCohort` says, and no more than what was borrowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ullage.scheduling.feasibility.held_quota import HeldQuota
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.placement.attempt import SchedulingAttempt
from ullage.scheduling.placement.preemption import Victim


def may_leave_for(
    attempt: SchedulingAttempt,
    request: ResourceRequest,
    members: int,
    victims: Sequence[Victim],
    held: HeldQuota,
) -> list[Victim]:
    """Those of the victims that may leave, in their order.

    Args:
        attempt: For whom.
        request: What each of its members asks for.
        members: How many need a place.
        victims: In the order in which they are taken.
        held: Quota in use when what is leaving has left.
    """
    usage = held.usage.copy()
    tenant, asked = request.quota_of, request.min_percent * request.count * members
    found: list[Victim] = []
    for victim in victims:
        number = held.number_of(victim.uid)
        kinds = {held.kinds[site] for site, _ in victim.slices}
        is_lower = victim.priority < attempt.priority
        if victim.uid in attempt.may_stop:
            found.append(victim)
        elif attempt.modest:
            continue
        elif any(usage.reclaims(tenant, asked, number, kind, is_lower=is_lower) for kind in kinds):
            found.append(replace(victim, reclaimed=True))
        elif any(usage.protects(tenant, number, kind) for kind in kinds):
            continue
        elif is_lower:
            found.append(victim)
        elif attempt.takes_back(victim):
            found.append(replace(victim, given_back=True))
        elif attempt.takes_extra(victim):
            found.append(replace(victim, extra=True))
            continue  # what is taken of it is counted as it is taken
        else:
            continue
        for site, occupant in victim.slices:
            usage.add(number, held.kinds[site], -occupant.tenant.percent)
    return found


def lowest_priorities(victims: Sequence[Victim], held: HeldQuota) -> dict[tuple[int, str], int]:
    """Lowest priority of the victims, by tenant and accelerator type that they hold.

    Args:
        victims: The lowest priority first.
        held: Knows their tenants.
    """
    found: dict[tuple[int, str], int] = {}
    for victim in victims:
        number = held.number_of(victim.uid)
        for site, _ in victim.slices:
            found.setdefault((number, held.kinds[site]), victim.priority)
    return found


def anyone_may_leave(
    attempt: SchedulingAttempt,
    request: ResourceRequest,
    members: int,
    holders: Mapping[tuple[int, str], int],
    held: HeldQuota,
) -> bool:
    """Whether any victim may leave at all: one question for each tenant and type.

    Args:
        attempt: For whom; it stops no one whose turn is over.
        request: What each of its members asks for.
        members: How many need a place.
        holders: Lowest priority of the victims, by tenant and type.
        held: Quota in use when what is leaving has left.
    """
    if attempt.modest:
        return False
    usage, tenant = held.usage, request.quota_of
    asked = request.min_percent * request.count * members
    return any(
        usage.reclaims(tenant, asked, number, kind, is_lower=priority < attempt.priority)
        or (priority < attempt.priority and not usage.protects(tenant, number, kind))
        for (number, kind), priority in holders.items()
    )
