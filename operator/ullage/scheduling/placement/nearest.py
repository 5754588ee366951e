# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Selects the devices to hold for a gang that does not fit yet: as many as it needs.

Free devices come first; devices that become free later are held in the next cycle.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ullage.scheduling.feasibility.occupancy import Occupancy
from ullage.scheduling.feasibility.resource_requests import ResourceRequest


class _Place(NamedTuple):
    """Devices of one node for one member; smaller tuples are closer to being free."""

    missing: bool
    """True when a part of it is not free now."""
    used: int
    """Percent of its devices that other tenants have."""
    sites: tuple[int, ...]


def emptiest(
    occupancy: Occupancy, request: ResourceRequest, sites: Iterable[int], members: int
) -> list[int]:
    """The emptiest devices for a gang, of one model where the gang keeps to one.

    Args:
        occupancy: Occupants by device.
        request: The request of each member.
        sites: Devices that would suit it empty.
        members: Number of members to place.
    """
    places = _places(occupancy, request, sites)
    if request.uniform:
        places = _of_one_model(occupancy, request, places, members)
    return [site for place in sorted(places)[:members] for site in place.sites]


def _places(occupancy: Occupancy, request: ResourceRequest, sites: Iterable[int]) -> list[_Place]:
    inventory = occupancy.inventory
    least = request.min_percent if not request.exclusive else request.percent_limit
    by_node: dict[tuple[int, int], list[tuple[bool, int, int]]] = {}
    for site in sites:
        used, node = occupancy.percent_used.item(site), inventory.sites[site].node
        taken = occupancy.blocked.item(site) or used + least > request.percent_limit
        model = inventory.model.item(site) if request.uniform else 0
        by_node.setdefault((node, model), []).append((taken, used, site))
    places: list[_Place] = []
    for (node, _), devices in by_node.items():
        devices.sort()
        full = not occupancy.has_room(node, request.needs)
        for at in range(0, len(devices) - request.count + 1, request.count):
            parts = devices[at : at + request.count]
            places.append(
                _Place(
                    missing=full or any(taken for taken, _, _ in parts),
                    used=sum(used for _, used, _ in parts),
                    sites=tuple(site for _, _, site in parts),
                )
            )
    return places


def _of_one_model(
    occupancy: Occupancy, request: ResourceRequest, places: list[_Place], members: int
) -> list[_Place]:
    """Places on the best model, ties to the one that lacks the fewest places.

    The gang still gets another model if that has room for all first.
    """
    by_model: dict[int, list[_Place]] = {}
    for place in places:
        by_model.setdefault(occupancy.inventory.model.item(place.sites[0]), []).append(place)
    worth = dict(request.values)
    large = {model: of_model for model, of_model in by_model.items() if len(of_model) >= members}

    def order(model: int) -> tuple[int, int, int]:
        free = sum(not place.missing for place in large[model])
        return -worth.get(model, 0), max(0, members - free), model

    return large[min(large, key=order)] if large else []
