# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a tenant's quota leaves for members that ask for devices, by accelerator type.

A gang takes all of its quota from one type. A range of shares that fits inside the nominal quota
with its least does not borrow to get more, so that a tenant inside its quota is never preempted for
what it merely liked to have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ullage.api.reasons import Reason
from ullage.cluster.records.status import RefusalLine
from ullage.engines.admission.records import Refusal
from ullage.engines.quota.records import Reclaim
from ullage.engines.quota.usage import QuotaUsage
from ullage.scheduling.feasibility.held_quota import HeldQuota
from ullage.scheduling.feasibility.resource_requests import ResourceRequest

_MOST_LINES: Final = 8


@dataclass(frozen=True, slots=True)
class Allowance:
    """What members may take.

    Attributes:
        caps: Most percent of a device for each member, by model that takes them all.
        members: Most of the members that any model takes.
    """

    caps: Mapping[int, int]
    members: int

    def choices(self, models: Sequence[int], wanted: int) -> list[dict[int, int]]:
        """Sets of models to try in turn; first those that take members at their full size.

        Args:
            models: Those that the members may be on.
            wanted: Most percent that each can use.
        """
        full = {model: wanted for model, cap in self.caps.items() if cap >= wanted}
        if len(full) == len(models) or len(full) == len(self.caps):
            return [full] if full else []
        least = min(self.caps.values())
        every = dict.fromkeys(self.caps, least)
        return [full, every] if full else [every]


def models_of(request: ResourceRequest, models: Mapping[str, int]) -> list[int]:
    """Models that a request may be on, in order of their numbers."""
    barred = request.barred
    allowed = models.values() if request.accelerators is None else request.accelerators
    return sorted(model for model in allowed if model not in barred)


def allowance(
    held: HeldQuota, request: ResourceRequest, members: int, models: Mapping[str, int]
) -> Allowance:
    """What the quota of its tenant leaves for so many members.

    Args:
        held: What tenants hold.
        request: What each member asks for; it counts against a quota.
        members: How many there are.
        models: Numbers of accelerator types.
    """
    names = {number: name for name, number in models.items()}
    each = request.min_percent * request.count
    caps: dict[int, int] = {}
    most = 0
    for model in models_of(request, models):
        kind = names[model]
        room = held.usage.available(request.quota_of, kind)
        most = max(most, min(members, room // each))
        if room < each * members:
            continue
        own = held.usage.nominal_left(request.quota_of, kind)
        inside = min(own, room) if own >= each * members else room
        caps[model] = min(request.max_percent, inside // (request.count * members))
    return Allowance(caps, most)


def borrows(held: HeldQuota, request: ResourceRequest, members: int, kinds: Sequence[str]) -> bool:
    """Whether members fit inside the nominal quota of their tenant on none of these types."""
    asked = request.min_percent * request.count * members
    return all(held.usage.nominal_left(request.quota_of, kind) < asked for kind in kinds)


def exceeded(
    held: HeldQuota, request: ResourceRequest, members: int, models: Mapping[str, int]
) -> tuple[RefusalLine, ...]:
    """Why members do not fit into the quota: one line for each type, the closest miss first."""
    usage, number = held.usage, request.quota_of
    names = {at: name for name, at in models.items()}
    kinds = [names[model] for model in models_of(request, models)]
    kinds.sort(key=lambda kind: (-usage.available(number, kind), kind))
    asked = request.min_percent * request.count * members
    return tuple(
        RefusalLine(
            reason=Reason.QUOTA_EXCEEDED,
            devices=held.kinds.count(kind),
            nearest="",
            message=_numbers(held, number, kind, asked),
        )
        for kind in kinds[:_MOST_LINES]
    )


def barred_by_quota(held: HeldQuota, request: ResourceRequest, members: int, kind: str) -> Refusal:
    """Why a type is passed over though another one is not."""
    asked = request.min_percent * request.count * members
    return Refusal(reason=Reason.QUOTA_EXCEEDED, text=_numbers(held, request.quota_of, kind, asked))


def _numbers(held: HeldQuota, number: int, kind: str, asked: int) -> str:
    usage, quotas = held.usage, held.tenants.quotas
    tenant, most = quotas.tenants[number], usage.most(number, kind)
    if kind not in tenant.limits:
        return f"tenant {tenant.name} has no quota of {kind}"
    text = (
        f"tenant {tenant.name} holds {usage.used(number, kind)} % of {kind}, its nominal quota is"
        f" {tenant.limits[kind].nominal} %, {_borrowable(usage, number, kind)}, and this asks for"
        f" {asked} %"
    )
    if asked > most:
        return f"{text}, which is more than the quota can ever be ({most} %)"
    return text


def _borrowable(usage: QuotaUsage, number: int, kind: str) -> str:
    tenant = usage.quotas.tenants[number]
    if not tenant.cohort:
        return "it has no cohort to borrow from"
    room, own = usage.available(number, kind), max(0, usage.nominal_left(number, kind))
    if own > room:
        taken = {
            Reclaim.NEVER: "comes back when their work ends (reclaimWithinCohort is Never)",
            Reclaim.LOWER_PRIORITY: "comes back from work of lower priority that saves its state",
            Reclaim.ANY: "comes back as soon as work that saves its state has left",
        }[tenant.reclaim]
        return f"{own - room} % of it is lent to cohort {tenant.cohort} and {taken}"
    return f"{room - own} % can be borrowed from cohort {tenant.cohort}"
