# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The room that a tenant's quota leaves for members, by accelerator type.

A gang takes all of its quota from one type. A range of shares whose minimum fits into the nominal
quota does not borrow to get more, so that a tenant within its quota is never preempted for an
optional part.
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
    """The limits of a quota for members.

    Attributes:
        caps: Largest percent of a device for each member, by model that takes all of them.
        members: Largest number of members that a single model takes.
    """

    caps: Mapping[int, int]
    members: int

    def choices(self, models: Sequence[int], wanted: int) -> list[dict[int, int]]:
        """Sets of models to try in turn; first those that take members at their full size.

        Args:
            models: Models that the members may be on.
            wanted: Largest percent that each can use.

        Returns:
            Caps by model, percent.
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
    quota: HeldQuota, request: ResourceRequest, members: int, models: Mapping[str, int]
) -> Allowance:
    """The allowance of a tenant's quota for members.

    Args:
        quota: Usage of the quotas.
        request: The request of each member, which counts against a quota.
        members: Number of members.
        models: Numbers of accelerator types.
    """
    names = {number: name for name, number in models.items()}
    each = request.min_percent * request.count
    caps: dict[int, int] = {}
    most = 0
    for model in models_of(request, models):
        kind = names[model]
        room = quota.usage.available(request.quota_of, kind)
        most = max(most, min(members, room // each))
        if room < each * members:
            continue
        nominal = quota.usage.nominal_left(request.quota_of, kind)
        inside = min(nominal, room) if nominal >= each * members else room
        caps[model] = min(request.max_percent, inside // (request.count * members))
    return Allowance(caps, most)


def borrows(quota: HeldQuota, request: ResourceRequest, members: int, kinds: Sequence[str]) -> bool:
    """True when members do not fit into their tenant's nominal quota on any of these types."""
    asked = request.min_percent * request.count * members
    return all(quota.usage.nominal_left(request.quota_of, kind) < asked for kind in kinds)


def exceeded(
    quota: HeldQuota, request: ResourceRequest, members: int, models: Mapping[str, int]
) -> tuple[RefusalLine, ...]:
    """Refusals of members that do not fit into the quota: a line per type, closest miss first."""
    usage, number = quota.usage, request.quota_of
    names = {at: name for name, at in models.items()}
    kinds = [names[model] for model in models_of(request, models)]
    kinds.sort(key=lambda kind: (-usage.available(number, kind), kind))
    asked = request.min_percent * request.count * members
    return tuple(
        RefusalLine(
            reason=Reason.QUOTA_EXCEEDED,
            devices=quota.kinds.count(kind),
            nearest="",
            message=_numbers(quota, number, kind, asked),
        )
        for kind in kinds[:_MOST_LINES]
    )


def barred_by_quota(quota: HeldQuota, request: ResourceRequest, members: int, kind: str) -> Refusal:
    """The refusal of a type whose quota is used up."""
    asked = request.min_percent * request.count * members
    return Refusal(
        reason=Reason.QUOTA_EXCEEDED, text=_numbers(quota, request.quota_of, kind, asked)
    )


def _numbers(quota: HeldQuota, number: int, kind: str, asked: int) -> str:
    usage, quotas = quota.usage, quota.tenants.quotas
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
    room, nominal = usage.available(number, kind), max(0, usage.nominal_left(number, kind))
    if nominal > room:
        taken = {
            Reclaim.NEVER: "comes back when their work ends (reclaimWithinCohort is Never)",
            Reclaim.LOWER_PRIORITY: "comes back from work of lower priority that saves its state",
            Reclaim.ANY: "comes back as soon as work that saves its state has left",
        }[tenant.reclaim]
        return f"{nominal - room} % of it is lent to cohort {tenant.cohort} and {taken}"
    return f"{room - nominal} % can be borrowed from cohort {tenant.cohort}"
