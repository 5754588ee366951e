# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The lane that a newcomer would share on a device, and lanes as seen by their neighbours.

The residents of a lane never run at once, so to others they are one tenant with the lane's share. A
newcomer takes the share of the lane that it joins; other shares do not change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.admission.records import Tenant
from ullage.engines.lanes.assignment import AssignedLane, choose_lane, next_lane
from ullage.engines.lanes.rules import LaneNeed
from ullage.scheduling.feasibility.occupancy import Occupancy, Occupant
from ullage.scheduling.feasibility.resource_requests import ResourceRequest


def joined_lane(occupancy: Occupancy, request: ResourceRequest, site: int) -> AssignedLane | None:
    """The lane of a device that a request would share; ``None`` without one.

    By rules 1 to 3 of the lane engine, in this order: a new lane where memory and shares leave room
    for it, else the smallest lane that is large enough, else a lane that may grow.
    """
    lanes = occupancy.lanes.get(site, ())
    if request.lane is None or not lanes:
        return None
    inventory, occupants = occupancy.inventory, occupancy.occupants[site]
    kept = {occupant.lane for occupant in occupants if has_to_be_kept(occupant.tenant)}
    open_to = [
        lane
        for lane in lanes
        if request.min_percent <= lane.percent <= request.max_percent and lane.lane not in kept
    ]
    contexts_mib = request.contexts * inventory.facts.overhead.item(site)
    need = LaneNeed(
        persistent_mib=request.lane.kept_mib + contexts_mib,
        ephemeral_mib=request.lane.shared_mib,
    )
    used = occupancy.percent_used.item(site)
    free_mib = inventory.facts.memory.item(site) - occupancy.memory_used_mib.item(site)
    may_open = used + request.min_percent <= request.percent_limit
    return choose_lane(need, open_to, free_mib, may_open=may_open)


def joined_lanes(
    occupancy: Occupancy, request: ResourceRequest, sites: Iterable[int] | None = None
) -> dict[int, AssignedLane]:
    """The shared lane by device, for all devices when ``sites`` is ``None``."""
    if request.lane is None or not occupancy.lanes:
        return {}
    joined: dict[int, AssignedLane] = {}
    for site in sorted(occupancy.lanes) if sites is None else sites:
        lane = joined_lane(occupancy, request, site)
        if lane is not None:
            joined[site] = lane
    return joined


def lane_number(occupancy: Occupancy, request: ResourceRequest, site: int) -> int:
    """The number of the lane that a request shares or opens on a device; 0 = none."""
    if request.lane is None:
        return 0
    lane = joined_lane(occupancy, request, site)
    return lane.lane if lane is not None else next_lane(occupancy.lanes.get(site, ()))


def has_to_be_kept(tenant: Tenant) -> bool:
    """True when a tenant has an objective, so that its lane is not shared."""
    return tenant.max_slowdown is not None or tenant.latency


def parties(occupants: Sequence[Occupant], without: int = 0) -> tuple[Tenant, ...]:
    """Tenants that may run at once on a device: each lane is one, in the place of its first.

    Args:
        occupants: All occupants of the device.
        without: A lane that is left out; 0 = none.
    """
    lanes: defaultdict[int, list[Tenant]] = defaultdict(list)
    for occupant in occupants:
        if occupant.lane and occupant.lane != without:
            lanes[occupant.lane].append(occupant.tenant)
    tenants: list[Tenant] = []
    for occupant in occupants:
        if not occupant.lane:
            tenants.append(occupant.tenant)
        elif occupant.lane in lanes:
            tenants.append(lane_tenant(lanes.pop(occupant.lane)))
    return tuple(tenants)


def lane_tenant(tenants: Sequence[Tenant]) -> Tenant:
    """The tenants of a lane, which run one at a time, as one tenant: the worst in each respect.

    Tenants of different classes have no common profile: measurements of one do not apply to the
    others.

    Args:
        tenants: At least one, all with the same share.
    """
    first = tenants[0]
    if len(tenants) == 1:
        return first
    alike = all(tenant.profile is first.profile for tenant in tenants)
    allowed = [tenant.max_slowdown for tenant in tenants if tenant.max_slowdown is not None]
    return Tenant(
        name=f"{first.name} and {len(tenants) - 1} more in turns",
        percent=max(tenant.percent for tenant in tenants),
        utilisation=max(tenant.utilisation for tenant in tenants),
        max_slowdown=min(allowed, default=None),
        latency=any(tenant.latency for tenant in tenants),
        probation=any(tenant.probation for tenant in tenants),
        profile=first.profile if alike else None,
    )


def waiting_factor(occupants: Sequence[Occupant], occupant: Occupant) -> int:
    """Maximum slowdown of an occupant by turns in its lane; 1 outside of lanes (derived).

    It is reached when all residents of the lane always want to run and have equal parts.
    """
    if not occupant.lane:
        return 1
    return sum(resident.lane == occupant.lane for resident in occupants)


def top_share(lane: AssignedLane | None, ceiling: int) -> int:
    """The largest share to check: that of the lane, where one is shared."""
    return ceiling if lane is None else min(lane.percent, WHOLE_PERCENT)
