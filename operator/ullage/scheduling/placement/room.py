# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whether running work would find a place if it started again: asked before it is stopped.

Tries the occupancy without the work's own slices, restores it, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ullage.cluster.records.pod_shape import Resources
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.scheduling.feasibility.occupancy import Occupancy, Occupant
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
) -> bool:
    """Whether members fit without a trial once their own slices are free.

    Args:
        placer: seats in the occupancy as it stands.
        requests: finds the class of what they ask for.
        workload: whose members they are.
        members: those that would start again together.
        here_too: whether another share on a device that they have now will do.
        only: the one type that will do; empty = any.
    """
    view, occupancy = requests.view, placer.occupancy
    own = {member.pod.uid for member in members}
    slices = [
        (site, occupant)
        for site, here in enumerate(occupancy.occupants)
        for occupant in here
        if occupant.pod_uid in own
    ]
    avoid = excluded_devices(view, occupancy.inventory, workload, members)
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
    _lift(occupancy, slices, on_nodes)
    found = _fits(placer, unit, proven=True)
    for site, occupant in slices:
        occupancy.put(site, occupant)
    for node, wanted in on_nodes:
        occupancy.charge(node, wanted)
    for site, before in order.items():
        occupancy.occupants[site] = before
    return found


def beside(
    placer: Placer,
    requests: ResourceRequests,
    workload: WorkloadRecord,
    like: Member,
    avoid: frozenset[int],
    *,
    proven: bool,
) -> bool:
    """Whether one more member like this one fits beside all that is there.

    Args:
        placer: seats in the occupancy as it stands.
        requests: finds the class of what it asks for.
        workload: whose member it is.
        like: the member that it is like.
        avoid: devices that will not do, beside those that are passed over anyway.
        proven: whether a place on trial will not do.
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


def _lift(
    occupancy: Occupancy,
    slices: Sequence[tuple[int, Occupant]],
    on_nodes: Sequence[tuple[int, Resources]],
) -> None:
    for site, one in slices:
        occupancy.lift(site, one)
    for node, wanted in on_nodes:
        occupancy.refund(node, wanted)
