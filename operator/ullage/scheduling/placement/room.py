# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whether running work would find a place if it started again: asked before it is stopped.

Tried on the board with the work's own slices off, and put back as it was; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence

from ullage.cluster.records.pod_shape import Resources
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.scheduling.feasibility.occupancy import Occupancy, Occupant
from ullage.scheduling.feasibility.resource_requests import ResourceRequests
from ullage.scheduling.inventory import timeouts as guards
from ullage.scheduling.inventory.resource_usage import charged
from ullage.scheduling.model.view import Member
from ullage.scheduling.placement.placement import PlacementRequest, Placements, Placer


def elsewhere(
    placer: Placer,
    wants: ResourceRequests,
    workload: WorkloadRecord,
    members: Sequence[Member],
    *,
    here_too: bool,
) -> bool:
    """Whether members fit without a trial once their own slices are free.

    Args:
        placer: seats on the board as it stands.
        wants: finds the class of what they ask for.
        workload: whose members they are.
        members: those that would start again together.
        here_too: whether another share on a device that they have now will do.
    """
    view, board = wants.view, placer.board
    own = {one.pod.uid for one in members}
    slices = [
        (site, one)
        for site, here in enumerate(board.occupants)
        for one in here
        if one.pod_uid in own
    ]
    avoid = guards.passed_over(view, board.ground, workload, members)
    if not here_too:
        avoid |= {site for site, _ in slices}
    unit = [
        PlacementRequest(workload, one, wants.of(workload, one.pod.shape, frozenset(avoid)))
        for one in members
    ]
    on_nodes = charged(board.ground, members)
    order = {site: list(board.occupants[site]) for site, _ in slices}
    _lift(board, slices, on_nodes)
    found = _fits(placer, unit, proven=True)
    for site, one in slices:
        board.put(site, one)
    for node, wanted in on_nodes:
        board.charge(node, wanted)
    for site, before in order.items():
        board.occupants[site][:] = before
    return found


def beside(
    placer: Placer,
    wants: ResourceRequests,
    workload: WorkloadRecord,
    like: Member,
    avoid: frozenset[int],
    *,
    proven: bool,
) -> bool:
    """Whether one more member like this one fits beside all that is there.

    Args:
        placer: seats on the board as it stands.
        wants: finds the class of what it asks for.
        workload: whose member it is.
        like: the member that it is like.
        avoid: devices that will not do, beside those that are passed over anyway.
        proven: whether a place on trial will not do.
    """
    view = wants.view
    passed = guards.passed_over(view, placer.board.ground, workload, view.members_of(workload))
    want = wants.of(workload, like.pod.shape, passed | avoid)
    return _fits(placer, [PlacementRequest(workload, like, want)], proven=proven)


def _fits(placer: Placer, unit: Sequence[PlacementRequest], *, proven: bool) -> bool:
    seating = placer.seat(unit, set(), explain=False)
    if not isinstance(seating, Placements):
        return False
    placer.unseat(seating.seats)
    return not (proven and any(seat.spot.grant.trial for seat in seating.seats))


def _lift(
    board: Occupancy,
    slices: Sequence[tuple[int, Occupant]],
    on_nodes: Sequence[tuple[int, Resources]],
) -> None:
    for site, one in slices:
        board.lift(site, one)
    for node, wanted in on_nodes:
        board.refund(node, wanted)
