# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests if running work would find a place on a restart, before it is stopped.

Tries the occupancy without the work's own slices and restores it. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence

from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.feasibility.resource_requests import ResourceRequests
from ullage.scheduling.inventory.exclusions import excluded_devices
from ullage.scheduling.inventory.resource_usage import charged
from ullage.scheduling.model.view import Member
from ullage.scheduling.placement.placement import NoRoom, Placement, Placer


def elsewhere(
    placer: Placer,
    requests: ResourceRequests,
    workload: WorkloadRecord,
    members: Sequence[Member],
    *,
    here_too: bool,
    only: str = "",
    avoid: frozenset[int] = frozenset(),
) -> bool:
    """True when members fit without a trial once their own slices are free.

    Args:
        placer: Seats in the current occupancy.
        requests: Gives the class of their request.
        workload: The workload of the members.
        members: Members that would restart together.
        here_too: Another share on a device that they have now suffices.
        only: The only sufficient type; empty = any.
        avoid: Devices to exclude, beside those that are always excluded.
    """
    view, occupancy = requests.view, placer.occupancy
    uids = {member.pod.uid for member in members}
    slices = [
        (site, occupant)
        for site, occupants in enumerate(occupancy.occupants)
        for occupant in occupants
        if occupant.pod_uid in uids
    ]
    avoid |= excluded_devices(view, occupancy.inventory, workload, members)
    if not here_too:
        avoid |= {site for site, _ in slices}
    if only:
        models = occupancy.inventory.model
        avoid |= set((models != occupancy.inventory.models.get(only, -1)).nonzero()[0].tolist())
    unit = [
        Placement(workload, member, requests.of(workload, member.pod.shape, frozenset(avoid)))
        for member in members
    ]
    on_nodes = charged(occupancy.inventory, members)
    order = {site: occupancy.occupants[site] for site, _ in slices}
    for site, occupant in slices:
        occupancy.lift(site, occupant)
    for node, wanted in on_nodes:
        occupancy.refund(node, wanted)
    fits = _fits(placer, unit, proven=True)
    for site, occupant in slices:
        occupancy.put(site, occupant)
    for node, wanted in on_nodes:
        occupancy.charge(node, wanted)
    for site, before in order.items():
        occupancy.occupants[site] = before
    return fits


def beside(
    placer: Placer,
    requests: ResourceRequests,
    workload: WorkloadRecord,
    like: Member,
    avoid: frozenset[int],
    *,
    proven: bool,
) -> bool:
    """True when one more member like this one fits beside all occupants.

    Args:
        placer: Seats in the current occupancy.
        requests: Gives the class of its request.
        workload: The workload of the member.
        like: The member to copy.
        avoid: Devices to exclude, beside those that are always excluded.
        proven: A place on trial does not suffice.
    """
    view = requests.view
    passed = excluded_devices(view, placer.occupancy.inventory, workload, view.members_of(workload))
    request = requests.of(workload, like.pod.shape, passed | avoid)
    return _fits(placer, [Placement(workload, like, request)], proven=proven)


def _fits(placer: Placer, unit: Sequence[Placement], *, proven: bool) -> bool:
    gang = placer.placement(unit, set(), explain=False)
    if isinstance(gang, NoRoom):
        return False
    placer.unseat(gang)
    return not (proven and any(placement.candidate.grant.trial for placement in gang))
