# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which lane a newcomer would share on a device, and what a lane is to its neighbours.

The residents of a lane never run at once, so to others they are one tenant with the lane's share.
A newcomer takes the share of the lane that it joins; other shares do not change.
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
    """The lane of a device that a request would share; ``None`` where it shares none.

    Rules 1 to 3 of the lane engine, in their order: a lane of its own where memory and shares leave
    room for one, else the smallest lane that is large enough, else one that may grow.
    """
    lanes = occupancy.lanes.get(site, ())
    if request.lane is None or not lanes:
        return None
    inventory, here = occupancy.inventory, occupancy.occupants[site]
    held = {one.lane for one in here if has_to_be_kept(one.tenant)}
    open_to = [
        one
        for one in lanes
        if request.min_percent <= one.percent <= request.max_percent and one.lane not in held
    ]
    contexts_mib = request.contexts * inventory.overhead_mib.item(site)
    need = LaneNeed(
        persistent_mib=request.lane.kept_mib + contexts_mib,
        ephemeral_mib=request.lane.shared_mib,
    )
    used = occupancy.percent_used.item(site)
    free_mib = inventory.memory_mib.item(site) - occupancy.memory_used_mib.item(site)
    may_open = used + request.min_percent <= request.percent_limit
    return choose_lane(need, open_to, free_mib, may_open=may_open)


def joined_lanes(
    occupancy: Occupancy, request: ResourceRequest, sites: Iterable[int] | None = None
) -> dict[int, AssignedLane]:
    """The same for several devices, all where ``sites`` is ``None``; those without are left out."""
    if request.lane is None or not occupancy.lanes:
        return {}
    found: dict[int, AssignedLane] = {}
    for site in sorted(occupancy.lanes) if sites is None else sites:
        lane = joined_lane(occupancy, request, site)
        if lane is not None:
            found[site] = lane
    return found


def lane_number(occupancy: Occupancy, request: ResourceRequest, site: int) -> int:
    """The lane that a request gets on a device: one that it shares, or a new one; 0 = none."""
    if request.lane is None:
        return 0
    lane = joined_lane(occupancy, request, site)
    return lane.lane if lane is not None else next_lane(occupancy.lanes.get(site, ()))


def has_to_be_kept(tenant: Tenant) -> bool:
    """Whether a tenant has an objective, so that its lane is not shared."""
    return tenant.max_slowdown is not None or tenant.latency


def parties(here: Sequence[Occupant], but: int = 0) -> tuple[Tenant, ...]:
    """Who may run at once on a device: each lane is one tenant, in the place of its first.

    Args:
        here: All occupants of the device.
        but: A lane that is left out; 0 = none.
    """
    lanes: defaultdict[int, list[Tenant]] = defaultdict(list)
    for one in here:
        if one.lane and one.lane != but:
            lanes[one.lane].append(one.tenant)
    found: list[Tenant] = []
    for one in here:
        if not one.lane:
            found.append(one.tenant)
        elif one.lane in lanes:
            found.append(one_in_turns(lanes.pop(one.lane)))
    return tuple(found)


def one_in_turns(tenants: Sequence[Tenant]) -> Tenant:
    """Tenants of a lane as one, of which at most one runs: at its worst in each respect.

    Of different classes nothing is known of their company together, so what is measured of one of
    them does not count.

    Args:
        tenants: At least one, all of the same share.
    """
    first = tenants[0]
    if len(tenants) == 1:
        return first
    alike = all(one.profile is first.profile for one in tenants)
    allowed = [one.max_slowdown for one in tenants if one.max_slowdown is not None]
    return Tenant(
        name=f"{first.name} and {len(tenants) - 1} more in turns",
        percent=max(one.percent for one in tenants),
        utilisation=max(one.utilisation for one in tenants),
        max_slowdown=min(allowed, default=None),
        latency=any(one.latency for one in tenants),
        probation=any(one.probation for one in tenants),
        profile=first.profile if alike else None,
    )


def waiting_factor(here: Sequence[Occupant], occupant: Occupant) -> int:
    """How many times longer a step takes at most because the lane is others' (derived).

    Where all ask all the time and have an equal part each; 1 for a tenant of no lane.
    """
    if not occupant.lane:
        return 1
    return sum(one.lane == occupant.lane for one in here)


def top_share(lane: AssignedLane | None, ceiling: int) -> int:
    """The largest share that is asked about: that of the lane, where one is shared."""
    return ceiling if lane is None else min(lane.percent, WHOLE_PERCENT)
