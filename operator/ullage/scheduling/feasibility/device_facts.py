# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The figures of devices for the hard limits of the admission engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Final

import numpy as np

from ullage.engines.admission.limits import FIGURES, STATED, Facts, N, smaller
from ullage.engines.lanes.assignment import AssignedLane
from ullage.scheduling.feasibility.occupancy import Occupancy
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.inventory.inventory import Flags, Ints, Inventory

_COLUMNS: Final = attrgetter(*FIGURES)


def columns_for(
    occupancy: Occupancy, request: ResourceRequest, joins: Mapping[int, AssignedLane]
) -> Facts[Ints]:
    """The figures of all devices for a request.

    Args:
        occupancy: Occupants by device.
        request: The request for each device.
        joins: By device: the lane that the request would share.
    """
    facts = occupancy.facts
    if request.lane is None or not joins:
        return facts
    size, percent = np.zeros_like(facts.model), np.zeros_like(facts.model)
    for site, lane in joins.items():
        size[site], percent[site] = lane.size_mib, lane.percent
    return beside_lane(facts, request.lane.shared_mib, size, percent)


def figures_for(
    occupancy: Occupancy, request: ResourceRequest, site: int, lane: AssignedLane | None
) -> Facts[int]:
    """The figures of one device for a request that would share this lane, if any."""
    facts = one_device(occupancy.facts, site)
    if request.lane is None or lane is None:
        return facts
    return beside_lane(facts, request.lane.shared_mib, lane.size_mib, lane.percent)


def beside_lane(facts: Facts[N], ephemeral_mib: int, size_mib: N, percent: N) -> Facts[N]:
    """Subtract the lane that a newcomer shares from the figures: its step reuses memory and share.

    Args:
        facts: Figures of one device, or columns of all.
        ephemeral_mib: Memory of the newcomer's step.
        size_mib: Size of the lane that it would share, 0 = none.
        percent: The share of the lane.
    """
    return replace(
        facts,
        memory_used=facts.memory_used - smaller(size_mib, ephemeral_mib),
        percent_used=facts.percent_used - percent,
    )


def picked(facts: Facts[Ints], sites: Ints) -> Facts[Ints]:
    """The figures of some devices."""
    return Facts(*[column[sites] for column in _COLUMNS(facts)])


def one_device(facts: Facts[Ints], site: int) -> Facts[int]:
    """The figures of one device."""
    return Facts(*[column.item(site) for column in _COLUMNS(facts)])


def emptied(inventory: Inventory) -> Facts[Ints]:
    """The figures of all devices if all were healthy and empty."""
    nothing = np.zeros_like(inventory.facts.model)
    passing = [name for name, stated in STATED.items() if stated.passes]
    return replace(inventory.facts, health=nothing, **dict.fromkeys(passing, nothing))


def allowed_model(facts: Facts[Ints], request: ResourceRequest) -> Flags:
    """Devices of a model that the request allows and that are not barred for its objective."""
    mask: Flags = np.ones(len(facts.model), dtype=np.bool_)
    if request.accelerators is not None:
        mask = np.isin(facts.model, sorted(request.accelerators))
    for model in request.barred:
        mask &= facts.model != model
    return mask
