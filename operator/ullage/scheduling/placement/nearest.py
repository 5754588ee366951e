# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which devices to keep for a gang that does not fit yet: as many as it needs, and no more.

Those that are free come first; what others give back is free in the next cycle, and kept then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ullage.scheduling.feasibility.occupancy import Occupancy
from ullage.scheduling.feasibility.resource_requests import ResourceRequest


class _Place(NamedTuple):
    """Devices of one node for one member; smaller ones are nearer to being free."""

    missing: bool
    """Something of it is not free now."""
    used: int
    """Percent of its devices that others have."""
    sites: tuple[int, ...]


def emptiest(
    occupancy: Occupancy, request: ResourceRequest, sites: Iterable[int], members: int
) -> list[int]:
    """Devices for so many members, of one model where the gang keeps to one.

    Args:
        occupancy: Who is where.
        request: What each member asks for.
        sites: Devices that suit it when they are empty.
        members: How many are to be placed.
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
    found: list[_Place] = []
    for (node, _), here in by_node.items():
        here.sort()
        full = not occupancy.has_room(node, request.needs)
        for at in range(0, len(here) - request.count + 1, request.count):
            parts = here[at : at + request.count]
            found.append(
                _Place(
                    missing=full or any(taken for taken, _, _ in parts),
                    used=sum(used for _, used, _ in parts),
                    sites=tuple(site for _, _, site in parts),
                )
            )
    return found


def _of_one_model(
    occupancy: Occupancy, request: ResourceRequest, places: list[_Place], members: int
) -> list[_Place]:
    """Places on the model that is worth most, of equals on the one that lacks least.

    It takes any other one that has room for all first: only what it waits for is kept.
    """
    by_model: dict[int, list[_Place]] = {}
    for place in places:
        by_model.setdefault(occupancy.inventory.model.item(place.sites[0]), []).append(place)
    worth = dict(request.values)
    large = {model: here for model, here in by_model.items() if len(here) >= members}

    def order(model: int) -> tuple[int, int, int]:
        free = sum(not place.missing for place in large[model])
        return -worth.get(model, 0), max(0, members - free), model

    return large[min(large, key=order)] if large else []
